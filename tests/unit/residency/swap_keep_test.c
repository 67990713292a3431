/* What is found again after a restart, a kill, a torn write and damage; and what must not be. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "swap_rig.h"

#define BLOB 16384

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

static void overwrite(const char *suffix, const void *bytes, size_t len, off_t at)
{
    int fd = open_file(suffix);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    close(fd);
}

static void flip(const char *suffix, off_t at)
{
    uint8_t byte;
    int fd = open_file(suffix);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void restart(void)
{
    swap_rig_close(&rig);
    swap_rig_open(&rig);
}

static void assert_found(uint64_t key, uint64_t generation)
{
    const struct residency_swap_found *found = swap_rig_found(&rig, key);
    assert_non_null(found);
    assert_int_equal(found->generation, generation);
    assert_int_equal(swap_rig_read(&rig, found->record, key, generation), 0);
}

static void records_are_found_again_after_a_restart(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < 100; key++)
        (void)swap_rig_put(&rig, key, key + 1);
    struct residency_swap_stats stats;
    restart();
    assert_int_equal(rig.n_found, 100);
    for (uint64_t key = 0; key < 100; key++) {
        assert_found(key, key + 1);
        assert_true(swap_rig_found(&rig, key)->written_s > 1700000000);
    }
    residency_swap_stats(rig.swap, &stats);
    assert_int_equal(stats.used_bytes, 100 * BLOB);
    swap_rig_remove(&rig);
}

static int count(void *user, enum residency_kind kind, uint64_t blob_bytes)
{
    assert_int_equal(kind, RESIDENCY_KV);
    assert_int_equal(blob_bytes, BLOB);
    ++*(int *)user;
    return 0;
}

static void kept_files_are_listed_before_they_are_opened(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    (void)swap_rig_put(&rig, 1, 1);
    swap_rig_close(&rig);
    int n = 0;
    assert_int_equal(residency_swap_open(rig.directory, &keep, &rig.swap, NULL), 0);
    assert_int_equal(residency_swap_kept(rig.swap, count, &n), 0);
    assert_int_equal(n, 1);
    swap_rig_remove(&rig);
}

static void removed_and_owned_blobs_do_not_come_back(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    uint32_t records[10];
    for (uint64_t key = 0; key < 10; key++)
        records[key] = swap_rig_put(&rig, key, 1);
    for (uint64_t key = 0; key < 10; key += 2)
        residency_swap_free(rig.file, records[key]);
    uint32_t record;
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig.file, &record, &full), 0);
    assert_int_equal(swap_rig_write(&rig, record, 50, 1), 0);
    uint32_t owned;
    assert_int_equal(residency_swap_alloc(rig.file, &owned, &full), 0);
    void *blob = swap_rig_blob(&rig);
    swap_rig_fill(&rig, blob, 51, 1);
    struct swap_rig_io io = { .io = { .owned = true } };
    swap_rig_submit(&rig, &io, true, owned, 51, 1, blob);
    assert_int_equal(swap_rig_wait(&io), 0);
    free(blob);
    assert_int_equal(swap_rig_read(&rig, owned, 51, 1), 0);
    restart();
    assert_int_equal(rig.n_found, 6);
    assert_found(50, 1);
    assert_null(swap_rig_found(&rig, 51));
    for (uint64_t key = 0; key < 10; key++)
        assert_int_equal(swap_rig_found(&rig, key) != NULL, key % 2);
    swap_rig_remove(&rig);
}

static void free_records_between_those_found_are_given_out(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    uint32_t records[20];
    for (uint64_t key = 0; key < 20; key++)
        records[key] = swap_rig_put(&rig, key, 1);
    for (uint64_t key = 0; key < 18; key++)
        if (key % 3 != 0)
            residency_swap_free(rig.file, records[key]);
    restart();
    assert_int_equal(rig.n_found, 8);
    for (uint64_t key = 100; key < 112; key++)
        assert_true(swap_rig_put(&rig, key, 1) < 20);
    assert_int_equal(swap_rig_put(&rig, 200, 1), 20);
    for (uint64_t key = 0; key < 18; key += 3)
        assert_found(key, 1);
    swap_rig_remove(&rig);
}

/* ---- kills ---- */

