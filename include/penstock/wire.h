/* Penstock wire codecs. Bytes in, structs out: no allocation, no errno, no I/O, no state. Layouts: docs/protocol.md.
 *
 * Decoders never read past the end of the message that they were asked for, and may be called again from its start as
 * more of it comes in. *out and *consumed are set on OK only, *fault on everything else. Encoders write exactly the
 * size that goes with the record; those that can refuse return the bytes written, or 0 and set *fault, and have then
 * written nothing. Everything here is a pure function of its arguments, so that any thread may call it.
 *
 * This header needs no other of Penstock's. */
#ifndef PENSTOCK_WIRE_H
#define PENSTOCK_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in <penstock/error.h>. */
#define PENSTOCK_API __attribute__((visibility("default")))
#define PENSTOCK_CHECKED __attribute__((warn_unused_result))

/* What a decoder made of the bytes so far. */
enum penstock_decode {
    PENSTOCK_DECODE_OK,       /* one whole message; *consumed says where the next begins */
    PENSTOCK_DECODE_MORE,     /* a valid beginning: call again from its start with more bytes */
    PENSTOCK_DECODE_MALFORMED /* wrong whatever follows; the fault says why */
};

/* Why bytes were refused, or what was still missing. Strings are static. */
struct penstock_wire_fault {
    const char *field;  /* the field being read: "read server gid", "paging kind" */
    const char *reason; /* the message, with {value}, {want} and {hex} for the numbers below; NULL for a short read */
    uint64_t value;     /* the value refused */
    uint64_t want;      /* the value that would have been right, where there is just one */
    size_t need;        /* MORE: bytes that the message has at least, counted from its start. Who reads a stream up to
                           here, and no further, has read nothing that belongs to the next message. */
};

/* Writes the fault's message ("implausible verbs layer count: 0"; for a short read the field), cut to size and always
 * terminated unless size is 0. Returns its length before cutting. */
PENSTOCK_API size_t penstock_wire_fault_format(const struct penstock_wire_fault *fault, char *buf, size_t size);

/* ---- constants: 1.1 and part 2 ---- */

/* One byte, in the rail handshake and in expert and weight replies. */
enum penstock_status { PENSTOCK_STATUS_OK = 0, PENSTOCK_STATUS_ERR = 1 };

enum penstock_transport_mode { PENSTOCK_MODE_TCP = 0, PENSTOCK_MODE_VERBS = 1 };

enum penstock_arena_kind {
    PENSTOCK_ARENA_SSM = 0,
    PENSTOCK_ARENA_KV = 1,
    PENSTOCK_ARENA_STATISTICS = 0xFF /* no arena: asks for statistics (2.6) */
};

enum penstock_paging_op {
    PENSTOCK_OP_BYE = 0,
    PENSTOCK_OP_ALLOC = 1,
    PENSTOCK_OP_COMMIT = 2,
    PENSTOCK_OP_GET = 3,
    PENSTOCK_OP_REMOVE = 4,

    /* TCP data plane (2.2). */
    PENSTOCK_OP_PUT = 0x10,
    PENSTOCK_OP_FETCH = 0x11,
    PENSTOCK_OP_WRITE = 0x12,
    PENSTOCK_OP_READ = 0x13,

    /* Behind a feature bit (2.3). */
    PENSTOCK_OP_EXISTS = 0x20,
    PENSTOCK_OP_MGET = 0x21,
    PENSTOCK_OP_RELEASE = 0x22,
    PENSTOCK_OP_OWN = 0x23,
    PENSTOCK_OP_WIDE = 0x24,
    PENSTOCK_OP_FEATURES = 0x7F
};

/* Paging replies: another enumeration than penstock_status. */
enum penstock_paging_status { PENSTOCK_ST_OK = 0, PENSTOCK_ST_MISS = 1, PENSTOCK_ST_ERR = 2 };

/* What PENSTOCK_OP_FEATURES is answered with (2.3). */
#define PENSTOCK_FEATURE_EXISTS UINT64_C(0x1)
#define PENSTOCK_FEATURE_MGET UINT64_C(0x2) /* and RELEASE */
#define PENSTOCK_FEATURE_OWN UINT64_C(0x4)
#define PENSTOCK_FEATURE_WIDE UINT64_C(0x8)

