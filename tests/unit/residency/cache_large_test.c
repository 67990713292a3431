/* Blobs that come from the disk in several pieces, and are fetched as they come. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "disk_rig.h"
#include "residency/swap/state.h"

enum { SLOTS = 4, KEYS = 12, PIECES = 6, THREADS = 4 };
#define BLOB (PIECES * SWAP_PIECE_BYTES)

static struct disk_rig rig;
static struct residency_client *client;

/* A disk on which reads of pieces from some number on wait until they may go on. The pool has threads that can wait: a
 * ring's would keep back what it has not submitted yet. */
static struct {
    struct residency_swap_hook hook;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t held_from; /* a piece of a blob */
    _Atomic uint64_t failing_from;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int before(void *user, enum residency_swap_step step, uint64_t offset_bytes, size_t *len_bytes)
{
    (void)user, (void)len_bytes;
    uint64_t piece = offset_bytes % BLOB / SWAP_PIECE_BYTES;
    if (step != RESIDENCY_SWAP_READ)
        return 0;
    pthread_mutex_lock(&disk.lock);
    while (piece >= disk.held_from)
        pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
    return piece >= disk.failing_from ? -EIO : 0;
}

static void hold_from(uint64_t piece)
{
    pthread_mutex_lock(&disk.lock);
    disk.held_from = piece;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static void let_go(void)
{
    hold_from(PIECES);
}

static void fill(uint8_t *blob, uint64_t what)
{
    for (uint64_t i = 0; i < BLOB; i += 4096)
        memcpy(blob + i, &what, sizeof what);
}

/* What its first bytes say; 0: they are torn. */
static uint64_t says(const uint8_t *blob, uint64_t bytes)
{
    uint64_t first, other;
    memcpy(&first, blob, sizeof first);
    for (uint64_t i = 4096; i < bytes; i += 4096) {
        memcpy(&other, blob + i, sizeof other);
        if (other != first)
            return 0;
    }
    return first;
}

static enum residency_status put(struct residency_client *by, uint64_t key, uint64_t what)
{
    struct residency_copy copy;
    enum residency_status status = residency_put_begin(by, rig_key(key), &copy);
    if (status != RESIDENCY_OK)
        return status;
    fill(copy.blob, what);
    return residency_put_commit(by, &copy);
}

static struct residency_client *join(void)
{
    struct penstock_error error = { 0 };
    struct residency_client *new;
    if (residency_join(rig.cache, RESIDENCY_KV, SLOTS * BLOB, BLOB, &new, &error) != 0)
        fail_msg("%s", error.message);
    return new;
}

/* The first KEYS keys are there, and most of them on disk. */
static void start(enum residency_swap_engine engine)
{
    rig.swap_options.engine = engine;
    disk_rig_start(&rig);
    client = join();
    for (uint64_t key = 1; key <= KEYS; key++)
        assert_int_equal(put(client, key, 1000 + key), RESIDENCY_OK);
}

static int set_up(void **state)
{
    (void)state;
    disk_rig_init(&rig);
    disk.hook = (struct residency_swap_hook){ .before = before };
    rig.swap_options.hook = &disk.hook;
    disk.failing_from = PIECES;
    let_go();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    let_go();
    residency_client_free(client);
    client = NULL;
    disk_rig_remove(&rig);
    return 0;
}

static int open_file(const char *suffix)
{
    char path[160];
    snprintf(path, sizeof path, "%s/kv-%llu.%s", rig.directory, (unsigned long long)BLOB, suffix);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

/* In the last piece of every record. */
static void damage_all(void)
{
    int fd = open_file("swap");
    for (uint64_t record = 0; record < KEYS; record++)
        assert_int_equal(pwrite(fd, "damaged!", 8, (off_t)(record * BLOB + BLOB - 4096)), 8);
    close(fd);
}

static struct residency_copy begin_partly(uint64_t key)
{
    struct residency_copy copy;
    hold_from(2);
    assert_int_equal(residency_fetch_begin(client, rig_key(key), true, &copy), RESIDENCY_OK);
    assert_in_range(copy.here_bytes, SWAP_PIECE_BYTES, 2 * SWAP_PIECE_BYTES);
    assert_int_equal(says(copy.blob, copy.here_bytes), 1000 + key);
    return copy;
}

static void fetch_whole(uint64_t key, uint64_t what)
{
    struct residency_copy copy;
    assert_int_equal(residency_fetch_begin(client, rig_key(key), true, &copy), RESIDENCY_OK);
    while (copy.here_bytes < BLOB) {
        uint64_t here = copy.here_bytes;
        assert_int_equal(says(copy.blob, here), what);
        assert_int_equal(residency_fetch_more(client, &copy), RESIDENCY_OK);
        assert_true(copy.here_bytes > here);
    }
    assert_int_equal(says(copy.blob, BLOB), what);
    residency_fetch_end(client, &copy);
}

static void fetch_all(enum residency_swap_engine engine)
{
    start(engine);
    for (uint64_t key = 1; key <= KEYS; key++)
        fetch_whole(key, 1000 + key);
    for (uint64_t key = 1; key <= KEYS; key++) {
        if (key % 3 == 0)
            residency_prefetch(client, rig_key(key));
        fetch_whole(key, 1000 + key);
    }
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.pinned + stats.misses + stats.errors, 0);
    assert_int_equal(stats.hits, 2 * KEYS);
}

static void they_come_whole(void **state)
{
    (void)state;
    fetch_all(RESIDENCY_SWAP_AUTO);
}

static void they_come_whole_from_the_pool(void **state)
{
    (void)state;
    fetch_all(RESIDENCY_SWAP_POOL);
}

static void the_first_pieces_are_there_before_the_last(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    struct residency_copy copy = begin_partly(1);
    assert_int_equal(disk_rig_stats(&rig).pinned, 1);
    let_go();
    while (copy.here_bytes < BLOB)
        assert_int_equal(residency_fetch_more(client, &copy), RESIDENCY_OK);
    assert_int_equal(says(copy.blob, BLOB), 1001);
    residency_fetch_end(client, &copy);
    assert_int_equal(disk_rig_stats(&rig).pinned, 0);
}

/* What readers of one fault have been given stays, and none of them gets the rest. */
static void of_a_damaged_blob_only_what_is_right_is_seen(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    damage_all();
    struct residency_copy copy = begin_partly(1), other;
    assert_int_equal(residency_fetch_begin(client, rig_key(1), true, &other), RESIDENCY_OK);
    assert_ptr_equal(copy.blob, other.blob);
    let_go();
    enum residency_status status = RESIDENCY_OK;
    while (status == RESIDENCY_OK) {
        assert_true(copy.here_bytes <= BLOB - SWAP_PIECE_BYTES);
        assert_int_equal(says(copy.blob, copy.here_bytes), 1001);
        status = residency_fetch_more(client, &copy);
    }
    assert_int_equal(status, RESIDENCY_MISS);
    assert_null(copy.blob);
    /* The other one still reads, and the slot is not given to anybody meanwhile. */
    for (uint64_t key = 100; key < 110; key++)
        assert_int_equal(put(client, key, key), RESIDENCY_OK);
    assert_int_equal(says(other.blob, other.here_bytes), 1001);
    assert_int_equal(residency_fetch_more(client, &other), RESIDENCY_MISS);
    assert_int_equal(residency_exists(client, rig_key(1)), RESIDENCY_MISS);
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.pinned, 0);
    assert_int_equal(stats.errors, 1);
}

/* Key 1's, on a disk that fails from then on. */
static void break_off(void)
{
    struct residency_copy copy = begin_partly(1);
    disk.failing_from = 3;
    let_go();
    enum residency_status status = RESIDENCY_OK;
    while (status == RESIDENCY_OK)
        status = residency_fetch_more(client, &copy);
    assert_int_equal(status, RESIDENCY_ERR);
    assert_null(copy.blob);
    assert_int_equal(disk_rig_stats(&rig).pinned, 0);
}

static void a_disk_that_fails_half_way_loses_nothing(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    break_off();
    disk.failing_from = PIECES;
    fetch_whole(1, 1001);
}

/* Who asks again after that is told so, and not given a part once more. */
static void a_disk_that_stays_bad_refuses_the_next_reader(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    struct residency_copy copy;
    break_off();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(residency_fetch_begin(client, rig_key(1), true, &copy), RESIDENCY_ERR);
        assert_null(copy.blob);
    }
    disk.failing_from = PIECES;
    fetch_whole(1, 1001);
}

