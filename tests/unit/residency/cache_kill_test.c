/* A process with a cache is killed at random times, again and again, over one directory. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_rig.h"
#include "history.h"

enum { THREADS = 3, SLOTS = 8, ROUNDS = 10 };

static struct disk_rig rig;
static struct history *history;

static void one_operation(struct residency_client *client, uint64_t *random)
{
    uint64_t key = test_random(random) % HISTORY_KEYS, how = test_random(random) % 8;
    if (how == 0) {
        uint64_t floor = history_floor(history, key), what = rig_get(client, key);
        if (what != 0 && what != UINT64_MAX && !history_allows(history, key, floor, what))
            abort();
        return;
    }
    uint64_t op = history_begin(history, key, how > 2);
    if (op == 0)
        for (;;)
            pause();
    if (how <= 2)
        (void)residency_remove(client, rig_key(key));
    else if (rig_put(client, key, op) != RESIDENCY_OK)
        abort();
    history_end(history, op, key);
}

static void *work(void *seed)
{
    struct residency_client *client = disk_rig_join(&rig, SLOTS);
    for (uint64_t random = *(uint64_t *)seed;;)
        one_operation(client, &random);
    return NULL;
}

static void live_until_killed(uint64_t round)
{
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];
    disk_rig_start(&rig);
    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = round * THREADS + i;
        if (pthread_create(&threads[i], NULL, work, &seeds[i]) != 0)
            abort();
    }
    for (;;)
        pause();
}

static void kill_somewhere(uint64_t round, uint64_t *random)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        live_until_killed(round);
    for (uint64_t until = history->n + 20 + test_random(random) % 400; history->n < until;) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        sched_yield();
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_killed_process_finds_nothing_that_was_overwritten_or_removed(void **state)
{
    (void)state;
    uint64_t random = 1, found = 0;
    history = mmap(NULL, sizeof *history, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(history, MAP_FAILED);
    disk_rig_init(&rig);
    rig.options.keep = true;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        kill_somewhere(round, &random);
        disk_rig_start(&rig);
        struct residency_client *client = disk_rig_join(&rig, HISTORY_KEYS);
        for (uint64_t key = 0; key < HISTORY_KEYS; key++) {
            uint64_t what = rig_get(client, key);
            if (what == 0)
                continue;
            found++;
            assert_true(history_allows(history, key, history_floor(history, key), what));
        }
        assert_int_equal(disk_rig_stats(&rig).errors, 0);
        residency_client_free(client);
        disk_rig_stop(&rig);
    }
    assert_true(found > ROUNDS);
    disk_rig_start(&rig);
    disk_rig_remove(&rig);
    munmap(history, sizeof *history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_finds_nothing_that_was_overwritten_or_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
