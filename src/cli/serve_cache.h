/* serve's options of the cache tier. */
#ifndef PENSTOCK_CLI_SERVE_CACHE_H
#define PENSTOCK_CLI_SERVE_CACHE_H

#include <getopt.h>
#include <stdbool.h>

#include "peer/peer.h"

enum serve_cache_option {
    SERVE_CACHE = 512,
    SERVE_LISTEN_CACHE,
    SERVE_SWAP_DIR,
    SERVE_NO_SWAP,
    SERVE_SWAP_KEEP,
    SERVE_SWAP_CAP,
    SERVE_SWAP_CAP_KV,
    SERVE_SWAP_CAP_SSM,
    SERVE_TTL_KV,
    SERVE_TTL_SSM,
    SERVE_ARENA_IDLE,
    SERVE_NUMA_NODE,
};

/* For getopt_long's table. */
#define SERVE_CACHE_OPTIONS                                                                                            \
    { "cache", no_argument, NULL, SERVE_CACHE }, { "listen-cache", required_argument, NULL, SERVE_LISTEN_CACHE },      \
        { "swap-dir", required_argument, NULL, SERVE_SWAP_DIR }, { "no-swap", no_argument, NULL, SERVE_NO_SWAP },      \
        { "swap-keep", no_argument, NULL, SERVE_SWAP_KEEP }, { "swap-cap", required_argument, NULL, SERVE_SWAP_CAP },  \
        { "swap-cap-kv", required_argument, NULL, SERVE_SWAP_CAP_KV },                                                 \
        { "swap-cap-ssm", required_argument, NULL, SERVE_SWAP_CAP_SSM },                                               \
        { "ttl-kv", required_argument, NULL, SERVE_TTL_KV }, { "ttl-ssm", required_argument, NULL, SERVE_TTL_SSM },    \
        { "arena-idle", required_argument, NULL, SERVE_ARENA_IDLE },                                                   \
    {                                                                                                                  \
        "numa-node", required_argument, NULL, SERVE_NUMA_NODE                                                          \
    }

extern const char serve_cache_usage[];

/* What was said, for what can only be judged at the end. */
struct serve_cache_said {
    const char *option;     /* the first one that is of no use without --cache; NULL: none */
    const char *about_swap; /* the first one that is of no use without --swap-dir */
};

/* Both say what is wrong, and return false. */
bool serve_cache_parse(struct peer_options *options, struct serve_cache_said *said, int option, const char *value);
bool serve_cache_check(const struct peer_options *options, const struct serve_cache_said *said);

#endif
