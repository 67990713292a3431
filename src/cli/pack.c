#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "model/experts/pack.h"
#include "model/experts/store.h"
#include "model/experts/store_writer.h"
#include "progress.h"

#define TICK_MS 200
/* Of all threads' buffers: the process is to stay well below 512 MiB. */
#define BUFFERS_BYTES_MAX (UINT64_C(256) << 20)

struct pack {
    struct pack_options options; /* threads: how many there are */
    struct model_checkpoint checkpoint;
    struct model_store_writer *writer;
    struct progress progress;
    int signal_fd, over_fd; /* over: the last worker has gone */

    pthread_mutex_t lock; /* guards what follows, and the writer's begin and drop */
    uint32_t layer;       /* the next record to write: begun where expert is not 0 */
    uint32_t expert;
    uint32_t *left; /* of each layer: records not written yet */
    int *fds;
    uint64_t verify_next, verify_n;
    uint64_t done, total; /* bytes, for progress */
    unsigned working;
    bool stop, interrupted;
    int status;
    struct penstock_error error; /* of the first failure */
};

static const struct model_expert_geometry *geometry_of(const struct pack *pack)
{
    return &pack->checkpoint.manifest.geometry;
}

/* ---- workers ---- */

/* With the lock. The first error is the one that is told. */
static void fail_locked(struct pack *pack, int status, const struct penstock_error *error)
{
    if (pack->status == 0) {
        pack->status = status;
        pack->error = *error;
    }
    pack->stop = true;
}

static void fail(struct pack *pack, int status, const struct penstock_error *error)
{
    pthread_mutex_lock(&pack->lock);
    fail_locked(pack, status, error);
    pthread_mutex_unlock(&pack->lock);
}

/* The next record, its layer's file open. Called with the lock; false: there is none. */
static bool take_record(struct pack *pack, uint32_t *layer, uint32_t *expert, struct penstock_error *error, int *status)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    if (pack->expert == g->num_experts) {
        pack->expert = 0;
        pack->layer++;
    }
    while (pack->layer < g->num_moe_layers && pack->left[pack->layer] == 0)
        pack->layer++;
    if (pack->stop || pack->layer >= g->num_moe_layers)
        return false;
    if (pack->expert == 0)
        *status = model_store_writer_begin(pack->writer, pack->layer, &pack->fds[pack->layer], error);
    *layer = pack->layer;
    *expert = pack->expert;
    if (*status == 0)
        pack->expert++;
    return *status == 0;
}

/* The record that will be asked for when all that are being built are done. */
static void read_ahead(const struct pack *pack, uint32_t layer, uint32_t expert, unsigned threads)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    uint64_t at = (uint64_t)layer * g->num_experts + expert + threads;
    if (at / g->num_experts < g->num_moe_layers)
        model_packer_expect(&pack->checkpoint, (uint32_t)(at / g->num_experts), (uint32_t)(at % g->num_experts));
}

/* Whoever wrote a layer's last record syncs it, while others are at the next layer. */
static int record_written(struct pack *pack, uint32_t layer, struct penstock_error *error)
{
    pthread_mutex_lock(&pack->lock);
    pack->done += geometry_of(pack)->record_stride;
    bool last = --pack->left[layer] == 0;
    pthread_mutex_unlock(&pack->lock);
    return last ? model_store_writer_commit(pack->writer, layer, error) : 0;
}

static int write_records(struct pack *pack, struct model_packer *packer, struct penstock_error *error)
{
    for (;;) {
        uint32_t layer, expert;
        int status = 0;
        pthread_mutex_lock(&pack->lock);
        bool more = take_record(pack, &layer, &expert, error, &status);
        int fd = more ? pack->fds[layer] : -1;
        pthread_mutex_unlock(&pack->lock);
        if (!more)
            return status;
        read_ahead(pack, layer, expert, pack->options.threads);
        status = model_packer_write(packer, fd, layer, expert, error);
        if (status == 0)
            status = record_written(pack, layer, error);
        if (status != 0)
            return status;
    }
}

/* One record against its source. A layer that has a wrong one is removed, to be packed anew. */
static int verify_record(struct pack *pack, struct model_packer *packer, uint64_t record, struct penstock_error *error)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    uint32_t layer = (uint32_t)(record / g->num_experts), expert = (uint32_t)(record % g->num_experts);
    char name[MODEL_LAYER_NAME_BYTES], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", pack->options.store, model_layer_name(layer, name));
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return base_error_sys(error, errno, "%s", path);
    struct penstock_error words = { 0 };
    bool differs;
    int status = model_packer_verify(packer, fd, layer, expert, &differs, &words);
    close(fd);
    if (differs) {
        /* The reason is there before the file is gone, which another worker may be about to open. */
        pthread_mutex_lock(&pack->lock);
        int dropped = model_store_writer_drop(pack->writer, layer, error);
        status = dropped
                     ? dropped
                     : base_error_set(error, status, "%s: %s; the layer is removed: the same command packs it again",
                                      path, words.message);
        fail_locked(pack, status, error);
        pthread_mutex_unlock(&pack->lock);
    } else if (status != 0)
        *error = words;
    return status;
}

