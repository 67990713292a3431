/* Fetches: one record is one request, or one READ.
 *
 * What the transport has been given cannot be overtaken any more. So it gets all that is wanted now, up to what it
 * takes at once, and of guesses only so many that the wire does not idle; the others wait here, where whatever is
 * wanted now goes before them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "experts.h"

/* Guesses under way, on the connection or on each rail. */
#define GUESSES_BYTES (UINT64_C(4) << 20)
#define GUESSES_MIN 2
#define GUESSES_MAX 16

uint32_t client_fetch_guesses_max(const struct penstock_session *s)
{
    uint64_t n = GUESSES_BYTES / s->experts->manifest.geometry.record_stride;
    return n < GUESSES_MIN ? GUESSES_MIN : n > GUESSES_MAX ? GUESSES_MAX : (uint32_t)n;
}

/* ---- its end ---- */

static struct client_expert_slot *slot_of(const struct penstock_session *s, const struct client_op *op)
{
    return &s->experts->slots[op->fetch.slot];
}

int client_fetch_landed(struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    const struct client_experts *e = s->experts;
    if (op->kind != CLIENT_OP_FETCH)
        return 0;
    if (!e->arena.device) {
        int code = model_expert_header_check(&e->manifest.geometry, op->fetch.layer, op->fetch.expert,
                                             e->arena.address + op->fetch.slot * e->stride_bytes, NULL, error);
        if (code)
            return code;
    }
    struct client_expert_slot *slot = slot_of(s, op);
    slot->whole = true;
    slot->layer = op->fetch.layer;
    slot->expert = op->fetch.expert;
    return 0;
}

void client_fetch_ended(struct penstock_session *s, struct client_op *op)
{
    if (op->kind != CLIENT_OP_FETCH)
        return;
    slot_of(s, op)->taken = false;
    if (op->fetch.flying)
        s->experts->flying[op->fetch.lane]--;
    op->fetch.flying = false;
}

/* ---- over TCP ---- */

size_t client_fetch_push(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                         struct iovec *body)
{
    (void)body;
    const struct penstock_expert_request request = { .layer = op->fetch.layer, .expert = op->fetch.expert };
    f->len_bytes = s->experts->manifest.geometry.record_stride;
    penstock_expert_request_encode(&request, out);
    return PENSTOCK_EXPERT_REQUEST_BYTES;
}

int client_fetch_refused(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                         struct penstock_error *error)
{
    (void)s;
    return base_error_set(error, PENSTOCK_EREFUSED,
                          "refused layer %" PRIu32 ", expert %" PRIu32 " (status %u); was the layer's file cut short?",
                          f->op->fetch.layer, f->op->fetch.expert, status);
}

/* ---- over rails ---- */

/* The rail that the record is always read over, while it is up: each keeps to its own part of the store. */
static size_t home(const struct client_verbs *v, uint32_t expert)
{
    return v->pairing.own[expert % v->pairing.n];
}

/* All READs that the wire takes, and as many behind them. */
static uint32_t room(const struct penstock_session *s, size_t rail, unsigned urgency)
{
    uint32_t most = urgency == CLIENT_NOW ? 2U * s->verbs->slots[rail].reads : client_fetch_guesses_max(s);
    uint32_t flying = s->experts->flying[rail];
    return flying < most ? most - flying : 0;
}

/* DEVICE memory may be registered with some of the devices only. */
static bool reaches_arena(const struct penstock_session *s, size_t rail)
{
    return !s->experts->arena.device || s->experts->arena.memory->mrs[rail];
}

static bool usable(const struct penstock_session *s, size_t rail)
{
    return rail_engine_takes_work(s->verbs->engine, rail) && reaches_arena(s, rail);
}

bool client_fetch_carries(const struct penstock_session *s)
{
    for (size_t rail = 0; rail < s->verbs->devices.n; rail++)
        if (rail_engine_rail(s->verbs->engine, rail) && reaches_arena(s, rail))
            return true;
    return false;
}

static void begin(struct penstock_session *s, struct client_op *op, size_t rail)
{
    struct client_experts *e = s->experts;
    base_list_remove(&op->queue);
    op->waiting = false;
    op->fetch.lane = (uint8_t)rail;
    op->fetch.flying = true;
    op->fetch.range =
        (struct rail_range){ .remote_offset = model_expert_record_at(&e->manifest.geometry, op->fetch.expert),
                             .local_offset = op->fetch.slot * e->stride_bytes,
                             .len_bytes = e->manifest.geometry.record_stride,
                             .region = op->fetch.layer };
    e->flying[rail]++;
    op->transfer = (struct rail_transfer){ .ranges = &op->fetch.range, .n_ranges = 1, .rail = (uint8_t)(rail + 1) };
    client_verbs_transfer(s, op, &e->arena);
}

/* One of urgency for this rail, or one whose own rail takes nothing. */
static struct client_op *next_for(const struct penstock_session *s, size_t rail, unsigned urgency)
{
    const struct client_experts *e = s->experts;
    const struct base_list *lane = &e->lanes[urgency][rail];
    for (size_t i = 0; base_list_empty(lane) && i < s->verbs->devices.n; i++)
        if (!usable(s, i))
            lane = &e->lanes[urgency][i];
    return base_list_empty(lane) ? NULL : base_list_entry(lane->next, struct client_op, queue);
}

void client_fetch_pump(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    for (unsigned urgency = 0; v->engine && urgency < CLIENT_URGENCIES; urgency++)
        for (size_t rail = 0; rail < v->devices.n; rail++) {
            struct client_op *op;
            while (v->engine && usable(s, rail) && room(s, rail, urgency) > 0 && (op = next_for(s, rail, urgency)))
                begin(s, op, rail);
        }
}

/* ---- both ---- */

void client_fetch_queue(struct penstock_session *s, struct client_op *op)
{
    struct client_verbs *v = s->verbs;
    if (!v) {
        client_op_queue(s, op);
        return;
    }
    op->parts = 1;
    op->waiting = true; /* ends with the session's rails, where no new ones can be had */
    v->wanted = v->submitted = true;
    base_list_append(&s->experts->lanes[op->urgency][home(v, op->fetch.expert)], &op->queue);
}

void client_fetch_promote(struct penstock_session *s, struct client_op *op)
{
    bool queued = s->verbs ? op->waiting : op->sent == 0;
    if (!queued || op->urgency == CLIENT_NOW)
        return;
    op->urgency = CLIENT_NOW;
    base_list_remove(&op->queue);
    client_fetch_queue(s, op);
}
