/* Disks that fail, are short, late, out of order or full; through the hook, and on a small file system. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "base/clock.h"
#include "residency/swap/state.h"
#include "swap_rig.h"

#define BLOB 65536

static struct swap_rig rig;

/* What the disk does: by step, and in which of its calls. */
struct disk {
    struct residency_swap_hook hook;
    _Atomic int fail[4];                /* the errno of every call of this step; 0: none */
    _Atomic int later;                  /* transfers that go behind the others, so many times */
    _Atomic size_t most;                /* bytes of one call; 0: no bound */
    _Atomic int hold;                   /* writes wait while it is set */
    _Atomic uint64_t bad_bytes, bad_at; /* a range of the file that cannot be read or written */
    _Atomic uint64_t calls[4];
    bool random;
    _Atomic uint64_t seed;
};

static int before(void *user, enum residency_swap_step step, uint64_t offset_bytes, size_t *len_bytes)
{
    struct disk *disk = user;
    disk->calls[step]++;
    if (disk->fail[step])
        return -disk->fail[step];
    if (step != RESIDENCY_SWAP_READ && step != RESIDENCY_SWAP_WRITE)
        return 0;
    if (offset_bytes < disk->bad_at + disk->bad_bytes && disk->bad_at < offset_bytes + *len_bytes)
        return -EIO;
    uint64_t state = atomic_fetch_add(&disk->seed, 77), random = disk->random ? test_random(&state) : 0;
    if (disk->random && random % 3 == 0)
        return RESIDENCY_SWAP_LATER;
    if (disk->random && random % 7 == 1)
        return step == RESIDENCY_SWAP_READ ? -EIO : -ENOSPC;
    if (disk->hold)
        return RESIDENCY_SWAP_LATER;
    if (disk->later > 0) {
        disk->later--;
        return RESIDENCY_SWAP_LATER;
    }
    size_t most = disk->random ? 4096 * (1 + random / 8 % 16) : disk->most;
    if (most > 0 && *len_bytes > most)
        *len_bytes = most;
    return 0;
}

static struct disk disk;

static void start_with(enum residency_swap_engine engine, bool keep, uint64_t blob_bytes)
{
    memset(&disk, 0, sizeof disk);
    disk.hook = (struct residency_swap_hook){ .before = before, .user = &disk };
    swap_rig_start(&rig, blob_bytes,
                   &(struct residency_swap_options){ .engine = engine, .keep = keep, .hook = &disk.hook });
}

static void start(enum residency_swap_engine engine, bool keep)
{
    start_with(engine, keep, BLOB);
}

static const enum residency_swap_engine engines[] = { RESIDENCY_SWAP_POOL, RESIDENCY_SWAP_AUTO };
#define for_each_engine(e) for (size_t e = 0; e < 2; e++)

/* The moment for which a full disk is not asked again lasts: no outcome here hangs on the clock. */
static void stay_full(void)
{
    pthread_mutex_lock(&rig.swap->lock);
    assert_true(rig.swap->full_until_ns != 0);
    rig.swap->full_until_ns = BASE_NEVER;
    pthread_mutex_unlock(&rig.swap->lock);
}

static uint32_t take(void)
{
    uint32_t record;
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig.file, &record, &full), 0);
    return record;
}

static void short_writes_and_reads_are_gone_on_with(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], false);
        disk.most = 4096;
        uint32_t record = swap_rig_put(&rig, 1, 1);
        assert_int_equal(disk.calls[RESIDENCY_SWAP_WRITE], BLOB / 4096);
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
        assert_int_equal(disk.calls[RESIDENCY_SWAP_READ], BLOB / 4096);
        swap_rig_remove(&rig);
    }
}

static _Atomic uint64_t told_bytes;

static void tell(struct residency_swap_io *io, uint64_t bytes)
{
    (void)io;
    told_bytes = bytes;
}

