#include "serve_cache.h"

#include <stdio.h>

#include "serve_values.h"

const char serve_cache_usage[] =
    "\n"
    "The cache (KV blocks and SSM snapshots):\n"
    "  --cache                      serve a cache of blobs that clients put into this machine's memory\n"
    "  --listen-cache ADDR:PORT     where to listen for its clients; repeatable (127.0.0.1:9916)\n"
    "  --swap-dir DIR               page to files in this directory, which is there and this peer's alone\n"
    "  --no-swap                    in memory alone: what finds no room is dropped\n"
    "  --swap-keep                  find what is on disk again after a restart; SIGTERM puts the rest there\n"
    "  --swap-cap SIZE              of disk, for all (50G); 0: none; what is coldest is dropped\n"
    "  --swap-cap-kv SIZE           of disk, for KV (none)\n"
    "  --swap-cap-ssm SIZE          of disk, for SSM (none)\n"
    "  --ttl-kv DURATION            drop KV blobs that nobody touched for so long: 90s, 15m, 12h, 7d (never)\n"
    "  --ttl-ssm DURATION           the same for SSM (never)\n"
    "  --arena-idle DURATION        give an arena's memory back when it had no client for so long (never)\n"
    "  --numa-node N                put arenas on that node's memory\n";

static const char *const names[] = {
    [0] = "--cache",
    [SERVE_LISTEN_CACHE - SERVE_CACHE] = "--listen-cache",
    [SERVE_SWAP_DIR - SERVE_CACHE] = "--swap-dir",
    [SERVE_NO_SWAP - SERVE_CACHE] = "--no-swap",
    [SERVE_SWAP_KEEP - SERVE_CACHE] = "--swap-keep",
    [SERVE_SWAP_CAP - SERVE_CACHE] = "--swap-cap",
    [SERVE_SWAP_CAP_KV - SERVE_CACHE] = "--swap-cap-kv",
    [SERVE_SWAP_CAP_SSM - SERVE_CACHE] = "--swap-cap-ssm",
    [SERVE_TTL_KV - SERVE_CACHE] = "--ttl-kv",
    [SERVE_TTL_SSM - SERVE_CACHE] = "--ttl-ssm",
    [SERVE_ARENA_IDLE - SERVE_CACHE] = "--arena-idle",
    [SERVE_NUMA_NODE - SERVE_CACHE] = "--numa-node",
};

static bool parse_swap_dir(struct peer_cache_options *cache, const char *option, const char *value)
{
    if (!*value)
        return serve_bad_value(option, value, "a directory is wanted");
    if (cache->swap_dir)
        return serve_bad_value(option, value, "one swap directory a peer");
    cache->swap_dir = value;
    return true;
}

bool serve_cache_parse(struct peer_options *options, struct serve_cache_said *said, int option, const char *value)
{
    struct peer_cache_options *cache = &options->cache;
    if (option < SERVE_CACHE || option > SERVE_NUMA_NODE) /* getopt_long has said what it does not know */
        return false;
    const char *name = names[option - SERVE_CACHE];
    double number;
    if (option != SERVE_CACHE && !said->option)
        said->option = name;
    if (option >= SERVE_SWAP_KEEP && option <= SERVE_SWAP_CAP_SSM && !said->about_swap)
        said->about_swap = name;
    switch (option) {
    case SERVE_CACHE:
        return cache->on = true;
    case SERVE_LISTEN_CACHE:
        return base_vec_push(&options->listen[PEER_TIER_CACHE], value) || serve_bad_value(name, value, "no memory");
    case SERVE_SWAP_DIR:
        return parse_swap_dir(cache, name, value);
    case SERVE_NO_SWAP:
        return cache->no_swap = true;
    case SERVE_SWAP_KEEP:
        return cache->swap_keep = true;
    case SERVE_SWAP_CAP:
        return serve_size(name, value, true, &cache->swap_cap_bytes);
    case SERVE_SWAP_CAP_KV:
        return serve_size(name, value, true, &cache->swap_cap_kind_bytes[RESIDENCY_KV]);
    case SERVE_SWAP_CAP_SSM:
        return serve_size(name, value, true, &cache->swap_cap_kind_bytes[RESIDENCY_SSM]);
    case SERVE_TTL_KV:
        return serve_duration(name, value, &cache->ttl_s[RESIDENCY_KV]);
    case SERVE_TTL_SSM:
        return serve_duration(name, value, &cache->ttl_s[RESIDENCY_SSM]);
    case SERVE_ARENA_IDLE:
        return serve_duration(name, value, &cache->arena_idle_s);
    case SERVE_NUMA_NODE:
    default:
        if (!serve_number(name, value, 0, 1023, &number))
            return false;
        cache->numa_node = (int)number;
        return cache->numa_node == number || serve_bad_value(name, value, "a node's number is wanted");
    }
}

static bool complain(const char *option, const char *words)
{
    fprintf(stderr, "penstock serve: %s: %s\n", option, words);
    return false;
}

bool serve_cache_check(const struct peer_options *options, const struct serve_cache_said *said)
{
    const struct peer_cache_options *cache = &options->cache;
    if (said->option && !cache->on)
        return complain(said->option, "there is no cache to serve: give --cache");
    if (cache->no_swap && cache->swap_dir)
        return complain("--no-swap", "contradicts --swap-dir: give one of the two");
    if (cache->no_swap && said->about_swap)
        return complain(said->about_swap, "with --no-swap there is no disk: give --swap-dir instead");
    if (said->about_swap && !cache->swap_dir)
        return complain(said->about_swap, "there is no swap: give its directory with --swap-dir");
    return true;
}