static int verify_records(struct pack *pack, struct model_packer *packer, struct penstock_error *error)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    uint64_t all = (uint64_t)g->num_moe_layers * g->num_experts;
    for (;;) {
        pthread_mutex_lock(&pack->lock);
        bool more = !pack->stop && pack->verify_next < pack->verify_n;
        uint64_t i = pack->verify_next;
        pack->verify_next += more;
        pthread_mutex_unlock(&pack->lock);
        if (!more)
            return 0;
        int status = verify_record(pack, packer, all * i / pack->verify_n, error);
        if (status != 0)
            return status;
        pthread_mutex_lock(&pack->lock);
        pack->done += g->record_stride;
        pthread_mutex_unlock(&pack->lock);
    }
}

static void worker(struct pack *pack, int (*work)(struct pack *, struct model_packer *, struct penstock_error *))
{
    struct model_packer packer;
    struct penstock_error error = { 0 };
    int status = model_packer_init(&packer, &pack->checkpoint, MODEL_PACKER_PIECE_BYTES, &error);
    if (status == 0) {
        status = work(pack, &packer, &error);
        model_packer_fini(&packer);
    }
    if (status != 0)
        fail(pack, status, &error);
    pthread_mutex_lock(&pack->lock);
    bool last = --pack->working == 0;
    pthread_mutex_unlock(&pack->lock);
    if (last)
        (void)eventfd_write(pack->over_fd, 1);
}

static void *write_worker(void *context)
{
    worker(context, write_records);
    return NULL;
}

static void *verify_worker(void *context)
{
    worker(context, verify_records);
    return NULL;
}

/* ---- the main thread ---- */

static void watch(struct pack *pack)
{
    for (;;) {
        struct pollfd fds[] = { { .fd = pack->over_fd, .events = POLLIN },
                                { .fd = pack->signal_fd, .events = POLLIN } };
        if (poll(fds, 2, TICK_MS) < 0 && errno != EINTR)
            return;
        eventfd_t over;
        if (fds[0].revents && eventfd_read(pack->over_fd, &over) == 0)
            return;
        struct signalfd_siginfo got;
        bool signaled = fds[1].revents && read(pack->signal_fd, &got, sizeof got) == (ssize_t)sizeof got;
        pthread_mutex_lock(&pack->lock);
        pack->interrupted |= signaled;
        pack->stop |= signaled;
        uint64_t done = pack->done;
        pthread_mutex_unlock(&pack->lock);
        progress_tick(&pack->progress, done, pack->total, NULL);
    }
}

/* Runs the workers until the last has gone. */
static int all_together(struct pack *pack, void *(*entry)(void *), struct penstock_error *error)
{
    unsigned threads = pack->options.threads, started = 0;
    pthread_t *ids = calloc(threads, sizeof *ids);
    if (!ids)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    pack->working = 1; /* this one, until all are started */
    int failed = 0;
    while (started < threads && failed == 0) {
        pthread_mutex_lock(&pack->lock);
        pack->working++;
        pthread_mutex_unlock(&pack->lock);
        failed = pthread_create(&ids[started], NULL, entry, pack);
        started += failed == 0;
    }
    pthread_mutex_lock(&pack->lock);
    pack->working -= failed == 0 ? 1 : 2;
    bool none = pack->working == 0;
    pthread_mutex_unlock(&pack->lock);
    if (none)
        (void)eventfd_write(pack->over_fd, 1);
    watch(pack);
    for (unsigned i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    free(ids);
    progress_end(&pack->progress);
    if (started == 0)
        return base_error_sys(error, failed, "start a thread");
    if (pack->status != 0) {
        *error = pack->error;
        return pack->status;
    }
    return pack->interrupted
               ? base_error_set(error, PENSTOCK_ECANCELED, "interrupted; the same command goes on where it was")
               : 0;
}

static int write_layers(struct pack *pack, struct pack_result *result, struct penstock_error *error)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    pack->left = calloc(g->num_moe_layers, sizeof *pack->left);
    pack->fds = calloc(g->num_moe_layers, sizeof *pack->fds);
    if (!pack->left || !pack->fds)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    for (uint32_t layer = 0; layer < g->num_moe_layers; layer++) {
        bool kept = model_store_writer_has(pack->writer, layer);
        pack->left[layer] = kept ? 0 : g->num_experts;
        result->kept_layers += kept;
    }
    if (result->kept_layers > 0)
        progress_say(&pack->progress, "%" PRIu32 " of %" PRIu32 " layers are there already", result->kept_layers,
                     g->num_moe_layers);
    pack->total = g->total_bytes;
    pack->done = result->kept_layers * g->layer_bytes;
    progress_begin(&pack->progress, pack->done);
    return all_together(pack, write_worker, error);
}