#define PENSTOCK_SHUTDOWN_MARKER UINT32_C(0xFFFFFFFF)
#define PENSTOCK_PAGING_MAGIC_V2 UINT64_C(0x5041474500000002)
#define PENSTOCK_PAGING_MAGIC_V1 UINT64_C(0x5041474500000001) /* retired: recognised to be refused by name */
#define PENSTOCK_ARENA_BYTES_MAX (UINT64_C(1) << 42)
#define PENSTOCK_MODEL_REQUEST_MAX 8192u
#define PENSTOCK_RAILS_MAX 8u     /* read-only dialect, both ends */
#define PENSTOCK_LAYERS_MAX 4096u /* layers or shards a rail: the reader's bound */
#define PENSTOCK_EXPERT_MANIFEST_BYTES_MAX (UINT32_C(16) << 20)
#define PENSTOCK_WEIGHT_MANIFEST_BYTES_MAX (UINT32_C(256) << 20)
#define PENSTOCK_MODELS_REPLY_BYTES_MAX (UINT32_C(16) << 20)    /* 2.5 */
#define PENSTOCK_CACHE_STATISTICS_BYTES_MAX (UINT32_C(1) << 20) /* 2.6 */

#define PENSTOCK_PORT_EXPERTS 9900
#define PENSTOCK_PORT_WEIGHTS 9910
#define PENSTOCK_PORT_CACHE 9916

#define PENSTOCK_UNANSWERED_MAX 256u                 /* parsed requests that a peer holds, a connection (part 2) */
#define PENSTOCK_RANGE_BYTES_MAX (UINT64_C(1) << 26) /* 2.1, and READ and WRITE of 2.2 */
#define PENSTOCK_FILE_DIGESTS UINT32_C(0xFFFFFFFE)   /* a range request that asks for digests (2.1) */
#define PENSTOCK_FILE_END UINT32_C(0xFFFFFFFF)       /* a range request that ends the connection (2.1) */
#define PENSTOCK_DIGESTS_MAX 4096u                   /* digests in one reply (2.1) */
#define PENSTOCK_KEYS_MAX 1024u                      /* keys in one MGET or RELEASE (2.3) */
#define PENSTOCK_MODEL_VERSION_MAX 128u              /* bytes (2.4) */

/* ---- the records of the seed: 1.2 ---- */

/* Whom to connect a QP to. The psn is 24 bits on the fabric; the codec carries 32. */
struct penstock_qp_identity {
    uint32_t qpn;
    uint32_t psn;
    uint8_t gid[16];
};

struct penstock_layer {
    uint64_t base; /* address of the memory region at the peer */
    uint32_t rkey;
};

/* A rail of a read-only peer: its QP and one memory region a layer or shard. */
struct penstock_verbs_server_params {
    struct penstock_qp_identity qp;
    uint32_t n_layers; /* 1..PENSTOCK_LAYERS_MAX once decoded */
    struct penstock_layer *layers;
};

/* A rail of a client. */
struct penstock_verbs_client_params {
    struct penstock_qp_identity qp;
};

/* A rail of a read-write peer: its QP and its one memory region. */
struct penstock_cache_server_params {
    struct penstock_qp_identity qp;
    uint64_t base_addr;
    uint32_t rkey;
};

#define PENSTOCK_VERBS_SERVER_HEAD_BYTES ((size_t)28)
#define PENSTOCK_LAYER_BYTES ((size_t)12)
#define PENSTOCK_VERBS_CLIENT_PARAMS_BYTES ((size_t)24)
#define PENSTOCK_CACHE_SERVER_PARAMS_BYTES ((size_t)36)

PENSTOCK_API size_t penstock_verbs_server_params_size(uint32_t n_layers);

/* Does not check n_layers: that is the reader's to do. */
PENSTOCK_API void penstock_verbs_server_params_encode(const struct penstock_verbs_server_params *params, uint8_t *out);

/* Reads into layers, which has room for that many; more are refused before one is read, and so are 0 and more than
 * PENSTOCK_LAYERS_MAX. out->layers is then layers. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_verbs_server_params_decode(
    const uint8_t *buf, size_t len, struct penstock_layer *layers, size_t room,
    struct penstock_verbs_server_params *out, size_t *consumed, struct penstock_wire_fault *fault);

/* The same in two steps, for who allocates between them: the fixed head, its n_layers checked and its layers NULL... */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_verbs_server_head_decode(
    const uint8_t *buf, size_t len, struct penstock_verbs_server_params *out, size_t *consumed,
    struct penstock_wire_fault *fault);

