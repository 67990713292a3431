/* The weight tier (weights.c), and its hello (hello.c). */
#ifndef PENSTOCK_CLIENT_WEIGHTS_WEIGHTS_H
#define PENSTOCK_CLIENT_WEIGHTS_WEIGHTS_H

#include "client/session.h"

PENSTOCK_CHECKED int client_session_new(const char *peer, const struct penstock_options *options,
                                        enum client_purpose purpose, const char *model,
                                        struct penstock_catalogue *catalogue, struct penstock_session **session,
                                        penstock_op *op, struct penstock_error *error);
/* The same over a stream that is connected, and which the session owns from then on, whatever happens. */
PENSTOCK_CHECKED int client_session_on_stream(struct net_stream *stream, const struct penstock_options *options,
                                              enum client_purpose purpose, const char *model,
                                              struct penstock_catalogue *catalogue, struct penstock_session **session,
                                              penstock_op *op, struct penstock_error *error);
/* In a world of its own, where RDMA is simulated. */
PENSTOCK_CHECKED int client_session_in_world(struct verbs_world *world, const char *peer,
                                             const struct penstock_options *options, enum client_purpose purpose,
                                             const char *model, struct penstock_catalogue *catalogue,
                                             struct penstock_session **session, penstock_op *op,
                                             struct penstock_error *error);

/* ---- hello.c: hooks of the tier ---- */

PENSTOCK_CHECKED int client_weights_greet(struct penstock_session *s, struct penstock_error *error);
enum penstock_text client_weights_text(const struct penstock_session *s);
const char *client_weights_awaits(const struct penstock_session *s);
PENSTOCK_CHECKED int client_weights_take(struct penstock_session *s, struct penstock_error *error);
PENSTOCK_CHECKED int client_weights_failed(struct penstock_session *s, struct penstock_error *error);

#endif
