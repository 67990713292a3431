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

#define SCRATCH_BYTES (256u << 10) /* stays in the second-level cache between pread and the hash */
#define WARM_STEP_BYTES (UINT64_C(16) << 20)
#define PROGRESS_EVERY_NS (10 * BASE_SECOND_NS)
#define SAVE_EVERY_NS (60 * BASE_SECOND_NS)

/* How the work on one model goes. */
struct job {
    struct peer_worker *worker;
    struct peer_model *model;
    const char *doing; /* "hashed" */
    uint64_t done_bytes;
    int64_t tell_ns, save_ns;
};

static bool stopped(const struct job *job)
{
    return atomic_load(&job->worker->stop) || peer_models_unwanted(job->worker->models, job->model);
}

static void progress(struct job *job, uint64_t bytes)
{
    job->done_bytes += bytes;
    if (base_now_ns() < job->tell_ns)
        return;
    job->tell_ns = base_deadline_ns(PROGRESS_EVERY_NS);
    base_log_info("%s: %s %.1f of %.1f GB", job->model->id, job->doing, (double)job->done_bytes / 1e9,
                  (double)job->model->bytes / 1e9);
}

/* ---- digests ---- */

static void save(struct job *job)
{
    char where[4096];
    struct penstock_error error;
    if (model_digests_save(&job->model->staged, &job->model->digests, where, sizeof where, &error) == 0)
        base_log_debug("%s: digests kept in %s", job->model->id, where);
    else
        base_log_warning("%s: digests are not kept and will be computed again: %s", job->model->id, error.message);
    job->save_ns = base_deadline_ns(SAVE_EVERY_NS);
}

/* Returns how many chunks it hashed. */
static uint64_t hash_file(struct job *job, size_t i, uint8_t *scratch)
{
    struct peer_model *model = job->model;
    const struct model_file_digests *digests = &model->digests.files[i];
    uint64_t hashed = 0;

    while (atomic_load(&digests->known) < digests->chunks && !stopped(job)) {
        struct penstock_error error;
        uint64_t before = atomic_load(&digests->known);
        if (model_digests_next(&model->staged, &model->digests, i, scratch, SCRATCH_BYTES, &error)) {
            base_log_error("%s: no more digests of %s: %s", model->id, model->files[i].name, error.message);
            atomic_store(&model->files[i].no_digests, true);
            break;
        }
        hashed++;
        uint64_t from = before * PENSTOCK_DIGEST_CHUNK_BYTES, left = model->files[i].len_bytes - from;
        progress(job, left < PENSTOCK_DIGEST_CHUNK_BYTES ? left : PENSTOCK_DIGEST_CHUNK_BYTES);
        if (base_now_ns() >= job->save_ns)
            save(job);
    }
    return hashed;
}

static bool complete(const struct peer_model *model)
{
    for (size_t i = 0; i < model->n_files; i++)
        if (atomic_load(&model->digests.files[i].known) < model->digests.files[i].chunks)
            return false;
    return true;
}