static void a_client_that_owns_gets_it_whole(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    damage_all();
    struct residency_copy copy;
    residency_own(client, true);
    assert_int_equal(residency_fetch_begin(client, rig_key(1), true, &copy), RESIDENCY_MISS);
    assert_null(copy.blob);
}

static void who_reads_is_not_disturbed_by_who_writes(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    for (int how = 0; how < 2; how++) {
        struct residency_copy copy = begin_partly(1 + (uint64_t)how);
        if (how == 0)
            assert_int_equal(put(client, 1, 5), RESIDENCY_OK);
        else
            assert_int_equal(residency_remove(client, rig_key(2)), RESIDENCY_OK);
        let_go();
        while (copy.here_bytes < BLOB)
            assert_int_equal(residency_fetch_more(client, &copy), RESIDENCY_OK);
        assert_int_equal(says(copy.blob, BLOB), 1001 + how);
        residency_fetch_end(client, &copy);
    }
    fetch_whole(1, 5);
    assert_int_equal(residency_exists(client, rig_key(2)), RESIDENCY_MISS);
}

static void who_goes_half_way_leaves_nothing(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_POOL);
    struct residency_copy copy = begin_partly(1);
    residency_fetch_end(client, &copy);
    assert_int_equal(disk_rig_stats(&rig).pinned, 0);
    let_go();
    fetch_whole(1, 1001);
    copy = begin_partly(2);
    residency_fetch_end(client, &copy);
    residency_client_free(client);
    let_go();
    client = join();
    fetch_whole(2, 1002);
}