/* ...and n of its entries: all of them, or as many as have come, so that each byte of a stream is looked at once. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_layers_decode(const uint8_t *buf, size_t len, uint32_t n,
                                                                          struct penstock_layer *layers,
                                                                          size_t *consumed,
                                                                          struct penstock_wire_fault *fault);

PENSTOCK_API void penstock_verbs_client_params_encode(const struct penstock_verbs_client_params *params, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_verbs_client_params_decode(
    const uint8_t *buf, size_t len, struct penstock_verbs_client_params *out, size_t *consumed,
    struct penstock_wire_fault *fault);

PENSTOCK_API void penstock_cache_server_params_encode(const struct penstock_cache_server_params *params, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_cache_server_params_decode(
    const uint8_t *buf, size_t len, struct penstock_cache_server_params *out, size_t *consumed,
    struct penstock_wire_fault *fault);

/* Server rails: [u8 n_rails]{VerbsServerParams}*n_rails. */
#define PENSTOCK_SERVER_RAILS_BYTES_MAX                                                                                \
    (1 + PENSTOCK_RAILS_MAX * (PENSTOCK_VERBS_SERVER_HEAD_BYTES + PENSTOCK_LAYERS_MAX * PENSTOCK_LAYER_BYTES))

PENSTOCK_API size_t penstock_server_rails_size(const struct penstock_verbs_server_params *rails, size_t n_rails);

/* Refuses 0 rails and more than PENSTOCK_RAILS_MAX. */
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_server_rails_encode(const struct penstock_verbs_server_params *rails,
                                                                  size_t n_rails, uint8_t *out,
                                                                  struct penstock_wire_fault *fault);

/* The leading count alone: 1..PENSTOCK_RAILS_MAX, and just the one negotiated. What follows is want times
 * VerbsServerParams. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_server_rail_count_decode(const uint8_t *buf, size_t len,
                                                                                     size_t want, size_t *consumed,
                                                                                     struct penstock_wire_fault *fault);

/* All of it: rails has room for want (the rails negotiated), layers for room of them, over all rails. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_server_rails_decode(
    const uint8_t *buf, size_t len, size_t want, struct penstock_layer *layers, size_t room,
    struct penstock_verbs_server_params *rails, size_t *consumed, struct penstock_wire_fault *fault);

/* ---- the rest of the rail handshake: 1.3, 2.2, 2.7 ---- */

enum penstock_dialect { PENSTOCK_READ_ONLY = 0, PENSTOCK_READ_WRITE = 1 };

#define PENSTOCK_PEER_RAIL_ANY 0xFFu

/* One rail as a client would have it, or as the peer grants it (2.7). */
struct penstock_rail_choice {
    uint8_t peer_rail; /* by the peer's index; PENSTOCK_PEER_RAIL_ANY in a request: the peer chooses */
    uint8_t path_mtu;  /* enum ibv_mtu, 1..5 */
    uint8_t rd_atomic; /* READs outstanding, 1..128 */
};

#define PENSTOCK_RAIL_CHOICE_BYTES ((size_t)3)

/* Step 1. Just a count, or with choosing set a count and a wish for each rail. */
struct penstock_rails_request {
    uint8_t n_rails; /* read-only: 1..8; read-write: up to 127, 0 asks for the TCP data plane; choosing: 1..8 */
    bool choosing;
    struct penstock_rail_choice rails[PENSTOCK_RAILS_MAX]; /* choosing: the first n_rails */
};

#define PENSTOCK_RAILS_REQUEST_BYTES_MAX (1 + PENSTOCK_RAILS_MAX * PENSTOCK_RAIL_CHOICE_BYTES)

