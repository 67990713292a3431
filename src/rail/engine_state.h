/* What the parts of the engine share: engine.c (life cycle, transfers), cut.c (ranges to work), deal.c (work to rails),
 * complete.c (what comes of it), bounce.c (memory that cannot be registered).
 *
 * One work request is one struct rail_work, from the cut to the completion that ends it. It is in exactly one place:
 * the free list, a slot's posted queue, or the engine's again queue, where the work of failed rails waits for another.
 */
#ifndef PENSTOCK_RAIL_ENGINE_STATE_H
#define PENSTOCK_RAIL_ENGINE_STATE_H

#include "bounce.h"
#include "engine.h"

/* Where a range has to be cut, a piece is at least so long, and at most. */
#define RAIL_PIECE_MIN ((uint64_t)1 << 20)
#define RAIL_PIECE_MAX ((uint64_t)16 << 20)
/* What is bound to one rail is not cut to be dealt: only so that a slow rail completes one before its deadline. */
#define RAIL_BOUND_MAX ((uint64_t)64 << 20)

/* One piece of local memory of a work request. */
struct rail_piece {
    uint64_t local_offset;
    uint32_t len_bytes;
};

struct rail_work {
    struct rail_work *next;
    struct rail_transfer *transfer; /* NULL: a rail's probe */
    uint64_t remote_offset;
    uint32_t region;
    uint32_t len_bytes; /* of all pieces */
    uint32_t bounce;    /* the bounce ring's cell that it lands in; RAIL_BOUNCE_NONE: straight in the memory */
    uint32_t n_pieces;
    bool refused; /* a rail has died of it, by the request's own fault */
    struct rail_piece pieces[RAIL_SGES];
};

/* First in, first out. */
struct rail_queue {
    struct rail_work *first, *last;
};

static inline void rail_queue_push(struct rail_queue *queue, struct rail_work *work)
{
    work->next = NULL;
    if (queue->first)
        queue->last->next = work;
    else
        queue->first = work;
    queue->last = work;
}

static inline struct rail_work *rail_queue_pop(struct rail_queue *queue)
{
    struct rail_work *work = queue->first;
    if (work)
        queue->first = work->next;
    return work;
}

enum rail_slot_state {
    RAIL_SLOT_EMPTY,
    RAIL_SLOT_PROBE_DUE, /* the next poll posts its probe */
    RAIL_SLOT_PROBING,
    RAIL_SLOT_READY
};

/* Of a rail that never ran dry since it began: what it moves, and in how long. */
struct rail_window {
    int64_t since_ns;
    uint64_t bytes;
    uint32_t works;
};

struct rail_slot {
    struct rail rail; /* zeroed: EMPTY */
    enum rail_slot_state state;
    bool armed;           /* and nothing has been polled since */
    bool woken;           /* its fd may have told since: to be armed even where nothing is outstanding */
    bool unarmable;       /* with error: the next poll takes the rail out */
    bool lost;            /* with error: the owner is still to be told */
    uint32_t depth;       /* most work requests posted at once */
    uint32_t floor;       /* so many are, however long they are: the wire's READs and some behind them */
    uint32_t signal_each; /* one in so many is signaled, at least */

    struct rail_queue posted; /* and chained, in the order of their completion */
    uint32_t n_posted;
    uint64_t posted_bytes;
    int64_t progress_ns; /* the last completion, or the first post since there was nothing to complete */

    double rate;   /* bytes a ns, as seen of late; at first what the port says; 0: not known */
    double weight; /* the same without differences that mean nothing: what work is dealt by. Above 0 */
    bool measured;
    double dealt_ns; /* what it was dealt, by weight: only differences between slots mean anything */
    struct rail_window window;

    /* What the next doorbell rings for. */
    bool filling;
    size_t n_chained, n_chained_sges;
    uint32_t unsignaled;
    uint64_t unsignaled_bytes;
    struct verbs_request chain[VERBS_CHAIN_MAX];
    struct verbs_sge sges[VERBS_CHAIN_MAX * RAIL_SGES];

    struct rail_work probe;
    struct verbs_mr *probe_mr;
    uint8_t probe_byte;

    struct rail_stats stats;
    struct penstock_error error;
};

struct rail_engine {
    struct rail_engine_config config; /* without zeroes that mean a default */
    uint32_t sges_max;                /* of any rail here, so that any work fits any rail */
    uint64_t message_max_bytes;       /* likewise */

    /* Transfers: with bytes that no work has been made for, in order; with work outstanding only; ended, done not
     * called yet. */
    struct base_list waiting, flying, ended;
    uint64_t left_bytes; /* still to be dealt: not cut yet, and again */

    struct rail_queue again;
    struct rail_work *free; /* a stack: the newest is the warmest */
    struct rail_work *works;
    size_t n_works, n_fresh; /* those from n_fresh on have never been used, nor their pages touched */

    uint32_t n_posted; /* on all rails */
    uint64_t posted_bytes;
    double weight; /* of all READY rails together */
    struct rail_bounce bounce;

    bool due;          /* there may be something to do whatever the CQs say */
    unsigned n_inside; /* calls of the owner's callbacks, one in the other */
    bool freed;        /* in one of them: the last one out frees */

    struct rail_slot slots[]; /* config.n_rails */
};

/* ---- engine.c ---- */

static inline bool rail_slot_alive(const struct rail_slot *slot)
{
    return slot->state != RAIL_SLOT_EMPTY;
}

static inline const struct rail_port *rail_slot_port(const struct rail_engine *engine, const struct rail_slot *slot)
{
    return &engine->config.devices->ports[slot->rail.own];
}

/* The rail's QP ends, and its work is queued again; with the last rail all transfers end. The owner is told later.
 * error is put into the rail's own words: "rail 1: mlx5_1 port 1: ...". */
void rail_slot_lose(struct rail_engine *engine, struct rail_slot *slot, const struct penstock_error *error);
/* Ends it with *error, once what is outstanding of it has come back. */
void rail_transfer_fail(struct rail_engine *engine, struct rail_transfer *transfer, const struct penstock_error *error);
/* One work request less is outstanding. */
void rail_transfer_settle(struct rail_engine *engine, struct rail_transfer *transfer);
/* Destroys every rail, then ends every transfer. */
void rail_engine_stop(struct rail_engine *engine, const struct penstock_error *error);

/* ---- cut.c ---- */

/* Past the ranges that have no bytes. */
void rail_cut_begin(struct rail_transfer *transfer);
/* The next work request of transfer, of about piece_bytes where it is long; NULL: no work, or no cell of the bounce
 * ring, is free before something completes. left_bytes is not 0. */
struct rail_work *rail_cut(struct rail_engine *engine, struct rail_transfer *transfer, uint64_t piece_bytes);
void rail_work_free(struct rail_engine *engine, struct rail_work *work);

/* ---- deal.c ---- */

/* Posts what there is to post and room for. */
bool rail_deal(struct rail_engine *engine, int64_t now_ns);
/* A rail came, or went, or was seen to have another rate. */
void rail_weigh(struct rail_engine *engine);

/* ---- complete.c ---- */

/* Takes completions, and rails that fail by them or past their deadline. */
bool rail_complete(struct rail_engine *engine, int64_t now_ns);

#endif
