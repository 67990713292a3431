/* Blocks and stripes to the blobs, or the places in a raw arena, that they are kept in. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "kv.h"
#include "named.h"

static void name_block(const void *item, char *text, size_t text_size)
{
    const struct penstock_kv_block *b = item;
    (void)snprintf(text, text_size, "block %" PRIu64 " of layer %" PRIu64, b->block, b->layer);
}

static void name_stripe(const void *item, char *text, size_t text_size)
{
    const struct penstock_kv_stripe *s = item;
    (void)snprintf(text, text_size, "%s of head %" PRIu32 " in block %" PRIu64 " of layer %" PRIu64, s->kv ? "V" : "K",
                   s->head, s->block, s->layer);
}

static const struct client_named_kind blocks_kind = { .item_bytes = sizeof(struct penstock_kv_block),
                                                      .code_at = offsetof(struct penstock_kv_block, code),
                                                      .plural = "blocks",
                                                      .name = name_block };
static const struct client_named_kind stripes_kind = { .item_bytes = sizeof(struct penstock_kv_stripe),
                                                       .code_at = offsetof(struct penstock_kv_stripe, code),
                                                       .plural = "stripes",
                                                       .name = name_stripe };

static int check_session(const struct penstock_session *s, const penstock_op *op, struct penstock_error *error)
{
    if (!s || !op)
        return client_missing("session and op", error);
    if (!s->cache || !s->cache->kv.used)
        return base_error_set(error, PENSTOCK_EINVAL, "the session is not one on a KV cache: penstock_kv_open");
    return 0;
}

/* The i-th of what is wanted: the whole block that begins with a stripe, or that stripe without its padding. */
static void place(struct client_named *w, size_t i, const struct client_kv *kv, const struct model_kv_stripe *stripe,
                  bool whole, uint64_t at_bytes)
{
    const struct model_kv_stripe first = { .layer = stripe->layer, .block = stripe->block };
    uint64_t len = whole ? kv->layout.block_bytes : kv->layout.group_bytes;
    if (w->raw)
        w->ranges[i] =
            (struct penstock_raw_range){ .offset_bytes = model_kv_group(&kv->layout, stripe) * kv->layout.group_stride,
                                         .len_bytes = len,
                                         .at_bytes = at_bytes };
    else
        w->blobs[i] =
            (struct penstock_blob){ .key.low = model_kv_wire_key(kv->namespace_id, model_kv_group(&kv->layout, &first)),
                                    .at_bytes = at_bytes,
                                    .from_bytes = model_kv_stripe_at(&kv->layout, stripe),
                                    .len_bytes = len };
}

int penstock_submit_kv_blocks(struct penstock_session *session, const struct penstock_kv_blocks *blocks,
                              penstock_op *op, struct penstock_error *error)
{
    struct penstock_kv_blocks b;
    struct client_named *w;
    int code = check_session(session, op, error);
    code = code ? code : client_take_sized(&b, blocks, "blocks", error);
    if (code)
        return code;
    const struct client_named_batch batch = { .action = b.action,
                                              .region = b.region,
                                              .items = b.blocks,
                                              .count = b.count,
                                              .timeout_ns = b.timeout_ns,
                                              .user = b.user };
    const struct client_kv *kv = &session->cache->kv;
    code = client_named_new(session, &blocks_kind, &batch, &w, error);
    for (uint64_t i = 0; code == 0 && i < b.count; i++) {
        const struct model_kv_stripe first = { .layer = b.blocks[i].layer, .block = b.blocks[i].block };
        code = client_kv_stripe_check(&kv->layout, &first, error);
        if (code)
            client_named_free(w);
        else
            place(w, i, kv, &first, true, b.blocks[i].at_bytes);
    }
    return code ? code : client_named_submit(w, &batch, op, error);
}

int penstock_kv_blocks_wait(struct penstock_session *session, const struct penstock_kv_blocks *blocks,
                            struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_kv_blocks(session, blocks, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

int penstock_submit_kv_stripes(struct penstock_session *session, const struct penstock_kv_stripes *stripes,
                               penstock_op *op, struct penstock_error *error)
{
    struct penstock_kv_stripes b;
    struct client_named *w;
    int code = check_session(session, op, error);
    code = code ? code : client_take_sized(&b, stripes, "stripes", error);
    if (code)
        return code;
    const struct client_named_batch batch = { .action = PENSTOCK_BLOB_GET,
                                              .region = b.region,
                                              .items = b.stripes,
                                              .count = b.count,
                                              .timeout_ns = b.timeout_ns,
                                              .user = b.user };
    const struct client_kv *kv = &session->cache->kv;
    code = client_named_new(session, &stripes_kind, &batch, &w, error);
    for (uint64_t i = 0; code == 0 && i < b.count; i++) {
        const struct penstock_kv_stripe *s = &b.stripes[i];
        const struct model_kv_stripe stripe = { .layer = s->layer, .block = s->block, .kv = s->kv, .head = s->head };
        code = client_kv_stripe_check(&kv->layout, &stripe, error);
        if (code)
            client_named_free(w);
        else
            place(w, i, kv, &stripe, false, s->at_bytes);
    }
    return code ? code : client_named_submit(w, &batch, op, error);
}

int penstock_kv_stripes_wait(struct penstock_session *session, const struct penstock_kv_stripes *stripes,
                             struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit_kv_stripes(session, stripes, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}