static int verify_layers(struct pack *pack, struct pack_result *result, struct penstock_error *error)
{
    const struct model_expert_geometry *g = geometry_of(pack);
    uint64_t all = (uint64_t)g->num_moe_layers * g->num_experts;
    pack->verify_n = pack->options.verify < all ? pack->options.verify : all;
    if (pack->verify_n == 0)
        return 0;
    progress_say(&pack->progress, "verifying %" PRIu64 " of %" PRIu64 " records", pack->verify_n, all);
    pack->total = pack->verify_n * g->record_stride;
    pack->done = 0;
    progress_begin(&pack->progress, 0);
    int status = all_together(pack, verify_worker, error);
    result->verified = status == 0 ? pack->verify_n : 0;
    return status;
}

/* ---- beginning and end ---- */

static void warn(void *context, const char *words)
{
    progress_say(context, "%s", words);
}

static unsigned threads_for(const struct model_expert_geometry *geometry, unsigned wanted)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t fit = BUFFERS_BYTES_MAX / model_packer_bytes(geometry, MODEL_PACKER_PIECE_BYTES);
    uint64_t n = wanted ? wanted : processors > 0 ? (uint64_t)processors : 1;
    return (unsigned)(fit == 0 ? 1 : n < fit ? n : fit);
}

/* A layer of which half is of another state would not be found by verifying: that reads the new one. */
static int check_unchanged(const struct pack *pack, struct penstock_error *error)
{
    int status = model_checkpoint_unchanged(&pack->checkpoint, error);
    if (status == 0)
        return 0;
    struct penstock_error words = *error;
    return base_error_set(error, status, "%s: the layers in %s may be of two states; remove it, and pack again",
                          words.message, pack->options.store);
}

static int pack_once(struct pack *pack, struct pack_result *result, struct penstock_error *error)
{
    struct model_checkpoint *c = &pack->checkpoint;
    struct pack_options *options = &pack->options;
    struct model_stage_options staging = { .follow_all_links = options->follow_all_links,
                                           .warn = warn,
                                           .warn_context = &pack->progress,
                                           .manifest_bytes_max = UINT64_MAX /* nobody reads it */ };
    int status = pack_check_place(options, error);
    if (status == 0)
        status = model_checkpoint_open(options->checkpoint, options->layers, &staging, c, error);
    if (status != 0)
        return status;
    const struct model_expert_geometry *g = geometry_of(pack);
    options->threads = threads_for(g, options->threads);
    if (c->other_prefixes > 0)
        progress_say(&pack->progress, "%zu tensors of experts outside %s.layers are left out", c->other_prefixes,
                     c->prefix);
    status = model_store_writer_open(options->store, &c->manifest, c->source, &pack->writer, error);
    if (status == 0)
        status = write_layers(pack, result, error);
    if (status == 0)
        status = check_unchanged(pack, error);
    if (status == 0)
        status = verify_layers(pack, result, error);
    if (status == 0)
        status = check_unchanged(pack, error);
    if (status == 0)
        status = model_store_writer_finish(pack->writer, error);
    result->layers = g->num_moe_layers;
    result->experts = g->num_experts;
    result->bytes = g->total_bytes;
    model_store_writer_free(pack->writer);
    model_checkpoint_close(c);
    return status;
}

int pack_run(const struct pack_options *options, struct pack_result *result, struct penstock_error *error)
{
    struct pack pack = { .options = *options };
    int64_t begun = base_now_ns();
    *result = (struct pack_result){ 0 };
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pack.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    pack.over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = 0;
    if (pack.signal_fd < 0 || pack.over_fd < 0)
        status = base_error_sys(error, errno, "signalfd or eventfd");
    pthread_mutex_init(&pack.lock, NULL);
    progress_init(&pack.progress, options->quiet);
    if (status == 0)
        status = pack_once(&pack, result, error);
    pthread_mutex_destroy(&pack.lock);
    free(pack.left);
    free(pack.fds);
    if (pack.signal_fd >= 0)
        close(pack.signal_fd);
    if (pack.over_fd >= 0)
        close(pack.over_fd);
    result->seconds = (double)(base_now_ns() - begun) / 1e9;
    return status;
}
