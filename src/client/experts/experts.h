/* The expert tier: experts.c has the public calls, hello.c what comes before, fetch.c the fetches. */
#ifndef PENSTOCK_CLIENT_EXPERTS_EXPERTS_H
#define PENSTOCK_CLIENT_EXPERTS_EXPERTS_H

#include <penstock/experts.h>

#include "client/session.h"
#include "model/experts/manifest.h"

/* Urgencies of the session. */
enum { CLIENT_NOW = PENSTOCK_FETCH_NOW, CLIENT_GUESS = PENSTOCK_FETCH_GUESS };

struct client_expert_slot {
    bool taken; /* a fetch that is not done lands here */
    bool whole; /* it holds this record: */
    uint32_t layer, expert;
};

/* What a session on experts has beside the rest. */
struct client_experts {
    char *version_wanted; /* NULL: any */
    bool known;           /* the manifest is there: */
    struct model_expert_manifest manifest;

    struct client_region arena; /* known: it is there */
    void *mapped;               /* the library's own; NULL: the caller's */
    uint64_t stride_bytes, n_slots;
    struct client_expert_slot *slots;

    /* Over rails: fetches that the engine has not got yet, for each of rail_devices, by urgency. */
    struct base_list lanes[CLIENT_URGENCIES][PENSTOCK_RAILS_MAX];
    uint32_t flying[PENSTOCK_RAILS_MAX]; /* those that it has */
};

extern const struct client_tier client_experts_tier;

/* world NULL: libibverbs. */
PENSTOCK_CHECKED int client_experts_start(struct verbs_world *world, const char *peer, const char *model_version,
                                          const struct penstock_options *options, struct penstock_session **session,
                                          penstock_op *op, struct penstock_error *error);
/* Over a stream that is connected, and which the session owns from then on, whatever happens. */
PENSTOCK_CHECKED int client_experts_on_stream(struct net_stream *stream, const char *model_version,
                                              const struct penstock_options *options, struct penstock_session **session,
                                              penstock_op *op, struct penstock_error *error);

/* ---- hello.c: hooks ---- */

int client_experts_greet(struct penstock_session *s, struct penstock_error *error);
enum penstock_text client_experts_text(const struct penstock_session *s);
const char *client_experts_awaits(const struct penstock_session *s);
int client_experts_take(struct penstock_session *s, struct penstock_error *error);
int client_experts_failed(struct penstock_session *s, struct penstock_error *error);

/* ---- fetch.c ---- */

/* Into a lane, or to the requests that are to be sent. Its slot is taken. */
void client_fetch_queue(struct penstock_session *s, struct client_op *op);
/* Ahead of all guesses, where it is queued. */
void client_fetch_promote(struct penstock_session *s, struct client_op *op);

/* Hooks. */
size_t client_fetch_push(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                         struct iovec *body);
uint32_t client_fetch_guesses_max(const struct penstock_session *s);
int client_fetch_refused(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                         struct penstock_error *error);
int client_fetch_landed(struct penstock_session *s, struct client_op *op, struct penstock_error *error);
void client_fetch_ended(struct penstock_session *s, struct client_op *op);
void client_fetch_pump(struct penstock_session *s);
bool client_fetch_carries(const struct penstock_session *s);

#endif
