/* The cache over the real swap store. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "disk_rig.h"

#define ERROR UINT64_MAX

static struct disk_rig rig;

static int set_up(void **state)
{
    (void)state;
    disk_rig_init(&rig);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    disk_rig_remove(&rig);
    return 0;
}

static void put_all(struct residency_client *client, uint64_t first, uint64_t last)
{
    for (uint64_t key = first; key <= last; key++)
        assert_int_equal(rig_put(client, key, 1000 + key), RESIDENCY_OK);
}

/* ---- paging ---- */

static void come_back(enum residency_swap_engine engine)
{
    rig.swap_options.engine = engine;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 8);
    put_all(a, 1, 150);
    for (uint64_t key = 150; key >= 1; key--)
        assert_int_equal(rig_get(a, key), 1000 + key);
    for (uint64_t key = 2; key <= 150; key += 2)
        assert_int_equal(rig_put(a, key, 9000 + key), RESIDENCY_OK);
    for (uint64_t key = 1; key <= 150; key++)
        assert_int_equal(rig_get(a, key), key % 2 == 0 ? 9000 + key : 1000 + key);
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.resident + stats.on_disk, 150);
    assert_int_equal(stats.misses + stats.drops + stats.errors, 0);
    assert_true(stats.spills >= 142 && stats.faults >= 142);
    residency_client_free(a);
}

static void many_more_blobs_than_slots_come_back(void **state)
{
    (void)state;
    come_back(RESIDENCY_SWAP_AUTO);
}

static void so_they_do_from_the_pool(void **state)
{
    (void)state;
    come_back(RESIDENCY_SWAP_POOL);
}

static void a_clean_copy_is_not_written_again(void **state)
{
    (void)state;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 8);
    put_all(a, 1, 40);
    for (int round = 0; round < 3; round++)
        for (uint64_t key = 1; key <= 40; key++)
            assert_int_equal(rig_get(a, key), 1000 + key);
    assert_true(rig.reads > 80);
    assert_int_equal(rig.writes, 40);
    assert_int_equal(rig_put(a, 7, 1), RESIDENCY_OK);
    for (uint64_t key = 8; key <= 40; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    assert_int_equal(rig_get(a, 7), 1);
    assert_int_equal(rig.writes, 41);
    residency_client_free(a);
}

/* ---- a disk that fails ---- */

static void refuse_and_keep(int failed)
{
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 8);
    rig.write_errno = failed;
    put_all(a, 1, 8);
    for (uint64_t key = 9; key <= 12; key++)
        assert_int_equal(rig_put(a, key, 1), RESIDENCY_ERR);
    for (uint64_t key = 1; key <= 8; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    assert_int_equal(disk_rig_stats(&rig).resident, 8);
    assert_int_equal(disk_rig_stats(&rig).drops, 0);
    assert_int_equal(disk_rig_stats(&rig).errors, 4);
    rig.write_errno = 0;
    residency_client_free(a);
}

static void a_full_disk_refuses_the_alloc_and_keeps_what_is_resident(void **state)
{
    (void)state;
    refuse_and_keep(ENOSPC);
}

static void a_disk_that_fails_refuses_the_alloc_until_it_is_well_again(void **state)
{
    (void)state;
    refuse_and_keep(EIO);
    struct residency_client *a = disk_rig_join(&rig, 8);
    put_all(a, 9, 40);
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    residency_client_free(a);
}

static void a_bad_sector_costs_one_try_and_no_blob(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig.bad_sector = true;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 8);
    put_all(a, 1, 8);
    assert_int_equal(rig_put(a, 9, 1009), RESIDENCY_ERR); /* its room was to come from there */
    put_all(a, 9, 40);
    residency_client_free(a);
    residency_spill_all(rig.cache);
    assert_int_equal(disk_rig_stats(&rig).errors, 1);
    disk_rig_stop(&rig);
    disk_rig_start(&rig);
    a = disk_rig_join(&rig, 8);
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    residency_client_free(a);
}

static void a_last_spill_goes_on_past_a_bad_sector(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig.bad_sector = true;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 40);
    put_all(a, 1, 30);
    residency_client_free(a);
    residency_spill_all(rig.cache);
    assert_int_equal(disk_rig_stats(&rig).on_disk, 30);
    disk_rig_stop(&rig);
    disk_rig_start(&rig);
    assert_int_equal(disk_rig_stats(&rig).on_disk, 30);
}

