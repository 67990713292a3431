#include "parallel.h"

#include <pthread.h>

#include "base/error.h"
#include "thread.h"

#define THREADS_MAX 16

struct team {
    const struct peer_pieces *pieces;
    _Atomic size_t next;
    pthread_mutex_t lock; /* the two below */
    int code;
    struct penstock_error error;
};

static bool goes_on(struct team *team)
{
    pthread_mutex_lock(&team->lock);
    if (team->code == 0 && team->pieces->stop && atomic_load(team->pieces->stop))
        team->code = base_error_set(&team->error, PENSTOCK_ECANCELED, "this peer is shutting down");
    bool on = team->code == 0;
    pthread_mutex_unlock(&team->lock);
    return on;
}

static void *work(void *argument)
{
    struct team *team = argument;
    for (;;) {
        size_t piece = atomic_fetch_add(&team->next, 1);
        if (piece >= team->pieces->n || !goes_on(team))
            return NULL;
        struct penstock_error error;
        int code = team->pieces->run(team->pieces->context, piece, &error);
        if (code == 0)
            continue;
        pthread_mutex_lock(&team->lock);
        if (team->code == 0) {
            team->code = code;
            team->error = error;
        }
        pthread_mutex_unlock(&team->lock);
        return NULL;
    }
}

int peer_parallel(const struct peer_pieces *pieces, size_t n_threads, struct penstock_error *error)
{
    struct team team = { .pieces = pieces };
    pthread_t threads[THREADS_MAX];
    size_t started = 0, others = n_threads < pieces->n ? n_threads : pieces->n;
    pthread_mutex_init(&team.lock, NULL);
    /* The first of them is the caller. */
    while (started + 1 < others && started < THREADS_MAX &&
           peer_thread_start(&threads[started], PEER_STACK_LARGE, work, &team) == 0)
        started++;
    (void)work(&team);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&team.lock);
    if (team.code && error)
        *error = team.error;
    return team.code;
}
