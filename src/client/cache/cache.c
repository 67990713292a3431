/* The cache tier: sessions on an arena, and what is asked for in it. Protocol 1.6 and 2.2. */
#include "cache.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "stats.h"
#include "verbs.h"

#define BLOB_ALIGN 4096u
#define REPLY_TIMEOUT_NS (300 * BASE_SECOND_NS) /* a reply may wait for a disk */

/* ---- begin and end ---- */

static int set_up(struct penstock_session *s, const void *arena)
{
    s->cache = calloc(1, sizeof *s->cache);
    if (!s->cache)
        return PENSTOCK_ENOMEM;
    if (arena)
        s->cache->arena = *(const struct penstock_cache *)arena;
    return 0;
}

static void fini(struct penstock_session *s)
{
    if (s->cache)
        client_cache_verbs_free(s->cache->verbs);
    free(s->cache);
}

static int take_arena(const struct penstock_cache *cache, struct penstock_cache *out, struct penstock_error *error)
{
    int code = client_take_sized(out, cache, "cache", error);
    if (code)
        return code;
    if (out->kind != PENSTOCK_CACHE_SSM && out->kind != PENSTOCK_CACHE_KV)
        return base_error_set(error, PENSTOCK_EINVAL, "cache: unknown kind %d", out->kind);
    if (out->arena_bytes == 0 || out->arena_bytes > PENSTOCK_ARENA_BYTES_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "cache: an arena has 1 to 2^42 bytes, and not %" PRIu64,
                              out->arena_bytes);
    if (out->blob_bytes % BLOB_ALIGN != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "cache: blobs of %" PRIu64 " bytes: a multiple of %u is wanted",
                              out->blob_bytes, BLOB_ALIGN);
    if (out->blob_bytes != 0 && out->arena_bytes % out->blob_bytes != 0)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "cache: an arena of %" PRIu64 " bytes does not hold a whole number of blobs of %" PRIu64,
                              out->arena_bytes, out->blob_bytes);
    if (out->blob_bytes == 0 && (out->wide || out->own))
        return base_error_set(error, PENSTOCK_EINVAL, "cache: a raw arena has no keys, and no owners");
    return 0;
}

int client_cache_start(struct verbs_world *world, const char *peer, const struct penstock_cache *cache,
                       const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                       struct penstock_error *error)
{
    struct penstock_cache arena;
    if (!peer || !session || !op)
        return client_missing("peer, session and op", error);
    int code = take_arena(cache, &arena, error);
    const struct client_start start = { .tier = &client_cache_tier, .world = world, .argument = &arena };
    return code ? code : client_session_start(&start, peer, options, session, op, error);
}

int penstock_cache_start(const char *peer, const struct penstock_cache *cache, const struct penstock_options *options,
                         struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    return client_cache_start(NULL, peer, cache, options, session, op, error);
}

int client_cache_on_stream(struct net_stream *stream, const struct penstock_cache *cache,
                           const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                           struct penstock_error *error)
{
    struct penstock_cache arena;
    int code = take_arena(cache, &arena, error);
    const struct client_start start = { .tier = &client_cache_tier, .argument = &arena };
    if (code == 0)
        return client_session_start_on(&start, stream, options, session, op, error);
    stream->ops->close(stream);
    return code;
}

int penstock_cache_open(const char *peer, const struct penstock_cache *cache, const struct penstock_options *options,
                        struct penstock_session **session, struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    if (!session)
        return client_missing("session", error);
    int code = penstock_cache_start(peer, cache, options, &s, &op, error);
    if (code)
        return code;
    return client_session_opened(s, op, session, error);
}

/* ---- operations ---- */

static int find_region(struct penstock_session *s, uint32_t region, const char *what, struct client_region **out,
                       struct penstock_error *error)
{
    if (region >= s->regions.n || !s->regions.at[region].known)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: no region %" PRIu32 " is registered", what, region);
    *out = &s->regions.at[region];
    if ((*out)->device && !s->verbs)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s: region %" PRIu32 " is DEVICE memory, and this session runs over TCP", what, region);
    return 0;
}

static int new_op(struct penstock_session *s, enum client_op_kind kind, int64_t timeout_ns, void *user,
                  struct client_plan *plan, struct client_op **out, struct penstock_error *error)
{
    *out = client_op_new(s, kind, timeout_ns ? timeout_ns : s->reply_timeout_ns, user);
    if (*out) {
        (*out)->plan = *plan;
        return 0;
    }
    client_plan_fini(plan);
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
}

