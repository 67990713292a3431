/* KV caches: the fleet's layout and names, and sessions on them. Protocol 1.6. */
#include "kv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/checked.h"
#include "base/error.h"
#include "client/session.h"

/* ---- layout and names ---- */

static int take_layout(const struct penstock_kv_layout *layout, struct model_kv_layout *out,
                       struct penstock_error *error)
{
    struct penstock_kv_layout l;
    int code = client_take_sized(&l, layout, "KV layout", error);
    if (code)
        return code;
    *out = (struct model_kv_layout){ .elem_bytes = l.elem_bytes,
                                     .block_size = l.block_size,
                                     .head_dim = l.head_dim,
                                     .layers = l.layers,
                                     .blocks = l.blocks,
                                     .kv_heads = l.kv_heads,
                                     .fs_block_bytes = l.fs_block_bytes ? l.fs_block_bytes : MODEL_KV_FS_BLOCK };
    return model_kv_layout_compute(out, error);
}

int penstock_kv_layout_compute(struct penstock_kv_layout *layout, struct penstock_error *error)
{
    struct penstock_kv_layout all;
    struct model_kv_layout l;
    int code = take_layout(layout, &l, error);
    code = code ? code : client_take_sized(&all, layout, "KV layout", error);
    if (code)
        return code;
    all.fs_block_bytes = l.fs_block_bytes;
    all.stripe_bytes = l.group_bytes;
    all.stripe_stride = l.group_stride;
    all.block_bytes = l.block_bytes;
    all.total_bytes = l.total_bytes;
    memcpy(layout, &all, base_min_u64(layout->size, sizeof all));
    return 0;
}

int client_kv_stripe_check(const struct model_kv_layout *l, const struct model_kv_stripe *s,
                           struct penstock_error *error)
{
    if (s->layer >= l->layers || s->block >= l->blocks)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "block %" PRIu64 " of layer %" PRIu64 ": there are %" PRIu64 " layers of %" PRIu64
                              " blocks",
                              s->block, s->layer, l->layers, l->blocks);
    if (s->kv > 1 || s->head >= l->kv_heads)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "stripe (kv %u, head %" PRIu64 "): kv is 0 for K or 1 for V, and there are %" PRIu64
                              " heads",
                              s->kv, s->head, l->kv_heads);
    return 0;
}

int penstock_kv_stripe_id(const struct penstock_kv_layout *layout, const struct penstock_kv_stripe *stripe,
                          uint64_t *id, struct penstock_error *error)
{
    struct model_kv_layout l;
    if (!stripe || !id)
        return client_missing("stripe and id", error);
    const struct model_kv_stripe s = {
        .layer = stripe->layer, .block = stripe->block, .kv = stripe->kv, .head = stripe->head
    };
    int code = take_layout(layout, &l, error);
    code = code ? code : client_kv_stripe_check(&l, &s, error);
    if (code == 0)
        *id = model_kv_group(&l, &s);
    return code;
}

int penstock_kv_namespace(const struct penstock_kv_layout *layout, uint64_t fingerprint, uint64_t salt,
                          uint64_t *namespace_id, struct penstock_error *error)
{
    struct model_kv_layout l;
    if (!namespace_id)
        return client_missing("namespace_id", error);
    int code = take_layout(layout, &l, error);
    if (code == 0)
        *namespace_id = model_kv_namespace(&l, fingerprint, salt);
    return code;
}

uint64_t penstock_kv_wire_key(uint64_t namespace_id, uint64_t id)
{
    return model_kv_wire_key(namespace_id, id);
}

/* ---- session ---- */

static int random_u64(uint64_t *out, struct penstock_error *error)
{
    ssize_t n;
    do
        n = getrandom(out, sizeof *out, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *out)
        return base_error_sys(error, n < 0 ? errno : EIO, "KV cache: no random salt");
    return 0;
}