/* What the child says it has done, where the parent sees it after the kill. Each key has one writer. */
#define KEYS 64
struct said {
    uint64_t written[KEYS]; /* the newest generation whose write was done */
    uint64_t gone[KEYS];    /* every generation up to here was freed */
    _Atomic uint64_t steps;
};

static void child(struct said *said, uint64_t seed)
{
    uint32_t records[KEYS];
    uint64_t generation = 1;
    memset(records, 0xff, sizeof records);
    for (;; said->steps++) {
        uint64_t key = test_random(&seed) % KEYS;
        /* As an overwrite does it: the newer blob first, then the older record is freed, then it is answered. */
        uint32_t older = records[key];
        if (test_random(&seed) % 4 != 0) {
            records[key] = swap_rig_put(&rig, key, ++generation);
            said->written[key] = generation;
        } else {
            records[key] = UINT32_MAX;
        }
        if (older != UINT32_MAX) {
            residency_swap_free(rig.file, older);
            said->gone[key] = records[key] == UINT32_MAX ? said->written[key] : said->written[key] - 1;
        }
    }
}

static void killed_at_any_moment_it_finds_what_it_had_and_nothing_older(void **state)
{
    (void)state;
    struct said *said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(said, MAP_FAILED);
    uint64_t random = 3, found = 0;
    for (int round = 0; round < 25; round++) {
        memset(said, 0, sizeof *said);
        swap_rig_start(&rig, BLOB, &keep);
        swap_rig_close(&rig);
        pid_t pid = fork();
        if (pid == 0) {
            swap_rig_open(&rig);
            child(said, (uint64_t)round);
        }
        /* After some steps, and then anywhere in the next. */
        uint64_t last = 1 + test_random(&random) % 300;
        while (said->steps < last) {
            assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
            sched_yield();
        }
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        swap_rig_open(&rig);
        for (uint32_t i = 0; i < rig.n_found; i++) {
            const struct residency_swap_found *f = &rig.found[i];
            assert_true(f->key.low < KEYS && f->generation > said->gone[f->key.low]);
            assert_int_equal(swap_rig_read(&rig, f->record, f->key.low, f->generation), 0);
        }
        int missing = 0;
        for (uint64_t key = 0; key < KEYS; key++) {
            if (said->written[key] <= said->gone[key])
                continue;
            bool there = false;
            for (uint32_t i = 0; i < rig.n_found; i++)
                there |= rig.found[i].key.low == key && rig.found[i].generation >= said->written[key];
            found += there;
            missing += !there;
        }
        /* The one that was being freed when the kill came, and nobody was told yet. */
        assert_true(missing <= 1);
        swap_rig_remove(&rig);
    }
    assert_true(found > 0);
    munmap(said, sizeof *said);
}

/* ---- torn and damaged ---- */

static void a_blob_torn_at_any_sector_is_a_mismatch(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    uint32_t record = swap_rig_put(&rig, 1, 1);
    uint8_t *older = swap_rig_blob(&rig), *newer = swap_rig_blob(&rig);
    swap_rig_fill(&rig, newer, 1, 1);
    swap_rig_fill(&rig, older, 9, 9);
    for (size_t torn = 0; torn < BLOB; torn += 512) {
        swap_rig_close(&rig);
        overwrite("swap", newer, BLOB, (off_t)record * BLOB);
        overwrite("swap", older + torn, BLOB - torn, (off_t)((size_t)record * BLOB + torn));
        swap_rig_open(&rig);
        assert_int_equal(rig.n_found, 1);
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
    }
    swap_rig_close(&rig);
    overwrite("swap", newer, BLOB, (off_t)record * BLOB);
    swap_rig_open(&rig);
    assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
    free(older);
    free(newer);
    swap_rig_remove(&rig);
}

static void an_index_torn_at_any_sector_costs_what_is_behind_it(void **state)
{
    (void)state;
    enum { N = 100 };
    static uint8_t whole[SWAP_INDEX_ENTRIES_AT + N * SWAP_INDEX_ENTRY_BYTES], none[sizeof whole];
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < N; key++)
        assert_int_equal(swap_rig_put(&rig, key, 1), key);
    swap_rig_close(&rig);
    int fd = open_file("index");
    assert_int_equal(pread(fd, whole, sizeof whole, 0), sizeof whole);
    close(fd);
    /* From the end on: with no entry left the data is thrown away. */
    for (size_t torn = sizeof whole / 512 * 512; torn <= sizeof whole; torn -= 512) {
        overwrite("index", whole, torn, 0);
        overwrite("index", none, sizeof whole - torn, (off_t)torn);
        swap_rig_open(&rig);
        size_t left = torn < SWAP_INDEX_ENTRIES_AT ? 0 : (torn - SWAP_INDEX_ENTRIES_AT) / SWAP_INDEX_ENTRY_BYTES;
        assert_int_equal(rig.n_found, left < N ? left : N);
        if (left > 0)
            assert_found(left - 1, 1);
        swap_rig_close(&rig);
    }
    swap_rig_open(&rig);
    swap_rig_remove(&rig);
}

