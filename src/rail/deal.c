/* Work to rails: each work request goes to the rail that will be done with its queue first, as long as that has room.
 *
 * A send queue holds twice the READs that the wire takes, or a millisecond's bytes if that is more, and is filled up
 * when a quarter of it is free: rarely enough that doorbells take many requests, early enough that the wire never runs
 * dry. At the end no rail takes work beyond the moment when all could be done: they finish together. */
#include "base/checked.h"
#include "base/error.h"
#include "engine_state.h"

#define PIECE_NS 250e3
#define QUEUE_NS 1e6

/* Rates closer than this are taken as the same: what is seen on a busy machine differs by more from one moment to the
 * next, and even rails get even shares. */
#define RATES_ALIKE 1.5

/* However few work requests they are: a signaled one, so that room is seen early. */
#define UNSIGNALED_BYTES_MAX (256u << 10)

void rail_weigh(struct rail_engine *engine)
{
    double best = 0;
    for (size_t i = 0; i < engine->config.n_rails; i++)
        if (engine->slots[i].state == RAIL_SLOT_READY && engine->slots[i].rate > best)
            best = engine->slots[i].rate;
    if (best == 0)
        best = 1;
    engine->weight = 0;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        slot->weight = slot->rate == 0 || slot->rate * RATES_ALIKE >= best ? best : slot->rate;
        if (slot->state == RAIL_SLOT_READY)
            engine->weight += slot->weight;
    }
}

static bool is_full(const struct rail_slot *slot)
{
    return slot->n_posted >= slot->depth ||
           (slot->n_posted >= slot->floor && (double)slot->posted_bytes >= slot->weight * QUEUE_NS);
}

/* A quarter of it is free. */
static bool is_low(const struct rail_slot *slot)
{
    return slot->n_posted <= slot->depth * 3 / 4 &&
           (slot->n_posted <= slot->floor * 3 / 4 || (double)slot->posted_bytes <= slot->weight * QUEUE_NS * 3 / 4);
}

static struct verbs_mr *local_mr(const struct rail_engine *engine, const struct rail_slot *slot,
                                 const struct rail_transfer *transfer)
{
    return transfer->bounced ? engine->bounce.mrs[slot->rail.own] : transfer->memory->mrs[slot->rail.own];
}

/* Which rail the next work request goes to. NULL: none has room; *reachable: one will. */
static struct rail_slot *choose(struct rail_engine *engine, const struct rail_transfer *transfer, bool *reachable)
{
    double goal_ns = (double)(engine->posted_bytes + engine->left_bytes) / engine->weight;
    struct rail_slot *best = NULL;
    double best_ns = goal_ns;
    *reachable = false;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        if (!rail_slot_alive(slot) || !local_mr(engine, slot, transfer))
            continue;
        *reachable = true;
        double ns = (double)slot->posted_bytes / slot->weight;
        if (slot->filling && ns < best_ns) {
            best = slot;
            best_ns = ns;
        }
    }
    return best;
}

/* So that one takes PIECE_NS, and less towards the end, where each rail is to have two more. */
static uint64_t piece_bytes(const struct rail_engine *engine, const struct rail_slot *slot)
{
    double share = (double)engine->left_bytes * slot->weight / engine->weight / 2;
    double want = slot->weight * PIECE_NS;
    want = share < want ? share : want;
    if (want <= (double)RAIL_PIECE_MIN)
        return RAIL_PIECE_MIN;
    return want >= (double)RAIL_PIECE_MAX ? RAIL_PIECE_MAX : (uint64_t)want & ~UINT64_C(4095);
}

/* ---- the chain of one doorbell ---- */

static void link_request(struct rail_engine *engine, struct rail_slot *slot, struct rail_work *work,
                         enum verbs_opcode opcode, uint32_t n_sges, int64_t now_ns)
{
    const struct penstock_layer *region = &slot->rail.regions[work->region];
    if (slot->n_posted == 0) {
        slot->progress_ns = now_ns;
        slot->window = (struct rail_window){ .since_ns = now_ns };
    }
    slot->unsignaled++;
    slot->unsignaled_bytes += work->len_bytes;
    bool signaled = slot->unsignaled >= slot->signal_each || slot->unsignaled_bytes >= UNSIGNALED_BYTES_MAX;
    if (signaled) {
        slot->unsignaled = 0;
        slot->unsignaled_bytes = 0;
    }
    slot->chain[slot->n_chained++] = (struct verbs_request){ .opcode = opcode,
                                                             .signaled = signaled,
                                                             .remote = region->base + work->remote_offset,
                                                             .rkey = region->rkey,
                                                             .n_sges = n_sges,
                                                             .sges = &slot->sges[slot->n_chained_sges],
                                                             .context = work };
    slot->n_chained_sges += n_sges;
    rail_queue_push(&slot->posted, work);
    slot->n_posted++;
    slot->posted_bytes += work->len_bytes;
    engine->n_posted++;
    engine->posted_bytes += work->len_bytes;
}

