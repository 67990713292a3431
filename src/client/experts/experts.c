/* The expert tier: sessions on a store, their arena, and what is asked for in it. Protocol 1.4. */
#include "experts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

/* ---- begin and end ---- */

static int set_up(struct penstock_session *s, const void *model_version)
{
    struct client_experts *e = calloc(1, sizeof *e);
    if (!e)
        return PENSTOCK_ENOMEM;
    s->experts = e;
    for (size_t u = 0; u < CLIENT_URGENCIES; u++)
        for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++)
            base_list_init(&e->lanes[u][i]);
    if (model_version && !(e->version_wanted = strdup(model_version)))
        return PENSTOCK_ENOMEM;
    return 0;
}

static void fini(struct penstock_session *s)
{
    struct client_experts *e = s->experts;
    if (!e)
        return;
    if (e->known)
        model_expert_manifest_fini(&e->manifest);
    if (e->mapped)
        munmap(e->mapped, e->arena.len_bytes);
    free(e->slots);
    free(e->version_wanted);
    free(e);
}

static int check_version(const char *model_version, struct penstock_error *error)
{
    if (!model_version || penstock_model_version_valid(model_version, strlen(model_version)))
        return 0;
    return base_error_set(error, PENSTOCK_EINVAL, "'%.128s' cannot be a model_version", model_version);
}

int client_experts_start(struct verbs_world *world, const char *peer, const char *model_version,
                         const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                         struct penstock_error *error)
{
    const struct client_start start = { .tier = &client_experts_tier, .world = world, .argument = model_version };
    if (!peer || !session || !op)
        return client_missing("peer, session and op", error);
    int code = check_version(model_version, error);
    return code ? code : client_session_start(&start, peer, options, session, op, error);
}

int client_experts_on_stream(struct net_stream *stream, const char *model_version,
                             const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                             struct penstock_error *error)
{
    const struct client_start start = { .tier = &client_experts_tier, .argument = model_version };
    return client_session_start_on(&start, stream, options, session, op, error);
}

int penstock_experts_start(const char *peer, const char *model_version, const struct penstock_options *options,
                           struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    return client_experts_start(NULL, peer, model_version, options, session, op, error);
}

int penstock_experts_open(const char *peer, const char *model_version, const struct penstock_options *options,
                          struct penstock_session **session, struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    if (!session)
        return client_missing("session", error);
    int code = penstock_experts_start(peer, model_version, options, &s, &op, error);
    if (code)
        return code;
    return client_session_opened(s, op, session, error);
}

/* ---- the store ---- */

static const struct client_experts *known(const struct penstock_session *s)
{
    return s && s->tier == &client_experts_tier && s->experts->known ? s->experts : NULL;
}

/* A caller's struct of whatever size it knows; what it has beyond ours is zeroed. */
static int give_bytes(void *to, size_t size, const void *from, size_t from_size)
{
    if (size < sizeof size || size > 4096)
        return PENSTOCK_EINVAL;
    memset(to, 0, size);
    memcpy(to, from, size < from_size ? size : from_size);
    return 0;
}

int penstock_experts_geometry(const struct penstock_session *session, struct penstock_expert_geometry *geometry)
{
    const struct client_experts *e = known(session);
    if (!e || !geometry)
        return PENSTOCK_EINVAL;
    const struct model_expert_geometry *g = &e->manifest.geometry;
    struct penstock_expert_geometry all = {
        .size = geometry->size,
        .model_version = e->manifest.model_version[0] ? e->manifest.model_version : NULL,
        .model_layers = e->manifest.model_layers,
        .layers = g->num_moe_layers,
        .experts = g->num_experts,
        .inter = g->inter,
        .hidden = g->hidden,
        .group_size = g->group_size,
        .sub_align = g->sub_align,
        .record_stride = g->record_stride,
    };
    for (size_t i = 0; i < PENSTOCK_EXPERT_PARTS; i++) {
        all.part_offset[i] = g->parts[i].offset_bytes;
        all.part_bytes[i] = g->parts[i].len_bytes;
    }
    return give_bytes(geometry, geometry->size, &all, sizeof all);
}

/* ---- the arena ---- */

static int map_own(struct client_experts *e, uint64_t len_bytes, struct penstock_error *error)
{
    void *at = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return base_error_set(error, PENSTOCK_ENOMEM, "arena: no memory for %" PRIu64 " bytes", len_bytes);
    (void)madvise(at, len_bytes, MADV_HUGEPAGE); /* else each first fetch into a slot takes hundreds of faults */
    e->mapped = at;
    e->arena.address = at;
    return 0;
}

