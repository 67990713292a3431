/* The client API: a model served by a Penstock peer, read into memory.
 *
 * A catalogue is one model's manifest: immutable, counted, shared by threads. A session is one thread's way to the
 * bytes: a non-blocking engine with one fd. Everything that takes time is an operation of the session: started, polled
 * for, cancelled, each with its own timeout. The blocking calls are the same operations, waited for.
 *
 * No thread is started, nothing is printed, no signal is touched, SIGPIPE is never raised. Different threads may use
 * different sessions at once; one session belongs to one thread at a time. After fork() the child may only free.
 *
 * Structs that begin with `size` (their sizeof, set by the caller) may gain fields at the end; a field left zero means
 * its default, and one that this version does not know must be zero (EUNSUPPORTED). NULL where something must be given
 * is EINVAL; calls that return no code answer it as if there were nothing (NULL, 0; -1 for a time). Sections named
 * below are those of docs/protocol.md. */
#ifndef PENSTOCK_PENSTOCK_H
#define PENSTOCK_PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum penstock_transport { PENSTOCK_TRANSPORT_AUTO = 0, PENSTOCK_TRANSPORT_RDMA = 1, PENSTOCK_TRANSPORT_TCP = 2 };

/* How a session connects. Timeouts are nanoseconds without a byte of progress; 0 is the default of section 2.
 *
 * AUTO takes RDMA where both ends have it, else TCP, and penstock_session_transport_why says why; RDMA never falls
 * back. AUTO, and rails left NULL, are what PENSTOCK_TRANSPORT ("auto", "rdma", "tcp") and PENSTOCK_RAILS say, where
 * the environment has them. */
struct penstock_options {
    size_t size;
    int transport;               /* enum penstock_transport */
    int64_t connect_timeout_ns;  /* 0: 30 s */
    int64_t manifest_timeout_ns; /* 0: 300 s: a peer may have to stage the model first */
    int64_t reply_timeout_ns;    /* 0: 30 s; of a cache 300 s: a reply may have to wait for a disk */
    const char *rails; /* "DEVICE[:GID][@PEER_RAIL]" with commas between them, "auto", "auto:N" or "none"; NULL: every
                          active port. GID is an index or an address; read by the call, and not kept */
    int64_t rail_deadline_ns; /* of a rail that has work and completes none; 0: 5 s */
    int64_t rails_timeout_ns; /* 0: 1800 s: a peer may have to register the model first */
    const char *congestion;   /* of the TCP connection, as in sysctl net.ipv4.tcp_available_congestion_control: one that
                                 the kernel has not is EUNSUPPORTED. "system": asks for none. NULL: PENSTOCK_CONGESTION in
                                 the environment, else cubic where it may be had. Read by the call, and not kept */
};

enum penstock_memory_kind { PENSTOCK_HOST = 0, PENSTOCK_DEVICE = 1 };

/* Where bytes land. DEVICE memory is reached by RDMA only, and never touched by the library: over TCP, and for files
 * that are not shards, a read into it is EUNSUPPORTED. The address of DEVICE memory is not looked at. */
struct penstock_memory {
    size_t size;
    void *address; /* HOST: the first byte */
    uint64_t len_bytes;
    int where;     /* enum penstock_memory_kind */
    int dmabuf_fd; /* DEVICE: exported memory, from offset_bytes on */
    uint64_t offset_bytes;
};

/* ---- catalogue: section 1.5 and 2.4 ---- */

struct penstock_catalogue;

/* One tensor. Strings and the shape live as long as the catalogue. */
struct penstock_tensor {
    const char *name;
    const char *dtype;     /* as in safetensors: "BF16"; may be one that this version does not know */
    const uint64_t *shape; /* rank numbers; NULL for rank 0 */
    uint64_t rank;
    uint64_t len_bytes;
    uint64_t offset_bytes; /* from the start of its shard file */
    uint32_t shard;        /* below penstock_catalogue_shards */
    uint32_t extra;        /* 1: from extra_weights.safetensors */
};

/* A shard or another file of the model. The name is relative to the model's directory and lives as long as the
 * catalogue. */
struct penstock_file {
    const char *name; /* NULL: one that this side does not accept; it keeps its number, and cannot be read */
    uint64_t len_bytes;
};

/* A piece of a file, and where it goes in the memory that a read names. */
struct penstock_range {
    uint64_t offset_bytes, len_bytes; /* in the file */
    uint64_t dst_bytes;               /* in the region */
    uint32_t file;                    /* a shard; or shards + i, the i-th other file (section 2.1) */
};

PENSTOCK_API void penstock_catalogue_ref(struct penstock_catalogue *catalogue);
PENSTOCK_API void penstock_catalogue_unref(struct penstock_catalogue *catalogue); /* NULL is fine */

PENSTOCK_API const char *penstock_catalogue_model_id(const struct penstock_catalogue *catalogue);
PENSTOCK_API const char *penstock_catalogue_version(
    const struct penstock_catalogue *catalogue); /* NULL: the peer gives none */