static void link_work(struct rail_engine *engine, struct rail_slot *slot, struct rail_work *work, int64_t now_ns)
{
    const struct verbs_mr *mr = local_mr(engine, slot, work->transfer);
    struct verbs_sge *sges = &slot->sges[slot->n_chained_sges];
    uint32_t n_sges = work->n_pieces;
    if (work->bounce != RAIL_BOUNCE_NONE) {
        n_sges = 1;
        sges[0] = (struct verbs_sge){ .address = mr->base + rail_bounce_offset(&engine->bounce, work->bounce),
                                      .len_bytes = work->len_bytes,
                                      .lkey = mr->lkey };
    } else {
        for (uint32_t i = 0; i < n_sges; i++)
            sges[i] = (struct verbs_sge){ .address = mr->base + work->pieces[i].local_offset,
                                          .len_bytes = work->pieces[i].len_bytes,
                                          .lkey = mr->lkey };
    }
    link_request(engine, slot, work, work->transfer->opcode, n_sges, now_ns);
}

static void link_probe(struct rail_engine *engine, struct rail_slot *slot, int64_t now_ns)
{
    slot->probe = (struct rail_work){ .len_bytes = sizeof slot->probe_byte, .bounce = RAIL_BOUNCE_NONE };
    slot->sges[0] = (struct verbs_sge){ .address = slot->probe_mr->base,
                                        .len_bytes = sizeof slot->probe_byte,
                                        .lkey = slot->probe_mr->lkey };
    slot->state = RAIL_SLOT_PROBING;
    link_request(engine, slot, &slot->probe, VERBS_READ, 1, now_ns);
}

/* The last one is signaled: whatever is outstanding, a completion comes after it. */
static void ring(struct rail_engine *engine, struct rail_slot *slot)
{
    if (slot->n_chained == 0)
        return;
    slot->chain[slot->n_chained - 1].signaled = true;
    slot->unsignaled = 0;
    slot->unsignaled_bytes = 0;
    size_t posted = 0;
    struct penstock_error error;
    int code = verbs_post(slot->rail.qp, slot->chain, slot->n_chained, &posted, &error);
    slot->stats.work_requests += code ? posted : slot->n_chained;
    slot->stats.doorbells++;
    slot->stats.outstanding_sum += slot->n_posted;
    if (slot->n_posted > slot->stats.outstanding_max)
        slot->stats.outstanding_max = slot->n_posted;
    slot->n_chained = 0;
    slot->n_chained_sges = 0;
    if (code)
        rail_slot_lose(engine, slot, &error);
}

/* ---- dealing ---- */

/* The transfer whose turn it is; left_bytes is not 0. */
static struct rail_transfer *next_transfer(const struct rail_engine *engine)
{
    if (engine->again.first)
        return engine->again.first->transfer;
    return base_list_entry(engine->waiting.next, struct rail_transfer, node);
}

static struct rail_work *next_work(struct rail_engine *engine, struct rail_transfer *transfer,
                                   const struct rail_slot *slot)
{
    struct rail_work *work = rail_queue_pop(&engine->again);
    if (!work)
        return rail_cut(engine, transfer, piece_bytes(engine, slot));
    engine->left_bytes -= work->len_bytes;
    return work;
}

static void fail_unreachable(struct rail_engine *engine, struct rail_transfer *transfer)
{
    struct penstock_error error;
    (void)base_error_set(&error, PENSTOCK_EUNSUPPORTED,
                         "the memory is registered with none of the devices whose rails are left");
    rail_transfer_fail(engine, transfer, &error);
}

bool rail_deal(struct rail_engine *engine, int64_t now_ns)
{
    bool posted = false;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        slot->filling = slot->state == RAIL_SLOT_READY && is_low(slot);
        if (slot->state == RAIL_SLOT_PROBE_DUE)
            link_probe(engine, slot, now_ns);
    }

    uint32_t limit = engine->config.outstanding_max;
    while (engine->left_bytes > 0 && (limit == 0 || engine->n_posted < limit)) {
        struct rail_transfer *transfer = next_transfer(engine);
        bool reachable;
        struct rail_slot *slot = choose(engine, transfer, &reachable);
        if (!reachable) {
            fail_unreachable(engine, transfer);
            continue;
        }
        struct rail_work *work = slot ? next_work(engine, transfer, slot) : NULL;
        if (!work)
            break;
        link_work(engine, slot, work, now_ns);
        if (is_full(slot))
            slot->filling = false;
        if (slot->n_chained == VERBS_CHAIN_MAX)
            ring(engine, slot);
        posted = true;
    }

    for (size_t i = 0; i < engine->config.n_rails; i++) {
        posted = posted || engine->slots[i].n_chained > 0;
        ring(engine, &engine->slots[i]);
    }
    return posted;
}
