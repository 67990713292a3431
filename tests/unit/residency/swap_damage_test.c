/* Bits that flip, files that are cut, deleted or of another version: a miss each, counted, and nobody's data. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "../test.h"
#include "residency/swap/state.h"
#include "swap_rig.h"

#define BLOB 8192
#define RECORDS 8
#define INDEX_BYTES (SWAP_INDEX_ENTRIES_AT + RECORDS * SWAP_INDEX_ENTRY_BYTES)

static struct swap_rig rig;
static const struct residency_swap_options keep = { .engine = RESIDENCY_SWAP_POOL, .keep = true };

static int open_file(const char *suffix)
{
    char path[128];
    swap_rig_path(&rig, suffix, path);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

static void flip(const char *suffix, uint64_t at, uint8_t bits)
{
    uint8_t byte;
    int fd = open_file(suffix);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void overwrite(const char *suffix, const void *bytes, size_t len, uint64_t at)
{
    int fd = open_file(suffix);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    close(fd);
}

static void cut(const char *suffix, uint64_t len)
{
    int fd = open_file(suffix);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    close(fd);
}

static bool there(const char *suffix)
{
    char path[128];
    swap_rig_path(&rig, suffix, path);
    return access(path, F_OK) == 0;
}

static uint64_t corrupt(void)
{
    struct residency_swap_stats stats;
    residency_swap_stats(rig.swap, &stats);
    return stats.corrupt_records;
}

/* RECORDS of them in a closed swap. */
static void start_with_records(void)
{
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < RECORDS; key++)
        assert_int_equal(swap_rig_put(&rig, key, 1), key);
    swap_rig_close(&rig);
}

/* What is found is what was written; it goes on with what was not. */
static void assert_sound(uint32_t n_found)
{
    assert_int_equal(rig.n_found, n_found);
    for (uint64_t key = 0; key < RECORDS; key++) {
        const struct residency_swap_found *found = swap_rig_found(&rig, key);
        if (found)
            assert_int_equal(swap_rig_read(&rig, found->record, key, 1), 0);
    }
    uint32_t record = swap_rig_put(&rig, 99, 1);
    assert_int_equal(swap_rig_read(&rig, record, 99, 1), 0);
}

static void a_flipped_bit_anywhere_in_a_blob_is_a_counted_mismatch(void **state)
{
    (void)state;
    const uint64_t blob_bytes = 2 * SWAP_PIECE_BYTES + 4096;
    const uint64_t places[] = { 0,
                                511,
                                4096,
                                SWAP_PIECE_BYTES - 1,
                                SWAP_PIECE_BYTES,
                                2 * SWAP_PIECE_BYTES - 1,
                                2 * SWAP_PIECE_BYTES,
                                blob_bytes - 1 };
    swap_rig_start(&rig, blob_bytes, &keep);
    uint32_t record = swap_rig_put(&rig, 1, 1), next = swap_rig_put(&rig, 2, 1);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip("swap", record * blob_bytes + places[i], (uint8_t)(1u << i % 8));
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
        assert_int_equal(corrupt(), i + 1);
        assert_int_equal(swap_rig_read(&rig, next, 2, 1), 0);
        flip("swap", record * blob_bytes + places[i], (uint8_t)(1u << i % 8));
    }
    assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
    swap_rig_remove(&rig);
}

static void two_pieces_in_each_others_place_are_a_mismatch(void **state)
{
    (void)state;
    const uint64_t blob_bytes = 4 * SWAP_PIECE_BYTES;
    swap_rig_start(&rig, blob_bytes, &keep);
    uint32_t record = swap_rig_put(&rig, 1, 1);
    uint8_t *blob = swap_rig_blob(&rig);
    swap_rig_fill(&rig, blob, 1, 1);
    overwrite("swap", blob + SWAP_PIECE_BYTES, SWAP_PIECE_BYTES, record * blob_bytes);
    overwrite("swap", blob, SWAP_PIECE_BYTES, record * blob_bytes + SWAP_PIECE_BYTES);
    free(blob);
    assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
    swap_rig_remove(&rig);
}

static void a_flipped_bit_in_any_field_of_an_entry_costs_its_record(void **state)
{
    (void)state;
    for (uint64_t byte = 0; byte < SWAP_INDEX_ENTRY_BYTES; byte += 8) {
        start_with_records();
        flip("index", swap_index_entry_offset(3) + byte, 0x10);
        swap_rig_open(&rig);
        assert_null(swap_rig_found(&rig, 3));
        assert_int_equal(corrupt(), 1);
        assert_sound(RECORDS - 1);
        swap_rig_remove(&rig);
    }
}

static void a_flipped_bit_in_any_field_of_the_header_costs_nothing_while_the_host_is_up(void **state)
{
    (void)state;
    for (uint64_t byte = 0; byte < SWAP_INDEX_HEADER_BYTES; byte += 8) {
        start_with_records();
        flip("index", byte, 0x10);
        swap_rig_open(&rig);
        assert_int_equal(corrupt(), 1);
        assert_sound(RECORDS);
        swap_rig_remove(&rig);
    }
}