/* How many requests a read makes whose caller would send what is there, and what it is told before the end. */
static uint64_t requests_of_a_sender(uint32_t record, bool here)
{
    void *blob = swap_rig_blob(&rig);
    struct swap_rig_io io = { .here = here, .io.progress = tell };
    uint64_t before_it = disk.calls[RESIDENCY_SWAP_READ];
    told_bytes = 0;
    swap_rig_submit(&rig, &io, false, record, 1, 1, blob);
    assert_int_equal(swap_rig_wait(&io), 0);
    assert_true(swap_rig_is(&rig, blob, 1, 1));
    free(blob);
    return disk.calls[RESIDENCY_SWAP_READ] - before_it;
}

static void wait_until_idle(void)
{
    pthread_mutex_lock(&rig.swap->queue_lock);
    while (rig.swap->in_flight > 0)
        pthread_cond_wait(&rig.swap->drained, &rig.swap->queue_lock);
    pthread_mutex_unlock(&rig.swap->queue_lock);
}

static void others_under_way(int n)
{
    pthread_mutex_lock(&rig.swap->queue_lock);
    rig.swap->in_flight += (uint64_t)n;
    pthread_mutex_unlock(&rig.swap->queue_lock);
}

static void a_mebibyte_is_read_in_halves_only_for_a_sender_who_is_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool here = i & 1;
        start_with(engines[i / 2], false, 2 * SWAP_PIECE_BYTES);
        uint32_t record = swap_rig_put(&rig, 1, 1);
        assert_int_equal(disk.calls[RESIDENCY_SWAP_WRITE], 1);
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
        assert_int_equal(disk.calls[RESIDENCY_SWAP_READ], 1);

        /* Of the last transfer `done` has been called; gone from the swap it may be a moment later. */
        wait_until_idle();
        assert_int_equal(requests_of_a_sender(record, here), 2);
        assert_int_equal(told_bytes, SWAP_PIECE_BYTES);

        others_under_way(1);
        assert_int_equal(requests_of_a_sender(record, here), 1);
        assert_int_equal(told_bytes, 0);
        others_under_way(-1);
        swap_rig_remove(&rig);
    }
}

static void a_failed_write_says_why_and_its_record_holds_nothing(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], true);
        uint32_t record = take();
        void *blob = swap_rig_blob(&rig);
        swap_rig_fill(&rig, blob, 1, 1);
        disk.fail[RESIDENCY_SWAP_WRITE] = EIO;
        struct swap_rig_io io = { 0 };
        swap_rig_submit(&rig, &io, true, record, 1, 1, blob);
        assert_int_equal(swap_rig_wait(&io), PENSTOCK_ESYS);
        assert_int_equal(io.io.sys_errno, EIO);
        disk.fail[RESIDENCY_SWAP_WRITE] = 0;
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
        residency_swap_free(rig.file, record);
        free(blob);
        swap_rig_close(&rig);
        swap_rig_open(&rig);
        assert_int_equal(rig.n_found, 0);
        swap_rig_remove(&rig);
    }
}

static void a_record_that_cannot_be_written_is_given_to_nobody_again(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], true);
        uint32_t bad = take();
        disk.bad_at = bad * BLOB;
        disk.bad_bytes = BLOB;
        assert_int_equal(swap_rig_write(&rig, bad, 1, 1), PENSTOCK_ESYS);
        residency_swap_free(rig.file, bad);
        assert_int_equal(residency_swap_records(rig.file), 0);
        for (int i = 0; i < 100; i++)
            assert_int_not_equal(take(), bad);
        swap_rig_remove(&rig);
    }
}

static void but_of_a_disk_that_writes_nothing_few_records_are_lost(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL, false);
    disk.fail[RESIDENCY_SWAP_WRITE] = EIO;
    uint32_t record = 0;
    for (int i = 0; i < 1000; i++) {
        record = take();
        assert_int_equal(swap_rig_write(&rig, record, 1, 1), PENSTOCK_ESYS);
        residency_swap_free(rig.file, record);
    }
    assert_in_range(record, 1, 100);
    disk.fail[RESIDENCY_SWAP_WRITE] = 0;
    record = swap_rig_put(&rig, 1, 1);
    assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
    swap_rig_remove(&rig);
}

