/* A weight manifest (protocol 1.5, 2.4): what a model consists of. The peer builds one when it stages a directory, a
 * client reads one from the peer. Immutable once built. */
#ifndef PENSTOCK_MODEL_MANIFEST_H
#define PENSTOCK_MODEL_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/penstock.h>

#include "base/pool.h"
#include "base/vec.h"

struct model_manifest {
    const char *model_id;
    const char *model_version; /* NULL: none given */
    BASE_VEC(struct penstock_file) shards;
    BASE_VEC(struct penstock_file) files;
    BASE_VEC(struct penstock_tensor) tensors;
    size_t skipped_files;  /* names in "files" that were not acceptable */
    struct base_pool pool; /* names, shapes and strings */
    uint32_t *index;       /* open addressing over names: tensor number + 1, 0 empty */
    size_t index_mask;
    uint64_t index_seed; /* random: a peer that picks names cannot pick their places */
};

/* Compact JSON, fields in the frozen order, then model_version and files where there are any. */
PENSTOCK_CHECKED int model_manifest_write(const struct model_manifest *manifest, struct base_buf *out,
                                          struct penstock_error *error);

/* Reads a manifest and builds its index. capacity is the size of the buffer behind json: at least len +
 * MODEL_JSON_PADDING. EPROTO names the field and, inside a tensor, the tensor: another version, missing fields, lists
 * that differ in length, shard_index out of range, a tensor that leaves its shard, a name twice, a shard name that is
 * no plain file name. On failure *out is empty. */
#define MODEL_JSON_PADDING 64
PENSTOCK_CHECKED int model_manifest_read(const char *json, size_t len, size_t capacity, struct model_manifest *out,
                                         struct penstock_error *error);

/* Builds the index over tensors; ECORRUPT names a tensor that is there twice. */
PENSTOCK_CHECKED int model_manifest_index(struct model_manifest *manifest, struct penstock_error *error);
const struct penstock_tensor *model_manifest_find(const struct model_manifest *manifest, const char *name);

void model_manifest_fini(struct model_manifest *manifest);

#endif
