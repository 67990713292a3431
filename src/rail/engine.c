#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine_state.h"

enum { READS_OUT_FROZEN = 16 }; /* where nothing else was agreed on */

/* ---- telling the owner ---- */

static void destroy(struct rail_engine *engine)
{
    free(engine->works);
    free(engine);
}

static bool tell_lost(struct rail_engine *engine)
{
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        if (!slot->lost)
            continue;
        slot->lost = false;
        if (engine->config.rail_failed) {
            struct penstock_error error = slot->error; /* the slot may have another rail before the call returns */
            engine->config.rail_failed(engine->config.context, i, &error);
        }
        return true;
    }
    return false;
}

static bool tell_ended(struct rail_engine *engine)
{
    if (base_list_empty(&engine->ended))
        return false;
    struct rail_transfer *transfer = base_list_entry(engine->ended.next, struct rail_transfer, node);
    base_list_remove(&transfer->node);
    transfer->done(transfer, transfer->error.code, &transfer->error);
    return true;
}

/* The owner's callbacks run here and nowhere else, with everything in order, so that they may call anything: each call
 * of the owner's ends with this one. The engine may be gone when it returns. */
static void tell(struct rail_engine *engine)
{
    engine->n_inside++;
    while (tell_lost(engine) || tell_ended(engine))
        ;
    if (--engine->n_inside == 0 && engine->freed)
        destroy(engine);
}

/* ---- transfers ---- */

void rail_transfer_settle(struct rail_engine *engine, struct rail_transfer *transfer)
{
    transfer->outstanding--;
    if (transfer->outstanding == 0 && transfer->left_bytes == 0) {
        base_list_remove(&transfer->node);
        base_list_append(&engine->ended, &transfer->node);
    }
}

/* Takes what waits for another rail out of the queue: all of transfer's. */
static void drop_again(struct rail_engine *engine, const struct rail_transfer *transfer, uint32_t *dropped)
{
    struct rail_queue kept = { 0 };
    struct rail_work *work;
    while ((work = rail_queue_pop(&engine->again))) {
        if (work->transfer != transfer) {
            rail_queue_push(&kept, work);
            continue;
        }
        engine->left_bytes -= work->len_bytes;
        rail_work_free(engine, work);
        ++*dropped;
    }
    engine->again = kept;
}

void rail_transfer_fail(struct rail_engine *engine, struct rail_transfer *transfer, const struct penstock_error *error)
{
    if (transfer->left_bytes == 0 && transfer->outstanding == 0)
        return; /* it has ended */
    if (transfer->error.code == 0)
        transfer->error = *error;
    engine->left_bytes -= transfer->left_bytes;
    transfer->left_bytes = 0;
    uint32_t dropped = 0;
    drop_again(engine, transfer, &dropped);
    transfer->outstanding -= dropped;
    base_list_remove(&transfer->node);
    base_list_append(transfer->outstanding == 0 ? &engine->ended : &engine->flying, &transfer->node);
}

/* No rail is left: whatever was outstanding is in the again queue. */
static void fail_all(struct rail_engine *engine, const struct penstock_error *error)
{
    while (!base_list_empty(&engine->waiting))
        rail_transfer_fail(engine, base_list_entry(engine->waiting.next, struct rail_transfer, node), error);
    base_list_for_each (node, &engine->flying)
        rail_transfer_fail(engine, base_list_entry(node, struct rail_transfer, node), error);
}

/* Whether the rails that there are can put bytes into the transfer's memory, and how. */
static int find_way(struct rail_engine *engine, struct rail_transfer *transfer, struct penstock_error *error)
{
    const struct rail_memory *memory = transfer->memory;
    size_t n = 0, n_registered = 0;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        const struct rail_slot *slot = &engine->slots[i];
        n += rail_slot_alive(slot);
        n_registered += rail_slot_alive(slot) && memory->mrs[slot->rail.own];
    }
    transfer->bounced = false;
    if (n == 0)
        return base_error_set(error, PENSTOCK_ECLOSED, "no rail is up");
    if (n == n_registered || (!memory->address && n_registered > 0))
        return 0;
    if (!memory->address || !engine->config.pds)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "the memory is registered with none of the rails' devices");
    transfer->bounced = true;
    return rail_bounce_make(&engine->bounce, engine->config.pds, engine->config.devices->n, engine->config.bounce_bytes,
                            error);
}

int rail_engine_submit(struct rail_engine *engine, struct rail_transfer *transfer, struct penstock_error *error)
{
    int code = find_way(engine, transfer, error);
    if (code)
        return code;
    transfer->landed_bytes = 0;
    transfer->outstanding = 0;
    transfer->rerouted = false;
    transfer->error.code = 0;
    transfer->error.message[0] = 0;
    transfer->left_bytes = 0;
    for (size_t i = 0; i < transfer->n_ranges; i++)
        transfer->left_bytes += transfer->ranges[i].len_bytes;
    rail_cut_begin(transfer);
    engine->left_bytes += transfer->left_bytes;
    base_list_append(transfer->left_bytes > 0 ? &engine->waiting : &engine->ended, &transfer->node);
    engine->due = true;
    return 0;
}