static void a_damaged_entry_costs_its_own_record_alone(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < 10; key++)
        assert_int_equal(swap_rig_put(&rig, key, 1), key);
    swap_rig_close(&rig);
    flip("index", (off_t)swap_index_entry_offset(4) + 3);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 9);
    assert_null(swap_rig_found(&rig, 4));
    for (uint64_t key = 0; key < 10; key++)
        if (key != 4)
            assert_found(key, 1);
    /* And it stays away. */
    restart();
    assert_int_equal(rig.n_found, 9);
    swap_rig_remove(&rig);
}

static void a_damaged_header_is_rebuilt_from_entries(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < 10; key++)
        (void)swap_rig_put(&rig, key, 1);
    swap_rig_close(&rig);
    flip("index", 33);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 10);
    for (uint64_t key = 0; key < 10; key++)
        assert_found(key, 1);
    swap_rig_remove(&rig);
}

static void header_of(uint64_t boot, bool clean, uint64_t blob_bytes)
{
    uint8_t bytes[SWAP_INDEX_HEADER_BYTES];
    struct swap_index_header header = { .geometry = { .kind = RESIDENCY_KV, .blob_bytes = blob_bytes },
                                        .boot = boot,
                                        .clean = clean };
    swap_index_header_encode(&header, bytes);
    overwrite("index", bytes, sizeof bytes, 0);
}

static void a_host_that_went_down_leaves_an_empty_file_unless_it_was_closed(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        swap_rig_start(&rig, BLOB, &keep);
        (void)swap_rig_put(&rig, 1, 1);
        swap_rig_close(&rig);
        header_of(12345, clean, BLOB);
        swap_rig_open(&rig);
        assert_int_equal(rig.n_found, clean);
        if (clean)
            assert_found(1, 1);
        swap_rig_remove(&rig);
    }
}

static void another_geometry_starts_empty(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    (void)swap_rig_put(&rig, 1, 1);
    swap_rig_close(&rig);
    header_of(12345, true, BLOB * 2);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 0);
    assert_int_equal(swap_rig_put(&rig, 2, 1), 0);
    assert_int_equal(swap_rig_read(&rig, 0, 2, 1), 0);
    swap_rig_remove(&rig);
}

static void data_cut_short_loses_the_records_that_lay_there(void **state)
{
    (void)state;
    swap_rig_start(&rig, BLOB, &keep);
    for (uint64_t key = 0; key < 10; key++)
        assert_int_equal(swap_rig_put(&rig, key, 1), key);
    swap_rig_close(&rig);
    int fd = open_file("swap");
    assert_int_equal(ftruncate(fd, 4 * BLOB + 512), 0);
    close(fd);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 4);
    restart();
    assert_int_equal(rig.n_found, 4);
    assert_found(3, 1);
    swap_rig_remove(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_found_again_after_a_restart),
        cmocka_unit_test(kept_files_are_listed_before_they_are_opened),
        cmocka_unit_test(removed_and_owned_blobs_do_not_come_back),
        cmocka_unit_test(free_records_between_those_found_are_given_out),
        cmocka_unit_test(killed_at_any_moment_it_finds_what_it_had_and_nothing_older),
        cmocka_unit_test(a_blob_torn_at_any_sector_is_a_mismatch),
        cmocka_unit_test(an_index_torn_at_any_sector_costs_what_is_behind_it),
        cmocka_unit_test(a_damaged_entry_costs_its_own_record_alone),
        cmocka_unit_test(a_damaged_header_is_rebuilt_from_entries),
        cmocka_unit_test(a_host_that_went_down_leaves_an_empty_file_unless_it_was_closed),
        cmocka_unit_test(another_geometry_starts_empty),
        cmocka_unit_test(data_cut_short_loses_the_records_that_lay_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