static void a_record_that_cannot_be_read_is_an_error_and_stays(void **state)
{
    (void)state;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 2);
    put_all(a, 1, 6);
    rig.read_errno = EIO;
    assert_int_equal(rig_get(a, 1), ERROR);
    assert_int_equal(residency_exists(a, rig_key(1)), RESIDENCY_OK);
    rig.read_errno = 0;
    assert_int_equal(rig_get(a, 1), 1001);
    residency_client_free(a);
}

/* One bit in the middle of every record of the file. */
static void flip_bits(void)
{
    char path[128];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/kv-%d.swap", rig.directory, RIG_BLOB);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = RIG_BLOB / 2 + 100; pread(fd, &byte, 1, at) == 1 && at < 100 * RIG_BLOB; at += RIG_BLOB) {
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void a_record_that_was_damaged_is_a_counted_miss(void **state)
{
    (void)state;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 2);
    struct residency_swap_stats swap;
    put_all(a, 1, 6); /* each waits for the spill that makes room for it */
    flip_bits();
    for (uint64_t key = 1; key <= 4; key++)
        assert_int_equal(rig_get(a, key), 0);
    assert_int_equal(disk_rig_stats(&rig).errors, 4);
    assert_int_equal(residency_exists(a, rig_key(1)), RESIDENCY_MISS);
    residency_swap_stats(rig.swap, &swap);
    assert_int_equal(swap.corrupt_records, 4);
    put_all(a, 1, 6);
    for (uint64_t key = 1; key <= 6; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    residency_client_free(a);
}

/* ---- limits ---- */

static void under_a_cap_the_coldest_go(void **state)
{
    (void)state;
    rig.swap_options.cap_bytes = 10 * RIG_BLOB;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 4);
    put_all(a, 1, 30);
    struct residency_swap_stats swap;
    residency_swap_stats(rig.swap, &swap);
    assert_true(swap.used_bytes <= swap.cap_bytes);
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.drops, 16);
    assert_int_equal(stats.resident + stats.on_disk, 14);
    for (uint64_t key = 1; key <= 30; key++)
        assert_int_equal(residency_exists(a, rig_key(key)), key <= 16 ? RESIDENCY_MISS : RESIDENCY_OK);
    residency_client_free(a);
}

static void one_kinds_cap_leaves_the_other_alone(void **state)
{
    (void)state;
    rig.swap_options.cap_kind_bytes[RESIDENCY_KV] = 3 * RIG_BLOB;
    disk_rig_start(&rig);
    struct residency_client *kv = disk_rig_join(&rig, 2), *ssm;
    assert_int_equal(residency_join(rig.cache, RESIDENCY_SSM, 2 * RIG_BLOB, RIG_BLOB, &ssm, NULL), 0);
    put_all(kv, 1, 20);
    put_all(ssm, 1, 20);
    assert_int_equal(disk_rig_stats(&rig).drops, 15);
    for (uint64_t key = 1; key <= 20; key++)
        assert_int_equal(rig_get(ssm, key), 1000 + key);
    residency_client_free(kv);
    residency_client_free(ssm);
}

static void what_nobody_touched_for_its_ttl_leaves_the_disk_too(void **state)
{
    (void)state;
    rig.options.ttl_s[RESIDENCY_KV] = 60;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 4);
    put_all(a, 1, 20);
    disk_rig_pass_s(40);
    assert_int_equal(rig_get(a, 3), 1003);
    disk_rig_pass_s(40);
    residency_sweep(rig.cache);
    struct residency_swap_stats swap;
    residency_swap_stats(rig.swap, &swap);
    assert_true(swap.used_bytes <= RIG_BLOB);
    for (uint64_t key = 1; key <= 20; key++)
        assert_int_equal(rig_get(a, key), key == 3 ? 1003 : 0);
    residency_client_free(a);
}

static void an_idle_arena_gives_its_memory_back_and_keeps_its_blobs(void **state)
{
    (void)state;
    rig.options.arena_idle_s = 10;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 16);
    put_all(a, 1, 40);
    residency_client_free(a);
    disk_rig_pass_s(11);
    residency_sweep(rig.cache);
    assert_int_equal(disk_rig_stats(&rig).arena_bytes, 0);
    assert_int_equal(disk_rig_stats(&rig).on_disk, 40);
    assert_int_equal(residency_used(&rig.ledger), 0);
    a = disk_rig_join(&rig, 4);
    for (uint64_t key = 1; key <= 40; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    residency_client_free(a);
}

/* ---- restarts ---- */