void rail_engine_cancel(struct rail_engine *engine, struct rail_transfer *transfer)
{
    struct penstock_error error;
    (void)base_error_set(&error, PENSTOCK_ECANCELED, "canceled");
    rail_transfer_fail(engine, transfer, &error);
    tell(engine);
}

/* ---- rails ---- */

/* Frees the rail, and then moves its work to the again queue: no device touches its memory any more. */
static void empty_slot(struct rail_engine *engine, struct rail_slot *slot)
{
    struct rail_queue posted = slot->posted;
    rail_fini(&slot->rail);
    verbs_mr_free(slot->probe_mr);
    slot->probe_mr = NULL;
    slot->state = RAIL_SLOT_EMPTY;
    engine->n_posted -= slot->n_posted;
    engine->posted_bytes -= slot->posted_bytes;
    slot->n_posted = 0;
    slot->posted_bytes = 0;
    slot->posted = (struct rail_queue){ 0 };
    slot->n_chained = slot->n_chained_sges = 0;
    slot->filling = slot->armed = slot->woken = slot->unarmable = false;
    rail_weigh(engine);
    engine->due = true;

    struct rail_work *work;
    while ((work = rail_queue_pop(&posted))) {
        struct rail_transfer *transfer = work->transfer;
        if (!transfer) /* the probe */
            continue;
        if (transfer->error.code) {
            rail_work_free(engine, work);
            rail_transfer_settle(engine, transfer);
            continue;
        }
        transfer->rerouted = true;
        engine->left_bytes += work->len_bytes;
        rail_queue_push(&engine->again, work);
    }
}

void rail_slot_lose(struct rail_engine *engine, struct rail_slot *slot, const struct penstock_error *error)
{
    const struct rail_port *port = rail_slot_port(engine, slot);
    struct penstock_error words = *error;
    (void)base_error_in(&words, "rail %zu: %s port %u", (size_t)(slot - engine->slots), port->device, port->port);
    slot->error = words;
    slot->lost = true;
    empty_slot(engine, slot);
    if (rail_engine_alive(engine) == 0) {
        (void)base_error_in(&words, "no rail is left");
        fail_all(engine, &words);
    }
}

void rail_engine_stop(struct rail_engine *engine, const struct penstock_error *error)
{
    for (size_t i = 0; i < engine->config.n_rails; i++)
        if (rail_slot_alive(&engine->slots[i]))
            empty_slot(engine, &engine->slots[i]);
    fail_all(engine, error);
}

void rail_engine_detach(struct rail_engine *engine, size_t slot, const struct penstock_error *error)
{
    if (slot < engine->config.n_rails && rail_slot_alive(&engine->slots[slot]))
        rail_slot_lose(engine, &engine->slots[slot], error);
    tell(engine);
}

void rail_engine_fail(struct rail_engine *engine, const struct penstock_error *error)
{
    rail_engine_stop(engine, error);
    tell(engine);
}

static int check_rail(const struct rail_engine *engine, size_t slot, const struct rail *rail,
                      struct penstock_error *error)
{
    if (engine->freed)
        return base_error_set(error, PENSTOCK_ECANCELED, "rail %zu: the session has ended", slot);
    if (slot >= engine->config.n_rails || rail_slot_alive(&engine->slots[slot]))
        return base_error_set(error, PENSTOCK_EINVAL, "rail %zu: no such slot is empty", slot);
    if (!rail->qp || rail->own >= engine->config.devices->n)
        return base_error_set(error, PENSTOCK_EINVAL, "rail %zu: it is not connected", slot);
    if (rail->sges_max > 0 && rail->sges_max < engine->sges_max)
        return base_error_set(error, PENSTOCK_EINVAL, "rail %zu: its QP takes %u SGEs a work request, and not %u", slot,
                              rail->sges_max, engine->sges_max);
    return 0;
}

int rail_engine_attach(struct rail_engine *engine, size_t index, struct rail *rail, bool probe,
                       struct penstock_error *error)
{
    int code = check_rail(engine, index, rail, error);
    if (code)
        return code;
    struct rail_slot *slot = &engine->slots[index];
    if (probe) {
        code = verbs_mr_new(rail->qp->pd, &slot->probe_byte, sizeof slot->probe_byte, VERBS_LOCAL_WRITE,
                            &slot->probe_mr, error);
        if (code)
            return code;
    }
    slot->rail = *rail;
    *rail = (struct rail){ 0 };
    slot->state = probe ? RAIL_SLOT_PROBE_DUE : RAIL_SLOT_READY;
    slot->depth = engine->config.depth;
    if (slot->rail.depth > 0 && slot->rail.depth < slot->depth)
        slot->depth = slot->rail.depth;
    uint32_t reads = slot->rail.reads_out > 0 ? slot->rail.reads_out : READS_OUT_FROZEN;
    slot->floor = 2 * reads < slot->depth ? 2 * reads : slot->depth;
    slot->signal_each = slot->depth >= 128 ? 16 : (slot->depth + 7) / 8;
    slot->rate = rail_slot_port(engine, slot)->gbps / 8;
    slot->measured = false;
    slot->unsignaled = 0;
    slot->unsignaled_bytes = 0;
    rail_weigh(engine);
    engine->due = true;
    return 0;
}

