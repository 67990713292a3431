/* Snapshots: sessions on them, and their numbers to keys or slots. Protocol 1.6. */
#include "snapshot.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "model/kv/layout.h"
#include "named.h"

#define CHUNK_BYTES_MIN 4096u

uint64_t penstock_snapshot_wire_key(uint64_t key, uint64_t namespace_id)
{
    return model_mix64(key, namespace_id);
}

/* ---- session ---- */

/* The arena to join, and what the session is to know. */
static int take_arena(const struct penstock_snapshot_arena *given, struct penstock_snapshot_arena *a,
                      struct penstock_cache *cache, struct penstock_error *error)
{
    int code = client_take_sized(a, given, "snapshots", error);
    if (code)
        return code;
    if (a->blob_bytes == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "snapshots: blob_bytes is 0");
    if (a->raw && (a->arena_bytes % a->blob_bytes != 0 || a->own))
        return base_error_set(error, PENSTOCK_EINVAL,
                              "snapshots: a raw arena holds a whole number of them, and has no owner but its session");
    a->chunk_bytes = a->chunk_bytes ? a->chunk_bytes : PENSTOCK_SNAPSHOT_CHUNK_BYTES;
    a->depth = a->depth ? a->depth : PENSTOCK_SNAPSHOT_DEPTH;
    if (a->chunk_bytes < CHUNK_BYTES_MIN)
        return base_error_set(error, PENSTOCK_EINVAL, "snapshots: chunks of %" PRIu64 " bytes: at least %u are wanted",
                              a->chunk_bytes, CHUNK_BYTES_MIN);
    *cache = (struct penstock_cache){ .size = sizeof *cache,
                                      .kind = PENSTOCK_CACHE_SSM,
                                      .blob_bytes = a->raw ? 0 : a->blob_bytes,
                                      .arena_bytes = a->arena_bytes,
                                      .own = a->own };
    return 0;
}

static void give_names(struct penstock_session *s, const struct penstock_snapshot_arena *a)
{
    s->cache->snapshots =
        (struct client_snapshots){ .used = true, .namespace_id = a->namespace_id, .slot_bytes = a->blob_bytes };
    s->cache->chunk_bytes = a->chunk_bytes;
    s->cache->depth = a->depth;
}

int client_snapshots_start(struct verbs_world *world, const char *peer, const struct penstock_snapshot_arena *arena,
                           const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                           struct penstock_error *error)
{
    struct penstock_snapshot_arena a;
    struct penstock_cache cache;
    int code = take_arena(arena, &a, &cache, error);
    code = code ? code : client_cache_start(world, peer, &cache, options, session, op, error);
    if (code == 0)
        give_names(*session, &a);
    return code;
}

int penstock_snapshots_start(const char *peer, const struct penstock_snapshot_arena *arena,
                             const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                             struct penstock_error *error)
{
    return client_snapshots_start(NULL, peer, arena, options, session, op, error);
}

int client_snapshots_on_stream(struct net_stream *stream, const struct penstock_snapshot_arena *arena,
                               const struct penstock_options *options, struct penstock_session **session,
                               penstock_op *op, struct penstock_error *error)
{
    struct penstock_snapshot_arena a;
    struct penstock_cache cache;
    int code = take_arena(arena, &a, &cache, error);
    if (code) {
        stream->ops->close(stream);
        return code;
    }
    code = client_cache_on_stream(stream, &cache, options, session, op, error);
    if (code == 0)
        give_names(*session, &a);
    return code;
}

int penstock_snapshots_open(const char *peer, const struct penstock_snapshot_arena *arena,
                            const struct penstock_options *options, struct penstock_session **session,
                            struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    if (!session)
        return client_missing("session", error);
    int code = penstock_snapshots_start(peer, arena, options, &s, &op, error);
    return code ? code : client_session_opened(s, op, session, error);
}

/* ---- snapshots ---- */

static void name_snapshot(const void *item, char *text, size_t text_size)
{
    const struct penstock_snapshot *s = item;
    (void)snprintf(text, text_size, "snapshot %" PRIu64, s->key);
}

static const struct client_named_kind snapshots_kind = { .item_bytes = sizeof(struct penstock_snapshot),
                                                         .code_at = offsetof(struct penstock_snapshot, code),
                                                         .plural = "snapshots",
                                                         .name = name_snapshot };

/* The i-th to its slot of a raw arena. */
static int place_raw(const struct penstock_session *s, struct client_named *w, size_t i,
                     const struct penstock_snapshot *snapshot, struct penstock_error *error)
{
    uint64_t slot_bytes = s->cache->snapshots.slot_bytes, slots = s->cache->arena.arena_bytes / slot_bytes;
    if (snapshot->key >= slots)
        return base_error_set(error, PENSTOCK_EINVAL, "snapshot %" PRIu64 ": the raw arena has %" PRIu64 " slots",
                              snapshot->key, slots);
    w->ranges[i] = (struct penstock_raw_range){ .offset_bytes = snapshot->key * slot_bytes,
                                                .len_bytes = slot_bytes,
                                                .at_bytes = snapshot->at_bytes };
    return 0;
}

int penstock_submit_snapshots(struct penstock_session *session, const struct penstock_snapshots *snapshots,
                              penstock_op *op, struct penstock_error *error)
{
    struct penstock_snapshots b;
    struct client_named *w;
    if (!session || !op)
        return client_missing("session and op", error);
    if (!session->cache || !session->cache->snapshots.used)
        return base_error_set(error, PENSTOCK_EINVAL, "the session is not one on snapshots: penstock_snapshots_open");
    int code = client_take_sized(&b, snapshots, "snapshots", error);
    if (code)
        return code;
    const struct client_named_batch batch = { .action = b.action,
                                              .region = b.region,
                                              .items = b.snapshots,
                                              .count = b.count,
                                              .timeout_ns = b.timeout_ns,
                                              .user = b.user };
    code = client_named_new(session, &snapshots_kind, &batch, &w, error);
    for (uint64_t i = 0; code == 0 && i < b.count; i++) {
        const struct penstock_snapshot *snapshot = &b.snapshots[i];
        uint64_t key = model_mix64(snapshot->key, session->cache->snapshots.namespace_id);
        if (!w->raw)
            w->blobs[i] = (struct penstock_blob){ .key.low = key, .at_bytes = snapshot->at_bytes };
        else if ((code = place_raw(session, w, i, snapshot, error)) != 0)
            client_named_free(w);
    }
    return code ? code : client_named_submit(w, &batch, op, error);
}

int penstock_snapshots_wait(struct penstock_session *session, const struct penstock_snapshots *snapshots,
                            struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_snapshots(session, snapshots, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}
