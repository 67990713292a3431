#include "stage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "discover.h"
#include "identity.h"
#include "links.h"
#include "listing.h"
#include "safetensors.h"
#include "json/write.h"

#define MANIFEST_BYTES_MAX (UINT64_C(256) << 20)

struct staging {
    struct model_staged *staged;
    const struct model_stage_options *options;
    struct model_root root;
    struct model_listing listing;
    struct model_shards shards;
    size_t shard;   /* whose header is being read */
    size_t unknown; /* tensors there whose dtype is not known */
};

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory to stage");
}

static const char *keep(struct staging *s, const char *text, size_t len)
{
    return base_pool_string(&s->staged->manifest.pool, text, len);
}

static int keep_opened(struct staging *s, int fd, const struct stat *st, struct penstock_error *error)
{
    struct model_opened opened = { .fd = fd, .identity = model_identity_of(st) };
    if (base_vec_push(&s->staged->opened, opened))
        return 0;
    close(fd);
    return no_memory(error);
}

static int take_tensor(void *context, const struct model_safetensor *from, struct penstock_error *error)
{
    struct staging *s = context;
    struct model_manifest *manifest = &s->staged->manifest;
    if (!model_shards_take(&s->shards, s->shard, from->name.at, from->name.len))
        return 0;
    struct penstock_tensor tensor = {
        .name = keep(s, from->name.at, from->name.len),
        .dtype = from->known_dtype ? from->known_dtype : keep(s, from->dtype.at, from->dtype.len),
        .rank = from->rank,
        .len_bytes = from->len_bytes,
        .offset_bytes = from->offset_bytes,
        .shard = (uint32_t)s->shard,
        .extra = s->shards.extra && s->shard == s->shards.names.n - 1,
    };
    /* Once a shard: a model may have 100,000 of them. */
    if (!from->known_dtype && s->unknown++ == 0)
        model_warn(s->options, "%s: tensor \"%.200s\": dtype \"%.50s\" is not known: its length is taken as given",
                   s->shards.names.at[s->shard], tensor.name ? tensor.name : "", tensor.dtype ? tensor.dtype : "");
    if (from->rank > 0) {
        uint64_t *shape = base_pool_alloc(&manifest->pool, from->rank * sizeof *shape);
        if (!shape)
            return no_memory(error);
        memcpy(shape, from->shape, from->rank * sizeof *shape);
        tensor.shape = shape;
    }
    return tensor.name && tensor.dtype && base_vec_push(&manifest->tensors, tensor) ? 0 : no_memory(error);
}

static int open_shard(struct staging *s, const char *name, struct penstock_error *error)
{
    struct stat st;
    int fd, status = model_root_file(&s->root, name, &fd, &st, error);
    if (status != 0)
        return status;
    status = keep_opened(s, fd, &st, error);
    if (status != 0)
        return status;
    struct penstock_file shard = { .name = keep(s, name, strlen(name)), .len_bytes = (uint64_t)st.st_size };
    if (!shard.name || !base_vec_push(&s->staged->manifest.shards, shard))
        return no_memory(error);
    s->unknown = 0;
    status = model_safetensors_read(fd, shard.len_bytes, take_tensor, s, error);
    if (status == 0 && s->unknown > 1)
        model_warn(s->options, "%s: %zu tensors in all have a dtype that is not known", name, s->unknown);
    if (status != 0)
        (void)base_error_in(error, "%s", name);
    return status;
}

static int open_shards(struct staging *s, struct penstock_error *error)
{
    for (s->shard = 0; s->shard < s->shards.names.n; s->shard++) {
        int status = open_shard(s, s->shards.names.at[s->shard], error);
        if (status != 0)
            return status;
    }
    size_t missing = 0;
    const char *first = NULL;
    base_vec_for_each (entry, &s->shards.map)
        if (!entry->found && entry->shard != UINT32_MAX) {
            first = first ? first : entry->tensor;
            missing++;
        }
    if (missing > 0)
        model_warn(s->options, "%zu tensors of the index are not in their shards, \"%.200s\" first", missing, first);
    return 0;
}

/* Another file that cannot be opened is left out; running out of something is no reason to leave it out. */
static bool may_leave_out(int status, const struct penstock_error *error)
{
    return status == PENSTOCK_EDENIED || status == PENSTOCK_EINVAL || status == PENSTOCK_ENOTFOUND ||
           (status == PENSTOCK_ESYS && error->sys_errno != EMFILE && error->sys_errno != ENFILE);
}

/* An index may name a shard that does not look like weights: it is no other file then (protocol 2.4). */
static bool is_shard(const struct staging *s, const char *name)
{
    base_vec_for_each (shard, &s->shards.names)
        if (strcmp(*shard, name) == 0)
            return true;
    return false;
}

static int open_files(struct staging *s, struct penstock_error *error)
{
    base_vec_for_each (name, &s->listing.files) {
        if (is_shard(s, *name))
            continue;
        struct stat st;
        struct penstock_error why = { 0 };
        int fd, status = model_root_file(&s->root, *name, &fd, &st, &why);
        if (status != 0 && may_leave_out(status, &why)) {
            model_warn(s->options, "%s (left out)", why.message);
            continue;
        }
        if (status != 0) {
            if (error)
                *error = why;
            return status;
        }
        status = keep_opened(s, fd, &st, error);
        if (status != 0)
            return status;
        struct penstock_file file = { .name = keep(s, *name, strlen(*name)), .len_bytes = (uint64_t)st.st_size };
        if (!file.name || !base_vec_push(&s->staged->manifest.files, file))
            return no_memory(error);
    }
    return 0;
}

