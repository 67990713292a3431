#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "memory.h"
#include "thread.h"

#define WARM_STEP_BYTES (UINT64_C(16) << 20)

bool peer_job_stopped(const struct peer_job *job)
{
    return atomic_load(&job->worker->stop) || peer_served_unwanted(job->served);
}

void peer_job_progress(struct peer_job *job, uint64_t bytes)
{
    job->done_bytes += bytes;
    if (base_now_ns() < job->tell_ns)
        return;
    job->tell_ns = base_deadline_ns(PEER_JOB_TELL_NS);
    base_log_info("%s: %s %.1f of %.1f GB", job->served->id, job->doing, (double)job->done_bytes / 1e9,
                  (double)job->served->bytes / 1e9);
}

/* ---- warming ---- */

/* Into the page cache, and into the page tables for writev. The kernel's own read: a file cut short is an error here,
 * not a signal. */
static void warm_step(const struct peer_file *file, uint64_t offset, uint64_t len)
{
    (void)posix_fadvise(file->fd, (off_t)offset, (off_t)len, POSIX_FADV_WILLNEED);
#ifdef MADV_POPULATE_READ
    (void)madvise((void *)(uintptr_t)(file->mapping + offset), len, MADV_POPULATE_READ);
#endif
}

/* What RDMA clients read is in memory: the page cache need not have it a second time. */
static bool held_as_copy(const struct peer_served *served, size_t file)
{
    return file < served->n_regions && atomic_load(&served->registration.copied);
}

static void warm(struct peer_worker *worker, struct peer_served *served)
{
    struct peer_job job = { worker, served, "warmed", 0, base_deadline_ns(PEER_JOB_TELL_NS) };
    for (size_t i = 0; i < served->n_files; i++) {
        const struct peer_file *file = &served->files[i];
        for (uint64_t at = 0; at < file->len_bytes && !peer_job_stopped(&job) && !held_as_copy(served, i);
             at += WARM_STEP_BYTES) {
            uint64_t left = file->len_bytes - at, len = left < WARM_STEP_BYTES ? left : WARM_STEP_BYTES;
            if (peer_live_warmed(worker->live) + len > peer_memory_available() / 10 * 9) {
                base_log_info("%s: warmed %.1f of %.1f GB, which is what memory is free for", served->id,
                              (double)job.done_bytes / 1e9, (double)served->bytes / 1e9);
                return;
            }
            warm_step(file, at, len);
            atomic_fetch_add(&served->warmed_bytes, len);
            peer_job_progress(&job, len);
        }
    }
    if (!peer_job_stopped(&job) && job.done_bytes > 0)
        base_log_info("%s: warm, %.1f GB", served->id, (double)job.done_bytes / 1e9);
}

/* ---- the thread ---- */

void peer_worker_do(struct peer_worker *worker, struct peer_served *served)
{
    /* Hashing reads everything once: warming comes after it and mostly finds things done. */
    if (worker->hash && served->ops->hash)
        served->ops->hash(worker, served);
    if (worker->warm)
        warm(worker, served);
}

static void lower_priority(void)
{
    /* On Linux a thread's own, not the process's. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    (void)syscall(SYS_ioprio_set, 1 /* a process: this thread */, 0, 2 << 13 | 7 /* best effort, the lowest */);
}

static struct peer_served *take(struct peer_worker *worker)
{
    struct peer_served *served = NULL;
    pthread_mutex_lock(&worker->lock);
    while (worker->queue.n == 0 && !atomic_load(&worker->stop))
        pthread_cond_wait(&worker->more, &worker->lock);
    if (worker->queue.n > 0 && !atomic_load(&worker->stop)) {
        served = worker->queue.at[0];
        worker->queue.n--;
        for (size_t i = 0; i < worker->queue.n; i++)
            worker->queue.at[i] = worker->queue.at[i + 1];
    }
    pthread_mutex_unlock(&worker->lock);
    return served;
}

static void *work(void *argument)
{
    struct peer_worker *worker = argument;
    lower_priority();
    for (struct peer_served *served = take(worker); served; served = take(worker)) {
        peer_worker_do(worker, served);
        peer_served_unref(served);
    }
    return NULL;
}

int peer_worker_init(struct peer_worker *worker, struct peer_live *live, bool warm, bool hash,
                     struct penstock_error *error)
{
    *worker = (struct peer_worker){ .live = live, .warm = warm, .hash = hash };
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->more, NULL);
    int failed = peer_thread_start(&worker->thread, PEER_STACK_LARGE, work, worker);
    return failed ? base_error_sys(error, failed, "start the worker's thread") : 0;
}

void peer_worker_fini(struct peer_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    atomic_store(&worker->stop, true);
    pthread_cond_signal(&worker->more);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    base_vec_for_each (served, &worker->queue)
        peer_served_unref(*served);
    base_vec_free(&worker->queue);
    pthread_cond_destroy(&worker->more);
    pthread_mutex_destroy(&worker->lock);
}

void peer_worker_push(struct peer_worker *worker, struct peer_served *served)
{
    if (!worker->warm && !worker->hash)
        return;
    peer_served_ref(served);
    pthread_mutex_lock(&worker->lock);
    bool queued = base_vec_push(&worker->queue, served);
    pthread_cond_signal(&worker->more);
    pthread_mutex_unlock(&worker->lock);
    if (!queued)
        peer_served_unref(served);
}
