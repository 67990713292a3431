#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "dtype.h"
#include "manifest.h"
#include "names.h"
#include "json/records.h"

static_assert(MODEL_JSON_PADDING >= JSON_PADDING, "what a caller leaves behind a manifest is what simdjson reads");

/* The shortest record of a tensor that JSON can write, and then some: an estimate that is never too low by much. */
enum { TENSOR_JSON_BYTES = 96 };

struct reading {
    struct model_manifest *manifest;
    BASE_VEC(uint64_t) lens;
};

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the manifest");
}

static int keep_text(struct reading *r, const struct json_string *text, const char **out, struct penstock_error *error)
{
    *out = base_pool_string(&r->manifest->pool, text->at, text->len);
    return *out ? 0 : no_memory(error);
}

static int take_version(const struct json_string *text, struct penstock_error *error)
{
    bool good = text->len >= 1 && text->len <= 128;
    for (size_t i = 0; i < text->len && good; i++)
        good = text->at[i] >= 0x21 && text->at[i] <= 0x7E && text->at[i] != '"' && text->at[i] != '\\';
    return good ? 0 : base_error_set(error, PENSTOCK_EPROTO, "model_version: not 1 to 128 printable characters");
}

static int take_shard(struct reading *r, const struct json_string *text, struct penstock_error *error)
{
    struct penstock_file shard = { 0 };
    if (!model_name_plain(text->at, text->len))
        return base_error_set(error, PENSTOCK_EPROTO, "shard_files: \"%.*s\" is no plain file name",
                              (int)base_min_u64(text->len, 200), text->at);
    int status = keep_text(r, text, &shard.name, error);
    if (status != 0)
        return status;
    return base_vec_push(&r->manifest->shards, shard) ? 0 : no_memory(error);
}

static int take_file(struct reading *r, const struct json_string *text, uint64_t len, struct penstock_error *error)
{
    struct penstock_file file = { .len_bytes = len };
    /* Files are counted as the peer counts them (protocol 2.1): one that is not accepted keeps its place, without a
     * name. */
    if (model_name_relative(text->at, text->len)) {
        int status = keep_text(r, text, &file.name, error);
        if (status != 0)
            return status;
    } else {
        r->manifest->skipped_files++;
    }
    return base_vec_push(&r->manifest->files, file) ? 0 : no_memory(error);
}

static int take_field(void *context, enum json_manifest_field field, const struct json_string *text, uint64_t number,
                      struct penstock_error *error)
{
    struct reading *r = context;
    int status;
    switch (field) {
    case JSON_MANIFEST_VERSION:
        return number == 1 ? 0
                           : base_error_set(error, PENSTOCK_EPROTO, "version: %llu, and this side knows 1",
                                            (unsigned long long)number);
    case JSON_MANIFEST_MODEL_ID:
        return keep_text(r, text, &r->manifest->model_id, error);
    case JSON_MANIFEST_MODEL_VERSION:
        status = take_version(text, error);
        return status != 0 ? status : keep_text(r, text, &r->manifest->model_version, error);
    case JSON_MANIFEST_SHARD_FILE:
        return take_shard(r, text, error);
    case JSON_MANIFEST_SHARD_LEN:
        return base_vec_push(&r->lens, number) ? 0 : no_memory(error);
    case JSON_MANIFEST_FILE:
        return take_file(r, text, number, error);
    }
    return PENSTOCK_EINVAL;
}

static int take_tensor(void *context, const struct json_manifest_tensor *from, struct penstock_error *error)
{
    struct reading *r = context;
    struct base_pool *pool = &r->manifest->pool;
    if (from->shard > UINT32_MAX)
        return base_error_set(error, PENSTOCK_EPROTO, "tensor \"%.*s\": shard_index: out of range",
                              (int)base_min_u64(from->name.len, 200), from->name.at);
    struct penstock_tensor tensor = {
        .dtype = model_dtype_name(from->dtype.at, from->dtype.len),
        .rank = from->rank,
        .len_bytes = from->len,
        .offset_bytes = from->offset,
        .shard = (uint32_t)from->shard,
        .extra = from->extra,
    };
    if (from->rank > 0) {
        uint64_t *shape = base_pool_alloc(pool, from->rank * sizeof *shape);
        if (!shape)
            return no_memory(error);
        memcpy(shape, from->shape, from->rank * sizeof *shape);
        tensor.shape = shape;
    }
    tensor.name = base_pool_string(pool, from->name.at, from->name.len);
    if (!tensor.dtype)
        tensor.dtype = base_pool_string(pool, from->dtype.at, from->dtype.len);
    if (!tensor.name || !tensor.dtype || !base_vec_push(&r->manifest->tensors, tensor))
        return no_memory(error);
    return 0;
}

