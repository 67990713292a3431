/* What comes of work: completions in order, rails that fail by them, rails that say nothing for too long. */
#include <string.h>

#include "base/error.h"
#include "engine_state.h"

enum { POLL_MAX = 32 };

/* After so much a rate means something: a queue's worth of work requests, or some long ones. */
#define WINDOW_WORKS 64
#define WINDOW_BYTES ((uint64_t)8 << 20)

/* Statuses (enum ibv_wc_status) that are the request's own fault: local length, operation, protection or access; remote
 * request, access or operation. Any rail would fail of it. */
static bool is_refusal(int status)
{
    static const uint32_t refusals = 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 11;
    return status > 0 && status < 32 && (refusals >> status & 1);
}

static void land_bounced(struct rail_engine *engine, const struct rail_work *work)
{
    const uint8_t *from = engine->bounce.bytes + rail_bounce_offset(&engine->bounce, work->bounce);
    for (uint32_t i = 0; i < work->n_pieces; i++) {
        memcpy(work->transfer->memory->address + work->pieces[i].local_offset, from, work->pieces[i].len_bytes);
        from += work->pieces[i].len_bytes;
    }
}

static void land(struct rail_engine *engine, struct rail_slot *slot, struct rail_work *work)
{
    slot->n_posted--;
    slot->posted_bytes -= work->len_bytes;
    engine->n_posted--;
    engine->posted_bytes -= work->len_bytes;
    struct rail_transfer *transfer = work->transfer;
    if (!transfer) {
        slot->state = RAIL_SLOT_READY;
        rail_weigh(engine);
        return;
    }
    if (work->bounce != RAIL_BOUNCE_NONE && transfer->opcode == VERBS_READ)
        land_bounced(engine, work);
    slot->window.works++;
    slot->window.bytes += work->len_bytes;
    slot->stats.bytes += work->len_bytes;
    transfer->landed_bytes += work->len_bytes;
    rail_work_free(engine, work);
    rail_transfer_settle(engine, transfer);
}

/* A success says that all before it on its QP are done too. */
static void land_up_to(struct rail_engine *engine, struct rail_slot *slot, const struct rail_work *last)
{
    struct rail_work *work;
    while ((work = rail_queue_pop(&slot->posted))) {
        bool done = work == last; /* landing frees it */
        land(engine, slot, work);
        if (done)
            return;
    }
}

static void measure(struct rail_engine *engine, struct rail_slot *slot, int64_t now_ns)
{
    struct rail_window *window = &slot->window;
    int64_t ns = now_ns - window->since_ns;
    if (ns <= 0 || (window->works < WINDOW_WORKS && window->bytes < WINDOW_BYTES))
        return;
    double rate = (double)window->bytes / (double)ns;
    slot->rate = slot->measured ? slot->rate + (rate - slot->rate) / 4 : rate;
    slot->measured = true;
    *window = (struct rail_window){ .since_ns = now_ns };
    rail_weigh(engine);
}

static bool peer_gone(struct rail_engine *engine)
{
    struct penstock_error error;
    if (!engine->config.peer_gone || !engine->config.peer_gone(engine->config.context, &error))
        return false;
    rail_engine_stop(engine, &error);
    return true;
}

/* Only context, status and vendor error mean anything. What is before it on its QP has ended well, and is done again
 * all the same. */
static void fail_by(struct rail_engine *engine, struct rail_slot *slot, const struct verbs_completion *completion)
{
    if (peer_gone(engine))
        return;
    struct rail_work *work = completion->context;
    struct rail_transfer *transfer = work->transfer;
    struct penstock_error error;
    (void)verbs_completion_error(completion, transfer ? transfer->opcode : VERBS_READ, &error);
    if (transfer && is_refusal(completion->status)) {
        if (work->refused)
            rail_transfer_fail(engine, transfer, &error);
        work->refused = true;
    }
    rail_slot_lose(engine, slot, &error);
}

static bool complete_slot(struct rail_engine *engine, struct rail_slot *slot, int64_t now_ns)
{
    struct verbs_completion completions[POLL_MAX];
    struct penstock_error error;
    bool moved = false;
    int n = POLL_MAX;
    while (n == POLL_MAX && slot->n_posted > 0) {
        n = verbs_cq_poll(slot->rail.cq, completions, POLL_MAX, &error);
        if (n < 0) {
            rail_slot_lose(engine, slot, &error);
            return true;
        }
        for (int i = 0; i < n; i++) {
            slot->stats.completions++;
            if (completions[i].status != 0) {
                fail_by(engine, slot, &completions[i]);
                return true;
            }
            land_up_to(engine, slot, completions[i].context);
        }
        moved = moved || n > 0;
    }
    if (moved) {
        slot->armed = false;
        slot->progress_ns = now_ns;
        measure(engine, slot, now_ns);
    }
    return moved;
}

static void expire(struct rail_engine *engine, struct rail_slot *slot)
{
    if (peer_gone(engine))
        return;
    struct penstock_error error = { 0 };
    (void)base_error_set(&error, PENSTOCK_ETIMEOUT,
                         "no completion for %.1f s with %u work requests outstanding: is the link up?",
                         (double)engine->config.deadline_ns / 1e9, slot->n_posted);
    rail_slot_lose(engine, slot, &error);
}

bool rail_complete(struct rail_engine *engine, int64_t now_ns)
{
    bool moved = false;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        if (slot->unarmable) {
            rail_slot_lose(engine, slot, &slot->error);
            moved = true;
        }
        if (slot->n_posted == 0)
            continue;
        moved = complete_slot(engine, slot, now_ns) || moved;
        if (slot->n_posted > 0 && now_ns - slot->progress_ns >= engine->config.deadline_ns) {
            expire(engine, slot);
            moved = true;
        }
    }
    return moved;
}
