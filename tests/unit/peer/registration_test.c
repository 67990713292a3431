#include "model_dir.h"

#include "base/log.h"
#include "peer/models.h"
#include "verbs/sim/sim.h"

#define SHARDS 2u

/* Linked with --wrap: of this thread's allocations the one after so many fails; negative: none. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static _Thread_local long until_failure = -1;

void *__wrap_calloc(size_t n, size_t size)
{
    return until_failure >= 0 && until_failure-- == 0 ? NULL : __real_calloc(n, size);
}

/* A host with three rails on two devices, and a model of two shards. */
struct fixture {
    char base[64], dir[256];
    struct sim_fabric *fabric;
    struct verbs_world *host;
    struct rail_devices rails;
    struct residency_ledger ledger;
    struct peer_complaints complaints;
    struct peer_live live;
    struct peer_models models;
    struct peer_model *model;
    struct peer_registrar registrar;
    _Atomic bool stop;
};

static void open_rails(struct fixture *f, uint64_t mr_bytes_max)
{
    const struct rail_wishes all = { 0 };
    const struct sim_port_options port = { .mr_bytes_max = mr_bytes_max };
    struct penstock_error error;
    f->fabric = sim_new(NULL);
    f->host = sim_host(f->fabric);
    sim_port(f->host, "sim0", NULL);
    sim_port(f->host, "sim0", NULL);
    sim_port(f->host, "sim1", &port);
    assert_int_equal(rail_devices_open(f->host, &all, &f->rails, &error), 0);
    assert_int_equal(f->rails.n, 3);
}

static void stage(struct fixture *f)
{
    struct penstock_error error;
    snprintf(f->dir, sizeof f->dir, "%s/m", f->base);
    assert_int_equal(mkdir(f->dir, 0700), 0);
    model_dir_write_tensor(f->dir, "model.safetensors-1.safetensors", "one", 5000, 'a');
    model_dir_write_tensor(f->dir, "model.safetensors-2.safetensors", "two", 7000, 'b');
    residency_ledger_init(&f->ledger, 0);
    peer_live_init(&f->live, NULL, NULL, NULL);
    peer_models_init(&f->models, &(struct peer_models_options){ .ledger = &f->ledger, .live = &f->live });
    assert_int_equal(peer_models_add(&f->models, NULL, f->dir, &error), 0);
    assert_int_equal(peer_models_get(&f->models, "m", &f->model, &error), 0);
}

static int set_up_with(void **state, uint64_t mr_bytes_max)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-registration-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    open_rails(f, mr_bytes_max);
    stage(f);
    peer_complaints_init(&f->complaints);
    f->registrar = (struct peer_registrar){
        .rails = &f->rails, .hold = PEER_HOLD_AUTO, .ledger = &f->ledger, .complaints = &f->complaints, .stop = &f->stop
    };
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, 0);
}

static int set_up_small_device(void **state)
{
    return set_up_with(state, 6000);
}

/* What a registration left behind would be seen here: by the fabric, which aborts, and by the ledger. */
static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->model)
        peer_served_unref(&f->model->served);
    peer_models_fini(&f->models);
    peer_live_fini(&f->live);
    assert_int_equal(residency_used(&f->ledger), 0);
    residency_ledger_fini(&f->ledger);
    rail_devices_close(&f->rails);
    sim_free(f->fabric);
    peer_complaints_fini(&f->complaints);
    model_dir_remove(f->base);
    free(f);
    return 0;
}

static int want(struct fixture *f, struct penstock_error *error)
{
    return peer_registration_want(&f->model->served, &f->registrar, error);
}

static void assert_registered(struct fixture *f, size_t mrs)
{
    struct sim_objects objects = sim_host_objects(f->host);
    assert_int_equal(objects.mrs, mrs);
    assert_int_equal(objects.pds, mrs / SHARDS);
}

static void each_shard_is_registered_once_a_device(void **state)
{
    struct fixture *f = *state;
    const struct peer_registration *r = &f->model->served.registration;
    struct penstock_error error;
    assert_int_equal(want(f, &error), 0);
    assert_registered(f, 2 * SHARDS);
    assert_int_equal(r->hold.how, PEER_HOLD_MAP);
    /* The rails of one device share what it has. */
    assert_ptr_equal(r->regions.pds[0], r->regions.pds[1]);
    assert_ptr_equal(r->regions.tables[0].regions, r->regions.tables[1].regions);
    assert_ptr_not_equal(r->regions.pds[0], r->regions.pds[2]);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->regions.tables[i].n_regions, SHARDS);
        for (size_t s = 0; s < SHARDS; s++) /* the same pages, and so the same addresses, on every rail */
            assert_int_equal(r->regions.tables[i].regions[s].base, (uintptr_t)f->model->served.files[s].mapping);
    }
    assert_int_not_equal(r->regions.tables[0].regions[0].rkey, r->regions.tables[0].regions[1].rkey);
}