/* DEVICE memory has no address: the difference to the region's is what counts there. */
static void *in_region(const struct client_region *region, uint64_t at_bytes)
{
    return (void *)((uintptr_t)region->address + at_bytes); // NOLINT(performance-no-int-to-ptr)
}

static void queue(struct penstock_session *s, struct client_op *op)
{
    client_op_queue(s, op);
    if (s->verbs)
        s->verbs->submitted = true;
}

/* The pieces lie behind the requests, as client_plan_fini has it, and behind them what is wasted. */
static int allocate_plan(struct client_plan *plan, size_t n, size_t n_pieces, size_t waste_bytes,
                         struct penstock_error *error)
{
    size_t requests_bytes, pieces_bytes, bytes;
    struct client_request *requests = NULL;
    if (base_mul_size(n + 1, sizeof *requests, &requests_bytes) &&
        base_mul_size(n_pieces + 1, sizeof(struct iovec), &pieces_bytes) &&
        base_add_size(requests_bytes, pieces_bytes, &bytes) && base_add_size(bytes, waste_bytes, &bytes))
        requests = calloc(1, bytes);
    if (!requests)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an operation of %zu parts", n);
    *plan = (struct client_plan){
        .requests = requests, .n_requests = n, .pieces = (struct iovec *)(requests + n + 1), .n_pieces = n_pieces
    };
    return 0;
}

/* ---- blobs ---- */

/* What is wanted of a blob. */
static uint64_t part_bytes(const struct penstock_blob *blob, uint64_t blob_bytes)
{
    return blob->len_bytes ? blob->len_bytes : blob_bytes;
}

/* Over TCP a blob comes whole: what nobody wants of it lands here, in cells that are used again and again. */
#define WASTE_BYTES_MAX (UINT64_C(1) << 20)

static uint64_t cells(uint64_t bytes)
{
    return (bytes + WASTE_BYTES_MAX - 1) / WASTE_BYTES_MAX;
}

static int check_blob(const struct penstock_session *s, const struct penstock_blobs *b, uint64_t i,
                      const struct client_region *region, struct penstock_error *error)
{
    uint64_t blob_bytes = s->cache->arena.blob_bytes;
    const struct penstock_blob *blob = &b->blobs[i];
    uint64_t len = part_bytes(blob, blob_bytes);
    if (blob->key.high != 0 && !s->cache->arena.wide)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "blob %" PRIu64 ": its key is wider than 64 bits, and the session is not wide", i);
    if (!region)
        return 0;
    if (b->action == PENSTOCK_BLOB_PUT ? blob->from_bytes != 0 || len != blob_bytes
                                       : !base_range_inside(blob->from_bytes, len, blob_bytes))
        return base_error_set(error, PENSTOCK_EINVAL,
                              "blob %" PRIu64 ": %" PRIu64 " bytes from %" PRIu64 " on are no part of %" PRIu64
                              " that can be %s",
                              i, len, blob->from_bytes, blob_bytes, b->action == PENSTOCK_BLOB_PUT ? "put" : "got");
    if (!base_range_inside(blob->at_bytes, len, region->len_bytes))
        return base_error_set(error, PENSTOCK_EINVAL,
                              "blob %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " leave region %" PRIu32 " of %" PRIu64,
                              i, len, blob->at_bytes, b->region, region->len_bytes);
    return 0;
}

static void lay_waste(struct client_plan *plan, uint64_t bytes, uint8_t *waste)
{
    for (uint64_t part; bytes > 0; bytes -= part) {
        part = base_min_u64(bytes, WASTE_BYTES_MAX);
        plan->pieces[plan->n_pieces++] = (struct iovec){ .iov_base = waste, .iov_len = part };
    }
}

