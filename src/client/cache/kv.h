/* KV caches from inside: kv.c has layout, names and sessions, kv_move.c what moves. */
#ifndef PENSTOCK_CLIENT_CACHE_KV_H
#define PENSTOCK_CLIENT_CACHE_KV_H

#include <penstock/kv.h>

#include "cache.h"
#include "model/kv/layout.h"

/* world NULL: libibverbs. */
PENSTOCK_CHECKED int client_kv_start(struct verbs_world *world, const char *peer, const struct penstock_kv *kv,
                                     const struct penstock_options *options, struct penstock_session **session,
                                     penstock_op *op, struct penstock_error *error);
/* Over a stream: the session owns it from then on, whatever happens. */
PENSTOCK_CHECKED int client_kv_on_stream(struct net_stream *stream, const struct penstock_kv *kv,
                                         const struct penstock_options *options, struct penstock_session **session,
                                         penstock_op *op, struct penstock_error *error);

/* EINVAL, in words: the layout has no such stripe. */
PENSTOCK_CHECKED int client_kv_stripe_check(const struct model_kv_layout *layout, const struct model_kv_stripe *stripe,
                                            struct penstock_error *error);

#endif
