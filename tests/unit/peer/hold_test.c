#include "model_dir.h"

#include <errno.h>

#include "base/log.h"
#include "peer/hold.h"
#include "peer/memory.h"
#include "peer/models.h"

#define SHARDS 3u
#define FIRST_BYTES                                                                                                    \
    (9u << 20) /* more than is read at once, and no multiple of anything once the header is before it                  \
                */

struct fixture {
    char base[64], dir[256];
    struct residency_ledger ledger;
    struct peer_live live;
    struct peer_models models;
    struct peer_model *model;
    struct peer_hold hold;
    _Atomic bool stop;
};

static const char *shard_name(size_t i)
{
    static const char *const names[SHARDS] = { "model.safetensors-1.safetensors", "model.safetensors-2.safetensors",
                                               "model.safetensors-3.safetensors" };
    return names[i];
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct penstock_error error;
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-hold-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    snprintf(f->dir, sizeof f->dir, "%s/m", f->base);
    assert_int_equal(mkdir(f->dir, 0700), 0);
    const size_t lens[SHARDS] = { FIRST_BYTES, 1, 70001 };
    for (size_t i = 0; i < SHARDS; i++)
        model_dir_write_tensor(f->dir, shard_name(i), shard_name(i), lens[i], 'a' + (int)i);
    residency_ledger_init(&f->ledger, 0);
    peer_live_init(&f->live, NULL, NULL, NULL);
    peer_models_init(&f->models, &(struct peer_models_options){ .ledger = &f->ledger, .live = &f->live });
    assert_int_equal(peer_models_add(&f->models, NULL, f->dir, &error), 0);
    assert_int_equal(peer_models_get(&f->models, "m", &f->model, &error), 0);
    assert_int_equal(f->model->served.n_files, SHARDS);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    peer_hold_fini(&f->hold);
    peer_served_unref(&f->model->served);
    peer_models_fini(&f->models);
    peer_live_fini(&f->live);
    assert_int_equal(residency_used(&f->ledger), 0);
    residency_ledger_fini(&f->ledger);
    model_dir_remove(f->base);
    free(f);
    return 0;
}

static int make(struct fixture *f, enum peer_hold_how how, struct penstock_error *error)
{
    return peer_hold_make(&f->hold, &f->model->served, how, &f->ledger, &f->stop, error);
}

static void assert_same_bytes(struct fixture *f)
{
    assert_int_equal(f->hold.n, SHARDS);
    for (size_t i = 0; i < SHARDS; i++) {
        const struct peer_file *file = &f->model->served.files[i];
        assert_int_equal(f->hold.regions[i].len_bytes, file->len_bytes);
        assert_memory_equal(f->hold.regions[i].at, file->mapping, file->len_bytes);
    }
}

static void a_map_is_the_files_own_pages_and_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    assert_int_equal(make(f, PEER_HOLD_MAP, &error), 0);
    for (size_t i = 0; i < SHARDS; i++)
        assert_ptr_equal(f->hold.regions[i].at, f->model->served.files[i].mapping);
    assert_int_equal(residency_used(&f->ledger), before);
    assert_int_equal(peer_hold_seal(&f->hold, &error), 0);
    peer_hold_fini(&f->hold);
    uint8_t first[8];
    assert_int_equal(pread(f->model->served.files[0].fd, first, sizeof first, 0), sizeof first);
    assert_memory_equal(f->model->served.files[0].mapping, first, sizeof first); /* it is still mapped */
}

static void a_copy_has_the_bytes_and_is_charged(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), 0);
    assert_same_bytes(f);
    for (size_t i = 0; i < SHARDS; i++)
        assert_ptr_not_equal(f->hold.regions[i].at, f->model->served.files[i].mapping);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(residency_used(&f->ledger), before + peer_hold_bytes(&f->model->served, page));
    peer_hold_fini(&f->hold);
    assert_int_equal(residency_used(&f->ledger), before);
}

/* Whether the kernel may write there for us: what we could do ourselves, without dying of it. */
static bool can_be_written(const struct fixture *f, size_t shard)
{
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_true(zeros >= 0);
    ssize_t n = read(zeros, f->hold.regions[shard].at, 1);
    assert_true(n == 1 || errno == EFAULT);
    close(zeros);
    return n == 1;
}

static void a_sealed_copy_cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), 0);
    assert_int_equal(peer_hold_seal(&f->hold, &error), 0);
    for (size_t i = 0; i < SHARDS; i++)
        assert_false(can_be_written(f, i));
    assert_same_bytes(f);
}

static void huge_pages_hold_the_bytes_or_the_error_says_how_to_get_some(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger), want = peer_hold_bytes(&f->model->served, PEER_HUGE_PAGE_BYTES);
    assert_int_equal(want, (5 + 1 + 1) * PEER_HUGE_PAGE_BYTES);
    bool enough = peer_memory_huge(PEER_MEMORY_HUGE_PAGES) >= want;
    int code = make(f, PEER_HOLD_HUGE, &error);
    if (enough) {
        assert_int_equal(code, 0);
        assert_same_bytes(f);
        assert_int_equal(residency_used(&f->ledger), before + want);
    } else {
        assert_int_equal(code, PENSTOCK_ENOMEM);
        assert_non_null(strstr(error.message, "vm.nr_hugepages"));
        assert_int_equal(residency_used(&f->ledger), before);
    }
}

static void a_copy_above_the_ceiling_is_refused(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    f->ledger.limit_bytes = before + 1000;
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "the copy of m for RDMA needs 9.0"));
    assert_int_equal(residency_used(&f->ledger), before);
    f->ledger.limit_bytes = 0;
}

static void a_file_that_was_changed_meanwhile_fails_the_copy(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint64_t before = residency_used(&f->ledger);
    model_dir_write_tensor(f->dir, shard_name(2), shard_name(2), 70002, 'x');
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), PENSTOCK_ESTALE);
    assert_string_equal(error.message, "model.safetensors-3.safetensors was changed while it was read in");
    assert_int_equal(residency_used(&f->ledger), before);
}

static void a_file_that_was_cut_short_fails_the_copy(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->dir, shard_name(0));
    assert_int_equal(truncate(path, 5 << 20), 0);
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), PENSTOCK_ESTALE);
    assert_string_equal(error.message, "model.safetensors-1.safetensors was cut short while it was read in");
}

static void reading_in_stops_when_it_is_told_to(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    f->stop = true;
    assert_int_equal(make(f, PEER_HOLD_COPY, &error), PENSTOCK_ECANCELED);
}

static void ways_have_names(void **state)
{
    (void)state;
    enum peer_hold_how how;
    for (int i = PEER_HOLD_AUTO; i <= PEER_HOLD_HUGE; i++) {
        assert_true(peer_hold_parse(peer_hold_name((enum peer_hold_how)i), &how));
        assert_int_equal(how, i);
    }
    assert_false(peer_hold_parse("", &how));
    assert_false(peer_hold_parse("mapped", &how));
}

#define with_model(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_model(a_map_is_the_files_own_pages_and_costs_nothing),
        with_model(a_copy_has_the_bytes_and_is_charged),
        with_model(a_sealed_copy_cannot_be_written),
        with_model(huge_pages_hold_the_bytes_or_the_error_says_how_to_get_some),
        with_model(a_copy_above_the_ceiling_is_refused),
        with_model(a_file_that_was_changed_meanwhile_fails_the_copy),
        with_model(a_file_that_was_cut_short_fails_the_copy),
        with_model(reading_in_stops_when_it_is_told_to),
        cmocka_unit_test(ways_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
