/* A peer's memory as a cache of blobs, shared by its clients, and spilled to its disk. Sections 1.6, 2.2 and 2.3 of
 * docs/protocol.md.
 *
 * A session on a cache is one like any other (penstock.h): penstock_register, _fd, _timeout_ns, _poll, _wait, _cancel,
 * _op_error, _session_free and _session_transport are its calls too. It joins one arena: either the shared one of its
 * kind and blob size, where blobs have keys, or a raw one of its own, which ends with it. As everywhere one session
 * belongs to one thread at a time, no call blocks but those named _open and _wait, and structs carry their size. */
#ifndef PENSTOCK_CACHE_H
#define PENSTOCK_CACHE_H

#include <penstock/penstock.h>
#include <penstock/wire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- session ---- */

enum penstock_cache_kind { PENSTOCK_CACHE_SSM = 0, PENSTOCK_CACHE_KV = 1 };

/* The arena to join. */
struct penstock_cache {
    size_t size;
    int kind;             /* enum penstock_cache_kind */
    uint64_t blob_bytes;  /* of every blob, a multiple of 4096; 0: raw */
    uint64_t arena_bytes; /* a multiple of blob_bytes, at most 2^42. A shared arena gets it from its first client */
    int wide;             /* 1: keys are 128 bits wide; else key.high has to be 0 */
    int own; /* 1: what this session puts is removed when it ends, however it ends; 2: so, where the peer can */
};

/* Starts to connect to peer, as penstock_weights_start does (port 9916 where none is given), and returns at once.
 * EDENIED: the peer refused the arena, and its log says why; EUNSUPPORTED: it has no wide keys, or no owners.
 *
 * PENSTOCK_TRANSPORT_AUTO takes RDMA where both ends have it, and else TCP; a peer of the frozen protocol has no TCP.
 * The rails of a session are those of its one connection: one that fails leaves its work to the others, and with the
 * last the session ends. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_cache_start(const char *peer, const struct penstock_cache *cache,
                                                       const struct penstock_options *options,
                                                       struct penstock_session **session, penstock_op *op,
                                                       struct penstock_error *error);
/* The same, waited for. On failure there is no session. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_cache_open(const char *peer, const struct penstock_cache *cache,
                                                      const struct penstock_options *options,
                                                      struct penstock_session **session, struct penstock_error *error);

/* ---- blobs ---- */

enum penstock_blob_action {
    PENSTOCK_BLOB_PUT = 0,
    PENSTOCK_BLOB_GET = 1,
    PENSTOCK_BLOB_EXISTS = 2, /* moves nothing, and leaves the blob as cold as it was. The frozen protocol has
                                 no such question: its peers get a GET, and nothing is read */
    PENSTOCK_BLOB_REMOVE = 3  /* of a key that is not there as well */
};

struct penstock_blob {
    struct penstock_key key;
    uint64_t at_bytes;   /* PUT, GET: where in the region its bytes lie */
    uint64_t from_bytes; /* GET: of which part of it, */
    uint64_t len_bytes;  /* this long; 0 and 0: all of it. Over TCP all of it travels nevertheless */
    int code;            /* out: 0; ENOTFOUND, a miss; EREFUSED, the peer could not; ECANCELED, there is no answer */
};

/* One piece of work on many blobs, in the order given, and one completion. */
struct penstock_blobs {
    size_t size;
    int action;                  /* enum penstock_blob_action */
    uint32_t region;             /* PUT, GET */
    struct penstock_blob *blobs; /* the caller's until the completion */
    uint64_t count;
    int64_t timeout_ns; /* as penstock_read's */
    void *user;
};

/* Starts it; nothing is sent before the next poll or wait. Requests on one key take effect in the order submitted. Over
 * TCP so do all of a session's; over RDMA puts of several keys that are under way at once may be seen by others in
 * another order. Others see all of a blob that is put, or nothing of it.
 *
 * Its completion: 0 where all blobs' codes are 0; else EREFUSED where the peer could not do some, ENOTFOUND where some
 * missed; each blob's own code then tells. Or what the session died of, or ECANCELED: what was sent may have taken
 * effect. Over RDMA an operation that is canceled goes no further, and ends when the blobs that it had begun with are
 * done, whose codes tell. landed_bytes: of what was got, or put.
 *
 * Over TCP a peer that cannot read the rest of a blob when it has sent some of it closes. A session that owns nothing,
 * and has no PUT and no REMOVE under way, then asks again on a new connection, once a blob. One that is damaged comes
 * to be a miss, one that the disk fails to give EREFUSED; some of it lies in the region nevertheless. Any other session
 * dies of it, and so does one that gets no connection. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_blobs(struct penstock_session *session,
                                                        const struct penstock_blobs *blobs, penstock_op *op,
                                                        struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_blobs_wait(struct penstock_session *session,
                                                      const struct penstock_blobs *blobs, struct penstock_error *error);

/* How many of the first blobs are there, after EXISTS or GET. */
PENSTOCK_API uint64_t penstock_blobs_prefix(const struct penstock_blob *blobs, uint64_t count);

