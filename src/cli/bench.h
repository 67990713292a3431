/* What `penstock bench` measures with, whatever it measures: choices that are the same in every run, and latencies. */
#ifndef PENSTOCK_CLI_BENCH_H
#define PENSTOCK_CLI_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/penstock.h>

/* splitmix64: state counts on, and what comes is as good as random. */
uint64_t bench_random(uint64_t *state);

/* Zipf's law over n things: the first is the likeliest. There is hardly anything left for those behind BENCH_ZIPF_MAX,
 * which are never picked. */
#define BENCH_ZIPF_MAX (1u << 20)
struct bench_zipf {
    double *cumulative; /* up to each; NULL: every one of n is as likely */
    uint64_t n;
};

void bench_uniform_init(struct bench_zipf *z, uint64_t n);
PENSTOCK_CHECKED int bench_zipf_init(struct bench_zipf *z, uint64_t n, double exponent, struct penstock_error *error);
void bench_zipf_fini(struct bench_zipf *z);
uint64_t bench_zipf_pick(const struct bench_zipf *z, uint64_t random);

enum { BENCH_P50, BENCH_P90, BENCH_P99, BENCH_P999, BENCH_MAX, BENCH_PERCENTILES };

/* Sorts latencies. All 0 where there are none. */
void bench_percentiles(uint64_t *latencies_ns, size_t n, double out_us[BENCH_PERCENTILES]);
/* "latency_us":{"p50":...} */
void bench_print_json_percentiles(const double latency_us[BENCH_PERCENTILES]);
/* The last columns of a table, and their titles. */
#define BENCH_PERCENTILE_TITLES "   P50 us    P90 us    P99 us  P99.9 us    MAX us"
void bench_print_percentiles(const double latency_us[BENCH_PERCENTILES]);

/* Waits until at least one operation has completed, or the session died: then what of. */
PENSTOCK_CHECKED int bench_await(struct penstock_session *s, struct penstock_completion *completions, size_t max,
                                 size_t *done, struct penstock_error *error);
/* The words of a completion that failed; returns its code. */
int bench_failed(const struct penstock_session *s, const struct penstock_completion *c, struct penstock_error *error);

#endif
