/* Moves ranges over rails: joins those that touch, cuts long ones, deals them to rails by what is outstanding, keeps
 * the send queues full, and takes out a rail that fails: its unfinished work goes to the others.
 *
 * Sans-clock and non-blocking: time is an argument in nanoseconds, and poll never waits. One thread at a time. Nothing
 * is allocated while bytes move.
 *
 * Invariants: a piece of memory is the target of at most one outstanding work request, unless the rail that had it is
 * gone, QP destroyed; a transfer that has ended (done was called) has none; a work request stays with its rail until a
 * completion, or the QP's end, gives it back. */
#ifndef PENSTOCK_RAIL_ENGINE_H
#define PENSTOCK_RAIL_ENGINE_H

#include "base/list.h"
#include "rail/set.h"

#define RAIL_DEADLINE_NS (INT64_C(5) * 1000000000)

/* What the send queues of an engine's rails are best made with: room behind 128 READs on the wire, and enough pieces of
 * memory in a work request to make 64 KiB of 4 KiB tensors. */
#define RAIL_DEPTH 256
#define RAIL_SGES 16

/* Local memory that bytes land in (or leave from): registered once for each PD, before it is used here. */
struct rail_memory {
    uint64_t len_bytes;
    uint8_t *address;                         /* HOST; NULL: the library must not touch it (DEVICE) */
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX]; /* for each of rail_devices; NULL: it could not be registered there, and
                                                 HOST memory goes through the bounce ring, all of it */
};

/* A piece of a remote region, and where it goes. */
struct rail_range {
    uint64_t remote_offset; /* in the region */
    uint64_t local_offset;  /* in the memory */
    uint64_t len_bytes;     /* any length; 0 is fine */
    uint32_t region;
};

struct rail_transfer {
    /* The caller's, until done. */
    enum verbs_opcode opcode;
    const struct rail_range *ranges;
    size_t n_ranges;
    const struct rail_memory *memory;
    uint8_t rail; /* 1 + the slot that all of it goes to while that one takes work, each range in one work request where
                     it is not very long; 0: dealt out, and cut to be */
    /* Ended, once for each submit: code 0, or why not, in words that last as long as the transfer. Called from within
     * poll, cancel, detach, fail and free; may call anything, and free this transfer. landed_bytes is then what surely
     * landed. */
    void (*done)(struct rail_transfer *transfer, int code, const struct penstock_error *error);
    void *user;

    /* The engine's. */
    struct base_list node;
    size_t next_range;
    uint64_t next_at;    /* in it */
    uint64_t left_bytes; /* that no work request has been made for */
    uint64_t landed_bytes;
    uint32_t outstanding; /* work requests, those queued again too */
    bool bounced;         /* goes through the bounce ring */
    bool rerouted;        /* a rail failed under it */
    struct penstock_error error;
};

struct rail_engine_config {
    const struct rail_devices *devices; /* outlives the engine */
    struct verbs_pd *const *pds;        /* one for each of devices: for the bounce ring */
    size_t n_rails;                     /* slots: one for each of devices */
    int64_t deadline_ns;      /* of a rail that has work outstanding and completes none; 0: RAIL_DEADLINE_NS */
    uint32_t depth;           /* work requests posted on a rail at once; 0: chosen */
    uint32_t outstanding_max; /* of work requests on all rails together; 0: no such limit. For comparisons. */
    uint64_t bounce_bytes;    /* 0: chosen */
    /* Slot i has lost its rail: QP and CQ are freed already, its work is queued again or has ended. Called as done is,
     * and before it; not for fail and free. May be NULL. */
    void (*rail_failed)(void *context, size_t slot, const struct penstock_error *error);
    /* Before a failed completion or a missed deadline is taken for the rail's own: true where the peer is known to be
     * gone, and *error then says so; the engine does as rail_engine_fail with it. Calls nothing of the engine. May be
     * NULL. */
    bool (*peer_gone)(void *context, struct penstock_error *error);
    void *context;
};

/* Counters of a slot, exact, over all the rails that it has had: for the gates and for whoever wonders. */
struct rail_stats {
    uint64_t work_requests, doorbells; /* posted and rung */
    uint64_t completions;              /* polled: of signaled work requests, and of failed ones */
    uint64_t bytes;                    /* landed */
    uint64_t outstanding_sum;          /* after each doorbell: divided by doorbells the mean outstanding then */
    uint32_t outstanding_max;
};

struct rail_engine;

PENSTOCK_CHECKED int rail_engine_new(const struct rail_engine_config *config, struct rail_engine **engine,
                                     struct penstock_error *error);
/* Rails first (no memory is touched after), then every transfer ends with ECANCELED. NULL is fine. The bounce ring's
 * and the probes' MRs go with it: before their PDs. */
void rail_engine_free(struct rail_engine *engine);

/* Puts a connected rail into an empty slot, which it belongs to from then on (*rail is emptied). probe: it must first
 * READ a few bytes of region 0 into memory of the engine's before work is dealt to it: for rails that have failed
 * before. */
PENSTOCK_CHECKED int rail_engine_attach(struct rail_engine *engine, size_t slot, struct rail *rail, bool probe,
                                        struct penstock_error *error);
/* Takes a rail out: as if it had failed with *error. */
void rail_engine_detach(struct rail_engine *engine, size_t slot, const struct penstock_error *error);

size_t rail_engine_alive(const struct rail_engine *engine); /* rails that take work, or are being probed */
const struct rail *rail_engine_rail(const struct rail_engine *engine, size_t slot); /* NULL: empty */

/* Whether a slot has a rail that is up and needs no probe any more. */
bool rail_engine_takes_work(const struct rail_engine *engine, size_t slot);

/* Queued behind the others: it is begun once all of theirs is under way, but for those that wait for a rail of their
 * own. Ranges are the caller's to have checked against regions and memory. ECLOSED: no rail is alive; EUNSUPPORTED:
 * memory that no rail can reach, and that cannot be bounced either. Nothing is posted, and done is not called, before
 * the next poll. */
PENSTOCK_CHECKED int rail_engine_submit(struct rail_engine *engine, struct rail_transfer *transfer,
                                        struct penstock_error *error);
/* Ends it with ECANCELED: at once where nothing of it is outstanding, else when the last work request completes. */
void rail_engine_cancel(struct rail_engine *engine, struct rail_transfer *transfer);
/* Ends all transfers with *error, after destroying every rail: the peer is gone. */
void rail_engine_fail(struct rail_engine *engine, const struct penstock_error *error);

/* Takes completions, posts what can be posted, takes out rails past their deadline. Returns whether anything moved. */
bool rail_engine_poll(struct rail_engine *engine, int64_t now_ns);
/* Another deadline of rails than that of the config, from the next poll on. */
void rail_engine_set_deadline(struct rail_engine *engine, int64_t deadline_ns);
/* When poll has to be called again whatever the fds say; INT64_MAX: never. */
int64_t rail_engine_deadline_ns(const struct rail_engine *engine);
/* Arms the CQs that have work outstanding, before a wait on their fds; poll once more after it. A CQ that cannot be
 * armed costs its rail, in that poll. */
void rail_engine_arm(struct rail_engine *engine);
/* The fd of a CQ was readable: the next arm takes what is on them, and they are quiet then. An event may come after its
 * completion was polled, and would else wake for nothing again and again. */
void rail_engine_woken(struct rail_engine *engine);

void rail_engine_stats(const struct rail_engine *engine, size_t slot, struct rail_stats *stats);

#endif