PENSTOCK_API size_t penstock_rails_request_size(const struct penstock_rails_request *request);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_rails_request_encode(const struct penstock_rails_request *request,
                                                                   enum penstock_dialect dialect, uint8_t *out,
                                                                   struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_rails_request_decode(const uint8_t *buf, size_t len,
                                                                                 enum penstock_dialect dialect,
                                                                                 struct penstock_rails_request *out,
                                                                                 size_t *consumed,
                                                                                 struct penstock_wire_fault *fault);

/* The peer's answer to a request that was choosing: n_rails choices and nothing else. Reading refuses what the request
 * does not allow: more than it asked for, another rail than the one wished for, a rail twice. */
PENSTOCK_API void penstock_rails_answer_encode(const struct penstock_rail_choice *rails, size_t n_rails, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_rails_answer_decode(
    const uint8_t *buf, size_t len, const struct penstock_rails_request *request, struct penstock_rail_choice *rails,
    size_t *consumed, struct penstock_wire_fault *fault);

/* Step 2 read-write, [u8 n]{CacheServerParams}*n. n is 0..255; another than want is refused with "granted N rails,
 * wanted WANT", before which belongs the peer's name. */
PENSTOCK_API size_t penstock_cache_rails_size(size_t n_rails);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_cache_rails_encode(const struct penstock_cache_server_params *rails,
                                                                 size_t n_rails, uint8_t *out,
                                                                 struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_cache_rails_decode(
    const uint8_t *buf, size_t len, size_t want, struct penstock_cache_server_params *rails, size_t *consumed,
    struct penstock_wire_fault *fault);

/* Step 3, [u8 n_rails]{VerbsClientParams}*n_rails. n_rails is 1..255 (that of step 1, where the dialect's bound was
 * checked); reading refuses another than want. */
PENSTOCK_API size_t penstock_client_rails_size(size_t n_rails);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_client_rails_encode(const struct penstock_verbs_client_params *rails,
                                                                  size_t n_rails, uint8_t *out,
                                                                  struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_client_rails_decode(
    const uint8_t *buf, size_t len, size_t want, struct penstock_verbs_client_params *rails, size_t *consumed,
    struct penstock_wire_fault *fault);

/* Step 5. Anything but PENSTOCK_STATUS_OK is refused with "refused connection (ack N)", before which belongs the peer's
 * name. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_ack_decode(const uint8_t *buf, size_t len, size_t *consumed,
                                                                       struct penstock_wire_fault *fault);

/* ---- experts and weights: 1.4, 1.5, 2.1 ---- */

/* The byte after a manifest: one of enum penstock_transport_mode. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_mode_decode(const uint8_t *buf, size_t len, uint8_t *mode,
                                                                        size_t *consumed,
                                                                        struct penstock_wire_fault *fault);

/* The byte that opens an expert or weight reply. Any value is OK here: one that is not known is an error without a
 * body. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_status_decode(const uint8_t *buf, size_t len,
                                                                          uint8_t *status, size_t *consumed,
                                                                          struct penstock_wire_fault *fault);

/* The texts that travel as [u32 len][len bytes of JSON]. */
enum penstock_text {
    PENSTOCK_TEXT_EXPERT_MANIFEST,
    PENSTOCK_TEXT_WEIGHT_MANIFEST,
    PENSTOCK_TEXT_MODELS_REPLY,    /* the answer to a request that begins with "penstock:" (2.5) */
    PENSTOCK_TEXT_CACHE_STATISTICS /* 2.6 */
};

#define PENSTOCK_TEXT_HEAD_BYTES ((size_t)4)

/* The length alone, 1 to the bound that goes with the text, on both sides. */
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_text_head_encode(enum penstock_text text, size_t len_bytes, uint8_t *out,
                                                               struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_text_head_decode(const uint8_t *buf, size_t len,
                                                                             enum penstock_text text,
                                                                             uint32_t *len_bytes, size_t *consumed,
                                                                             struct penstock_wire_fault *fault);

/* For record (layer, expert); both PENSTOCK_SHUTDOWN_MARKER: the connection ends. */
struct penstock_expert_request {
    uint32_t layer;
    uint32_t expert;
};

#define PENSTOCK_EXPERT_REQUEST_BYTES ((size_t)8)

PENSTOCK_API bool penstock_expert_request_is_shutdown(const struct penstock_expert_request *request);
PENSTOCK_API void penstock_expert_request_encode(const struct penstock_expert_request *request, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_expert_request_decode(const uint8_t *buf, size_t len,
                                                                                  struct penstock_expert_request *out,
                                                                                  size_t *consumed,
                                                                                  struct penstock_wire_fault *fault);

/* What an expert's record begins with. Which layer and expert it ought to be, and of what sizes, is for the reader to
 * compare. */
struct penstock_record_header {
    uint32_t layer; /* the dense index of MoE layers */
    uint32_t expert;
    uint32_t inter, hidden, group_size;
    uint32_t input_scale_flags; /* bit i: projection i has an input_scale */
    float scale2[3];            /* gate, up, down */
    float input_scale[3];       /* 0.0 where there is none: written so, whatever is here */
};

#define PENSTOCK_RECORD_HEADER_BYTES ((size_t)256)
#define PENSTOCK_RECORD_MAGIC UINT32_C(0x58505254)
#define PENSTOCK_RECORD_VERSION UINT32_C(1)

PENSTOCK_API void penstock_record_header_encode(const struct penstock_record_header *header, uint8_t *out);

/* Refuses another magic or version; floats and flags may be any, and what the padding holds is not looked at. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_record_header_decode(const uint8_t *buf, size_t len,
                                                                                 struct penstock_record_header *out,
                                                                                 size_t *consumed,
                                                                                 struct penstock_wire_fault *fault);

/* Opens a connection to a weight peer: 1..PENSTOCK_MODEL_REQUEST_MAX bytes of UTF-8, not terminated, which may contain
 * NUL. Decoded, the text lies in the decoder's input. */
struct penstock_model_request {
    const char *text;
    size_t len_bytes;
};

#define PENSTOCK_MODEL_REQUEST_BYTES_MAX ((size_t)4 + PENSTOCK_MODEL_REQUEST_MAX)

PENSTOCK_API size_t penstock_model_request_size(const struct penstock_model_request *request);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_model_request_encode(const struct penstock_model_request *request,
                                                                   uint8_t *out, struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_model_request_decode(const uint8_t *buf, size_t len,
                                                                                 struct penstock_model_request *out,
                                                                                 size_t *consumed,
                                                                                 struct penstock_wire_fault *fault);

/* What the text of a model request asks for (2.5). */
enum penstock_ask {
    PENSTOCK_ASK_MODEL,  /* a model by its name or path */
    PENSTOCK_ASK_MODELS, /* penstock:models */
    PENSTOCK_ASK_JOIN,   /* penstock:join VERSION MODEL */
    PENSTOCK_ASK_UNKNOWN /* begins with "penstock:", and is none of these: to be refused in words */
};

/* Slices of the request's text, not terminated. */
struct penstock_model_ask {
    const char *model; /* MODEL, JOIN */
    size_t model_bytes;
    const char *version; /* JOIN */
    size_t version_bytes;
};

/* *fault is set for PENSTOCK_ASK_UNKNOWN, *out for the others. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_ask penstock_model_ask_parse(const struct penstock_model_request *request,
                                                                         struct penstock_model_ask *out,
                                                                         struct penstock_wire_fault *fault);

/* Writes the request's text, which ask has parts of and which is at most PENSTOCK_MODEL_REQUEST_MAX bytes long. Refuses
 * a bad version, an empty or too long model, a MODEL that would be read as another request, and UNKNOWN. */
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_model_ask_format(enum penstock_ask kind,
                                                               const struct penstock_model_ask *ask, char *out,
                                                               struct penstock_wire_fault *fault);

/* Whether it can be a model_version: 1..128 bytes 0x21..0x7E without quote and backslash (2.4). */
PENSTOCK_API bool penstock_model_version_valid(const char *version, size_t len_bytes);

/* Weights over TCP (2.1). Whether file and range exist is for the peer to say. */
struct penstock_range_request {
    uint32_t file;   /* a shard, shards + i for another file, or PENSTOCK_FILE_* */
    uint64_t offset; /* PENSTOCK_FILE_DIGESTS: the file */
    uint64_t len;    /* 1..PENSTOCK_RANGE_BYTES_MAX; PENSTOCK_FILE_DIGESTS: the first chunk */
};

#define PENSTOCK_RANGE_REQUEST_BYTES ((size_t)20)

PENSTOCK_API void penstock_range_request_encode(const struct penstock_range_request *request, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_range_request_decode(const uint8_t *buf, size_t len,
                                                                                 struct penstock_range_request *out,
                                                                                 size_t *consumed,
                                                                                 struct penstock_wire_fault *fault);

/* What comes before the n digests of 16 bytes: [u8 STATUS_OK][u32 n], or any other status alone. */
struct penstock_digests_head {
    uint8_t status;
    uint32_t n; /* 0..PENSTOCK_DIGESTS_MAX; 0: not known yet */
};

#define PENSTOCK_DIGESTS_HEAD_BYTES_MAX ((size_t)5)

PENSTOCK_API size_t penstock_digests_head_size(const struct penstock_digests_head *head);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_digests_head_encode(const struct penstock_digests_head *head,
                                                                  uint8_t *out, struct penstock_wire_fault *fault);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_digests_head_decode(const uint8_t *buf, size_t len,
                                                                                struct penstock_digests_head *out,
                                                                                size_t *consumed,
                                                                                struct penstock_wire_fault *fault);

/* ---- the cache peer: 1.6, 2.2, 2.3, 2.6 ---- */

/* Opens every cache-peer connection. PENSTOCK_ARENA_STATISTICS goes with 0 and 0, and nothing follows it. */
struct penstock_paging_header {
    uint64_t arena_bytes; /* 1..2^42, a multiple of blob_bytes in paging mode */
    uint64_t blob_bytes;  /* 0: raw mode, the client addresses the arena itself */
    uint8_t kind;         /* enum penstock_arena_kind */
};

#define PENSTOCK_PAGING_HEADER_BYTES ((size_t)25)

/* The header is taken as valid: it is the caller's own. */
PENSTOCK_API void penstock_paging_header_encode(const struct penstock_paging_header *header, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_paging_header_decode(const uint8_t *buf, size_t len,
                                                                                 struct penstock_paging_header *out,
                                                                                 size_t *consumed,
                                                                                 struct penstock_wire_fault *fault);

/* high is 0, and not on the wire, until the connection is wide (PENSTOCK_OP_WIDE). */
struct penstock_key {
    uint64_t low, high;
};

/* How requests of a connection are framed. */
struct penstock_paging_framing {
    bool tcp;  /* the TCP data plane: PUT, FETCH, READ and WRITE are known, and what is not known is malformed */
    bool wide; /* keys are 128 bits */
};

/* One request, without the body that may follow it: blob_bytes of a PUT, len_bytes of a WRITE. */
struct penstock_paging_request {
    uint8_t op;                /* enum penstock_paging_op, or unknown: answered with ST_ERR */
    struct penstock_key key;   /* ops with one key, and unknown ones; not known for a BYE */
    struct penstock_key *keys; /* MGET, RELEASE */
    uint32_t n_keys;           /* MGET, RELEASE: 1..PENSTOCK_KEYS_MAX */
    uint64_t value;            /* FEATURES, OWN, WIDE */
    uint64_t offset;           /* READ, WRITE */
    uint32_t len_bytes;        /* READ, WRITE: checked (to be at most PENSTOCK_RANGE_BYTES_MAX) for WRITE only, whose
                                  body could not be skipped; a longer READ is to be answered with ST_ERR */
};

#define PENSTOCK_PAGING_REQUEST_BYTES_MAX ((size_t)5 + 16 * PENSTOCK_KEYS_MAX)

/* 0 for what encoding refuses: an op that a TCP data plane does not know, n_keys or len_bytes out of bounds. A BYE has
 * its key, as the frozen protocol's clients send it. */
PENSTOCK_API size_t penstock_paging_request_size(const struct penstock_paging_request *request,
                                                 const struct penstock_paging_framing *framing);
PENSTOCK_API PENSTOCK_CHECKED size_t penstock_paging_request_encode(const struct penstock_paging_request *request,
                                                                    const struct penstock_paging_framing *framing,
                                                                    uint8_t *out, struct penstock_wire_fault *fault);

/* keys has room for PENSTOCK_KEYS_MAX. A BYE is complete at its op byte. */
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_paging_request_decode(
    const uint8_t *buf, size_t len, const struct penstock_paging_framing *framing, struct penstock_key *keys,
    struct penstock_paging_request *out, size_t *consumed, struct penstock_wire_fault *fault);

/* One reply, without the bytes that follow FETCH's and READ's ST_OK. MGET is answered with n of them. */
struct penstock_paging_reply {
    uint8_t status; /* enum penstock_paging_status; one that is not known is an error without a body */
    uint64_t value; /* with ST_OK only. ALLOC, GET, MGET: offset in the arena; FEATURES: bits */
};

#define PENSTOCK_PAGING_REPLY_BYTES_MAX ((size_t)9)

/* op: of the request that is answered. */
PENSTOCK_API size_t penstock_paging_reply_size(uint8_t op, const struct penstock_paging_reply *reply);
PENSTOCK_API void penstock_paging_reply_encode(uint8_t op, const struct penstock_paging_reply *reply, uint8_t *out);
PENSTOCK_API PENSTOCK_CHECKED enum penstock_decode penstock_paging_reply_decode(const uint8_t *buf, size_t len,
                                                                                uint8_t op,
                                                                                struct penstock_paging_reply *out,
                                                                                size_t *consumed,
                                                                                struct penstock_wire_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
