/* The cache's clients: cache.c has the public calls, hello.c what comes before, flight.c what travels over
 * TCP, verbs.h what does over RDMA. */
#ifndef PENSTOCK_CLIENT_CACHE_CACHE_H
#define PENSTOCK_CLIENT_CACHE_CACHE_H

#include <penstock/cache.h>

#include "client/session.h"
#include "model/kv/layout.h"

/* Where the hello is: what is awaited. */
enum client_cache_stage {
    CLIENT_CACHE_ARENA,    /* the arena, and the TCP data plane */
    CLIENT_CACHE_FEATURES, /* whether it says what it can do */
    CLIENT_CACHE_BITS,     /* what it can do */
    CLIENT_CACHE_SETTINGS, /* wide keys and ownership are as asked for */
};

/* Names of a KV cache's blocks (kv.h), or of snapshots, where the session has them. */
struct client_kv {
    bool used;
    struct model_kv_layout layout;
    uint64_t salt, namespace_id; /* raw: no namespace */
};

struct client_snapshots {
    bool used;
    uint64_t namespace_id;
    uint64_t slot_bytes; /* raw: of one */
};

/* What a session on a cache has beside the rest. */
struct client_cache {
    struct penstock_cache arena; /* as asked for */
    enum client_cache_stage stage;
    uint64_t features;
    size_t settings; /* that were asked for, and are not answered */
    penstock_op cut; /* whose blob the peer broke off last; 0: none's, or that of one that was canceled */
    size_t cut_blob; /* that was */
    struct client_kv kv;
    struct client_snapshots snapshots;
    uint64_t chunk_bytes; /* over RDMA: a blob is cut in these, dealt to the rails in turn, */
    uint32_t depth;       /* at most so many under way on each; 0: as the rail engine has it */

    struct client_cache_verbs *verbs; /* NULL: over TCP, or not known yet */
};

extern const struct client_tier client_cache_tier;

/* world NULL: libibverbs. */
PENSTOCK_CHECKED int client_cache_start(struct verbs_world *world, const char *peer, const struct penstock_cache *cache,
                                        const struct penstock_options *options, struct penstock_session **session,
                                        penstock_op *op, struct penstock_error *error);
/* Over a stream: the session owns it from then on, whatever happens. */
PENSTOCK_CHECKED int client_cache_on_stream(struct net_stream *stream, const struct penstock_cache *cache,
                                            const struct penstock_options *options, struct penstock_session **session,
                                            penstock_op *op, struct penstock_error *error);

/* penstock_submit_blobs and _raw, with what is to follow; then is the operation's from success on. NULL: nothing. */
PENSTOCK_CHECKED int client_submit_blobs(struct penstock_session *s, const struct penstock_blobs *blobs,
                                         struct client_then *then, penstock_op *op, struct penstock_error *error);
PENSTOCK_CHECKED int client_submit_raw(struct penstock_session *s, const struct penstock_raw *raw,
                                       struct client_then *then, penstock_op *op, struct penstock_error *error);

/* ---- hello.c: hooks ---- */

int client_cache_greet(struct penstock_session *s, struct penstock_error *error);
int client_cache_to_tcp(struct penstock_session *s, struct penstock_error *error);
int client_cache_rails_up(struct penstock_session *s, struct penstock_error *error);
size_t client_cache_answer_bytes(const struct penstock_session *s);
const char *client_cache_awaits(const struct penstock_session *s);
int client_cache_take(struct penstock_session *s, struct penstock_error *error);
int client_cache_failed(struct penstock_session *s, struct penstock_error *error);

/* ---- flight.c ---- */

/* One blob's answer, other than ST_OK, counted for what the operation comes to. */
void client_cache_count(struct client_op *op, size_t blob, bool miss);

/* Hooks. */
size_t client_cache_push(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                         struct iovec *body);
int client_cache_refused(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                         struct penstock_error *error);
bool client_cache_asks_again(struct penstock_session *s);
int client_cache_landed(struct penstock_session *s, struct client_op *op, struct penstock_error *error);
void client_cache_ended(struct penstock_session *s, struct client_op *op);

#endif