static void whoever_comes_later_shares_it(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(want(f, &error), 0);
    uint64_t calls = sim_calls(f->host, SIM_MR_NEW);
    assert_int_equal(want(f, &error), 0);
    assert_int_equal(sim_calls(f->host, SIM_MR_NEW), calls);
}

static void it_is_freed_with_the_model_and_not_before(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(want(f, &error), 0);
    model_dir_write_tensor(f->dir, "new", "two", 7000, 'c');
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/new", f->dir);
    snprintf(to, sizeof to, "%s/model.safetensors-2.safetensors", f->dir);
    assert_int_equal(rename(from, to), 0);
    struct peer_model *next;
    assert_int_equal(peer_models_get(&f->models, "m", &next, &error), 0);
    assert_ptr_not_equal(next, f->model);
    assert_registered(f, 2 * SHARDS); /* the retired one still has a user */
    peer_served_unref(&f->model->served);
    f->model = next;
    assert_registered(f, 0);
}

static void models_have_domains_of_their_own(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    char other[256];
    struct peer_model *model;
    model_dir_make(f->base, "other", 100, 'o', other);
    assert_int_equal(peer_models_add(&f->models, NULL, other, &error), 0);
    assert_int_equal(peer_models_get(&f->models, "other", &model, &error), 0);
    assert_int_equal(want(f, &error), 0);
    assert_int_equal(peer_registration_want(&model->served, &f->registrar, &error), 0);
    assert_ptr_not_equal(model->served.registration.regions.pds[0], f->model->served.registration.regions.pds[0]);
    peer_served_unref(&model->served);
}

static void pages_that_the_kernel_does_not_register_are_copied(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    sim_fail_calls(f->host, SIM_MR_NEW, 1, 1, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(want(f, &error), 0);
    const struct peer_hold *hold = &f->model->served.registration.hold;
    assert_true(hold->how == PEER_HOLD_COPY || hold->how == PEER_HOLD_HUGE);
    assert_true(f->model->served.registration.copied);
    assert_true(residency_used(&f->ledger) > before);
    assert_registered(f, 2 * SHARDS);
    for (size_t s = 0; s < SHARDS; s++)
        assert_memory_equal(hold->regions[s].at, f->model->served.files[s].mapping,
                            f->model->served.files[s].len_bytes);
}

static void a_map_that_was_asked_for_and_cannot_be_is_refused_for_good(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    f->registrar.hold = PEER_HOLD_MAP;
    sim_fail_calls(f->host, SIM_MR_NEW, 1, 1, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(want(f, &error), PENSTOCK_EUNSUPPORTED);
    assert_registered(f, 0);
    uint64_t calls = sim_calls(f->host, SIM_MR_NEW);
    struct penstock_error again;
    assert_int_equal(want(f, &again), PENSTOCK_EUNSUPPORTED);
    assert_string_equal(again.message, error.message);
    assert_int_equal(sim_calls(f->host, SIM_MR_NEW), calls);
}

static void a_copy_above_the_ceiling_is_tried_again_later(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    f->registrar.hold = PEER_HOLD_COPY;
    f->ledger.limit_bytes = before + 100;
    assert_int_equal(want(f, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "--max-memory"));
    assert_registered(f, 0);
    assert_int_equal(residency_used(&f->ledger), before);
    f->ledger.limit_bytes = 0;
    assert_int_equal(want(f, &error), 0);
    assert_registered(f, 2 * SHARDS);
}

static void a_memlock_limit_is_final_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    sim_host_memlock(f->host, 13000); /* one device's, and a part of the other's */
    assert_int_equal(want(f, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "model.safetensors-"));
    assert_registered(f, 0);
    sim_host_memlock(f->host, UINT64_MAX);
    assert_int_equal(want(f, NULL), PENSTOCK_ELIMIT);
}

static void a_shard_that_a_device_cannot_register_is_named(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(want(f, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "model.safetensors-2.safetensors has 70"));
    assert_non_null(strstr(error.message, "sim1 registers 6000 at most: cut it into smaller shards"));
    assert_int_equal(sim_calls(f->host, SIM_MR_NEW), 0);
}

static void more_shards_than_clients_can_be_told_of_are_refused(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    size_t n = f->model->served.n_regions;
    f->model->served.n_regions = PENSTOCK_LAYERS_MAX + 1; /* it is looked at before any shard is */
    int code = want(f, &error);
    f->model->served.n_regions = n;
    assert_int_equal(code, PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "4097 shards"));
}