PENSTOCK_API size_t penstock_catalogue_tensors(const struct penstock_catalogue *catalogue);
PENSTOCK_API size_t penstock_catalogue_shards(const struct penstock_catalogue *catalogue);
PENSTOCK_API size_t penstock_catalogue_files(const struct penstock_catalogue *catalogue); /* beside the shards */

/* NULL: past the end. file counts shards first, then the other files, as penstock_range.file does. */
PENSTOCK_API const struct penstock_tensor *penstock_catalogue_tensor(const struct penstock_catalogue *catalogue,
                                                                     size_t index);
PENSTOCK_API const struct penstock_file *penstock_catalogue_file(const struct penstock_catalogue *catalogue,
                                                                 size_t file);
/* NULL: no such tensor. O(1). */
PENSTOCK_API const struct penstock_tensor *penstock_catalogue_find(const struct penstock_catalogue *catalogue,
                                                                   const char *name);
/* File names of the peer's that this side does not accept and left out (section 2.4). */
PENSTOCK_API size_t penstock_catalogue_skipped(const struct penstock_catalogue *catalogue);

/* The ranges of rows [start, start + count) of dimension dim: a tensor-parallel rank's part, packed from dst_bytes on
 * in row-major order. Writes at most max and sets *needed to how many there are: call with max 0 to ask. EINVAL: no
 * such dimension or rows, or elements that do not begin on a byte; EUNSUPPORTED: a dtype whose size is not known. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_tensor_slice(const struct penstock_tensor *tensor, size_t dim,
                                                        uint64_t start, uint64_t count, uint64_t dst_bytes,
                                                        struct penstock_range *ranges, size_t max, size_t *needed,
                                                        struct penstock_error *error);

/* ---- session ---- */

struct penstock_session;
typedef uint64_t penstock_op; /* names an operation; never 0, never used twice in a session */

/* Starts to connect to peer ("HOST", "HOST:PORT", "[IPV6]:PORT"; port 9910 where none is given) and returns at once,
 * except that a host name is looked up first: getaddrinfo blocks for as long as the resolver is set to try, and
 * connect_timeout_ns does not cover it (give a numeric address where that matters). Without a catalogue the session
 * fetches the model's manifest: penstock_session_catalogue has it once the operation is done. With one it joins that
 * very version of the model (section 2.5): ESTALE where the peer has another by now. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_weights_start(const char *peer, const char *model,
                                                         struct penstock_catalogue *catalogue,
                                                         const struct penstock_options *options,
                                                         struct penstock_session **session, penstock_op *op,
                                                         struct penstock_error *error);

/* The same, waited for. On failure there is no session. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_weights_open(const char *peer, const char *model,
                                                        struct penstock_catalogue *catalogue,
                                                        const struct penstock_options *options,
                                                        struct penstock_session **session,
                                                        struct penstock_error *error);

/* A new reference; NULL until the manifest is there. */
PENSTOCK_API struct penstock_catalogue *penstock_session_catalogue(struct penstock_session *session);

/* At once. Memory is the caller's again when it returns; operations that were not done get no completion. NULL is fine.
 */
PENSTOCK_API void penstock_session_free(struct penstock_session *session);

/* Makes memory known, once, not per read: one large piece rather than many. It must live until it is unregistered or
 * the session freed; so must dmabuf_fd. Over RDMA the first read into it registers it with the devices, which takes
 * time and pins its pages. HOST memory that cannot be registered is filled through a buffer, and
 * penstock_session_bounce_why says why. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_register(struct penstock_session *session,
                                                    const struct penstock_memory *memory, uint32_t *region,
                                                    struct penstock_error *error);
/* EINVAL: no such region, or a read that is not done lands there. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_unregister(struct penstock_session *session, uint32_t region,
                                                      struct penstock_error *error);

struct penstock_read {
    size_t size;
    const struct penstock_range *ranges; /* copied; empty ranges are fine */
    uint64_t count;
    uint32_t region;
    int64_t timeout_ns; /* without a byte of progress while it is the first of those sent; 0: the session's
                           reply_timeout_ns. Over TCP replies come in order: the connection, and all that waits for
                           it, dies with ETIMEOUT. Over RDMA it shortens rail_deadline_ns */
    void *user;         /* comes back with the completion */
};

/* Starts a read: one piece of work, one completion. Ranges are read in whatever order is fastest; ranges that touch in
 * the file travel as one. They may overlap in the file; in memory, no two ranges of reads under way may, in one read or
 * in several. Nothing is sent before the next poll or wait. May be called before the session is connected only if it
 * has a catalogue. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit(struct penstock_session *session, const struct penstock_read *read,
                                                  penstock_op *op, struct penstock_error *error);

/* Starts to ask for digests (section 2.1): XXH3-128, canonical bytes, of chunks of PENSTOCK_DIGEST_CHUNK_BYTES of a
 * file, from first_chunk on, at most max of them into out (16 bytes each), which stays the caller's and must live until
 * the completion. Its landed_bytes is 16 for each digest that is known so far: 0 is "not known yet, ask again later".
 * Completes with EREFUSED where the peer keeps none. */
