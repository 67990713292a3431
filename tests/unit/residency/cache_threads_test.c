/* Many threads at one cache, each with a client that comes and goes. Every blob says which put it is of: one that is
 * torn, of another key, or older than what was answered before the read began, ends the test. */
#include "../test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "disk_rig.h"
#include "history.h"

enum { THREADS = 5, SLOTS = 24, ROUNDS = 3, PINS = 3 };

#define CHECK(condition) ((condition) ? (void)0 : give_up(#condition, __LINE__))
__attribute__((noreturn)) static void give_up(const char *what, int line)
{
    fprintf(stderr, "cache_threads_test.c:%d: %s\n", line, what);
    abort();
}

static struct disk_rig rig;
static struct history *history;
static pthread_barrier_t barrier;
static _Atomic bool over;
static uint64_t operations; /* of a thread, in a round */

struct worker {
    uint64_t random;
    struct residency_client *client;
    struct {
        uint64_t key, what, offset;
    } pins[PINS];
    size_t n_pins;
    uint64_t hits;
};

static uint64_t choose(struct worker *w, uint64_t below)
{
    return test_random(&w->random) % below;
}

/* What it says, having made sure that it may. */
static uint64_t look(const void *blob, uint64_t key, uint64_t floor)
{
    uint64_t what = rig_read(blob);
    CHECK(history_allows(history, key, floor, what));
    return what;
}

static void put_by_alloc(struct worker *w, uint64_t key)
{
    uint64_t offset, op = history_begin(history, key, true);
    CHECK(op != 0);
    if (residency_alloc(w->client, rig_key(key), &offset) != RESIDENCY_OK) {
        history_cancel(history, op);
        return;
    }
    rig_fill(rig_blob(w->client, offset), op);
    if (choose(w, 8) == 0) { /* left as it is: another alloc, a removal or the client's end finds it */
        history_cancel(history, op);
        return;
    }
    CHECK(residency_commit(w->client, rig_key(key)) == RESIDENCY_OK);
    history_end(history, op, key);
}

static void put_by_copy(struct worker *w, uint64_t key)
{
    struct residency_copy copy;
    uint64_t op = history_begin(history, key, true);
    CHECK(op != 0);
    if (residency_put_begin(w->client, rig_key(key), &copy) != RESIDENCY_OK) {
        history_cancel(history, op);
        return;
    }
    rig_fill(copy.blob, op);
    if (choose(w, 8) == 0) {
        history_cancel(history, op);
        residency_put_abandon(w->client, &copy);
        return;
    }
    CHECK(residency_put_commit(w->client, &copy) == RESIDENCY_OK);
    history_end(history, op, key);
}

static void get(struct worker *w, uint64_t key)
{
    uint64_t offset, floor = history_floor(history, key);
    if (residency_get(w->client, rig_key(key), &offset) != RESIDENCY_OK)
        return;
    uint64_t what = look(rig_blob(w->client, offset), key, floor);
    w->hits++;
    residency_prefetch(w->client, rig_key(choose(w, HISTORY_KEYS)));
    CHECK(rig_read(rig_blob(w->client, offset)) == what);
    residency_let_go(w->client);
}

static void fetch(struct worker *w, uint64_t key)
{
    struct residency_copy copy;
    uint64_t floor = history_floor(history, key);
    if (residency_fetch_begin(w->client, rig_key(key), true, &copy) != RESIDENCY_OK)
        return;
    look(copy.blob, key, floor);
    w->hits++;
    residency_fetch_end(w->client, &copy);
}

static void release(struct worker *w)
{
    CHECK(rig_read(rig_blob(w->client, w->pins[0].offset)) == w->pins[0].what);
    residency_mget_release(w->client, rig_key(w->pins[0].key));
    memmove(w->pins, w->pins + 1, --w->n_pins * sizeof *w->pins);
}

static void mget(struct worker *w, uint64_t key)
{
    uint64_t offset, floor = history_floor(history, key);
    if (w->n_pins == PINS)
        release(w);
    if (residency_mget(w->client, rig_key(key), &offset) != RESIDENCY_OK)
        return;
    w->pins[w->n_pins].key = key;
    w->pins[w->n_pins].offset = offset;
    w->pins[w->n_pins++].what = look(rig_blob(w->client, offset), key, floor);
    w->hits++;
}

