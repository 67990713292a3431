/* Digests of a model's files (protocol 2.1): XXH3-128 of each 16 MiB chunk, and the cache that keeps them across
 * restarts. */
#ifndef PENSTOCK_MODEL_DIGEST_H
#define PENSTOCK_MODEL_DIGEST_H

#include <stdatomic.h>

#include "model/stage.h"

static inline uint64_t model_digest_chunks(uint64_t len_bytes)
{
    return len_bytes / PENSTOCK_DIGEST_CHUNK_BYTES + (len_bytes % PENSTOCK_DIGEST_CHUNK_BYTES != 0);
}

/* One file's digests. One writer appends; readers on other threads see the first `known`. */
struct model_file_digests {
    uint8_t (*at)[PENSTOCK_DIGEST_BYTES];
    uint64_t chunks;
    _Atomic uint64_t known;
};

struct model_digests {
    struct model_file_digests *files; /* as many as staged->opened */
    size_t n;
};

PENSTOCK_CHECKED int model_digests_init(const struct model_staged *staged, struct model_digests *out,
                                        struct penstock_error *error);
void model_digests_fini(struct model_digests *digests);

/* Hashes chunk `known` of file by pread through scratch (scratch_bytes of it, any size from 64 KiB up). ECORRUPT: the
 * file ends before its length. */
PENSTOCK_CHECKED int model_digests_next(const struct model_staged *staged, struct model_digests *digests, size_t file,
                                        uint8_t *scratch, size_t scratch_bytes, struct penstock_error *error);

/* Takes over what a cache file has for files whose identity is still the same; how many chunks that was. A damaged
 * cache is no cache. */
uint64_t model_digests_load(const struct model_staged *staged, struct model_digests *digests);
/* Writes the cache: DIRECTORY/.penstock-digests, else $XDG_CACHE_HOME/penstock (or ~/.cache/penstock). Through a
 * temporary name. */
PENSTOCK_CHECKED int model_digests_save(const struct model_staged *staged, const struct model_digests *digests,
                                        char *where, size_t where_size, struct penstock_error *error);

#endif
