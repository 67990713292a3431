/* What a pull is to write: files below the target directory, cut into chunks, and where each chunk's bytes lie at the
 * peer. Fixed once made; a chunk is the unit that is digested (protocol 2.1), journalled and asked for again. */
#ifndef PENSTOCK_CLI_PULL_PLAN_H
#define PENSTOCK_CLI_PULL_PLAN_H

#include <stdbool.h>

#include <penstock/penstock.h>

#include "base/vec.h"

/* Everything in the target directory that is the pull's own begins with this. */
#define PULL_OWN_PREFIX ".penstock-pull"

struct pull_file {
    char *name;          /* relative to the target */
    uint64_t len_bytes;  /* head included */
    uint64_t head_bytes; /* what this side writes before the peer's bytes */
    uint32_t source;     /* the peer's file, where it is one (penstock_range.file) */
    size_t first_chunk;  /* numbered through the whole plan */
    size_t chunks;       /* of what follows the head */
};

/* A piece of a file that is put together from many: bytes [dst, dst + len) of what follows its head. */
struct pull_run {
    uint64_t dst_bytes, src_bytes, len_bytes;
    uint32_t source;
};

struct pull_plan {
    BASE_VEC(struct pull_file) files;
    size_t chunks;
    uint64_t bytes; /* that the peer sends: heads are not counted */

    /* --tensors: the one file's pieces, in the order of dst_bytes, without gaps; and its head. */
    BASE_VEC(struct pull_run) runs;
    struct base_buf head;

    size_t skipped; /* names of the peer's that were not acceptable */
};

struct pull_chunk_place {
    size_t file;
    uint64_t offset_bytes; /* after the file's head */
    uint64_t len_bytes;    /* PENSTOCK_DIGEST_CHUNK_BYTES, less for the last of a file */
};

/* NULL where a file of that name may be created below the target, else why not. Shards are plain names. */
const char *pull_name_fault(const char *name, bool shard);

/* Every file of the model. EPROTO: a shard whose name is not acceptable, or a shard's name twice; other files of such
 * names are left out and counted. */
PENSTOCK_CHECKED int pull_plan_model(const struct penstock_catalogue *catalogue, struct pull_plan *plan,
                                     struct penstock_error *error);

/* One safetensors file with the tensors that match one of the globs (fnmatch(3)) at least. ENOTFOUND: none does. In
 * pull_tensors.c. */
PENSTOCK_CHECKED int pull_plan_tensors(const struct penstock_catalogue *catalogue, const char *const *globs,
                                       size_t n_globs, const char *name, struct pull_plan *plan,
                                       struct penstock_error *error);

void pull_plan_fini(struct pull_plan *plan);

/* Appends a file and numbers its chunks; the name is copied. For the two above. */
PENSTOCK_CHECKED int pull_plan_add(struct pull_plan *plan, const char *name, uint64_t len_bytes, uint64_t head_bytes,
                                   uint32_t source, struct penstock_error *error);

struct pull_chunk_place pull_plan_place(const struct pull_plan *plan, size_t chunk);

/* Where the peer has bytes [offset, offset + len) of what follows file's head, landing one after the other from
 * dst_bytes on. Writes *n <= max ranges and returns how many bytes they cover: all, where max allows. */
uint64_t pull_plan_ranges(const struct pull_plan *plan, size_t file, uint64_t offset, uint64_t len, uint64_t dst_bytes,
                          struct penstock_range *ranges, size_t max, size_t *n);

/* Two plans with the same mark write the same files with the same chunks. */
#define PULL_MARK_MAX 33
void pull_plan_mark(const struct pull_plan *plan, char out[PULL_MARK_MAX]);

#endif