/* region NULL: nothing moves. */
static int plan_blobs(const struct penstock_session *s, const struct penstock_blobs *b,
                      const struct client_region *region, struct client_plan *plan, struct penstock_error *error)
{
    uint64_t blob_bytes = s->cache->arena.blob_bytes, n_pieces = b->count, waste_bytes = 0;
    for (uint64_t i = 0; i < b->count; i++) {
        const struct penstock_blob *blob = &b->blobs[i];
        int code = check_blob(s, b, i, region, error);
        if (code)
            return code;
        uint64_t before = region ? blob->from_bytes : 0;
        uint64_t after = region ? blob_bytes - before - part_bytes(blob, blob_bytes) : 0;
        n_pieces += cells(before) + cells(after);
        waste_bytes = base_max_u64(waste_bytes, base_min_u64(base_max_u64(before, after), WASTE_BYTES_MAX));
    }
    int code = allocate_plan(plan, b->count, n_pieces, waste_bytes, error);
    if (code || !region)
        return code;
    uint8_t *waste = (uint8_t *)(plan->pieces + n_pieces + 1);
    plan->n_pieces = 0;
    for (uint64_t i = 0; i < b->count; i++) {
        const struct penstock_blob *blob = &b->blobs[i];
        uint64_t len = part_bytes(blob, blob_bytes);
        plan->requests[i].piece = plan->n_pieces;
        lay_waste(plan, blob->from_bytes, waste);
        plan->pieces[plan->n_pieces++] =
            (struct iovec){ .iov_base = in_region(region, blob->at_bytes), .iov_len = len };
        lay_waste(plan, blob_bytes - blob->from_bytes - len, waste);
    }
    return 0;
}

int client_submit_blobs(struct penstock_session *s, const struct penstock_blobs *blobs, struct client_then *then,
                        penstock_op *op, struct penstock_error *error)
{
    struct penstock_blobs b;
    if (!s || !op)
        return client_missing("session and op", error);
    int code = client_take_sized(&b, blobs, "blobs", error);
    code = code ? code : client_can_submit(s, &client_cache_tier, b.timeout_ns, error);
    if (code)
        return code;
    if (b.action < PENSTOCK_BLOB_PUT || b.action > PENSTOCK_BLOB_REMOVE)
        return base_error_set(error, PENSTOCK_EINVAL, "blobs: unknown action %d", b.action);
    if (s->cache->arena.blob_bytes == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "blobs: the session's arena is raw: it has none");
    if ((!b.blobs && b.count > 0) || b.count > SIZE_MAX / sizeof *b.blobs)
        return base_error_set(error, PENSTOCK_EINVAL, "blobs: none are given");
    struct client_region *region = NULL;
    struct client_plan plan;
    struct client_op *o;
    if (b.action == PENSTOCK_BLOB_PUT || b.action == PENSTOCK_BLOB_GET)
        code = find_region(s, b.region, "blobs", &region, error);
    code = code ? code : plan_blobs(s, &b, region, &plan, error);
    code = code ? code : new_op(s, CLIENT_OP_BLOBS, b.timeout_ns, b.user, &plan, &o, error);
    if (code)
        return code;
    for (uint64_t i = 0; i < b.count; i++)
        b.blobs[i].code = PENSTOCK_ECANCELED;
    o->region = b.region;
    o->then = then;
    o->blobs = (struct client_blobs){ .action = b.action, .at = b.blobs, .uses_region = region };
    if (region)
        region->users++;
    *op = o->id;
    queue(s, o);
    return 0;
}

int penstock_submit_blobs(struct penstock_session *session, const struct penstock_blobs *blobs, penstock_op *op,
                          struct penstock_error *error)
{
    return client_submit_blobs(session, blobs, NULL, op, error);
}