static void what_is_kept_is_found_after_a_restart(void **state)
{
    (void)state;
    rig.options.keep = true;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 8), *b = disk_rig_join(&rig, 8);
    residency_own(b, true);
    assert_int_equal(rig_put(b, 100, 1), RESIDENCY_OK);
    put_all(a, 1, 50);
    assert_int_equal(rig_put(a, 5, 7), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 45, 8), RESIDENCY_OK);
    assert_int_equal(residency_remove(a, rig_key(6)), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 100), 1);
    residency_client_free(a);
    residency_spill_all(rig.cache); /* 100 as well, and its client is gone without a word */
    residency_client_free(b);
    for (int restart = 0; restart < 2; restart++) {
        disk_rig_stop(&rig);
        disk_rig_start(&rig);
        assert_int_equal(disk_rig_stats(&rig).on_disk, 49);
        a = disk_rig_join(&rig, 8);
        for (uint64_t key = 1; key <= 50; key++)
            assert_int_equal(rig_get(a, key), key == 5 ? 7 : key == 6 ? 0 : key == 45 ? 8 : 1000 + key);
        assert_int_equal(rig_get(a, 100), 0);
        residency_client_free(a);
    }
}

static void without_keep_a_restart_finds_nothing(void **state)
{
    (void)state;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 4);
    put_all(a, 1, 20);
    residency_client_free(a);
    residency_spill_all(rig.cache);
    disk_rig_stop(&rig);
    disk_rig_start(&rig);
    a = disk_rig_join(&rig, 4);
    for (uint64_t key = 1; key <= 20; key++)
        assert_int_equal(rig_get(a, key), 0);
    residency_client_free(a);
}

/* ---- what must not be answered before it is so ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool closed, at_the_gate;
static int waits;
static enum residency_swap_step gated;

static int stop_at_the_gate(void *user, enum residency_swap_step step, uint64_t offset_bytes, size_t *len_bytes)
{
    (void)user, (void)offset_bytes, (void)len_bytes;
    if (step != gated)
        return 0;
    pthread_mutex_lock(&gate);
    at_the_gate = closed;
    pthread_cond_broadcast(&gate_changed);
    while (closed)
        pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
    return 0;
}

/* Somebody waits: whoever stands at the gate may go on. */
static void open_the_gate(void *user)
{
    (void)user;
    pthread_mutex_lock(&gate);
    waits++;
    closed = false;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
    sched_yield();
}

static void *remove_key_1(void *client)
{
    assert_int_equal(residency_remove(client, rig_key(1)), RESIDENCY_OK);
    return NULL;
}

/* Two remove one key, of which the disk has a record: the second has nothing to remove, and must wait for the first.
 * Else a process that is killed then would find again what it said it had forgotten. */
static void a_removal_waits_for_another_threads(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig.options.while_waiting = open_the_gate;
    rig.hook.before = stop_at_the_gate;
    gated = RESIDENCY_SWAP_INDEX;
    closed = false;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, 2), *b = disk_rig_join(&rig, 2);
    put_all(a, 1, 4);
    closed = true;
    at_the_gate = false;
    waits = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, remove_key_1, b), 0);
    pthread_mutex_lock(&gate);
    while (!at_the_gate)
        pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
    assert_int_equal(residency_remove(a, rig_key(1)), RESIDENCY_OK);
    assert_true(waits > 0);
    pthread_join(thread, NULL);
    residency_client_free(a);
    residency_client_free(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(many_more_blobs_than_slots_come_back),
        TEST(so_they_do_from_the_pool),
        TEST(a_clean_copy_is_not_written_again),
        TEST(a_full_disk_refuses_the_alloc_and_keeps_what_is_resident),
        TEST(a_disk_that_fails_refuses_the_alloc_until_it_is_well_again),
        TEST(a_bad_sector_costs_one_try_and_no_blob),
        TEST(a_last_spill_goes_on_past_a_bad_sector),
        TEST(a_record_that_cannot_be_read_is_an_error_and_stays),
        TEST(a_record_that_was_damaged_is_a_counted_miss),
        TEST(under_a_cap_the_coldest_go),
        TEST(one_kinds_cap_leaves_the_other_alone),
        TEST(what_nobody_touched_for_its_ttl_leaves_the_disk_too),
        TEST(an_idle_arena_gives_its_memory_back_and_keeps_its_blobs),
        TEST(what_is_kept_is_found_after_a_restart),
        TEST(without_keep_a_restart_finds_nothing),
        TEST(a_removal_waits_for_another_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
