/* What a cache peer says of itself (protocol 2.6). */
#ifndef PENSTOCK_CLIENT_CACHE_STATS_H
#define PENSTOCK_CLIENT_CACHE_STATS_H

#include <penstock/cache.h>

#include "rail/listing.h"

struct net_stream;

/* EPROTO: no such reply. */
PENSTOCK_CHECKED int client_cache_stats_read(const char *json, size_t len, struct penstock_cache_stats **stats,
                                             struct penstock_error *error);

/* The peer's rails; n 0: it lists none. */
PENSTOCK_CHECKED int client_cache_stats_rails(const struct penstock_cache_stats *stats, struct rail_listing *out,
                                              struct penstock_error *error);

extern const struct client_tier client_cache_stats_tier;

/* The same as a hook, of a session of that tier. */
PENSTOCK_CHECKED int client_cache_listed(const struct penstock_session *asked, struct rail_listing *out,
                                         struct penstock_error *error);

/* penstock_cache_stats_get over a stream, which is closed by the end. */
PENSTOCK_CHECKED int client_cache_stats_on_stream(struct net_stream *stream, const struct penstock_options *options,
                                                  struct penstock_cache_stats **stats, struct penstock_error *error);

#endif
