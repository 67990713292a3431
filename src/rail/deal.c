/* Work to rails: each work request goes to the rail that has been dealt least, by its rate, of those whose queues have
 * room. So rails that are alike get the same, and a slower one what it is done with: it is full most of the time.
 *
 * A send queue holds twice the READs that the wire takes, or a millisecond's bytes where that is more, and is filled up
 * when a quarter of it is free: rarely enough that doorbells take many requests, early enough that the wire never runs
 * dry. At the end no rail takes work beyond the moment when all could be done: they finish together. */
#include "base/checked.h"
#include "base/error.h"
#include "engine_state.h"

#define PIECE_NS 250e3
#define QUEUE_NS 1e6
#define QUEUE_BYTES_MIN ((double)(4u << 20)) /* where the round trip sets the rate, and not the line */

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

/* A rail that could not take its share for long does not get more of it back than this: the others would idle. */
#define ARREARS_BYTES ((double)(32u << 20))

static void forgive(struct rail_engine *engine)
{
    double most_ns = 0;
    for (size_t i = 0; i < engine->config.n_rails; i++)
        if (engine->slots[i].state == RAIL_SLOT_READY && engine->slots[i].dealt_ns > most_ns)
            most_ns = engine->slots[i].dealt_ns;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        double least_ns = most_ns - ARREARS_BYTES / slot->weight;
        if (slot->dealt_ns < least_ns)
            slot->dealt_ns = least_ns;
    }
}

static double queue_bytes(const struct rail_slot *slot)
{
    double bytes = slot->weight * QUEUE_NS;
    return bytes > QUEUE_BYTES_MIN ? bytes : QUEUE_BYTES_MIN;
}

static bool is_full(const struct rail_slot *slot)
{
    return slot->n_posted >= slot->depth ||
           (slot->n_posted >= slot->floor && (double)slot->posted_bytes >= queue_bytes(slot));
}

/* A quarter of it is free. */
static bool is_low(const struct rail_slot *slot)
{
    return slot->n_posted <= slot->depth * 3 / 4 &&
           (slot->n_posted <= slot->floor * 3 / 4 || (double)slot->posted_bytes <= queue_bytes(slot) * 3 / 4);
}

static struct verbs_mr *local_mr(const struct rail_engine *engine, const struct rail_slot *slot,
                                 const struct rail_transfer *transfer)
{
    return transfer->bounced ? engine->bounce.mrs[slot->rail.own] : transfer->memory->mrs[slot->rail.own];
}

/* The rail that a transfer is bound to; NULL: none, or none that takes its work. */
static struct rail_slot *bound_to(struct rail_engine *engine, const struct rail_transfer *transfer)
{
    if (transfer->rail == 0 || transfer->rail > engine->config.n_rails || transfer->rerouted)
        return NULL;
    struct rail_slot *slot = &engine->slots[transfer->rail - 1];
    return slot->state == RAIL_SLOT_READY && local_mr(engine, slot, transfer) ? slot : NULL;
}

/* Which rail the next work request goes to. NULL: none has room; *reachable: one will. */
static struct rail_slot *choose(struct rail_engine *engine, const struct rail_transfer *transfer, bool *reachable)
{
    struct rail_slot *bound = bound_to(engine, transfer);
    if (bound) {
        *reachable = true;
        return bound->filling ? bound : NULL;
    }
    double goal_ns = (double)(engine->posted_bytes + engine->left_bytes) / engine->weight;
    struct rail_slot *best = NULL;
    *reachable = false;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        if (!rail_slot_alive(slot) || !local_mr(engine, slot, transfer))
            continue;
        *reachable = true;
        if (slot->filling && (!best || slot->dealt_ns < best->dealt_ns) &&
            (double)slot->posted_bytes < goal_ns * slot->weight)
            best = slot;
    }
    return best;
}

/* What the rail is still to get if all are to have been dealt the same in the end. */
static double share_left(const struct rail_engine *engine, const struct rail_slot *slot)
{
    double bytes = (double)engine->left_bytes;
    for (size_t i = 0; i < engine->config.n_rails; i++)
        if (engine->slots[i].state == RAIL_SLOT_READY)
            bytes += (engine->slots[i].dealt_ns - slot->dealt_ns) * engine->slots[i].weight;
    return bytes * slot->weight / engine->weight;
}

/* So that one takes PIECE_NS; towards the end half of what the rail is still to get, and then that. */
static uint64_t piece_bytes(const struct rail_engine *engine, const struct rail_slot *slot)
{
    double want = slot->weight * PIECE_NS, min = (double)RAIL_PIECE_MIN, max = (double)RAIL_PIECE_MAX;
    want = want < min ? min : want > max ? max : want;
    if ((double)engine->left_bytes * slot->weight < engine->weight * want * 4) {
        double share = share_left(engine, slot);
        share = share < 2 * min ? share : share / 2;
        want = share < min ? min : share < want ? share : want;
    }
    return (uint64_t)want & ~UINT64_C(4095);
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
    slot->dealt_ns += work->len_bytes / slot->weight;
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

/* The transfer whose turn it is, and its rail; left_bytes is not 0. One that waits for a rail of its own lets others
 * pass. */
static struct rail_transfer *next_transfer(struct rail_engine *engine, struct rail_slot **slot, bool *reachable)
{
    struct rail_transfer *first = NULL;
    if (engine->again.first) {
        first = engine->again.first->transfer;
        *slot = choose(engine, first, reachable);
        return first;
    }
    base_list_for_each (node, &engine->waiting) {
        struct rail_transfer *transfer = base_list_entry(node, struct rail_transfer, node);
        *slot = choose(engine, transfer, reachable);
        first = first ? first : transfer;
        if (*slot || !*reachable)
            return transfer;
        if (!bound_to(engine, transfer))
            break;
    }
    return first;
}

static struct rail_work *next_work(struct rail_engine *engine, struct rail_transfer *transfer,
                                   const struct rail_slot *slot)
{
    struct rail_work *work = rail_queue_pop(&engine->again);
    if (!work)
        return rail_cut(engine, transfer, transfer->rail ? RAIL_BOUND_MAX : piece_bytes(engine, slot));
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
    forgive(engine);
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        slot->filling = slot->state == RAIL_SLOT_READY && is_low(slot);
        if (slot->state == RAIL_SLOT_PROBE_DUE)
            link_probe(engine, slot, now_ns);
    }

    uint32_t limit = engine->config.outstanding_max;
    while (engine->left_bytes > 0 && (limit == 0 || engine->n_posted < limit)) {
        bool reachable = false;
        struct rail_slot *slot = NULL;
        struct rail_transfer *transfer = next_transfer(engine, &slot, &reachable);
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