static void forget(struct worker *w, uint64_t key)
{
    uint64_t op = history_begin(history, key, false);
    CHECK(op != 0 && residency_remove(w->client, rig_key(key)) == RESIDENCY_OK);
    history_end(history, op, key);
}

static void leave(struct worker *w)
{
    residency_client_free(w->client);
    w->client = NULL;
    w->n_pins = 0;
}

static void one_operation(struct worker *w)
{
    uint64_t key = choose(w, HISTORY_KEYS);
    if (!w->client)
        w->client = disk_rig_join(&rig, SLOTS);
    switch (choose(w, 16)) {
    case 0:
        forget(w, key);
        break;
    case 1:
        residency_own(w->client, key % 4 == 0);
        (void)residency_exists(w->client, rig_key(key));
        break;
    case 2:
        if (choose(w, 4) == 0)
            leave(w);
        break;
    case 3:
    case 4:
    case 5:
        put_by_alloc(w, key);
        break;
    case 6:
    case 7:
    case 8:
        put_by_copy(w, key);
        break;
    case 9:
    case 10:
        mget(w, key);
        break;
    case 11:
    case 12:
        fetch(w, key);
        break;
    default:
        get(w, key);
    }
}

/* Between rounds everybody is away, and the arena idle. */
static void *work(void *worker)
{
    struct worker *w = worker;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < operations; i++) {
            one_operation(w);
            if (i % 16 == 0)
                disk_rig_pass_s(1);
        }
        leave(w);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            disk_rig_pass_s(rig.options.arena_idle_s);
    }
    return NULL;
}

static void *sweep(void *unused)
{
    (void)unused;
    while (!over) {
        residency_sweep(rig.cache);
        struct residency_arena_stats stats = disk_rig_stats(&rig);
        CHECK(stats.resident <= stats.slots && stats.reserved + stats.pinned <= stats.slots);
        sched_yield();
    }
    return NULL;
}

/* Returns what the arena had counted when all had gone. */
static struct residency_arena_stats stress(uint64_t n)
{
    struct worker workers[THREADS] = { 0 };
    pthread_t threads[THREADS], sweeper;
    uint64_t hits = 0;
    operations = n;
    over = false;
    history = calloc(1, sizeof *history);
    assert_non_null(history);
    pthread_barrier_init(&barrier, NULL, THREADS);
    disk_rig_start(&rig);
    assert_int_equal(pthread_create(&sweeper, NULL, sweep, NULL), 0);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i].random = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        hits += workers[i].hits;
    }
    over = true;
    pthread_join(sweeper, NULL);
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.reserved + stats.pinned + stats.connections, 0);
    assert_int_equal(stats.errors, 0);
    assert_true(hits > n && stats.hits == hits);
    pthread_barrier_destroy(&barrier);
    free(history);
    disk_rig_remove(&rig);
    return stats;
}

static void over_a_kept_disk_nobody_reads_what_is_torn_or_stale(void **state)
{
    (void)state;
    disk_rig_init(&rig);
    rig.options.keep = true;
    rig.options.arena_idle_s = 5;
    rig.swap_options.engine = RESIDENCY_SWAP_POOL;
    struct residency_arena_stats stats = stress(300);
    assert_true(stats.spills > 100 && stats.faults > 50);
}

static void nor_under_a_cap_and_a_ttl(void **state)
{
    (void)state;
    disk_rig_init(&rig);
    rig.options.ttl_s[RESIDENCY_KV] = 60;
    rig.swap_options.cap_bytes = 10 * RIG_BLOB;
    struct residency_arena_stats stats = stress(300);
    assert_true(stats.spills > 100 && stats.faults > 50 && stats.drops > 50);
}

static void nor_in_memory_alone(void **state)
{
    (void)state;
    disk_rig_init(&rig);
    rig.in_memory = rig.options.ram_only = true;
    assert_true(stress(1500).drops > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_a_kept_disk_nobody_reads_what_is_torn_or_stale),
        cmocka_unit_test(nor_under_a_cap_and_a_ttl),
        cmocka_unit_test(nor_in_memory_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