size_t rail_engine_alive(const struct rail_engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < engine->config.n_rails; i++)
        n += rail_slot_alive(&engine->slots[i]);
    return n;
}

bool rail_engine_takes_work(const struct rail_engine *engine, size_t slot)
{
    return slot < engine->config.n_rails && engine->slots[slot].state == RAIL_SLOT_READY;
}

const struct rail *rail_engine_rail(const struct rail_engine *engine, size_t slot)
{
    return slot < engine->config.n_rails && rail_slot_alive(&engine->slots[slot]) ? &engine->slots[slot].rail : NULL;
}

void rail_engine_stats(const struct rail_engine *engine, size_t slot, struct rail_stats *stats)
{
    *stats = slot < engine->config.n_rails ? engine->slots[slot].stats : (struct rail_stats){ 0 };
}

/* ---- the engine ---- */

int rail_engine_new(const struct rail_engine_config *config, struct rail_engine **out, struct penstock_error *error)
{
    if (config->n_rails == 0 || config->n_rails > PENSTOCK_RAILS_MAX || config->n_rails > config->devices->n)
        return base_error_set(error, PENSTOCK_EINVAL, "%zu rails on %zu ports", config->n_rails, config->devices->n);
    struct rail_engine *engine = calloc(1, sizeof *engine + config->n_rails * sizeof *engine->slots);
    if (!engine)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu rails", config->n_rails);
    engine->config = *config;
    if (config->deadline_ns == 0)
        engine->config.deadline_ns = RAIL_DEADLINE_NS;
    if (config->depth == 0)
        engine->config.depth = RAIL_DEPTH;
    engine->sges_max = RAIL_SGES;
    engine->message_max_bytes = UINT64_MAX;
    for (size_t i = 0; i < config->devices->n; i++) {
        uint32_t sges_max = config->devices->ports[i].sges_max, bytes_max = config->devices->ports[i].message_bytes_max;
        if (sges_max > 0 && sges_max < engine->sges_max)
            engine->sges_max = sges_max;
        if (bytes_max > 0 && bytes_max < engine->message_max_bytes)
            engine->message_max_bytes = bytes_max;
    }
    /* As many as can be posted. What failed rails leave behind is more only while nothing new is cut. */
    engine->n_works = config->n_rails * engine->config.depth;
    engine->works = calloc(engine->n_works, sizeof *engine->works);
    if (!engine->works) {
        free(engine);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for queues of %u work requests", config->depth);
    }
    base_list_init(&engine->waiting);
    base_list_init(&engine->flying);
    base_list_init(&engine->ended);
    *out = engine;
    return 0;
}

void rail_engine_free(struct rail_engine *engine)
{
    if (!engine)
        return;
    struct penstock_error error;
    (void)base_error_set(&error, PENSTOCK_ECANCELED, "the session has ended");
    rail_engine_stop(engine, &error);
    for (size_t i = 0; i < engine->config.n_rails; i++)
        engine->slots[i].lost = false;
    /* Now, not when the last callback has returned: the PDs may go before that. */
    rail_bounce_fini(&engine->bounce);
    engine->freed = true;
    tell(engine);
}

bool rail_engine_poll(struct rail_engine *engine, int64_t now_ns)
{
    engine->due = false;
    bool moved = rail_complete(engine, now_ns);
    moved = rail_deal(engine, now_ns) || moved || !base_list_empty(&engine->ended);
    tell(engine);
    return moved;
}

void rail_engine_set_deadline(struct rail_engine *engine, int64_t deadline_ns)
{
    engine->config.deadline_ns = deadline_ns;
}

int64_t rail_engine_deadline_ns(const struct rail_engine *engine)
{
    if (engine->due)
        return 0;
    int64_t first = BASE_NEVER;
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        const struct rail_slot *slot = &engine->slots[i];
        if (slot->n_posted > 0 && slot->progress_ns + engine->config.deadline_ns < first)
            first = slot->progress_ns + engine->config.deadline_ns;
    }
    return first;
}

void rail_engine_woken(struct rail_engine *engine)
{
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        slot->armed = false;
        slot->woken = rail_slot_alive(slot);
    }
}

void rail_engine_arm(struct rail_engine *engine)
{
    for (size_t i = 0; i < engine->config.n_rails; i++) {
        struct rail_slot *slot = &engine->slots[i];
        if (slot->armed || (slot->n_posted == 0 && !slot->woken))
            continue;
        slot->armed = true;
        slot->woken = false;
        if (verbs_cq_arm(slot->rail.cq, &slot->error)) {
            slot->unarmable = true;
            engine->due = true;
        }
    }
}