/* ---- prefixes: for engines whose keys are their own block hashes, each one's depending on those before it ---- */

struct penstock_prefix {
    size_t size;
    const struct penstock_key *keys; /* copied */
    uint64_t count;
    uint64_t *found; /* out: how many of the first keys are there. The caller's until the completion */
    int64_t timeout_ns;
    void *user;
};

/* Starts to ask; all keys are asked for at once, so that it takes one round trip. A blob that was found may be gone by
 * the time that it is got: the peer forgets the coldest.
 *
 * Its completion: 0, also where none is there; else *found is 0. EUNSUPPORTED: the peer is of the frozen protocol, and
 * can only be asked by a GET. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_prefix(struct penstock_session *session,
                                                         const struct penstock_prefix *prefix, penstock_op *op,
                                                         struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_prefix_wait(struct penstock_session *session,
                                                       const struct penstock_key *keys, uint64_t count, uint64_t *found,
                                                       struct penstock_error *error);

/* ---- raw arenas ---- */

struct penstock_raw_range {
    uint64_t offset_bytes, len_bytes; /* in the arena; any length but 0 */
    uint64_t at_bytes;                /* in the region */
};

struct penstock_raw {
    size_t size;
    int write; /* 1: from the region to the arena; 0: the other way */
    uint32_t region;
    const struct penstock_raw_range *ranges; /* copied */
    uint64_t count;
    int64_t timeout_ns;
    void *user;
};

/* Starts to move ranges, each operation after those before it that touch the same bytes of the arena, where one of the
 * two writes. Ranges that one operation writes must not overlap. EINVAL: they leave the arena or the region. EREFUSED,
 * in the completion: the peer could not. A raw arena begins with zeros. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_raw(struct penstock_session *session, const struct penstock_raw *raw,
                                                      penstock_op *op, struct penstock_error *error);
/* Submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_raw_wait(struct penstock_session *session, const struct penstock_raw *raw,
                                                    struct penstock_error *error);

/* ---- what a peer's cache holds: section 2.6 ---- */

/* An arena, and what happened in it since the peer started. Raw ones are not listed. */
struct penstock_cache_arena {
    int kind;                   /* enum penstock_cache_kind */
    uint64_t blob_bytes;        /* of every blob */
    uint64_t arena_bytes;       /* 0: none in memory, its blobs are on disk */
    uint64_t slots;             /* blobs that fit into memory */
    uint64_t resident, on_disk; /* keys, each in one of them */
    uint64_t reserved, pinned;  /* slots */
    uint64_t connections;
    uint64_t hits, misses, puts; /* gets that found, and did not find, what they asked for; blobs that were put */
    uint64_t spills, faults;     /* blobs written to disk, and read back */
    uint64_t drops;              /* blobs lost to a cap, to their age or to the lack of a swap */
    uint64_t errors;             /* of the disk, and records that were not what was written */
};

/* Of all arenas, in bytes; a cap of 0 is none. */
struct penstock_cache_totals {
    uint64_t memory_used, memory_cap, swap_used, swap_cap;
};

struct penstock_cache_stats;

/* Asks a peer (port 9916 where none is given), and waits. The statistics are the caller's, to free. ECLOSED: it closed
 * without an answer, as peers of the frozen protocol do. EPROTO: an answer that makes no sense. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_cache_stats_get(const char *peer, const struct penstock_options *options,
                                                           struct penstock_cache_stats **stats,
                                                           struct penstock_error *error);
/* These live as long as the statistics. */
PENSTOCK_API const struct penstock_cache_totals *penstock_cache_stats_totals(const struct penstock_cache_stats *stats);
PENSTOCK_API size_t penstock_cache_stats_arenas(const struct penstock_cache_stats *stats);
PENSTOCK_API const struct penstock_cache_arena *penstock_cache_stats_arena(const struct penstock_cache_stats *stats,
                                                                           size_t index); /* NULL: past the end */
/* All of what the peer said, well-formed JSON, as it came. */
PENSTOCK_API const char *penstock_cache_stats_json(const struct penstock_cache_stats *stats);
PENSTOCK_API void penstock_cache_stats_free(struct penstock_cache_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
