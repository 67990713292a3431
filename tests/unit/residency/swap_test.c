/* The directory and its lock, and blobs that come back as they went, by either engine. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "swap_rig.h"

#define BLOB 65536
#define MANY 200

static const struct residency_swap_options pool = { .engine = RESIDENCY_SWAP_POOL };
static const struct residency_swap_options uring = { .engine = RESIDENCY_SWAP_URING };

static void many_at_once(const struct residency_swap_options *options, uint64_t blob_bytes, uint32_t n)
{
    static struct swap_rig rig;
    swap_rig_start(&rig, blob_bytes, options);
    struct residency_swap_stats stats;
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.uring, options->engine == RESIDENCY_SWAP_URING);
    struct swap_rig_io *io = calloc(n, sizeof *io);
    void **blobs = calloc(n, sizeof *blobs);
    uint32_t *records = calloc(n, sizeof *records);
    assert_true(io && blobs && records);
    for (uint32_t i = 0; i < n; i++) {
        enum residency_swap_full full;
        assert_int_equal(residency_swap_alloc(rig.file, &records[i], &full), 0);
        blobs[i] = swap_rig_blob(&rig);
        swap_rig_fill(&rig, blobs[i], i, 7);
        swap_rig_submit(&rig, &io[i], true, records[i], i, 7, blobs[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(swap_rig_wait(&io[i]), 0);
    for (uint32_t i = 0; i < n; i++) {
        memset(blobs[i], 0, blob_bytes);
        swap_rig_submit(&rig, &io[i], false, records[i], i, 7, blobs[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(swap_rig_wait(&io[i]), 0);
        assert_true(swap_rig_is(&rig, blobs[i], i, 7));
        free(blobs[i]);
    }
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.used_bytes, n * blob_bytes);
    assert_int_equal(stats.used_kind_bytes[RESIDENCY_KV], n * blob_bytes);
    assert_int_equal(stats.used_kind_bytes[RESIDENCY_SSM], 0);
    assert_int_equal(stats.corrupt_records, 0);
    free(io);
    free(blobs);
    free(records);
    swap_rig_remove(&rig);
}

static void the_pool_brings_back_what_it_wrote(void **state)
{
    (void)state;
    many_at_once(&pool, BLOB, MANY);
}

static void io_uring_brings_back_what_it_wrote(void **state)
{
    (void)state;
    many_at_once(&uring, BLOB, MANY);
}

static void a_read_here_has_ended_when_it_returns_unless_the_blob_is_large(void **state)
{
    (void)state;
    static struct swap_rig rig;
    for (uint64_t blob_bytes = BLOB; blob_bytes <= UINT64_C(3) << 20; blob_bytes *= 48) {
        swap_rig_start(&rig, blob_bytes, &pool);
        uint32_t record = swap_rig_put(&rig, 1, 1);
        void *blob = swap_rig_blob(&rig);
        for (uint64_t generation = 1; generation <= 2; generation++) {
            struct swap_rig_io io = { .here = true };
            swap_rig_submit(&rig, &io, false, record, 1, generation, blob);
            if (blob_bytes == BLOB)
                assert_true(io.landed);
            assert_int_equal(swap_rig_wait(&io), generation == 1 ? 0 : PENSTOCK_ECORRUPT);
            assert_true(swap_rig_is(&rig, blob, 1, 1));
        }
        free(blob);
        swap_rig_remove(&rig);
    }
}

/* Three pieces and some; more of them than a ring has room for. */
static void large_blobs_go_and_come_in_pieces(void **state)
{
    (void)state;
    many_at_once(&pool, (UINT64_C(3) << 20) + 4096, 12);
    many_at_once(&uring, (UINT64_C(3) << 20) + 4096, 24);
}

static void a_blob_larger_than_an_extent_has_one_of_its_own(void **state)
{
    (void)state;
    many_at_once(&pool, UINT64_C(80) << 20, 2);
}

static void another_key_or_generation_is_not_what_was_written(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    uint32_t record = swap_rig_put(&rig, 1, 5);
    assert_int_equal(swap_rig_read(&rig, record, 1, 5), 0);
    assert_int_equal(swap_rig_read(&rig, record, 2, 5), PENSTOCK_ECORRUPT);
    assert_int_equal(swap_rig_read(&rig, record, 1, 6), PENSTOCK_ECORRUPT);
    struct residency_swap_stats stats;
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.corrupt_records, 2);
    swap_rig_remove(&rig);
}

static void a_record_used_again_no_longer_has_its_old_blob(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    uint32_t first = swap_rig_put(&rig, 1, 1);
    residency_swap_free(rig.file, first);
    uint32_t second;
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig.file, &second, &full), 0);
    assert_int_equal(second, first);
    assert_int_equal(swap_rig_read(&rig, second, 1, 1), PENSTOCK_ECORRUPT);
    assert_int_equal(swap_rig_write(&rig, second, 2, 1), 0);
    assert_int_equal(swap_rig_read(&rig, second, 2, 1), 0);
    swap_rig_remove(&rig);
}

