#include "store_writer.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "model/experts/store.h"
#include "store_files.h"

struct layer {
    int fd; /* of the temporary file while it is written, else -1 */
    bool done;
};

struct model_store_writer {
    char *directory;
    int fd, lock;
    /* With the source as its model_version: so it is kept as the plan. */
    struct model_expert_manifest plan;
    struct layer *layers;
};

/* A layer's temporary name: as long as the writer has the lock, nobody else's. */
static const char *temporary_name(uint32_t layer, char out[MODEL_LAYER_NAME_BYTES + 4])
{
    char name[MODEL_LAYER_NAME_BYTES];
    snprintf(out, MODEL_LAYER_NAME_BYTES + 4, "%s.tmp", model_layer_name(layer, name));
    return out;
}

/* ---- opening ---- */

/* Whoever has the lock removes its file before letting go: what is locked may by then be no file of the directory. */
static int take_lock(struct model_store_writer *w, struct penstock_error *error)
{
    for (;;) {
        struct stat locked, named;
        w->lock = openat(w->fd, MODEL_STORE_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (w->lock < 0)
            return base_error_sys(error, errno, MODEL_STORE_LOCK);
        if (flock(w->lock, LOCK_EX | LOCK_NB) != 0) {
            int cause = errno;
            close(w->lock);
            w->lock = -1;
            return cause == EWOULDBLOCK ? base_error_set(error, PENSTOCK_ELIMIT, "another process is packing into it")
                                        : base_error_sys(error, cause, MODEL_STORE_LOCK);
        }
        if (fstat(w->lock, &locked) == 0 && fstatat(w->fd, MODEL_STORE_LOCK, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            locked.st_ino == named.st_ino)
            return 0;
        close(w->lock);
    }
}

static bool is_layer(const char *name, const char *suffix)
{
    size_t len = strlen(name), end = strlen(suffix);
    return strncmp(name, "experts_", 8) == 0 && len > 8 + end && strcmp(name + len - end, suffix) == 0;
}

/* Removes what an interrupted writer was in the middle of; *finished: some layer's file is there under its name. */
static int clear_away(struct model_store_writer *w, bool *finished, struct penstock_error *error)
{
    int fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        return base_error_sys(error, cause, "list");
    }
    *finished = false;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        *finished |= is_layer(entry->d_name, ".xpr");
        if (is_layer(entry->d_name, ".xpr.tmp"))
            (void)unlinkat(w->fd, entry->d_name, 0); /* begin says so where it cannot be done */
        errno = 0;
    }
    int cause = errno;
    closedir(list);
    return cause == 0 ? 0 : base_error_sys(error, cause, "list");
}

static int write_manifest(struct model_store_writer *w, const char *name, struct penstock_error *error)
{
    struct base_buf text = { 0 };
    int status = model_expert_manifest_write(&w->plan, true, &text, error);
    if (status == 0)
        status = model_store_file_write(w->fd, name, &text, error);
    base_buf_fini(&text);
    if (status != 0)
        (void)base_error_in(error, "%s", name);
    return status;
}