static void a_call_that_fails_leaves_nothing_and_the_next_client_may_have_it(void **state)
{
    struct fixture *f = *state;
    const struct {
        enum sim_call call;
        uint64_t n;
    } calls[] = { { SIM_PD_NEW, 2 }, { SIM_MR_NEW, 2 * SHARDS } };
    const enum peer_hold_how ways[] = { PEER_HOLD_MAP, PEER_HOLD_COPY }; /* of a map one page is tried first */
    uint64_t before = residency_used(&f->ledger);
    for (size_t w = 0; w < 2; w++)
        for (size_t c = 0; c < 2; c++)
            for (uint64_t nth = 1; nth <= calls[c].n + (calls[c].call == SIM_MR_NEW && ways[w] == PEER_HOLD_MAP);
                 nth++) {
                struct penstock_error error;
                f->registrar.hold = ways[w];
                sim_fail_calls(f->host, calls[c].call, nth, 1, PENSTOCK_ESYS);
                assert_int_equal(want(f, &error), PENSTOCK_ESYS);
                assert_registered(f, 0);
                assert_int_equal(residency_used(&f->ledger), before);
            }
    assert_int_equal(want(f, NULL), 0);
}

static void each_allocation_may_fail(void **state)
{
    struct fixture *f = *state;
    const enum peer_hold_how ways[] = { PEER_HOLD_MAP, PEER_HOLD_COPY };
    for (size_t way = 0; way < 2; way++) {
        uint64_t used = residency_used(&f->ledger);
        bool done = false;
        long n = 0;
        for (f->registrar.hold = ways[way]; !done; n++) {
            struct penstock_error error = { 0 };
            until_failure = n;
            int code = want(f, &error);
            done = until_failure >= 0; /* there was none that could fail */
            until_failure = -1;
            assert_int_equal(code, done ? 0 : PENSTOCK_ENOMEM);
            if (!done) {
                assert_registered(f, 0);
                assert_int_equal(residency_used(&f->ledger), used);
            }
        }
        assert_true(n > 5);
        /* The model goes, and with it the registration; it is staged again. */
        struct penstock_error error;
        peer_served_unref(&f->model->served);
        peer_models_fini(&f->models);
        peer_live_fini(&f->live);
        peer_live_init(&f->live, NULL, NULL, NULL);
        peer_models_init(&f->models, &(struct peer_models_options){ .ledger = &f->ledger, .live = &f->live });
        assert_int_equal(peer_models_add(&f->models, NULL, f->dir, &error), 0);
        assert_int_equal(peer_models_get(&f->models, "m", &f->model, &error), 0);
    }
}

static void a_peer_that_shuts_down_registers_nothing_more(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    f->stop = true;
    assert_int_equal(want(f, &error), PENSTOCK_ECANCELED);
    assert_registered(f, 0);
}

static void idle_models_on_demand_do_not_pin_memory_for_long(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    f->models.options.allow_any_path = true;
    for (int i = 0; i < 6; i++) {
        char name[16], dir[256];
        struct peer_model *model;
        snprintf(name, sizeof name, "on-demand-%d", i);
        model_dir_make(f->base, name, 100, i, dir);
        assert_int_equal(peer_models_get(&f->models, dir, &model, &error), 0);
        assert_int_equal(peer_registration_want(&model->served, &f->registrar, &error), 0);
        peer_served_unref(&model->served);
    }
    /* Two that are kept, and the last, which is let go of when somebody comes next. One shard each, two devices. */
    assert_int_equal(sim_host_objects(f->host).mrs, 3 * 2);
}

/* ---- from several threads ---- */

static void *want_it(void *argument)
{
    return want(argument, NULL) ? argument : NULL;
}

static void clients_that_come_at_once_wait_for_one_registration(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, want_it, f), 0);
    for (size_t i = 0; i < 8; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(sim_calls(f->host, SIM_MR_NEW), 1 + 2 * SHARDS); /* a page was tried first */
}

#define with_model(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_model(each_shard_is_registered_once_a_device),
        with_model(whoever_comes_later_shares_it),
        with_model(it_is_freed_with_the_model_and_not_before),
        with_model(models_have_domains_of_their_own),
        with_model(pages_that_the_kernel_does_not_register_are_copied),
        with_model(a_map_that_was_asked_for_and_cannot_be_is_refused_for_good),
        with_model(a_copy_above_the_ceiling_is_tried_again_later),
        with_model(a_memlock_limit_is_final_and_leaves_nothing),
        cmocka_unit_test_setup_teardown(a_shard_that_a_device_cannot_register_is_named, set_up_small_device, tear_down),
        with_model(more_shards_than_clients_can_be_told_of_are_refused),
        with_model(a_call_that_fails_leaves_nothing_and_the_next_client_may_have_it),
        with_model(each_allocation_may_fail),
        with_model(a_peer_that_shuts_down_registers_nothing_more),
        with_model(idle_models_on_demand_do_not_pin_memory_for_long),
        with_model(clients_that_come_at_once_wait_for_one_registration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
