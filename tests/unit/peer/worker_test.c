#include "model_dir.h"

#include "base/log.h"
#include "peer/models.h"
#include "peer/worker.h"

#define MODEL_BYTES (PENSTOCK_DIGEST_CHUNK_BYTES + 1000)

struct fixture {
    char base[64], dir[256];
    struct residency_ledger ledger;
    struct peer_live live;
    struct peer_models models;
    struct peer_model *model;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct penstock_error error;
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-worker-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    model_dir_make(f->base, "m", MODEL_BYTES, 'm', f->dir);
    residency_ledger_init(&f->ledger, 0);
    peer_live_init(&f->live, NULL, NULL, NULL);
    peer_models_init(&f->models, &(struct peer_models_options){ .ledger = &f->ledger, .live = &f->live });
    assert_int_equal(peer_models_add(&f->models, NULL, f->dir, &error), 0);
    assert_int_equal(peer_models_get(&f->models, "m", &f->model, &error), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    peer_served_unref(&f->model->served);
    peer_models_fini(&f->models);
    peer_live_fini(&f->live);
    residency_ledger_fini(&f->ledger);
    model_dir_remove(f->base);
    free(f);
    return 0;
}

/* The worker's work on the calling thread. */
static void do_it(struct fixture *f, bool warm, bool hash)
{
    struct peer_worker worker = { .live = &f->live, .warm = warm, .hash = hash };
    peer_worker_do(&worker, &f->model->served);
}

static void every_chunk_gets_its_digest(void **state)
{
    struct fixture *f = *state;
    const struct model_file_digests *digests = &f->model->digests.files[0];
    assert_int_equal(digests->chunks, 2);
    do_it(f, true, true);
    assert_int_equal(atomic_load(&digests->known), 2);
    assert_memory_not_equal(digests->at[0], digests->at[1], PENSTOCK_DIGEST_BYTES);
    assert_false(atomic_load(&f->model->served.files[0].no_digests));
}

static void a_file_cut_short_ends_its_hashing_and_not_the_worker(void **state)
{
    struct fixture *f = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", f->dir);
    assert_int_equal(truncate(path, 1000), 0);
    do_it(f, true, true);
    assert_int_equal(atomic_load(&f->model->digests.files[0].known), 0);
    assert_true(atomic_load(&f->model->served.files[0].no_digests));
}

static void warming_alone_computes_nothing(void **state)
{
    struct fixture *f = *state;
    do_it(f, true, false);
    assert_int_equal(atomic_load(&f->model->digests.files[0].known), 0);
}

static void what_nobody_wants_any_more_is_not_hashed(void **state)
{
    struct fixture *f = *state;
    atomic_store(&f->model->served.rewritten, true);
    do_it(f, false, true);
    assert_int_equal(atomic_load(&f->model->digests.files[0].known), 0);
}

static void stopping_gives_back_every_reference(void **state)
{
    struct fixture *f = *state;
    struct peer_worker worker;
    struct penstock_error error;
    assert_int_equal(peer_worker_init(&worker, &f->live, true, true, &error), 0);
    for (int i = 0; i < 10; i++)
        peer_worker_push(&worker, &f->model->served);
    peer_worker_fini(&worker);
    assert_int_equal(f->model->served.refs, 2); /* the table's and the test's */
}

#define with_model(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_model(every_chunk_gets_its_digest),
        with_model(a_file_cut_short_ends_its_hashing_and_not_the_worker),
        with_model(warming_alone_computes_nothing),
        with_model(what_nobody_wants_any_more_is_not_hashed),
        with_model(stopping_gives_back_every_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
