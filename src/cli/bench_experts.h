/* `penstock bench experts`: how long a router waits for an expert, and how many come in a second. */
#ifndef PENSTOCK_CLI_BENCH_EXPERTS_H
#define PENSTOCK_CLI_BENCH_EXPERTS_H

#include <stdbool.h>

#include <penstock/experts.h>

#include "bench.h"
#include "pull_rails.h"

struct bench_options {
    const char *peer;
    const struct penstock_options *how;
    uint64_t count;  /* fetches of one measurement, at most */
    double seconds;  /* that it takes, at most */
    unsigned depth;  /* fetches under way: over TCP in all, over RDMA on each rail */
    double exponent; /* of Zipf's law */
};

enum { BENCH_UNIFORM, BENCH_ZIPF, BENCH_EXPERTS }; /* which experts */
enum { BENCH_ONE, BENCH_DEEP, BENCH_DEPTHS };      /* how many at once */

struct bench_figures {
    unsigned depth; /* in all */
    uint64_t records;
    double seconds;
    double latency_us[BENCH_PERCENTILES];
};

struct bench_result {
    struct penstock_expert_geometry geometry; /* pointers are gone */
    struct bench_figures figures[BENCH_EXPERTS][BENCH_DEPTHS];
    struct pull_rails rails;
};

PENSTOCK_CHECKED int bench_experts(const struct bench_options *options, struct bench_result *result,
                                   struct penstock_error *error);

#endif