static void one_bad_piece_fails_the_transfer_once_and_no_other(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        const uint64_t blob_bytes = 5 * SWAP_PIECE_BYTES + 4096;
        start_with(engines[e], false, blob_bytes);
        uint32_t good = swap_rig_put(&rig, 1, 1), bad = swap_rig_put(&rig, 2, 1), after = swap_rig_put(&rig, 3, 1);
        for (uint64_t piece = 0; piece <= 5; piece++) {
            disk.bad_at = bad * blob_bytes + piece * SWAP_PIECE_BYTES;
            disk.bad_bytes = 4096;
            struct swap_rig_io io[3] = { 0 };
            void *blobs[3];
            const uint32_t records[3] = { good, bad, after };
            for (uint64_t i = 0; i < 3; i++) {
                blobs[i] = swap_rig_blob(&rig);
                swap_rig_submit(&rig, &io[i], false, records[i], i + 1, 1, blobs[i]);
            }
            for (uint64_t i = 0; i < 3; i++) {
                assert_int_equal(swap_rig_wait(&io[i]), i == 1 ? PENSTOCK_ESYS : 0);
                assert_int_equal(io[i].io.sys_errno, i == 1 ? EIO : 0);
                free(blobs[i]);
            }
            residency_swap_free(rig.file, bad);
            assert_int_equal(take(), bad);
            assert_int_equal(swap_rig_write(&rig, bad, 2, 2), PENSTOCK_ESYS);
            disk.bad_bytes = 0;
            assert_int_equal(swap_rig_read(&rig, bad, 2, 2), PENSTOCK_ECORRUPT);
            assert_int_equal(swap_rig_write(&rig, bad, 2, 1), 0);
            assert_int_equal(swap_rig_read(&rig, bad, 2, 1), 0);
        }
        swap_rig_remove(&rig);
    }
}

static void a_write_that_stops_half_way_is_never_data(void **state)
{
    (void)state;
    for (size_t torn = 4096; torn < BLOB; torn += 4096) {
        start(RESIDENCY_SWAP_POOL, true);
        uint32_t record = swap_rig_put(&rig, 1, 1);
        residency_swap_free(rig.file, record);
        assert_int_equal(take(), record);
        disk.most = torn;
        uint64_t calls = disk.calls[RESIDENCY_SWAP_WRITE];
        struct swap_rig_io io = { 0 };
        void *blob = swap_rig_blob(&rig);
        swap_rig_fill(&rig, blob, 2, 1);
        /* The first piece goes; then the disk is gone. */
        disk.later = 0;
        swap_rig_submit(&rig, &io, true, record, 2, 1, blob);
        while (disk.calls[RESIDENCY_SWAP_WRITE] == calls)
            sched_yield();
        disk.fail[RESIDENCY_SWAP_WRITE] = EIO;
        int code = swap_rig_wait(&io);
        assert_true(code == 0 || code == PENSTOCK_ESYS);
        disk.fail[RESIDENCY_SWAP_WRITE] = 0;
        assert_int_equal(swap_rig_read(&rig, record, 2, 1), code == 0 ? 0 : PENSTOCK_ECORRUPT);
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ECORRUPT);
        free(blob);
        swap_rig_close(&rig);
        swap_rig_open(&rig);
        assert_int_equal(rig.n_found, code == 0);
        swap_rig_remove(&rig);
    }
}

static void a_failed_read_can_be_tried_again(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], false);
        uint32_t record = swap_rig_put(&rig, 1, 1);
        disk.fail[RESIDENCY_SWAP_READ] = EIO;
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), PENSTOCK_ESYS);
        disk.fail[RESIDENCY_SWAP_READ] = 0;
        assert_int_equal(swap_rig_read(&rig, record, 1, 1), 0);
        swap_rig_remove(&rig);
    }
}

