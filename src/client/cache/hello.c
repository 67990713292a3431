/* A cache's session before its first blob: protocol 1.6 steps 1 and 2, or TCP (2.2), and what the peer can do (2.3).
 */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "cache.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "verbs.h"

static void ask(struct penstock_session *s, uint8_t op, uint64_t value)
{
    const struct penstock_paging_framing framing = { .tcp = true };
    const struct penstock_paging_request request = { .op = op, .value = value };
    s->out_end += penstock_paging_request_encode(&request, &framing, s->out + s->out_end, NULL);
}

int client_cache_greet(struct penstock_session *s, struct penstock_error *error)
{
    (void)error;
    const struct penstock_cache *c = &s->cache->arena;
    const struct penstock_paging_header header = { .kind = (uint8_t)c->kind,
                                                   .arena_bytes = c->arena_bytes,
                                                   .blob_bytes = c->blob_bytes };
    penstock_paging_header_encode(&header, s->out);
    s->out_end = PENSTOCK_PAGING_HEADER_BYTES;
    s->cache->stage = CLIENT_CACHE_ARENA;
    return 0;
}

int client_cache_to_tcp(struct penstock_session *s, struct penstock_error *error)
{
    s->out[s->out_end++] = 0;        /* rails: the TCP data plane */
    ask(s, PENSTOCK_OP_FEATURES, 1); /* who has that data plane knows this as well */
    client_hello_enter(s, CLIENT_ASKING);
    return client_engine_flush(s, error);
}

int client_cache_rails_up(struct penstock_session *s, struct penstock_error *error)
{
    int code = client_cache_verbs_new(s, error);
    if (code || s->cache->arena.blob_bytes == 0)
        return code ? code : client_verbs_ready(s, error);
    ask(s, PENSTOCK_OP_FEATURES, 1);
    s->cache->stage = CLIENT_CACHE_FEATURES;
    client_hello_enter(s, CLIENT_ASKING);
    return client_engine_flush(s, error);
}

size_t client_cache_answer_bytes(const struct penstock_session *s)
{
    switch (s->cache->stage) {
    case CLIENT_CACHE_ARENA:
        return 2;
    case CLIENT_CACHE_FEATURES:
        return 1;
    case CLIENT_CACHE_BITS:
        return 8;
    case CLIENT_CACHE_SETTINGS:
        break;
    }
    return s->cache->settings;
}

const char *client_cache_awaits(const struct penstock_session *s)
{
    return s->cache->stage == CLIENT_CACHE_ARENA ? "answer to the arena" : "answer to what it can do";
}

static int take_arena(struct penstock_session *s, struct penstock_error *error)
{
    if (s->head[0] != 0)
        return base_error_set(error, PENSTOCK_EPROTO, "granted %u rails, wanted 0", s->head[0]);
    if (s->head[1] != PENSTOCK_STATUS_OK)
        return base_error_set(error, PENSTOCK_EDENIED, "refused connection (ack %u)", s->head[1]);
    s->cache->stage = CLIENT_CACHE_FEATURES;
    s->heard = true;
    return 0;
}

/* The peer has said all that it can do: what the caller needs of it is asked for. */
static int take_bits(struct penstock_session *s, struct penstock_error *error)
{
    struct client_cache *c = s->cache;
    const struct {
        int wanted; /* 2: where the peer has it */
        uint64_t bit;
        uint8_t op;
        const char *what;
    } settings[] = { { c->arena.wide, PENSTOCK_FEATURE_WIDE, PENSTOCK_OP_WIDE, "keys of 128 bits" },
                     { c->arena.own, PENSTOCK_FEATURE_OWN, PENSTOCK_OP_OWN, "blobs that end with their session" } };
    c->settings = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        bool has = c->features & settings[i].bit;
        if (!settings[i].wanted || (settings[i].wanted == 2 && !has))
            continue;
        if (!has)
            return base_error_set(error, PENSTOCK_EUNSUPPORTED, "does not have %s", settings[i].what);
        ask(s, settings[i].op, 1);
        c->settings++;
    }
    if (c->settings == 0)
        return client_hello_ready(s, error);
    c->stage = CLIENT_CACHE_SETTINGS;
    return client_engine_flush(s, error);
}

static int take_features(struct penstock_session *s, struct penstock_error *error)
{
    if (s->head[0] != PENSTOCK_ST_OK) {
        s->cache->features = 0; /* those of the connection before, where there was one */
        return take_bits(s, error);
    }
    s->cache->stage = CLIENT_CACHE_BITS;
    return 0;
}

static int take_settings(struct penstock_session *s, struct penstock_error *error)
{
    for (size_t i = 0; i < s->cache->settings; i++)
        if (s->head[i] != PENSTOCK_ST_OK)
            return base_error_set(error, PENSTOCK_EPROTO, "refuses (status %u) a feature that it said it has",
                                  s->head[i]);
    return client_hello_ready(s, error);
}

int client_cache_take(struct penstock_session *s, struct penstock_error *error)
{
    switch (s->cache->stage) {
    case CLIENT_CACHE_ARENA:
        return take_arena(s, error);
    case CLIENT_CACHE_FEATURES:
        return take_features(s, error);
    case CLIENT_CACHE_BITS:
        s->cache->features = 0;
        for (unsigned i = 0; i < 8; i++)
            s->cache->features |= (uint64_t)s->head[i] << 8 * i;
        return take_bits(s, error);
    case CLIENT_CACHE_SETTINGS:
        break;
    }
    return take_settings(s, error);
}

int client_cache_failed(struct penstock_session *s, struct penstock_error *error)
{
    bool silent = error->code == PENSTOCK_ECLOSED && error->sys_errno == 0 && s->cache->stage == CLIENT_CACHE_ARENA &&
                  s->head_bytes == 0;
    const struct penstock_cache *c = &s->cache->arena;
    const char *why = s->why_tcp ? s->why_tcp : "not asked for";
    if (silent)
        base_error_set(error, PENSTOCK_EDENIED,
                       "refused %s arena of %" PRIu64 " bytes (blobs of %" PRIu64
                       "): its log says why; usually it is above the peer's memory cap, or needs a swap directory that "
                       "the peer has not%s%.150s%s",
                       c->kind == PENSTOCK_CACHE_KV ? "a KV" : "an SSM", c->arena_bytes, c->blob_bytes,
                       s->verbs ? "" : ", or the peer speaks only RDMA (here: ", s->verbs ? "" : why,
                       s->verbs ? "" : ")");
    return error->code;
}
