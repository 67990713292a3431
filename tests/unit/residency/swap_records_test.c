/* Caps, and which records are given out; and that the disk is given back. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../test.h"
#include "residency/swap/state.h"
#include "swap_rig.h"

#define BLOB (UINT64_C(1) << 20)
#define EXTENT (uint32_t)(SWAP_EXTENT_BYTES / BLOB)

static struct swap_rig rig;

static uint64_t disk_bytes(void)
{
    char path[128];
    struct stat st;
    swap_rig_path(&rig, "swap", path);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static uint64_t backed_bytes(void)
{
    pthread_mutex_lock(&rig.swap->lock);
    uint64_t n = rig.swap->backed_bytes;
    pthread_mutex_unlock(&rig.swap->lock);
    return n;
}

/* What was wanted to be given back is. */
static void settle(void)
{
    pthread_mutex_lock(&rig.swap->queue_lock);
    while (rig.swap->in_flight > 0)
        pthread_cond_wait(&rig.swap->drained, &rig.swap->queue_lock);
    pthread_mutex_unlock(&rig.swap->queue_lock);
}

static int take(uint32_t *record, enum residency_swap_full *full)
{
    *full = (enum residency_swap_full)77;
    return residency_swap_alloc(rig.file, record, full);
}

static void the_shared_cap_and_that_of_a_kind_each_say_so(void **state)
{
    (void)state;
    struct residency_swap_options options = { .engine = RESIDENCY_SWAP_POOL, .cap_bytes = 3 * BLOB };
    uint32_t record, records[3];
    enum residency_swap_full full;
    swap_rig_start(&rig, BLOB, &options);
    for (int i = 0; i < 3; i++)
        assert_int_equal(take(&records[i], &full), 0);
    assert_int_equal(take(&record, &full), PENSTOCK_ELIMIT);
    assert_int_equal(full, RESIDENCY_SWAP_FULL_SHARED);
    residency_swap_free(rig.file, records[1]);
    assert_int_equal(take(&record, &full), 0);
    swap_rig_remove(&rig);

    options.cap_kind_bytes[RESIDENCY_KV] = 2 * BLOB + 4096;
    swap_rig_start(&rig, BLOB, &options);
    assert_int_equal(take(&records[0], &full), 0);
    assert_int_equal(take(&records[1], &full), 0);
    assert_int_equal(take(&record, &full), PENSTOCK_ELIMIT);
    assert_int_equal(full, RESIDENCY_SWAP_FULL_KIND);
    /* The other kind still has what is left of the shared cap. */
    struct residency_swap_file *ssm;
    assert_int_equal(residency_swap_file_open(rig.swap, RESIDENCY_SSM, BLOB, NULL, NULL, &ssm, NULL), 0);
    assert_int_equal(residency_swap_alloc(ssm, &record, &full), 0);
    assert_int_equal(residency_swap_alloc(ssm, &record, &full), PENSTOCK_ELIMIT);
    assert_int_equal(full, RESIDENCY_SWAP_FULL_SHARED);
    struct residency_swap_stats stats;
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.used_bytes, 3 * BLOB);
    assert_int_equal(stats.used_kind_bytes[RESIDENCY_SSM], BLOB);
    assert_int_equal(stats.cap_kind_bytes[RESIDENCY_KV], 2 * BLOB + 4096);
    swap_rig_remove(&rig);
}

static void no_record_is_given_out_twice(void **state)
{
    (void)state;
    struct residency_swap_options options = { .engine = RESIDENCY_SWAP_POOL };
    swap_rig_start(&rig, 4096, &options);
    enum { MOST = 20000 };
    static bool taken[MOST];
    static uint32_t mine[MOST];
    uint32_t n = 0, highest = 0;
    uint64_t random = 1;
    enum residency_swap_full full;
    memset(taken, 0, sizeof taken);
    for (int step = 0; step < 200000; step++) {
        if (n < MOST / 2 && (n == 0 || test_random(&random) % 100 < 55)) {
            uint32_t record;
            assert_int_equal(take(&record, &full), 0);
            assert_true(record < MOST && !taken[record]);
            taken[record] = true;
            mine[n++] = record;
            highest = record > highest ? record : highest;
        } else {
            uint32_t i = (uint32_t)(test_random(&random) % n);
            taken[mine[i]] = false;
            residency_swap_free(rig.file, mine[i]);
            mine[i] = mine[--n];
        }
        assert_int_equal(residency_swap_records(rig.file), n);
    }
    /* What is freed is used again before the file grows. */
    assert_true(highest < MOST / 2 + SWAP_EXTENT_RECORDS_MAX);
    swap_rig_remove(&rig);
}