/* The arena to join, and what the session is to know. */
static int take_kv(const struct penstock_kv *given, struct penstock_cache *arena, struct client_kv *out,
                   struct penstock_error *error)
{
    struct penstock_kv kv;
    int code = client_take_sized(&kv, given, "KV cache", error);
    code = code ? code : take_layout(kv.layout, &out->layout, error);
    if (code)
        return code;
    const struct model_kv_layout *l = &out->layout;
    if (kv.raw && kv.arena_bytes != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "KV cache: a raw arena has the size of its blocks, and no other");
    if (!kv.raw && l->block_bytes % MODEL_KV_FS_BLOCK != 0)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "KV cache: blocks of %" PRIu64 " bytes: with keys a multiple of %d is wanted, as "
                              "fs_block_bytes %d makes it",
                              l->block_bytes, MODEL_KV_FS_BLOCK, MODEL_KV_FS_BLOCK);
    if (kv.arena_bytes != 0 && kv.arena_bytes < l->block_bytes)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "KV cache: an arena of %" PRIu64 " bytes does not hold one block, of %" PRIu64,
                              kv.arena_bytes, l->block_bytes);
    *arena = (struct penstock_cache){ .size = sizeof *arena,
                                      .kind = PENSTOCK_CACHE_KV,
                                      .blob_bytes = kv.raw ? 0 : l->block_bytes,
                                      .arena_bytes = kv.arena_bytes ? kv.arena_bytes - kv.arena_bytes % l->block_bytes
                                                                    : l->total_bytes,
                                      .own = kv.random_salt && !kv.raw ? 2 : 0 };
    out->salt = kv.salt;
    if (kv.random_salt)
        code = random_u64(&out->salt, error);
    if (!kv.raw)
        out->namespace_id = model_kv_namespace(l, kv.fingerprint, out->salt);
    out->used = true;
    return code;
}

int client_kv_start(struct verbs_world *world, const char *peer, const struct penstock_kv *kv,
                    const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                    struct penstock_error *error)
{
    struct penstock_cache arena;
    struct client_kv names = { 0 };
    int code = take_kv(kv, &arena, &names, error);
    code = code ? code : client_cache_start(world, peer, &arena, options, session, op, error);
    if (code == 0)
        (*session)->cache->kv = names;
    return code;
}

int penstock_kv_start(const char *peer, const struct penstock_kv *kv, const struct penstock_options *options,
                      struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    return client_kv_start(NULL, peer, kv, options, session, op, error);
}

int client_kv_on_stream(struct net_stream *stream, const struct penstock_kv *kv, const struct penstock_options *options,
                        struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    struct penstock_cache arena;
    struct client_kv names = { 0 };
    int code = take_kv(kv, &arena, &names, error);
    if (code) {
        stream->ops->close(stream);
        return code;
    }
    code = client_cache_on_stream(stream, &arena, options, session, op, error);
    if (code == 0)
        (*session)->cache->kv = names;
    return code;
}

int penstock_kv_open(const char *peer, const struct penstock_kv *kv, const struct penstock_options *options,
                     struct penstock_session **session, struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    if (!session)
        return client_missing("session", error);
    int code = penstock_kv_start(peer, kv, options, &s, &op, error);
    return code ? code : client_session_opened(s, op, session, error);
}

int penstock_kv_about(const struct penstock_session *session, struct penstock_kv_info *info)
{
    size_t size = info ? info->size : 0;
    if (!session || !session->cache || !session->cache->kv.used || size < sizeof info->size)
        return PENSTOCK_EINVAL;
    const struct client_cache *c = session->cache;
    const struct penstock_kv_info all = { .size = size,
                                          .block_bytes = c->kv.layout.block_bytes,
                                          .stripe_bytes = c->kv.layout.group_bytes,
                                          .stripe_stride = c->kv.layout.group_stride,
                                          .arena_bytes = c->arena.arena_bytes,
                                          .salt = c->kv.salt,
                                          .namespace_id = c->kv.namespace_id,
                                          .owned = c->arena.own && session->open_id == 0 &&
                                                   (c->features & PENSTOCK_FEATURE_OWN) != 0 };
    memcpy(info, &all, size < sizeof all ? size : sizeof all);
    return 0;
}