static void one_flipped_bit_on_disk_is_a_mismatch(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    uint32_t records[3];
    for (uint64_t i = 0; i < 3; i++)
        records[i] = swap_rig_put(&rig, i, 1);
    char path[128];
    swap_rig_path(&rig, "swap", path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    long at = (long)records[1] * BLOB + 40001;
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_true(fputc(byte ^ 0x10, f) != EOF);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(swap_rig_read(&rig, records[0], 0, 1), 0);
    assert_int_equal(swap_rig_read(&rig, records[1], 1, 1), PENSTOCK_ECORRUPT);
    assert_int_equal(swap_rig_read(&rig, records[2], 2, 1), 0);
    swap_rig_remove(&rig);
}

static void a_file_cut_short_is_a_mismatch_and_no_hang(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    uint32_t record = swap_rig_put(&rig, 1, 1);
    char path[128];
    swap_rig_path(&rig, "swap", path);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
    swap_rig_remove(&rig);
}

static void a_blob_that_is_not_aligned_is_refused(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    uint32_t record;
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig.file, &record, &full), 0);
    uint8_t *blob = swap_rig_blob(&rig);
    struct swap_rig_io io = { 0 };
    swap_rig_submit(&rig, &io, true, record, 1, 1, blob + 512);
    assert_int_equal(swap_rig_wait(&io), PENSTOCK_EINVAL);
    free(blob);
    swap_rig_remove(&rig);
}

static void sizes_that_cannot_be_read_in_pages_are_refused(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    struct residency_swap_file *file;
    struct penstock_error error;
    static const uint64_t wrong[] = { 0, 1, 4095, 4097, UINT64_MAX - 4095 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(residency_swap_file_open(rig.swap, RESIDENCY_KV, wrong[i], NULL, NULL, &file, &error),
                         PENSTOCK_EINVAL);
    swap_rig_remove(&rig);
}

static void a_second_swap_is_told_which_process_has_the_directory(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "process %ld on host ", (long)getpid());
    pid_t child = fork();
    if (child == 0) {
        struct residency_swap *swap;
        struct penstock_error error;
        bool right = residency_swap_open(rig.directory, &pool, &swap, &error) == PENSTOCK_ELIMIT &&
                     strstr(error.message, wanted) && strstr(error.message, rig.directory);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    /* And one of this very process. */
    struct residency_swap *swap;
    struct penstock_error error;
    assert_int_equal(residency_swap_open(rig.directory, &pool, &swap, &error), PENSTOCK_ELIMIT);
    swap_rig_close(&rig);
    swap_rig_open(&rig);
    swap_rig_remove(&rig);
}

static void a_directory_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct residency_swap *swap;
    struct penstock_error error;
    assert_int_equal(residency_swap_open("/nonexistent/swap", &pool, &swap, &error), PENSTOCK_ESYS);
    assert_non_null(strstr(error.message, "/nonexistent/swap"));
}

static void without_keep_nothing_is_left_or_found(void **state)
{
    (void)state;
    static struct swap_rig rig;
    swap_rig_start(&rig, BLOB, &pool);
    char path[128];
    swap_rig_path(&rig, "swap", path);
    (void)swap_rig_put(&rig, 1, 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    swap_rig_close(&rig);
    assert_int_equal(stat(path, &st), -1);
    /* As one that was killed leaves it; another file is nobody's business. */
    char other[128];
    snprintf(other, sizeof other, "%s/kv-65537.swap", rig.directory);
    assert_int_equal(fclose(fopen(path, "w")), 0);
    assert_int_equal(fclose(fopen(other, "w")), 0);
    struct residency_swap *swap;
    assert_int_equal(residency_swap_open(rig.directory, &pool, &swap, NULL), 0);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(stat(other, &st), 0);
    rig.swap = swap;
    swap_rig_remove(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pool_brings_back_what_it_wrote),
        cmocka_unit_test(io_uring_brings_back_what_it_wrote),
        cmocka_unit_test(a_read_here_has_ended_when_it_returns_unless_the_blob_is_large),
        cmocka_unit_test(large_blobs_go_and_come_in_pieces),
        cmocka_unit_test(a_blob_larger_than_an_extent_has_one_of_its_own),
        cmocka_unit_test(another_key_or_generation_is_not_what_was_written),
        cmocka_unit_test(a_record_used_again_no_longer_has_its_old_blob),
        cmocka_unit_test(one_flipped_bit_on_disk_is_a_mismatch),
        cmocka_unit_test(a_file_cut_short_is_a_mismatch_and_no_hang),
        cmocka_unit_test(a_blob_that_is_not_aligned_is_refused),
        cmocka_unit_test(sizes_that_cannot_be_read_in_pages_are_refused),
        cmocka_unit_test(a_second_swap_is_told_which_process_has_the_directory),
        cmocka_unit_test(a_directory_that_is_not_there_is_named),
        cmocka_unit_test(without_keep_nothing_is_left_or_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