static int take_memory(struct penstock_session *s, const struct penstock_memory *memory, uint64_t needed,
                       struct penstock_error *error)
{
    struct client_experts *e = s->experts;
    struct penstock_memory m;
    if (!memory) {
        e->arena.len_bytes = needed;
        return map_own(e, needed, error);
    }
    int code = client_take_sized(&m, memory, "memory", error);
    code = code ? code : client_memory_region(&m, &e->arena, error);
    if (code)
        return code;
    if (m.len_bytes < needed)
        return base_error_set(error, PENSTOCK_EINVAL, "arena: its slots take %" PRIu64 " bytes, and it has %" PRIu64,
                              needed, m.len_bytes);
    if (e->arena.device && !s->verbs)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "arena: it is DEVICE memory, and this session runs over TCP%s%.300s",
                              s->why_tcp ? ": " : "", s->why_tcp ? s->why_tcp : "");
    return 0;
}

static void drop_arena(struct client_experts *e)
{
    if (e->mapped)
        munmap(e->mapped, e->arena.len_bytes);
    free(e->slots);
    e->mapped = NULL;
    e->slots = NULL;
    e->arena = (struct client_region){ 0 };
}

static int make_arena(struct penstock_session *s, const struct penstock_expert_arena *arena,
                      struct penstock_error *error)
{
    struct client_experts *e = s->experts;
    uint64_t stride = e->manifest.geometry.record_stride, needed;
    e->stride_bytes = arena->stride_bytes ? arena->stride_bytes : stride;
    e->n_slots = arena->slots;
    if (e->stride_bytes < stride)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "arena: slots of %" PRIu64 " bytes are less than a record's %" PRIu64, e->stride_bytes,
                              stride);
    if (arena->slots == 0 || !base_mul_u64(e->stride_bytes, arena->slots - 1, &needed) ||
        !base_add_u64(needed, stride, &needed) || needed > SIZE_MAX / 2)
        return base_error_set(error, PENSTOCK_EINVAL, "arena: no memory has %" PRIu64 " slots of %" PRIu64 " bytes",
                              arena->slots, e->stride_bytes);
    int code = take_memory(s, arena->memory, needed, error);
    if (code)
        return code;
    e->slots = calloc(arena->slots, sizeof *e->slots);
    if (!e->slots)
        return base_error_set(error, PENSTOCK_ENOMEM, "arena: no memory for %" PRIu64 " slots", arena->slots);
    return s->verbs ? client_verbs_know(s, &e->arena, error) : 0;
}

int penstock_experts_arena(struct penstock_session *session, const struct penstock_expert_arena *arena,
                           struct penstock_error *error)
{
    struct penstock_expert_arena a;
    struct penstock_session *s = session;
    if (!s)
        return client_missing("session", error);
    int code = client_take_sized(&a, arena, "arena", error);
    code = code ? code : client_can_submit(s, &client_experts_tier, 0, error);
    if (code)
        return code;
    if (s->open_id != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "the session is not open yet: wait for it");
    if (s->experts->arena.known)
        return base_error_set(error, PENSTOCK_EINVAL, "the session has an arena already");
    struct penstock_error words = { 0 };
    code = make_arena(s, &a, &words);
    if (code) {
        client_region_forget(s, &s->experts->arena);
        drop_arena(s->experts);
        if (error)
            *error = words;
    }
    s->experts->arena.known = code == 0;
    return code;
}

static void forget_memory(struct penstock_session *s)
{
    if (s->experts)
        client_region_forget(s, &s->experts->arena);
}

/* ---- fetches ---- */

static int check_fetch(const struct client_experts *e, const struct penstock_fetch *f, struct penstock_error *error)
{
    const struct model_expert_geometry *g = &e->manifest.geometry;
    if (!e->arena.known)
        return base_error_set(error, PENSTOCK_EINVAL, "fetch: the session has no arena yet");
    if (f->layer >= g->num_moe_layers || f->expert >= g->num_experts)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "fetch: no layer %" PRIu32 ", expert %" PRIu32 ": the store has %" PRIu32
                              " layers of %" PRIu32 " experts",
                              f->layer, f->expert, g->num_moe_layers, g->num_experts);
    if (f->priority != PENSTOCK_FETCH_NOW && f->priority != PENSTOCK_FETCH_GUESS)
        return base_error_set(error, PENSTOCK_EINVAL, "fetch: unknown priority %d", f->priority);
    if (f->slot >= e->n_slots)
        return base_error_set(error, PENSTOCK_EINVAL, "fetch: no slot %" PRIu64 ": the arena has %" PRIu64, f->slot,
                              e->n_slots);
    if (e->slots[f->slot].taken)
        return base_error_set(error, PENSTOCK_EINVAL, "fetch: slot %" PRIu64 ": a fetch into it is not done", f->slot);
    return 0;
}