/* A reader takes 256 MiB at most (protocol 1.1). Only what might be above that is measured exactly. */
static int check_size(const struct model_manifest *manifest, uint64_t max, struct penstock_error *error)
{
    uint64_t most = 4096 + JSON_STRING_MAX_BYTES((uint64_t)strlen(manifest->model_id));
    base_vec_for_each (shard, &manifest->shards)
        most += 32 + JSON_STRING_MAX_BYTES((uint64_t)strlen(shard->name));
    base_vec_for_each (file, &manifest->files)
        most += 64 + JSON_STRING_MAX_BYTES((uint64_t)strlen(file->name));
    base_vec_for_each (tensor, &manifest->tensors)
        most += 256 + JSON_STRING_MAX_BYTES((uint64_t)strlen(tensor->name)) + 21 * tensor->rank +
                JSON_STRING_MAX_BYTES((uint64_t)strlen(tensor->dtype));
    if (most <= max)
        return 0;
    struct base_buf text = { 0 };
    int status = model_manifest_write(manifest, &text, error);
    if (status == 0 && text.n > max)
        status = base_error_set(error, PENSTOCK_ELIMIT, "the manifest has %zu bytes, and %llu are the most", text.n,
                                (unsigned long long)max);
    base_buf_fini(&text);
    return status;
}

static int stage_root(struct staging *s, struct penstock_error *error)
{
    struct model_staged *staged = s->staged;
    staged->manifest.model_id = keep(s, staged->directory, strlen(staged->directory));
    if (!staged->manifest.model_id)
        return no_memory(error);
    int status = model_listing_read(&s->root, s->options, &s->listing, error);
    if (status == 0) {
        staged->listing = s->listing.hash;
        status = model_discover(&s->root, &s->listing, &s->shards, error);
    }
    if (status == 0)
        status = open_shards(s, error);
    if (status == 0)
        status = open_files(s, error);
    char version[MODEL_VERSION_BYTES];
    if (status == 0)
        status = model_version_make(staged, version, error);
    if (status == 0) {
        staged->manifest.model_version = keep(s, version, sizeof version - 1);
        status = staged->manifest.model_version ? model_manifest_index(&staged->manifest, error) : no_memory(error);
    }
    uint64_t max = s->options && s->options->manifest_bytes_max ? s->options->manifest_bytes_max : MANIFEST_BYTES_MAX;
    return status == 0 ? check_size(&staged->manifest, max, error) : status;
}

int model_stage(const char *directory, const struct model_stage_options *options, struct model_staged *out,
                struct penstock_error *error)
{
    *out = (struct model_staged){ .directory = model_directory_absolute(directory) };
    if (!out->directory) {
        int cause = errno, code = base_error_sys(error, cause, "stage %s", directory);
        if (cause == ENOENT && error)
            error->code = PENSTOCK_ENOTFOUND;
        return cause == ENOENT ? PENSTOCK_ENOTFOUND : code;
    }
    struct staging s = { .staged = out, .options = options };
    int status = 0;
    out->name = model_directory_name(out->directory);
    if (!out->name)
        status = no_memory(error);
    if (status == 0)
        status = model_root_open(out->directory, options && options->follow_all_links, &s.root, error);
    if (status == 0) {
        status = stage_root(&s, error);
        model_shards_fini(&s.shards);
        model_listing_fini(&s.listing);
        model_root_close(&s.root);
    }
    if (status != 0) {
        (void)base_error_in(error, "stage %s", out->directory);
        model_staged_fini(out);
    }
    return status;
}

void model_staged_fini(struct model_staged *staged)
{
    base_vec_for_each (opened, &staged->opened)
        close(opened->fd);
    base_vec_free(&staged->opened);
    model_manifest_fini(&staged->manifest);
    free(staged->directory);
    free(staged->name);
    *staged = (struct model_staged){ 0 };
}

enum model_change model_staged_changed(const struct model_staged *staged, const struct model_stage_options *options)
{
    struct model_root root;
    struct model_listing listing;
    int opened = model_root_open(staged->directory, options && options->follow_all_links, &root, NULL);
    /* Without a directory all that is open has been replaced. One that cannot be looked at for another reason (too many
     * open files, a server that is away) is no change: a good model is not given up for that. */
    if (opened != 0 && opened != PENSTOCK_ENOTFOUND)
        return MODEL_SAME;
    enum model_change change = MODEL_SAME;
    const struct model_manifest *manifest = &staged->manifest;
    for (size_t i = 0; i < staged->opened.n && change != MODEL_REWRITTEN; i++) {
        const struct penstock_file *file =
            i < manifest->shards.n ? &manifest->shards.at[i] : &manifest->files.at[i - manifest->shards.n];
        enum model_change one = model_file_changed(root.fd, &staged->opened.at[i], file->name);
        change = one > change ? one : change;
    }
    if (change == MODEL_SAME && root.fd >= 0) {
        if (model_listing_read(&root, NULL, &listing, NULL) == 0) {
            change = listing.hash == staged->listing ? MODEL_SAME : MODEL_REPLACED;
            model_listing_fini(&listing);
        }
    }
    model_root_close(&root);
    return change;
}