#define PENSTOCK_DIGEST_CHUNK_BYTES (UINT64_C(16) << 20)
#define PENSTOCK_DIGEST_BYTES 16
struct penstock_digests {
    size_t size;
    uint8_t *out;
    uint64_t first_chunk;
    uint64_t max; /* at most 4096 are asked for */
    uint32_t file;
    int64_t timeout_ns;
    void *user;
};
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_digests(struct penstock_session *session,
                                                          const struct penstock_digests *digests, penstock_op *op,
                                                          struct penstock_error *error);

/* Ends an operation early. Its completion still comes (ECANCELED, or how it ended just before); from then on its memory
 * is not written to any more. ENOTFOUND: no such operation under way. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_cancel(struct penstock_session *session, penstock_op op);

struct penstock_completion {
    penstock_op op;
    void *user;
    int code;              /* enum penstock_code */
    uint64_t landed_bytes; /* all of the read's bytes on success; of a failed one those that are surely right */
};

/* When fd is readable, or timeout_ns has passed (-1: no limit), call poll. */
PENSTOCK_API int penstock_fd(const struct penstock_session *session);
PENSTOCK_API int64_t penstock_timeout_ns(const struct penstock_session *session);

/* Moves everything that can be moved, and never blocks. Writes at most max completions; *done says how many. The result
 * is the session's own state: 0, or the code that it died of, when every operation has completed or will with it. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_poll(struct penstock_session *session,
                                                struct penstock_completion *completions, size_t max, size_t *done);

/* The words of a failed operation whose completion the last poll or wait gave; NULL: none. Until the next poll or wait.
 * op 0: what the session died of, with the code that poll returns; NULL while it lives. */
PENSTOCK_API const struct penstock_error *penstock_op_error(const struct penstock_session *session, penstock_op op);

/* Polls until op is done; other completions are kept for later polls. *completion may be NULL. Returns the operation's
 * code; ENOTFOUND: no such operation under way, nor done and not yet polled for. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_wait(struct penstock_session *session, penstock_op op,
                                                struct penstock_completion *completion, struct penstock_error *error);

/* submit and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_read_wait(struct penstock_session *session, const struct penstock_read *read,
                                                     struct penstock_error *error);

/* ---- what a session runs on: sections 1.3 and 2.7 ---- */

/* RDMA or TCP; AUTO: not decided yet. */
PENSTOCK_API enum penstock_transport penstock_session_transport(const struct penstock_session *session);
/* Why it is TCP where AUTO was asked for; NULL: it is not, or nothing else was asked for. Lives as long as the session.
 */
PENSTOCK_API const char *penstock_session_transport_why(const struct penstock_session *session);
/* Why HOST memory was not registered with a device, so that its bytes are copied; NULL: all was. Until the next call
 * that submits. */
PENSTOCK_API const char *penstock_session_bounce_why(const struct penstock_session *session);

/* A rail of a session over RDMA. Strings live until the next poll or wait. A session goes on while one of its rails is
 * up; one that has failed is built anew when a read is submitted, at growing intervals where it fails again. */
struct penstock_rail_info {
    size_t size;
    const char *device;  /* "mlx5_0" */
    const char *gid;     /* "::ffff:10.0.0.2" */
    const char *why;     /* why this port and GID were chosen */
    const char *failure; /* how it failed last; NULL: it never did */
    uint32_t port, gid_index;
    uint32_t peer_rail; /* the peer's rail at its other end, by the peer's index */
    uint32_t mtu_bytes; /* of the path, and */
    uint32_t reads;     /* the READs outstanding at most: as agreed with the peer */
    int up;             /* 1: it takes work */
    double gbps;        /* of the port; 0: not known */
    uint64_t bytes;     /* moved, in all */
    uint64_t failures;
};

/* How many there are, those that failed included; 0 over TCP. */
PENSTOCK_API size_t penstock_session_rails(const struct penstock_session *session);
/* EINVAL: no such rail, or size is not set. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_session_rail(const struct penstock_session *session, size_t index,
                                                        struct penstock_rail_info *info);

/* ---- what a peer has: section 2.5 ---- */

struct penstock_model {
    const char *id; /* what a model request may say; lives as long as the list */
    const char *version;
    uint64_t shards, tensors, files, bytes;
};
struct penstock_models;

/* Asks a peer, and waits. The list is the caller's, to free. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_models_get(const char *peer, const struct penstock_options *options,
                                                      struct penstock_models **models, struct penstock_error *error);
PENSTOCK_API size_t penstock_models_count(const struct penstock_models *models);
PENSTOCK_API const struct penstock_model *penstock_models_at(const struct penstock_models *models,
                                                             size_t index); /* NULL: past the end */
PENSTOCK_API void penstock_models_free(struct penstock_models *models);

/* "0.1.0". Static. */
PENSTOCK_API const char *penstock_version(void);

#ifdef __cplusplus
}
#endif
#endif
