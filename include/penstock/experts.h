/* Experts of a mixture-of-experts model, fetched one record at a time into an arena of slots. Section 1.4 of
 * docs/protocol.md.
 *
 * A session on experts is one like any other (penstock.h): penstock_fd, _timeout_ns, _poll, _wait, _cancel, _op_error,
 * _session_free, _session_transport and _session_rail are its calls too. It begins with the store's manifest; then the
 * caller gives it an arena, once, and fetches records into its slots. As everywhere one session belongs to one thread
 * at a time, no call blocks but those named _open and _wait, and structs carry their size. */
#ifndef PENSTOCK_EXPERTS_H
#define PENSTOCK_EXPERTS_H

#include <penstock/penstock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the store ---- */

/* The sub-buffers of a record, in their order. packed holds two 4-bit values a byte, [K / 2, N]; scale [K / group_size,
 * N]. gate and up have N = inter and K = hidden, down has N = hidden and K = inter. */
enum penstock_expert_part {
    PENSTOCK_EXPERT_GATE_PACKED = 0,
    PENSTOCK_EXPERT_GATE_SCALE = 1,
    PENSTOCK_EXPERT_UP_PACKED = 2,
    PENSTOCK_EXPERT_UP_SCALE = 3,
    PENSTOCK_EXPERT_DOWN_PACKED = 4,
    PENSTOCK_EXPERT_DOWN_SCALE = 5
};
#define PENSTOCK_EXPERT_PARTS 6

/* What the manifest says, and what follows from it. Pointers live as long as the session. */
struct penstock_expert_geometry {
    size_t size;
    const char *model_version;    /* NULL: the peer gives none */
    const uint32_t *model_layers; /* for each of layers the model's layer that it is */
    uint32_t layers;              /* MoE layers: layer in a fetch is below this */
    uint32_t experts;             /* of each */
    uint32_t inter, hidden, group_size;
    uint32_t sub_align;     /* of every part, in bytes: in a slot that is so aligned itself */
    uint64_t record_stride; /* bytes that a fetch brings */
    uint64_t part_offset[PENSTOCK_EXPERT_PARTS], part_bytes[PENSTOCK_EXPERT_PARTS]; /* in the record */
};

/* Starts to connect to peer, as penstock_weights_start does (port 9900 where none is given), and returns at once.
 * model_version, where it is not NULL, is what an earlier session was given: ESTALE where the store is another by now,
 * or where the peer gives no version.
 *
 * AUTO takes RDMA where both ends have it, else TCP: expert peers speak both, those of the frozen protocol too. The
 * port does not list its rails: "DEVICE@N" is honoured by peers that give a model_version, all other rails go by
 * position. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_experts_start(const char *peer, const char *model_version,
                                                         const struct penstock_options *options,
                                                         struct penstock_session **session, penstock_op *op,
                                                         struct penstock_error *error);
/* The same, waited for. On failure there is no session. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_experts_open(const char *peer, const char *model_version,
                                                        const struct penstock_options *options,
                                                        struct penstock_session **session,
                                                        struct penstock_error *error);

/* EINVAL: no session on experts, the manifest is not there yet, or size is not set. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_experts_geometry(const struct penstock_session *session,
                                                            struct penstock_expert_geometry *geometry);

/* ---- the arena ---- */

struct penstock_expert_arena {
    size_t size;
    const struct penstock_memory *memory; /* the caller's, which lives as long as the session; NULL: the library's own,
                                             HOST, page-aligned, freed with the session */
    uint64_t slots;
    uint64_t stride_bytes; /* from slot to slot, at least record_stride, which is also what 0 means */
};

/* Gives an open session its arena, once: over RDMA it is registered with the devices here. EUNSUPPORTED: DEVICE memory
 * over TCP, or where no device takes it; EINVAL: too short, or there is one already. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_experts_arena(struct penstock_session *session,
                                                         const struct penstock_expert_arena *arena,
                                                         struct penstock_error *error);

/* ---- fetches ---- */

/* What the router asked for goes before what was guessed, also before guesses that are queued already: of those only so
 * many are under way that the wire does not idle. */
enum penstock_fetch_priority { PENSTOCK_FETCH_NOW = 0, PENSTOCK_FETCH_GUESS = 1 };

struct penstock_fetch {
    size_t size;
    uint64_t slot;
    uint32_t layer, expert;
    int priority;       /* enum penstock_fetch_priority */
    int64_t timeout_ns; /* as penstock_read's */
    void *user;
};

/* Starts to fetch a record into a slot; nothing is sent before the next poll or wait. Any number may be under way, each
 * in a slot of its own: EINVAL for a slot that another lands in, and for a layer or expert that the store has not.
 *
 * Its completion: 0, the record is there, and in HOST memory is the one that was asked for by its own header; EREFUSED:
 * the peer could not read it, the session goes on; ECORRUPT: it is another record; or what the session died of. A slot
 * whose fetch failed or was cancelled holds nothing of use. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_submit_fetch(struct penstock_session *session,
                                                        const struct penstock_fetch *fetch, penstock_op *op,
                                                        struct penstock_error *error);
/* Fetch and wait in one. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_fetch_wait(struct penstock_session *session,
                                                      const struct penstock_fetch *fetch, struct penstock_error *error);

/* A guess was right: from now on it is as if NOW had been asked for. Of no effect on one that is under way already.
 * ENOTFOUND: no fetch of that name is queued or under way. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_fetch_promote(struct penstock_session *session, penstock_op op);

/* The record in a slot. */
struct penstock_expert {
    size_t size;
    uint32_t layer, expert;
    void *parts[PENSTOCK_EXPERT_PARTS]; /* DEVICE: NULL, there is no address; the geometry has the offsets */
    float scale2[3], input_scale[3];    /* gate, up, down; DEVICE: 0, they lie in the record's header */
    uint32_t input_scale_flags;         /* bit i: there is input_scale[i], which is 0 else */
};

/* EINVAL: no such slot, or size is not set. ENOTFOUND: it holds no record, or one that is not whole yet. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_expert_at(const struct penstock_session *session, uint64_t slot,
                                                     struct penstock_expert *expert);

#ifdef __cplusplus
}
#endif
#endif
