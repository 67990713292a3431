/* `penstock bench cache`: how many blobs come and go in a second, and how long each takes. */
#ifndef PENSTOCK_CLI_BENCH_CACHE_H
#define PENSTOCK_CLI_BENCH_CACHE_H

#include <stdbool.h>

#include <penstock/cache.h>

#include "bench.h"
#include "pull_rails.h"

enum { BENCH_CACHE_ACTIONS = PENSTOCK_BLOB_REMOVE + 1 };

struct bench_cache_options {
    const char *peer;
    const struct penstock_options *how;
    struct penstock_cache arena; /* blob_bytes and arena_bytes are set */
    uint64_t keys;
    uint32_t mix[BENCH_CACHE_ACTIONS]; /* shares of the actions; not all 0 */
    unsigned depth;                    /* blobs under way */
    uint64_t ops;                      /* of the mix, at most */
    double seconds;                    /* that it takes, at most */
    bool zipf;                         /* by Zipf's law, of this exponent; else every key is as likely */
    double exponent;
    bool verify; /* what is got is compared with what was put */
};

struct bench_cache_figures {
    uint64_t ops, missed, refused;
    uint64_t bytes; /* that were moved */
    double latency_us[BENCH_PERCENTILES];
};

struct bench_cache_result {
    double fill_seconds, seconds;
    struct bench_cache_figures fill; /* every key put once, before the mix */
    struct bench_cache_figures actions[BENCH_CACHE_ACTIONS];
    struct pull_rails rails;
};

/* Keys are of this run alone, and their blobs are removed at its end. ECORRUPT: a blob came back as another than any
 * that was put under its key. */
PENSTOCK_CHECKED int bench_cache(const struct bench_cache_options *options, struct bench_cache_result *result,
                                 struct penstock_error *error);

#endif
