/* Which files are the shards (protocol 1.5): the first rule that matches. */
#ifndef PENSTOCK_MODEL_DISCOVER_H
#define PENSTOCK_MODEL_DISCOVER_H

#include "listing.h"

struct model_mapped {
    const char *tensor;
    uint32_t len;
    uint32_t shard;
    bool found; /* a header had it */
};

struct model_shards {
    BASE_VEC(const char *) names;
    bool extra;  /* the last one is extra_weights.safetensors */
    bool mapped; /* an index says which tensor is taken from which shard */
    BASE_VEC(struct model_mapped) map;
    uint32_t *slots; /* open addressing over map: entry + 1, 0 empty */
    size_t mask;
    struct base_pool pool;
};

PENSTOCK_CHECKED int model_discover(const struct model_root *root, const struct model_listing *listing,
                                    struct model_shards *out, struct penstock_error *error);
void model_shards_fini(struct model_shards *shards);

/* Whether a tensor that was found in shard is taken from there. */
bool model_shards_take(struct model_shards *shards, size_t shard, const char *tensor, size_t len);

#endif