int penstock_blobs_wait(struct penstock_session *session, const struct penstock_blobs *blobs,
                        struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_blobs(session, blobs, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

uint64_t penstock_blobs_prefix(const struct penstock_blob *blobs, uint64_t count)
{
    uint64_t n = 0;
    while (blobs && n < count && blobs[n].code == 0)
        n++;
    return n;
}

/* ---- raw ---- */

static int plan_raw(const struct penstock_session *s, const struct penstock_raw *r, const struct client_region *region,
                    struct client_plan *plan, struct penstock_error *error)
{
    size_t n = 0;
    for (uint64_t i = 0; i < r->count; i++) {
        const struct penstock_raw_range *g = &r->ranges[i];
        if (g->len_bytes == 0 || !base_range_inside(g->offset_bytes, g->len_bytes, s->cache->arena.arena_bytes) ||
            !base_range_inside(g->at_bytes, g->len_bytes, region->len_bytes))
            return base_error_set(error, PENSTOCK_EINVAL,
                                  "range %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " leave the raw arena of %" PRIu64
                                  ", or at %" PRIu64 " the region of %" PRIu64 ", or are none",
                                  i, g->len_bytes, g->offset_bytes, s->cache->arena.arena_bytes, g->at_bytes,
                                  region->len_bytes);
        n += (g->len_bytes + CLIENT_REQUEST_BYTES_MAX - 1) / CLIENT_REQUEST_BYTES_MAX;
    }
    int code = allocate_plan(plan, n, n, 0, error);
    size_t at = 0;
    for (uint64_t i = 0; code == 0 && i < r->count; i++)
        for (uint64_t done = 0; done < r->ranges[i].len_bytes; at++) {
            uint64_t part = base_min_u64(r->ranges[i].len_bytes - done, CLIENT_REQUEST_BYTES_MAX);
            plan->requests[at] = (struct client_request){ .offset_bytes = r->ranges[i].offset_bytes + done,
                                                          .len_bytes = (uint32_t)part,
                                                          .piece = at };
            plan->pieces[at] =
                (struct iovec){ .iov_base = in_region(region, r->ranges[i].at_bytes + done), .iov_len = part };
            plan->len_bytes += part;
            done += part;
        }
    return code;
}

int client_submit_raw(struct penstock_session *s, const struct penstock_raw *raw, struct client_then *then,
                      penstock_op *op, struct penstock_error *error)
{
    struct penstock_raw r;
    if (!s || !op)
        return client_missing("session and op", error);
    int code = client_take_sized(&r, raw, "raw", error);
    code = code ? code : client_can_submit(s, &client_cache_tier, r.timeout_ns, error);
    if (code)
        return code;
    if (s->cache->arena.blob_bytes != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "raw: the session's arena has blobs with keys");
    if ((!r.ranges && r.count > 0) || r.count > SIZE_MAX / sizeof *r.ranges)
        return base_error_set(error, PENSTOCK_EINVAL, "raw: no ranges are given");
    struct client_region *region;
    struct client_plan plan;
    struct client_op *o;
    code = find_region(s, r.region, "raw", &region, error);
    code = code ? code : plan_raw(s, &r, region, &plan, error);
    code = code ? code : new_op(s, CLIENT_OP_RAW, r.timeout_ns, r.user, &plan, &o, error);
    if (code)
        return code;
    o->region = r.region;
    o->then = then;
    o->blobs = (struct client_blobs){ .write = r.write != 0, .uses_region = true };
    region->users++;
    *op = o->id;
    queue(s, o);
    return 0;
}

int penstock_submit_raw(struct penstock_session *session, const struct penstock_raw *raw, penstock_op *op,
                        struct penstock_error *error)
{
    return client_submit_raw(session, raw, NULL, op, error);
}

int penstock_raw_wait(struct penstock_session *session, const struct penstock_raw *raw, struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_raw(session, raw, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

/* ---- the tier ---- */

/* How long a shared arena is, only its first client knows. */
static uint64_t region_bytes(const struct penstock_session *s, size_t region)
{
    (void)region;
    return s->cache->arena.blob_bytes ? PENSTOCK_ARENA_BYTES_MAX : s->cache->arena.arena_bytes;
}

static size_t regions(const struct penstock_session *s)
{
    (void)s;
    return 1;
}

static enum client_purpose again(const struct penstock_session *s)
{
    (void)s;
    return CLIENT_FOR_MANIFEST;
}

static uint32_t later_max(const struct penstock_session *s)
{
    (void)s;
    return UINT32_MAX; /* all are as urgent */
}

const struct client_tier client_cache_tier = { .peer = "cache peer",
                                               .port = PENSTOCK_PORT_CACHE,
                                               .reply_timeout_ns = REPLY_TIMEOUT_NS,
                                               .set_up = set_up,
                                               .fini = fini,
                                               .greet = client_cache_greet,
                                               .answer_bytes = client_cache_answer_bytes,
                                               .awaits = client_cache_awaits,
                                               .take = client_cache_take,
                                               .failed = client_cache_failed,
                                               .to_tcp = client_cache_to_tcp,
                                               .again = again,
                                               .dialect = PENSTOCK_READ_WRITE,
                                               .regions = regions,
                                               .region_bytes = region_bytes,
                                               .lister = &client_cache_stats_tier,
                                               .listed = client_cache_listed,
                                               .one_stream = true,
                                               .rails_up = client_cache_rails_up,
                                               .hear = client_control_hear,
                                               .due_ns = client_control_due_ns,
                                               .cancel = client_cache_cancel,
                                               .over_tcp = client_cache_over_tcp,
                                               .pump = client_cache_pump,
                                               .small_window = true,
                                               .in_flight_bytes_max = UINT64_C(64) << 20,
                                               .later_max = later_max,
                                               .push = client_cache_push,
                                               .refused = client_cache_refused,
                                               .asks_again = client_cache_asks_again,
                                               .landed = client_cache_landed,
                                               .ended = client_cache_ended };