static int check_tensors(const struct model_manifest *manifest, struct penstock_error *error)
{
    base_vec_for_each (tensor, &manifest->tensors) {
        if (tensor->shard >= manifest->shards.n)
            return base_error_set(error, PENSTOCK_EPROTO, "tensor \"%.200s\": shard_index: %u of %zu shards",
                                  tensor->name, tensor->shard, manifest->shards.n);
        if (!base_range_inside(tensor->offset_bytes, tensor->len_bytes, manifest->shards.at[tensor->shard].len_bytes))
            return base_error_set(error, PENSTOCK_EPROTO, "tensor \"%.200s\": offset_in_shard and len: leaves %s",
                                  tensor->name, manifest->shards.at[tensor->shard].name);
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct penstock_file *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* A file whose name came before, as a shard's or a file's, loses it; a shard's is an error. */
static int check_names(struct model_manifest *manifest, struct penstock_error *error)
{
    size_t n = 0, shards = manifest->shards.n;
    struct penstock_file **all = malloc((shards + manifest->files.n) * sizeof *all);
    if (!all)
        return shards + manifest->files.n == 0 ? 0 : no_memory(error);
    base_vec_for_each (shard, &manifest->shards)
        all[n++] = shard;
    base_vec_for_each (file, &manifest->files)
        if (file->name)
            all[n++] = file;
    qsort(all, n, sizeof(struct penstock_file *), compare_names);
    int status = 0;
    for (size_t i = 1; i < n && status == 0; i++) {
        if (strcmp(all[i - 1]->name, all[i]->name) != 0)
            continue;
        bool shard = all[i] >= manifest->shards.at && all[i] < manifest->shards.at + shards;
        bool before = all[i - 1] >= manifest->shards.at && all[i - 1] < manifest->shards.at + shards;
        if (shard && before) {
            status = base_error_set(error, PENSTOCK_EPROTO, "shard_files: \"%s\" is there twice", all[i]->name);
            continue;
        }
        if (shard) { /* the shard keeps it */
            struct penstock_file *file = all[i - 1];
            all[i - 1] = all[i];
            all[i] = file;
        }
        all[i]->name = NULL;
        manifest->skipped_files++;
        all[i] = all[i - 1];
    }
    free(all);
    return status;
}

static int finish(struct reading *r, struct penstock_error *error)
{
    struct model_manifest *manifest = r->manifest;
    if (r->lens.n != manifest->shards.n)
        return base_error_set(error, PENSTOCK_EPROTO, "shard_lens: %zu lengths for %zu shards", r->lens.n,
                              manifest->shards.n);
    for (size_t i = 0; i < r->lens.n; i++)
        manifest->shards.at[i].len_bytes = r->lens.at[i];
    int status = check_names(manifest, error);
    if (status == 0)
        status = check_tensors(manifest, error);
    if (status == 0)
        status = model_manifest_index(manifest, error);
    if (status == PENSTOCK_ECORRUPT) { /* a tensor twice: here it is the peer's doing */
        if (error)
            error->code = PENSTOCK_EPROTO;
        status = PENSTOCK_EPROTO;
    }
    return status;
}

int model_manifest_read(const char *json, size_t len, size_t capacity, struct model_manifest *out,
                        struct penstock_error *error)
{
    *out = (struct model_manifest){ 0 };
    if (capacity < len || capacity - len < MODEL_JSON_PADDING)
        return base_error_set(error, PENSTOCK_EINVAL, "manifest: no padding behind it");
    struct reading r = { .manifest = out };
    struct json_manifest_reader reader = { .field = take_field, .tensor = take_tensor, .context = &r };
    int status = 0;
    if (!base_pool_reserve(&out->pool, len / 2) || !base_vec_reserve(&out->tensors, len / TENSOR_JSON_BYTES))
        status = no_memory(error);
    if (status == 0)
        status = json_manifest_read(json, len, PENSTOCK_EPROTO, &reader, error);
    if (status == 0)
        status = finish(&r, error);
    base_vec_free(&r.lens);
    if (status == 0)
        return 0;
    model_manifest_fini(out);
    (void)base_error_in(error, "manifest");
    return status;
}