static void transfers_that_are_late_or_out_of_order_all_end_well(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], false);
        enum { N = 40 };
        static struct swap_rig_io io[N];
        void *blobs[N];
        memset(io, 0, sizeof io);
        disk.hold = 1;
        for (uint32_t i = 0; i < N; i++) {
            blobs[i] = swap_rig_blob(&rig);
            swap_rig_fill(&rig, blobs[i], i, 1);
            swap_rig_submit(&rig, &io[i], true, take(), i, 1, blobs[i]);
        }
        while (disk.calls[RESIDENCY_SWAP_WRITE] < 3 * N)
            sched_yield();
        disk.later = 100;
        disk.hold = 0;
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(swap_rig_wait(&io[i]), 0);
            assert_int_equal(swap_rig_read(&rig, io[i].io.record, i, 1), 0);
            free(blobs[i]);
        }
        swap_rig_remove(&rig);
    }
}

static void a_full_disk_is_told_before_the_next_write(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL, false);
    disk.fail[RESIDENCY_SWAP_GROW] = ENOSPC;
    uint32_t record = take();
    void *blob = swap_rig_blob(&rig);
    swap_rig_fill(&rig, blob, 1, 1);
    struct swap_rig_io io = { 0 };
    swap_rig_submit(&rig, &io, true, record, 1, 1, blob);
    assert_int_equal(swap_rig_wait(&io), PENSTOCK_ESYS);
    assert_int_equal(io.io.sys_errno, ENOSPC);
    assert_int_equal(disk.calls[RESIDENCY_SWAP_WRITE], 0);
    free(blob);
    residency_swap_free(rig.file, record);
    stay_full();
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig.file, &record, &full), PENSTOCK_ELIMIT);
    assert_int_equal(full, RESIDENCY_SWAP_FULL_DISK);
    assert_int_equal(residency_swap_records(rig.file), 0);
    swap_rig_remove(&rig);
}

static void an_entry_that_cannot_be_cleared_means_that_nothing_is_kept(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL, true);
    uint32_t record = swap_rig_put(&rig, 1, 1);
    (void)swap_rig_put(&rig, 2, 1);
    disk.fail[RESIDENCY_SWAP_INDEX] = EIO;
    residency_swap_free(rig.file, record);
    disk.fail[RESIDENCY_SWAP_INDEX] = 0;
    record = swap_rig_put(&rig, 3, 1);
    assert_int_equal(swap_rig_read(&rig, record, 3, 1), 0);
    swap_rig_close(&rig);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 0);
    swap_rig_remove(&rig);
}

static void an_entry_that_cannot_be_written_costs_its_record_at_the_restart_alone(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL, true);
    (void)swap_rig_put(&rig, 1, 1);
    disk.fail[RESIDENCY_SWAP_INDEX] = EIO;
    uint32_t record = swap_rig_put(&rig, 2, 1);
    disk.fail[RESIDENCY_SWAP_INDEX] = 0;
    assert_int_equal(swap_rig_read(&rig, record, 2, 1), 0);
    swap_rig_close(&rig);
    swap_rig_open(&rig);
    assert_int_equal(rig.n_found, 1);
    assert_non_null(swap_rig_found(&rig, 1));
    swap_rig_remove(&rig);
}

/* ---- many threads, over a disk that does everything wrong ---- */

struct worker {
    pthread_t thread;
    uint64_t seed, number, read_right;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    enum { MINE = 16 };
    uint32_t records[MINE];
    uint64_t generations[MINE] = { 0 };
    for (uint64_t step = 1; step < 400; step++) {
        uint64_t i = test_random(&w->seed) % MINE, key = w->number * 1000 + i;
        if (generations[i] == 0) {
            records[i] = take();
            if (swap_rig_write(&rig, records[i], key, step) == 0)
                generations[i] = step;
            else
                residency_swap_free(rig.file, records[i]);
        } else if (test_random(&w->seed) % 3 != 0) {
            int code = swap_rig_read(&rig, records[i], key, generations[i]);
            assert_true(code == 0 || code == PENSTOCK_ESYS);
            w->read_right += code == 0;
        } else {
            residency_swap_free(rig.file, records[i]);
            generations[i] = 0;
        }
    }
    for (int i = 0; i < MINE; i++)
        if (generations[i] != 0)
            residency_swap_free(rig.file, records[i]);
    return NULL;
}

