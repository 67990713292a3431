/* KV caches as the fleet lays them out and names them (protocol 1.6): blocks of stripes, one stripe a head, K's before
 * V's; and the 64-bit keys that blocks have on the wire. Dimensions may come from a stranger: nothing wraps. */
#ifndef PENSTOCK_MODEL_KV_LAYOUT_H
#define PENSTOCK_MODEL_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

enum { MODEL_KV_FS_BLOCK = 4096 };

struct model_kv_layout {
    /* Given. All above zero. */
    uint64_t elem_bytes, block_size, head_dim; /* block_size: tokens */
    uint64_t layers, blocks, kv_heads;
    uint64_t fs_block_bytes; /* a power of two */

    /* Computed. */
    uint64_t group_bytes;  /* of one stripe, without its padding */
    uint64_t group_stride; /* with it */
    uint64_t block_bytes;  /* all K stripes of a block, then all V stripes */
    uint64_t groups;       /* stripes in all */
    uint64_t total_bytes;  /* of all blocks of all layers: a raw arena of at least this */
};

/* Where a stripe is: below layers, blocks, 2 and kv_heads. */
struct model_kv_stripe {
    uint64_t layer, block;
    unsigned kv; /* 0: K, 1: V */
    uint64_t head;
};

/* From the given to the computed. EINVAL names the field. */
PENSTOCK_CHECKED int model_kv_layout_compute(struct model_kv_layout *layout, struct penstock_error *error);

/* The group id of a stripe of the layout. In raw mode it lies at id * group_stride of the arena, in paging mode in the
 * record of its block at model_kv_stripe_at. */
uint64_t model_kv_group(const struct model_kv_layout *layout, const struct model_kv_stripe *stripe);
uint64_t model_kv_stripe_at(const struct model_kv_layout *layout, const struct model_kv_stripe *stripe);

/* FNV-1a/64 of len bytes, from `hash` on. */
#define MODEL_FNV_BASIS UINT64_C(0xCBF29CE484222325)
uint64_t model_fnv1a(uint64_t hash, const void *bytes, size_t len);

/* Two numbers to one, well mixed. */
uint64_t model_mix64(uint64_t a, uint64_t b);

/* What sets this model's blocks, in this layout and under this salt, apart from all others on a peer. Never 0. */
uint64_t model_kv_namespace(const struct model_kv_layout *layout, uint64_t fingerprint, uint64_t salt);

/* The key of a block: that of its K stripe of head 0. */
uint64_t model_kv_wire_key(uint64_t namespace_id, uint64_t group);

#endif
