/* The KV cache of a model in a peer's memory, as the fleet lays it out and names it. Section 1.6 of docs/protocol.md,
 * "KV addressing".
 *
 * A cache has layers * blocks blocks, each of 2 * kv_heads stripes: first the K's of all heads, then their V's. A
 * stripe is [block_size, head_dim] numbers, whose order is the engine's own, padded to stripe_stride.
 *
 * A session on it is one on a cache (cache.h), with names instead of keys: penstock_register, _fd, _timeout_ns, _poll,
 * _wait, _cancel, _op_error and _session_free are its calls too. Other engines, whose keys are block hashes, use
 * cache.h itself. */
#ifndef PENSTOCK_KV_H
#define PENSTOCK_KV_H

#include <penstock/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layout and names: plain arithmetic, for any thread ---- */

struct penstock_kv_layout {
    size_t size;

    /* Given. */
    uint64_t elem_bytes;     /* of a number: 2 for BF16 */
    uint64_t block_size;     /* tokens in a block */
    uint64_t head_dim;       /* numbers that a head has for a token */
    uint64_t layers, blocks; /* of each layer */
    uint64_t kv_heads;
    uint64_t fs_block_bytes; /* stripes are padded to this, a power of two; 0: 4096 */

    /* Computed. */
    uint64_t stripe_bytes;  /* block_size * head_dim * elem_bytes */
    uint64_t stripe_stride; /* with its padding */
    uint64_t block_bytes;   /* 2 * kv_heads * stripe_stride */
    uint64_t total_bytes;   /* of all blocks of all layers */
};

/* EINVAL names the field that is wrong: none may be 0, and all together at most 2^42 bytes. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_layout_compute(struct penstock_kv_layout *layout,
                                                             struct penstock_error *error);

/* One head's part of a block: a batch has many. */
struct penstock_kv_stripe {
    uint64_t layer, block;
    uint32_t kv; /* 0: K, 1: V */
    uint32_t head;
    uint64_t at_bytes; /* where in the region its stripe_bytes go */
    int code;          /* out, as of a penstock_blob */
};

/* layer * (2 * blocks * kv_heads) + block * (2 * kv_heads) + kv * kv_heads + head. In a raw arena the stripe lies at id
 * * stripe_stride. EINVAL: the layout has no such stripe, or is none. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_stripe_id(const struct penstock_kv_layout *layout,
                                                        const struct penstock_kv_stripe *stripe, uint64_t *id,
                                                        struct penstock_error *error);
/* What sets a model's blocks, in this layout and under this salt, apart from all others on a peer. Never 0. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_namespace(const struct penstock_kv_layout *layout, uint64_t fingerprint,
                                                        uint64_t salt, uint64_t *namespace_id,
                                                        struct penstock_error *error);
/* The key of a block: id is that of its K stripe of head 0. */
PENSTOCK_API uint64_t penstock_kv_wire_key(uint64_t namespace_id, uint64_t id);

/* ---- session ---- */

struct penstock_kv {
    size_t size;
    const struct penstock_kv_layout *layout; /* copied; what is given of it */
    uint64_t fingerprint;                    /* of the model: those who share blocks have the same, */
    uint64_t salt;                           /* and the same salt */
    int random_salt; /* 1: one that nobody else has. The peer, where it can, removes the blocks when the session ends */
    int raw;         /* 1: all blocks in an arena of the session's own, zeros at first, which ends with it: no keys */
    uint64_t arena_bytes; /* memory of the shared arena, if this session is its first: as many whole blocks as it holds.
                             0: all of them. Raw: 0 */
};

/* Starts to connect, as penstock_cache_start does, with its errors. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_start(const char *peer, const struct penstock_kv *kv,
                                                    const struct penstock_options *options,
                                                    struct penstock_session **session, penstock_op *op,
                                                    struct penstock_error *error);
/* The same, waited for. On failure there is no session. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_open(const char *peer, const struct penstock_kv *kv,
                                                   const struct penstock_options *options,
                                                   struct penstock_session **session, struct penstock_error *error);

struct penstock_kv_info {
    size_t size;
    uint64_t block_bytes, stripe_bytes, stripe_stride;
    uint64_t arena_bytes;  /* as asked for, in whole blocks */
    uint64_t salt;         /* the random one, too: for further sessions on the same blocks */
    uint64_t namespace_id; /* of all keys. Raw: 0 */
    int owned;             /* 1: the peer removes the blocks when the session ends; 0 until it is open */
};

/* EINVAL: no session on a KV cache, or size is not set. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_about(const struct penstock_session *session,
                                                    struct penstock_kv_info *info);

/* ---- blocks and stripes ---- */

struct penstock_kv_block {
    uint64_t layer, block;
    uint64_t at_bytes; /* PUT, GET: where in the region its block_bytes lie */
    int code;          /* out, as of a penstock_blob */
};

/* Work on many whole blocks: one operation, with one completion. */
struct penstock_kv_blocks {
    size_t size;
    int action; /* enum penstock_blob_action; raw: PUT and GET */
    uint32_t region;
    struct penstock_kv_block *blocks; /* the caller's until the completion */
    uint64_t count;
    int64_t timeout_ns;
    void *user;
};

/* Starts it. Its completion is as penstock_submit_blobs has it, and its words name a block: ENOTFOUND is "has not got
 * block 17 of layer 3". */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_kv_blocks(struct penstock_session *session,
                                                            const struct penstock_kv_blocks *blocks, penstock_op *op,
                                                            struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_blocks_wait(struct penstock_session *session,
                                                          const struct penstock_kv_blocks *blocks,
                                                          struct penstock_error *error);

/* To get many stripes, without their padding. */
struct penstock_kv_stripes {
    size_t size;
    uint32_t region;
    struct penstock_kv_stripe *stripes; /* the caller's until the completion */
    uint64_t count;
    int64_t timeout_ns;
    void *user;
};

/* Starts it; completes as blocks do. Raw arenas, and RDMA, move the stripes alone. Over TCP a block with a key travels
 * whole for each of its stripes: who wants several gets the block. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_kv_stripes(struct penstock_session *session,
                                                             const struct penstock_kv_stripes *stripes, penstock_op *op,
                                                             struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_kv_stripes_wait(struct penstock_session *session,
                                                           const struct penstock_kv_stripes *stripes,
                                                           struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