static void many_threads_over_a_bad_disk_read_what_they_wrote_or_an_error(void **state)
{
    (void)state;
    for_each_engine(e)
    {
        start(engines[e], true);
        /* A disk that was full a moment ago refuses records: it grows first. */
        (void)swap_rig_put(&rig, 1, 1);
        disk.random = true;
        struct worker workers[4];
        for (uint64_t i = 0; i < 4; i++) {
            workers[i] = (struct worker){ .seed = i, .number = i + 1 };
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(workers[i].thread, NULL);
            assert_true(workers[i].read_right > 0);
        }
        assert_int_equal(residency_swap_records(rig.file), 1);
        disk.random = false;
        assert_int_equal(swap_rig_read(&rig, 0, 1, 1), 0);
        swap_rig_remove(&rig);
    }
}

/* ---- a small file system ---- */

static void a_small_disk_is_filled_to_the_last_record_and_what_is_there_stays(void **state)
{
    (void)state;
    char where[] = "/tmp/penstock-small-XXXXXX";
    assert_non_null(mkdtemp(where));
    if (mount("none", where, "tmpfs", 0, "size=8m") != 0) {
        print_message("skipped: cannot mount a small tmpfs: %s\n", strerror(errno));
        (void)rmdir(where);
        if (geteuid() == 0 && getenv("CI"))
            fail_msg("root must be able to mount one");
        skip();
    }
    setenv("TMPDIR", where, 1);
    for_each_engine(e)
    {
        swap_rig_start(&rig, BLOB, &(struct residency_swap_options){ .engine = engines[e] });
        uint32_t records[256], n = 0, record;
        enum residency_swap_full full;
        int code;
        while ((code = residency_swap_alloc(rig.file, &record, &full)) == 0 && n < 256) {
            code = swap_rig_write(&rig, record, n, 1);
            if (code != 0)
                break;
            records[n++] = record;
        }
        assert_int_equal(code, PENSTOCK_ESYS);
        residency_swap_free(rig.file, record);
        stay_full();
        assert_true(n >= 120 && n < 130);
        assert_int_equal(residency_swap_alloc(rig.file, &record, &full), PENSTOCK_ELIMIT);
        assert_int_equal(full, RESIDENCY_SWAP_FULL_DISK);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(swap_rig_read(&rig, records[i], i, 1), 0);
        /* A record of this file that is given back can be taken at once. */
        residency_swap_free(rig.file, records[5]);
        assert_int_equal(residency_swap_alloc(rig.file, &record, &full), 0);
        assert_int_equal(swap_rig_write(&rig, record, 5, 2), 0);
        assert_int_equal(swap_rig_read(&rig, record, 5, 2), 0);
        swap_rig_remove(&rig);
    }
    unsetenv("TMPDIR");
    assert_int_equal(umount(where), 0);
    assert_int_equal(rmdir(where), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_writes_and_reads_are_gone_on_with),
        cmocka_unit_test(a_mebibyte_is_read_in_halves_only_for_a_sender_who_is_alone),
        cmocka_unit_test(a_failed_write_says_why_and_its_record_holds_nothing),
        cmocka_unit_test(a_record_that_cannot_be_written_is_given_to_nobody_again),
        cmocka_unit_test(but_of_a_disk_that_writes_nothing_few_records_are_lost),
        cmocka_unit_test(one_bad_piece_fails_the_transfer_once_and_no_other),
        cmocka_unit_test(a_write_that_stops_half_way_is_never_data),
        cmocka_unit_test(a_failed_read_can_be_tried_again),
        cmocka_unit_test(transfers_that_are_late_or_out_of_order_all_end_well),
        cmocka_unit_test(a_full_disk_is_told_before_the_next_write),
        cmocka_unit_test(an_entry_that_cannot_be_cleared_means_that_nothing_is_kept),
        cmocka_unit_test(an_entry_that_cannot_be_written_costs_its_record_at_the_restart_alone),
        cmocka_unit_test(many_threads_over_a_bad_disk_read_what_they_wrote_or_an_error),
        cmocka_unit_test(a_small_disk_is_filled_to_the_last_record_and_what_is_there_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