static void hash_model(struct peer_worker *worker, struct peer_model *model)
{
    struct job job = {
        worker, model, "hashed", 0, base_deadline_ns(PROGRESS_EVERY_NS), base_deadline_ns(SAVE_EVERY_NS)
    };
    int64_t began_ns = base_now_ns();
    uint64_t loaded = model_digests_load(&model->staged, &model->digests), hashed = 0;
    uint8_t *scratch = malloc(SCRATCH_BYTES);
    if (!scratch) {
        base_log_error("%s: no memory to compute digests", model->id);
        for (size_t i = 0; i < model->n_files; i++)
            atomic_store(&model->files[i].no_digests, true);
        return;
    }
    for (size_t i = 0; i < model->n_files; i++)
        hashed += hash_file(&job, i, scratch);
    free(scratch);
    if (hashed > 0)
        save(&job);
    if (complete(model))
        base_log_info("%s: digests of %" PRIu64 " chunks, %" PRIu64 " of them kept from before, in %.3f s", model->id,
                      loaded + hashed, loaded, (double)(base_now_ns() - began_ns) / 1e9);
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
static bool held_as_copy(const struct peer_model *model, size_t file)
{
    return file < model->staged.manifest.shards.n && atomic_load(&model->registration.copied);
}

static void warm_model(struct peer_worker *worker, struct peer_model *model)
{
    struct job job = { worker, model, "warmed", 0, base_deadline_ns(PROGRESS_EVERY_NS), BASE_NEVER };
    for (size_t i = 0; i < model->n_files; i++) {
        const struct peer_file *file = &model->files[i];
        for (uint64_t at = 0; at < file->len_bytes && !stopped(&job) && !held_as_copy(model, i);
             at += WARM_STEP_BYTES) {
            uint64_t left = file->len_bytes - at, len = left < WARM_STEP_BYTES ? left : WARM_STEP_BYTES;
            if (peer_models_warmed(worker->models) + len > peer_memory_available() / 10 * 9) {
                base_log_info("%s: warmed %.1f of %.1f GB, which is what memory is free for", model->id,
                              (double)job.done_bytes / 1e9, (double)model->bytes / 1e9);
                return;
            }
            warm_step(file, at, len);
            atomic_fetch_add(&model->warmed_bytes, len);
            progress(&job, len);
        }
    }
    if (!stopped(&job) && job.done_bytes > 0)
        base_log_info("%s: warm, %.1f GB", model->id, (double)job.done_bytes / 1e9);
}

/* ---- the thread ---- */

void peer_worker_do(struct peer_worker *worker, struct peer_model *model)
{
    /* Hashing reads everything once: warming comes after it and mostly finds things done. */
    if (worker->hash)
        hash_model(worker, model);
    if (worker->warm)
        warm_model(worker, model);
}

static void lower_priority(void)
{
    /* On Linux a thread's own, not the process's. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    (void)syscall(SYS_ioprio_set, 1 /* a process: this thread */, 0, 2 << 13 | 7 /* best effort, the lowest */);
}

static struct peer_model *take(struct peer_worker *worker)
{
    struct peer_model *model = NULL;
    pthread_mutex_lock(&worker->lock);
    while (worker->queue.n == 0 && !atomic_load(&worker->stop))
        pthread_cond_wait(&worker->more, &worker->lock);
    if (worker->queue.n > 0 && !atomic_load(&worker->stop)) {
        model = worker->queue.at[0];
        worker->queue.n--;
        for (size_t i = 0; i < worker->queue.n; i++)
            worker->queue.at[i] = worker->queue.at[i + 1];
    }
    pthread_mutex_unlock(&worker->lock);
    return model;
}

static void *work(void *argument)
{
    struct peer_worker *worker = argument;
    lower_priority();
    for (struct peer_model *model = take(worker); model; model = take(worker)) {
        peer_worker_do(worker, model);
        peer_models_unref(worker->models, model);
    }
    return NULL;
}

int peer_worker_init(struct peer_worker *worker, struct peer_models *models, bool warm, bool hash,
                     struct penstock_error *error)
{
    *worker = (struct peer_worker){ .models = models, .warm = warm, .hash = hash };
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
    base_vec_for_each (model, &worker->queue)
        peer_models_unref(worker->models, *model);
    base_vec_free(&worker->queue);
    pthread_cond_destroy(&worker->more);
    pthread_mutex_destroy(&worker->lock);
}

void peer_worker_push(struct peer_worker *worker, struct peer_model *model)
{
    if (!worker->warm && !worker->hash)
        return;
    peer_models_ref(worker->models, model);
    pthread_mutex_lock(&worker->lock);
    bool queued = base_vec_push(&worker->queue, model);
    pthread_cond_signal(&worker->more);
    pthread_mutex_unlock(&worker->lock);
    if (!queued)
        peer_models_unref(worker->models, model);
}
