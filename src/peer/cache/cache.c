#include "cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "peer/server.h"
#include "peer/thread.h"
#include "rails.h"

#define SWEEP_EVERY_NS BASE_SECOND_NS

/* ---- the log ---- */

static const char *cap_words(uint64_t bytes, char words[static 32])
{
    if (bytes == 0)
        return "no cap";
    snprintf(words, 32, "%.4g GiB", (double)bytes / (double)(1u << 30));
    return words;
}

static void log_limits(const struct peer_cache_options *options)
{
    char all[32], kv[32], ssm[32];
    if (options->swap_dir)
        base_log_info("cache: swap directory %s, caps: %s in all, KV %s, SSM %s; %s", options->swap_dir,
                      cap_words(options->swap_cap_bytes, all),
                      cap_words(options->swap_cap_kind_bytes[RESIDENCY_KV], kv),
                      cap_words(options->swap_cap_kind_bytes[RESIDENCY_SSM], ssm),
                      options->swap_keep ? "blobs are kept over a restart" : "blobs do not outlive this process");
    else if (options->no_swap)
        base_log_info("cache: no swap, by --no-swap: in memory alone, and what finds no room there is dropped");
    else
        base_log_info("cache: no swap directory: raw arenas only; for paging give --swap-dir, or --no-swap for a "
                      "cache in memory alone");
}

/* ---- the sweeper ---- */

static void *sweep(void *argument)
{
    struct peer_cache *cache = argument;
    pthread_mutex_lock(&cache->lock);
    while (!cache->stop) {
        int64_t at_ns = base_deadline_ns(SWEEP_EVERY_NS);
        struct timespec until = { .tv_sec = at_ns / BASE_SECOND_NS, .tv_nsec = at_ns % BASE_SECOND_NS };
        if (pthread_cond_timedwait(&cache->wake, &cache->lock, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&cache->lock);
        residency_sweep(cache->residency);
        pthread_mutex_lock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->lock);
    return NULL;
}

static int start_sweeping(struct peer_cache *cache, struct penstock_error *error)
{
    pthread_mutex_init(&cache->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cache->wake, &attr);
    pthread_condattr_destroy(&attr);
    int failed = peer_thread_start(&cache->sweeper, PEER_STACK_LARGE, sweep, cache);
    cache->sweeping = !failed;
    if (!failed)
        return 0;
    pthread_cond_destroy(&cache->wake);
    pthread_mutex_destroy(&cache->lock);
    return base_error_sys(error, failed, "start a thread to sweep the cache");
}

static void stop_sweeping(struct peer_cache *cache)
{
    if (!cache->sweeping)
        return;
    pthread_mutex_lock(&cache->lock);
    cache->stop = true;
    pthread_cond_signal(&cache->wake);
    pthread_mutex_unlock(&cache->lock);
    pthread_join(cache->sweeper, NULL);
    pthread_cond_destroy(&cache->wake);
    pthread_mutex_destroy(&cache->lock);
}

/* ---- start and end ---- */

static int open_swap(struct peer_cache *cache, const struct peer_cache_options *options, struct penstock_error *error)
{
    if (!options->swap_dir)
        return 0;
    const struct residency_swap_options swap = {
        .cap_bytes = options->swap_cap_bytes,
        .cap_kind_bytes = { options->swap_cap_kind_bytes[0], options->swap_cap_kind_bytes[1] },
        .keep = options->swap_keep,
    };
    return residency_swap_open(options->swap_dir, &swap, &cache->swap, error);
}

/* At the start, and not when the first client comes. */
static int check_node(int node, struct penstock_error *error)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    if (node < 0 || access(path, F_OK) == 0)
        return 0;
    return base_error_set(error, PENSTOCK_EINVAL, "--numa-node %d: there is no such node (/sys/devices/system/node)",
                          node);
}

int peer_cache_open(struct peer_server *server, struct penstock_error *error)
{
    const struct peer_cache_options *options = &server->options->cache;
    struct peer_cache *cache = &server->cache;
    *cache = (struct peer_cache){ .keep = options->swap_keep };
    log_limits(options);
    int code = check_node(options->numa_node, error);
    if (code == 0)
        code = open_swap(cache, options, error);
    if (code)
        return code;
    const struct residency_cache_options residency = {
        .swap = cache->swap,
        .keep = options->swap_keep,
        .ram_only = options->no_swap,
        .ledger = &server->ledger,
        .ttl_s = { options->ttl_s[0], options->ttl_s[1] },
        .arena_idle_s = options->arena_idle_s,
        .numa_node = options->numa_node,
        .unregister = peer_cache_unregister,
    };
    code = residency_cache_new(&residency, &cache->residency, error);
    return code ? code : start_sweeping(cache, error);
}

void peer_cache_spill(struct peer_cache *cache)
{
    if (!cache->residency || !cache->swap || !cache->keep)
        return;
    struct residency_swap_stats stats;
    int64_t began_ns = base_now_ns();
    base_log_info("cache: putting what is in memory on disk (--swap-keep)");
    residency_spill_all(cache->residency);
    residency_swap_stats(cache->swap, &stats);
    base_log_info("cache: %llu bytes on disk, after %.3f s", (unsigned long long)stats.used_bytes,
                  (double)(base_now_ns() - began_ns) / 1e9);
}

void peer_cache_close(struct peer_cache *cache)
{
    stop_sweeping(cache);
    peer_cache_spill(cache);
    if (cache->residency)
        residency_cache_free(cache->residency);
    residency_swap_close(cache->swap);
    *cache = (struct peer_cache){ 0 };
}