int penstock_submit_fetch(struct penstock_session *session, const struct penstock_fetch *fetch, penstock_op *op,
                          struct penstock_error *error)
{
    struct penstock_fetch f;
    struct penstock_session *s = session;
    if (!s || !op)
        return client_missing("session and op", error);
    int code = client_take_sized(&f, fetch, "fetch", error);
    code = code ? code : client_can_submit(s, &client_experts_tier, f.timeout_ns, error);
    code = code ? code : check_fetch(s->experts, &f, error);
    if (code)
        return code;
    struct client_op *o = client_op_new(s, CLIENT_OP_FETCH, f.timeout_ns ? f.timeout_ns : s->reply_timeout_ns, f.user);
    if (!o)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    struct client_experts *e = s->experts;
    e->slots[f.slot] = (struct client_expert_slot){ .taken = true };
    o->fetch = (struct client_fetch){ .slot = f.slot, .layer = f.layer, .expert = f.expert };
    o->urgency = (unsigned)f.priority;
    if (!e->arena.device)
        o->own_pieces[0] = (struct iovec){ .iov_base = e->arena.address + f.slot * e->stride_bytes,
                                           .iov_len = e->manifest.geometry.record_stride };
    o->plan =
        (struct client_plan){ .requests = &o->own_request, .n_requests = 1, .pieces = o->own_pieces, .n_pieces = 1 };
    *op = o->id;
    client_fetch_queue(s, o);
    return 0;
}

int penstock_fetch_wait(struct penstock_session *session, const struct penstock_fetch *fetch,
                        struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_fetch(session, fetch, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

int penstock_fetch_promote(struct penstock_session *session, penstock_op op)
{
    if (!session)
        return PENSTOCK_EINVAL;
    struct client_op *o = client_op_find(session, op);
    if (!o || o->done || o->kind != CLIENT_OP_FETCH)
        return PENSTOCK_ENOTFOUND;
    client_fetch_promote(session, o);
    return 0;
}

int penstock_expert_at(const struct penstock_session *session, uint64_t slot, struct penstock_expert *expert)
{
    const struct client_experts *e = known(session);
    if (!e || !expert || !e->arena.known || slot >= e->n_slots)
        return PENSTOCK_EINVAL;
    if (!e->slots[slot].whole)
        return PENSTOCK_ENOTFOUND;
    struct penstock_expert all = { .size = expert->size,
                                   .layer = e->slots[slot].layer,
                                   .expert = e->slots[slot].expert };
    if (!e->arena.device) {
        uint8_t *record = e->arena.address + slot * e->stride_bytes;
        struct penstock_record_header header;
        int code = model_expert_header_check(&e->manifest.geometry, all.layer, all.expert, record, &header, NULL);
        if (code)
            return PENSTOCK_ENOTFOUND; /* written over since */
        for (size_t i = 0; i < PENSTOCK_EXPERT_PARTS; i++)
            all.parts[i] = record + e->manifest.geometry.parts[i].offset_bytes;
        memcpy(all.scale2, header.scale2, sizeof all.scale2);
        memcpy(all.input_scale, header.input_scale, sizeof all.input_scale);
        all.input_scale_flags = header.input_scale_flags;
    }
    return give_bytes(expert, expert->size, &all, sizeof all);
}

/* ---- the tier ---- */

static size_t regions(const struct penstock_session *s)
{
    return s->experts->manifest.geometry.num_moe_layers;
}

static uint64_t region_bytes(const struct penstock_session *s, size_t region)
{
    (void)region;
    return s->experts->manifest.geometry.layer_bytes;
}

static const char *version(const struct penstock_session *s)
{
    const char *given = s->experts->manifest.model_version;
    return given[0] ? given : NULL;
}

static enum client_purpose again(const struct penstock_session *s)
{
    (void)s;
    return CLIENT_FOR_MANIFEST;
}

const struct client_tier client_experts_tier = { .peer = "expert peer",
                                                 .port = PENSTOCK_PORT_EXPERTS,
                                                 .set_up = set_up,
                                                 .fini = fini,
                                                 .greet = client_experts_greet,
                                                 .text = client_experts_text,
                                                 .awaits = client_experts_awaits,
                                                 .take = client_experts_take,
                                                 .failed = client_experts_failed,
                                                 .again = again,
                                                 .regions = regions,
                                                 .region_bytes = region_bytes,
                                                 .version = version,
                                                 .frozen_tcp = true,
                                                 .small_window = true, /* while the store is warm */
                                                 .in_flight_bytes_max = UINT64_MAX,
                                                 .later_max = client_fetch_guesses_max,
                                                 .push = client_fetch_push,
                                                 .refused = client_fetch_refused,
                                                 .landed = client_fetch_landed,
                                                 .ended = client_fetch_ended,
                                                 .pump = client_fetch_pump,
                                                 .carries = client_fetch_carries,
                                                 .forget_memory = forget_memory };