static void an_index_cut_anywhere_costs_what_was_cut(void **state)
{
    (void)state;
    const uint64_t lens[] = { 0,
                              1,
                              SWAP_INDEX_HEADER_BYTES - 1,
                              SWAP_INDEX_HEADER_BYTES,
                              SWAP_INDEX_ENTRIES_AT - 1,
                              SWAP_INDEX_ENTRIES_AT + 1,
                              SWAP_INDEX_ENTRIES_AT + 3 * SWAP_INDEX_ENTRY_BYTES + 17,
                              INDEX_BYTES - 1,
                              INDEX_BYTES };
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        start_with_records();
        cut("index", lens[i]);
        swap_rig_open(&rig);
        bool any = lens[i] > SWAP_INDEX_ENTRIES_AT;
        assert_sound(any ? (uint32_t)(lens[i] - SWAP_INDEX_ENTRIES_AT) / SWAP_INDEX_ENTRY_BYTES : 0);
        swap_rig_remove(&rig);
    }
}

static void records_whose_index_is_gone_are_counted_and_leave_the_disk(void **state)
{
    (void)state;
    start_with_records();
    char path[128];
    swap_rig_path(&rig, "index", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(residency_swap_open(rig.directory, &keep, &rig.swap, NULL), 0);
    assert_false(there("swap"));
    assert_int_equal(corrupt(), 1);
    swap_rig_close(&rig);
    swap_rig_open(&rig);
    assert_sound(0);
    swap_rig_remove(&rig);
}

static void an_index_whose_records_are_gone_finds_none(void **state)
{
    (void)state;
    start_with_records();
    char path[128];
    swap_rig_path(&rig, "swap", path);
    assert_int_equal(unlink(path), 0);
    swap_rig_open(&rig);
    assert_int_equal(corrupt(), 1);
    assert_sound(0);
    swap_rig_remove(&rig);
}

static void an_index_of_another_version_is_not_believed(void **state)
{
    (void)state;
    start_with_records();
    uint8_t header[SWAP_INDEX_HEADER_BYTES];
    int fd = open_file("index");
    assert_int_equal(pread(fd, header, sizeof header, 0), sizeof header);
    close(fd);
    header[8]++;
    uint64_t checksum = XXH3_64bits(header, sizeof header - 8);
    memcpy(header + sizeof header - 8, &checksum, 8);
    overwrite("index", header, sizeof header, 0);
    swap_rig_open(&rig);
    assert_int_equal(corrupt(), 1);
    assert_sound(0);
    swap_rig_remove(&rig);
}

static void an_index_of_noise_is_no_data(void **state)
{
    (void)state;
    static uint64_t noise[INDEX_BYTES / 8];
    uint64_t random = 5;
    for (int from = 0; from <= SWAP_INDEX_ENTRIES_AT; from += SWAP_INDEX_ENTRIES_AT) {
        start_with_records();
        for (size_t i = 0; i < sizeof noise / 8; i++)
            noise[i] = test_random(&random);
        overwrite("index", noise, sizeof noise - (size_t)from, (uint64_t)from);
        swap_rig_open(&rig);
        assert_true(corrupt() >= RECORDS);
        assert_sound(0);
        swap_rig_remove(&rig);
    }
}

/* ---- the log ---- */

static int real_stderr, said;

/* What is logged from here on goes to a file. */
static void listen_in(void)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    said = dup(fileno(file));
    assert_true(real_stderr >= 0 && said >= 0);
    assert_true(dup2(said, STDERR_FILENO) >= 0);
    (void)fclose(file);
}

static void assert_logged(const char *words)
{
    static char text[8192];
    fflush(stderr);
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    close(real_stderr);
    ssize_t n = pread(said, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = 0;
    close(said);
    if (!strstr(text, words))
        fail_msg("not in the log: %s; but: %s", words, text);
}

static void damage_is_logged_where_it_is_met(void **state)
{
    (void)state;
    start_with_records();
    flip("index", swap_index_entry_offset(3), 1);
    flip("swap", 5 * BLOB + 100, 1);
    listen_in();
    swap_rig_open(&rig);
    assert_logged("error: swap file kv-8192.index: 1 damaged entries, whose records are dropped");
    listen_in();
    assert_int_equal(swap_rig_read(&rig, 5, 5, 1), PENSTOCK_ECORRUPT);
    assert_logged("error: swap file kv-8192.swap: record 5 is not what was written there; it is dropped");
    swap_rig_remove(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_anywhere_in_a_blob_is_a_counted_mismatch),
        cmocka_unit_test(two_pieces_in_each_others_place_are_a_mismatch),
        cmocka_unit_test(a_flipped_bit_in_any_field_of_an_entry_costs_its_record),
        cmocka_unit_test(a_flipped_bit_in_any_field_of_the_header_costs_nothing_while_the_host_is_up),
        cmocka_unit_test(an_index_cut_anywhere_costs_what_was_cut),
        cmocka_unit_test(records_whose_index_is_gone_are_counted_and_leave_the_disk),
        cmocka_unit_test(an_index_whose_records_are_gone_finds_none),
        cmocka_unit_test(an_index_of_another_version_is_not_believed),
        cmocka_unit_test(an_index_of_noise_is_no_data),
        cmocka_unit_test(damage_is_logged_where_it_is_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
