/* Threads that block in pread and pwrite, for kernels and containers without io_uring; and how threads start. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "state.h"

ssize_t swap_move_here(const struct swap_move *move)
{
    ssize_t n = move->write ? pwrite(move->fd, move->at, move->len_bytes, move->offset_bytes)
                            : pread(move->fd, move->at, move->len_bytes, move->offset_bytes);
    return n < 0 ? -errno : n;
}

static void *run(void *argument)
{
    struct residency_swap *swap = argument;
    struct swap_piece piece;
    while (swap_queue_take(swap, &piece)) {
        struct swap_move move;
        while (swap_piece_next(&piece, &move) && swap_piece_moved(&piece, swap_move_here(&move)))
            ;
    }
    return NULL;
}

int swap_thread_start(struct residency_swap *swap, void *(*run_it)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&swap->threads[swap->n_threads], NULL, run_it, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    swap->n_threads += failed == 0;
    return failed;
}

int swap_pool_start(struct residency_swap *swap)
{
    for (int i = 0; i < SWAP_POOL_THREADS; i++) {
        int failed = swap_thread_start(swap, run, swap);
        if (failed != 0)
            return -failed;
    }
    return 0;
}

void swap_threads_stop(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->queue_lock);
    swap->stopping = true;
    pthread_cond_broadcast(&swap->queue_filled);
    swap_uring_wake(swap, UINT64_MAX);
    pthread_mutex_unlock(&swap->queue_lock);
    for (uint32_t i = 0; i < swap->n_threads; i++)
        pthread_join(swap->threads[i], NULL);
    swap->n_threads = 0;
}