static bool is_there(const struct model_store_writer *w, const char *name)
{
    return faccessat(w->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether the layers that are there were made by our plan. */
static int compare_plan(struct model_store_writer *w, struct penstock_error *error)
{
    struct model_expert_manifest before;
    int fd = openat(w->fd, MODEL_STORE_PLAN, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return base_error_set(error, PENSTOCK_EDENIED,
                              "holds layers, and nothing says of which checkpoint: remove it, or choose another");
    if (fd < 0)
        return base_error_sys(error, errno, MODEL_STORE_PLAN);
    int status = model_store_manifest_load(fd, &before, error);
    close(fd);
    if (status != 0) {
        (void)base_error_in(error, MODEL_STORE_PLAN);
        return status;
    }
    if (strcmp(before.model_version, w->plan.model_version) != 0)
        status = base_error_set(error, PENSTOCK_EDENIED,
                                "holds layers of another checkpoint, or of another state of this one: remove it, or "
                                "choose another");
    else if (!model_expert_manifest_same(&before, &w->plan))
        status = base_error_set(error, PENSTOCK_EDENIED,
                                "holds layers of other sizes, or of another number of layers: remove it, or choose "
                                "another");
    model_expert_manifest_fini(&before);
    return status;
}

/* What carries a layer's name is taken only when all that can be told of it is right; else it is written anew. */
static bool is_whole(const struct model_store_writer *w, uint32_t layer)
{
    char name[MODEL_LAYER_NAME_BYTES];
    struct stat st;
    int fd = openat(w->fd, model_layer_name(layer, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool whole = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                 model_store_layer_check(fd, &w->plan.geometry, layer, NULL) == 0;
    if (fd >= 0)
        close(fd);
    return whole;
}

static int look_around(struct model_store_writer *w, struct penstock_error *error)
{
    bool finished;
    if (is_there(w, MODEL_STORE_MANIFEST))
        return base_error_set(error, PENSTOCK_EDENIED, "is a finished store: remove it, or choose another");
    int status = clear_away(w, &finished, error);
    if (status == 0)
        status = finished ? compare_plan(w, error) : write_manifest(w, MODEL_STORE_PLAN, error);
    for (uint32_t layer = 0; layer < w->plan.geometry.num_moe_layers && status == 0 && finished; layer++)
        w->layers[layer].done = is_whole(w, layer);
    return status;
}

/* A store that was packed is to be there after a crash, its own name included. */
static int sync_parent(const struct model_store_writer *w, struct penstock_error *error)
{
    int parent = openat(w->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = parent < 0 || fsync(parent) != 0 ? errno : 0;
    if (parent >= 0)
        close(parent);
    /* One that may be written to, but not read. */
    return cause == 0 || cause == EACCES ? 0 : base_error_sys(error, cause, "sync the directory that it lies in");
}

static int open_directory(struct model_store_writer *w, struct penstock_error *error)
{
    bool made = mkdir(w->directory, 0777) == 0;
    if (!made && errno != EEXIST)
        return base_error_sys(error, errno, "make");
    w->fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->fd < 0)
        return base_error_sys(error, errno, "open");
    if (made) {
        int synced = sync_parent(w, error);
        if (synced != 0)
            return synced;
    }
    int status = take_lock(w, error);
    return status == 0 ? look_around(w, error) : status;
}

static struct model_store_writer *new_writer(const char *directory, uint32_t layers)
{
    struct model_store_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->fd = w->lock = -1;
    w->directory = strdup(directory);
    w->layers = calloc(layers, sizeof *w->layers);
    if (!w->directory || !w->layers) {
        model_store_writer_free(w);
        return NULL;
    }
    for (uint32_t layer = 0; layer < layers; layer++)
        w->layers[layer].fd = -1;
    return w;
}

int model_store_writer_open(const char *directory, const struct model_expert_manifest *manifest, const char *source,
                            struct model_store_writer **out, struct penstock_error *error)
{
    if (!penstock_model_version_valid(source, strlen(source)))
        return base_error_set(error, PENSTOCK_EINVAL, "store %s: source: not 1 to 128 printable characters", directory);
    struct model_store_writer *w = new_writer(directory, manifest->geometry.num_moe_layers);
    if (!w)
        return base_error_set(error, PENSTOCK_ENOMEM, "store %s: no memory", directory);
    int status = model_expert_manifest_init(&w->plan, &manifest->geometry, manifest->model_layers, error);
    if (status == 0) {
        memcpy(w->plan.model_version, source, strlen(source) + 1);
        status = open_directory(w, error);
    }
    if (status == 0) {
        *out = w;
        return 0;
    }
    (void)base_error_in(error, "store %s", directory);
    model_store_writer_free(w);
    return status;
}

/* ---- layers ---- */

bool model_store_writer_has(const struct model_store_writer *writer, uint32_t layer)
{
    return writer->layers[layer].done;
}

/* With its space taken, where the file system can: a disk too small shows before an hour's work. Returns an errno. */
static int make_room(int fd, uint64_t len)
{
    if (fallocate(fd, 0, 0, (off_t)len) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    return ftruncate(fd, (off_t)len) == 0 ? 0 : errno;
}

int model_store_writer_begin(struct model_store_writer *writer, uint32_t layer, int *fd, struct penstock_error *error)
{
    char name[MODEL_LAYER_NAME_BYTES + 4];
    struct layer *l = &writer->layers[layer];
    assert(layer < writer->plan.geometry.num_moe_layers && l->fd < 0);
    temporary_name(layer, name);
    (void)unlinkat(writer->fd, name, 0);
    l->fd = openat(writer->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int cause = l->fd < 0 ? errno : make_room(l->fd, writer->plan.geometry.layer_bytes);
    if (cause != 0) {
        model_store_writer_abandon(writer, layer);
        return base_error_sys(error, cause, "store %s: %s: %" PRIu64 " bytes", writer->directory, name,
                              writer->plan.geometry.layer_bytes);
    }
    *fd = l->fd;
    return 0;
}

int model_store_writer_commit(struct model_store_writer *writer, uint32_t layer, struct penstock_error *error)
{
    char temporary[MODEL_LAYER_NAME_BYTES + 4], name[MODEL_LAYER_NAME_BYTES];
    struct layer *l = &writer->layers[layer];
    temporary_name(layer, temporary);
    model_layer_name(layer, name);
    int status = model_store_layer_check(l->fd, &writer->plan.geometry, layer, error);
    if (status == 0 && fsync(l->fd) != 0)
        status = base_error_sys(error, errno, "sync");
    if (status == 0 && renameat(writer->fd, temporary, writer->fd, name) != 0)
        status = base_error_sys(error, errno, "rename");
    if (status != 0) {
        model_store_writer_abandon(writer, layer);
        (void)base_error_in(error, "store %s: %s", writer->directory, name);
        return status;
    }
    close(l->fd);
    l->fd = -1;
    l->done = true;
    if (fsync(writer->fd) != 0)
        return base_error_sys(error, errno, "store %s: sync the directory", writer->directory);
    return 0;
}

void model_store_writer_abandon(struct model_store_writer *writer, uint32_t layer)
{
    char name[MODEL_LAYER_NAME_BYTES + 4];
    struct layer *l = &writer->layers[layer];
    if (l->fd < 0)
        return;
    close(l->fd);
    l->fd = -1;
    (void)unlinkat(writer->fd, temporary_name(layer, name), 0);
}

int model_store_writer_drop(struct model_store_writer *writer, uint32_t layer, struct penstock_error *error)
{
    char name[MODEL_LAYER_NAME_BYTES];
    writer->layers[layer].done = false;
    if ((unlinkat(writer->fd, model_layer_name(layer, name), 0) == 0 || errno == ENOENT) && fsync(writer->fd) == 0)
        return 0;
    return base_error_sys(error, errno, "store %s: remove %s", writer->directory, name);
}

/* ---- the end ---- */

int model_store_writer_finish(struct model_store_writer *writer, struct penstock_error *error)
{
    char name[MODEL_LAYER_NAME_BYTES];
    int status = 0;
    for (uint32_t layer = 0; layer < writer->plan.geometry.num_moe_layers && status == 0; layer++)
        if (!writer->layers[layer].done)
            status = base_error_set(error, PENSTOCK_EINVAL, "%s: not written yet", model_layer_name(layer, name));
    if (status == 0) {
        writer->plan.model_version[0] = 0; /* the plan's, not the store's: a peer makes that one from the files */
        status = write_manifest(writer, MODEL_STORE_MANIFEST, error);
    }
    if (status != 0)
        (void)base_error_in(error, "store %s", writer->directory);
    else
        (void)unlinkat(writer->fd, MODEL_STORE_PLAN, 0); /* left there it does no harm */
    return status;
}

void model_store_writer_free(struct model_store_writer *writer)
{
    if (!writer)
        return;
    for (uint32_t layer = 0; layer < writer->plan.geometry.num_moe_layers && writer->layers; layer++)
        model_store_writer_abandon(writer, layer);
    if (writer->lock >= 0) {
        (void)unlinkat(writer->fd, MODEL_STORE_LOCK, 0);
        close(writer->lock);
    }
    if (writer->fd >= 0)
        close(writer->fd);
    model_expert_manifest_fini(&writer->plan);
    free(writer->layers);
    free(writer->directory);
    free(writer);
}
