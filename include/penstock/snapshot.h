/* Snapshots of SSM states (or any blobs of one size) in a peer's memory, under numbers of the client's own. Section 1.6
 * of docs/protocol.md, "Snapshots".
 *
 * A session on them is one on a cache (cache.h), with names instead of keys: penstock_register, _fd, _timeout_ns,
 * _poll, _wait, _cancel, _op_error and _session_free are its calls too. */
#ifndef PENSTOCK_SNAPSHOT_H
#define PENSTOCK_SNAPSHOT_H

#include <penstock/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_SNAPSHOT_CHUNK_BYTES (UINT64_C(1) << 20)
#define PENSTOCK_SNAPSHOT_DEPTH 16

/* ---- session ---- */

struct penstock_snapshot_arena {
    size_t size;
    uint64_t blob_bytes;   /* of every snapshot, a multiple of 4096 */
    uint64_t arena_bytes;  /* a multiple of blob_bytes. Raw: of the session's own arena; else of the shared one, if this
                              session is its first */
    uint64_t namespace_id; /* those who share snapshots have the same: keys on the wire are mix64(key, namespace_id) */
    int raw;               /* 1: slots in an arena of the session's own, zeros at first, which ends with it: a key is a
                              slot's number */
    int own;               /* as of a penstock_cache. Raw: 0 */

    /* Over RDMA a snapshot is cut in chunks, dealt to the rails in turn, at most so many under way on each. Over TCP
     * there is one connection, on which it travels as one. */
    uint64_t chunk_bytes; /* 0: PENSTOCK_SNAPSHOT_CHUNK_BYTES; else at least 4096 */
    uint32_t depth;       /* 0: PENSTOCK_SNAPSHOT_DEPTH; above 256 is as 256 */
};

/* Starts to connect, as penstock_cache_start does, with its errors. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_snapshots_start(const char *peer,
                                                           const struct penstock_snapshot_arena *arena,
                                                           const struct penstock_options *options,
                                                           struct penstock_session **session, penstock_op *op,
                                                           struct penstock_error *error);
/* The same, waited for. On failure there is no session. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_snapshots_open(const char *peer, const struct penstock_snapshot_arena *arena,
                                                          const struct penstock_options *options,
                                                          struct penstock_session **session,
                                                          struct penstock_error *error);

/* ---- snapshots ---- */

struct penstock_snapshot {
    uint64_t key;      /* raw: the slot's number, below arena_bytes / blob_bytes */
    uint64_t at_bytes; /* PUT, GET: where in the region its blob_bytes lie */
    int code;          /* out, as of a penstock_blob */
};

/* Work on many: one operation, with one completion. */
struct penstock_snapshots {
    size_t size;
    int action; /* enum penstock_blob_action; raw: PUT and GET */
    uint32_t region;
    struct penstock_snapshot *snapshots; /* the caller's until the completion */
    uint64_t count;
    int64_t timeout_ns;
    void *user;
};

/* Starts it. Its completion is as penstock_submit_blobs has it, and its words name a snapshot. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_snapshots(struct penstock_session *session,
                                                            const struct penstock_snapshots *snapshots, penstock_op *op,
                                                            struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_snapshots_wait(struct penstock_session *session,
                                                          const struct penstock_snapshots *snapshots,
                                                          struct penstock_error *error);

/* The number under which a peer knows a snapshot. */
PENSTOCK_API uint64_t penstock_snapshot_wire_key(uint64_t key, uint64_t namespace_id);

#ifdef __cplusplus
}
#endif
#endif