static void freeing_in_bulk_gives_the_disk_back(void **state)
{
    (void)state;
    struct residency_swap_options options = { .engine = RESIDENCY_SWAP_POOL };
    swap_rig_start(&rig, BLOB, &options);
    enum { N = 3 * EXTENT };
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(swap_rig_put(&rig, i, 1), i);
    assert_int_equal(backed_bytes(), 3 * SWAP_EXTENT_BYTES);
    uint64_t before = disk_bytes();
    for (uint32_t i = 1; i < N; i++)
        residency_swap_free(rig.file, i);
    settle();
    /* The first has a record, and one is kept for what comes next. */
    assert_int_equal(backed_bytes(), rig.file->no_punch ? 3 * SWAP_EXTENT_BYTES : 2 * SWAP_EXTENT_BYTES);
    if (!rig.file->no_punch)
        assert_true(disk_bytes() <= before - SWAP_EXTENT_BYTES);
    assert_int_equal(swap_rig_read(&rig, 0, 0, 1), 0);
    /* And holes are filled again. */
    for (uint32_t i = 1; i < N; i++)
        (void)swap_rig_put(&rig, 1000 + i, 1);
    assert_int_equal(backed_bytes(), 3 * SWAP_EXTENT_BYTES);
    assert_int_equal(residency_swap_records(rig.file), N);
    swap_rig_remove(&rig);
}

static void what_is_freed_beyond_the_cap_goes_back_to_the_disk(void **state)
{
    (void)state;
    /* Extents of one kind leave none to the other: records freed there must not stay on the disk beside its own. */
    struct residency_swap_options options = { .engine = RESIDENCY_SWAP_POOL, .cap_bytes = SWAP_EXTENT_BYTES };
    swap_rig_start(&rig, BLOB, &options);
    struct swap_rig ssm = rig;
    assert_int_equal(residency_swap_file_open(rig.swap, RESIDENCY_SSM, BLOB, NULL, NULL, &ssm.file, NULL), 0);
    for (uint32_t i = 0; i < EXTENT; i++)
        assert_int_equal(swap_rig_put(&rig, i, 1), i);
    residency_swap_free(rig.file, 0);
    (void)swap_rig_put(&ssm, 5000, 1);
    for (uint32_t i = 1; i < EXTENT; i++) {
        residency_swap_free(rig.file, i);
        (void)swap_rig_put(&ssm, 5000 + i, 1);
        settle();
    }
    if (!rig.file->no_punch) {
        assert_true(backed_bytes() <= SWAP_EXTENT_BYTES + BLOB);
        assert_true(disk_bytes() <= BLOB);
    }
    for (uint32_t i = 0; i < EXTENT; i++)
        assert_int_equal(swap_rig_read(&ssm, i, 5000 + i, 1), 0);
    swap_rig_remove(&rig);
}

static void a_cleared_file_is_empty_and_goes_on(void **state)
{
    (void)state;
    struct residency_swap_options options = { .engine = RESIDENCY_SWAP_POOL, .keep = true };
    swap_rig_start(&rig, BLOB, &options);
    for (uint32_t i = 0; i < 10; i++)
        (void)swap_rig_put(&rig, i, 1);
    settle();
    residency_swap_clear(rig.file);
    struct residency_swap_stats stats;
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.used_kind_bytes[RESIDENCY_KV], 0);
    assert_int_equal(residency_swap_records(rig.file), 0);
    assert_int_equal(backed_bytes(), 0);
    assert_int_equal(disk_bytes(), 0);
    uint32_t record = swap_rig_put(&rig, 99, 1);
    assert_int_equal(swap_rig_read(&rig, record, 99, 1), 0);
    swap_rig_close(&rig);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 1);
    assert_non_null(swap_rig_found(&rig, 99));
    swap_rig_remove(&rig);
}

static void a_record_takes_eight_bytes_of_memory(void **state)
{
    (void)state;
    assert_int_equal(sizeof(union swap_record), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shared_cap_and_that_of_a_kind_each_say_so),
        cmocka_unit_test(no_record_is_given_out_twice),
        cmocka_unit_test(freeing_in_bulk_gives_the_disk_back),
        cmocka_unit_test(what_is_freed_beyond_the_cap_goes_back_to_the_disk),
        cmocka_unit_test(a_cleared_file_is_empty_and_goes_on),
        cmocka_unit_test(a_record_takes_eight_bytes_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