/* They are a hint: without them a blob is there when all of it is. */
static void sums_that_are_wrong_or_gone_cost_no_blob(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_AUTO);
    residency_client_free(client);
    residency_spill_all(rig.cache); /* no spill writes any after this */
    client = join();
    for (int how = 0; how < 2; how++) {
        int fd = open_file("sums");
        if (how == 0)
            assert_int_equal(ftruncate(fd, 8), 0);
        for (off_t at = 0; how == 1 && at < KEYS * PIECES * 8; at += 8)
            assert_int_equal(pwrite(fd, "anything", 8, at), 8);
        close(fd);
        for (uint64_t key = 1; key <= KEYS; key++) {
            struct residency_copy copy;
            assert_int_equal(residency_fetch_begin(client, rig_key(key), true, &copy), RESIDENCY_OK);
            assert_int_equal(copy.here_bytes, BLOB);
            assert_int_equal(says(copy.blob, BLOB), 1000 + key);
            residency_fetch_end(client, &copy);
        }
    }
    assert_int_equal(disk_rig_stats(&rig).errors, 0);
}

/* Two sums that have changed places give the seal as well. */
static void sums_in_each_others_place_let_nothing_through_early(void **state)
{
    (void)state;
    start(RESIDENCY_SWAP_AUTO);
    uint64_t sums[KEYS][PIECES];
    int fd = open_file("sums");
    assert_true(pread(fd, sums, sizeof sums, 0) > 0);
    for (int i = 0; i < KEYS; i++) {
        uint64_t first = sums[i][0];
        sums[i][0] = sums[i][PIECES - 1];
        sums[i][PIECES - 1] = first;
    }
    assert_int_equal(pwrite(fd, sums, sizeof sums, 0), sizeof sums);
    close(fd);
    for (uint64_t key = 1; key <= KEYS; key++)
        fetch_whole(key, 1000 + key);
    assert_int_equal(disk_rig_stats(&rig).errors, 0);
}

static void kept_ones_are_fetched_as_they_come_after_a_restart(void **state)
{
    (void)state;
    rig.options.keep = true;
    start(RESIDENCY_SWAP_POOL);
    residency_client_free(client);
    residency_spill_all(rig.cache);
    disk_rig_stop(&rig);
    disk_rig_start(&rig);
    client = join();
    struct residency_copy copy = begin_partly(3);
    let_go();
    residency_fetch_end(client, &copy);
    for (uint64_t key = 1; key <= KEYS; key++)
        fetch_whole(key, 1000 + key);
}

/* ---- many at once ---- */

static uint64_t turns; /* of a thread */

static void fetch_some(struct residency_client *by, uint64_t *random)
{
    struct residency_copy copy;
    uint64_t key = 1 + test_random(random) % KEYS;
    if (residency_fetch_begin(by, rig_key(key), true, &copy) != RESIDENCY_OK)
        return;
    uint64_t what = says(copy.blob, copy.here_bytes);
    if (what % 1000 != key)
        abort();
    while (copy.here_bytes < BLOB && test_random(random) % 8 > 0)
        if (residency_fetch_more(by, &copy) != RESIDENCY_OK)
            return;
    if (says(copy.blob, copy.here_bytes) != what)
        abort();
    residency_fetch_end(by, &copy);
}

static void *work(void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    struct residency_client *mine = join();
    for (uint64_t i = 0; i < turns; i++) {
        uint64_t key = 1 + test_random(&random) % KEYS, what = test_random(&random) % 16;
        if (what == 0)
            (void)residency_remove(mine, rig_key(key));
        else if (what < 5)
            (void)put(mine, key, 1000 * (1 + test_random(&random) % 1000) + key);
        else if (what < 7)
            (void)residency_prefetch(mine, rig_key(key));
        else
            fetch_some(mine, &random);
        disk.failing_from = what == 8 ? 2 + test_random(&random) % PIECES : PIECES;
    }
    residency_client_free(mine);
    return NULL;
}

static void many_threads_see_no_torn_blob(void **state)
{
    (void)state;
    const char *text = getenv("PENSTOCK_LARGE_TURNS");
    turns = text ? strtoull(text, NULL, 10) : 60;
    start(RESIDENCY_SWAP_AUTO);
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &seeds[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    disk.failing_from = PIECES;
    assert_int_equal(disk_rig_stats(&rig).pinned + disk_rig_stats(&rig).reserved, 0);
    assert_int_equal(put(client, 1, 7), RESIDENCY_OK);
    fetch_whole(1, 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_come_whole),
        TEST(they_come_whole_from_the_pool),
        TEST(the_first_pieces_are_there_before_the_last),
        TEST(of_a_damaged_blob_only_what_is_right_is_seen),
        TEST(a_disk_that_fails_half_way_loses_nothing),
        TEST(a_disk_that_stays_bad_refuses_the_next_reader),
        TEST(a_client_that_owns_gets_it_whole),
        TEST(who_reads_is_not_disturbed_by_who_writes),
        TEST(who_goes_half_way_leaves_nothing),
        TEST(sums_that_are_wrong_or_gone_cost_no_blob),
        TEST(sums_in_each_others_place_let_nothing_through_early),
        TEST(kept_ones_are_fetched_as_they_come_after_a_restart),
        TEST(many_threads_see_no_torn_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
