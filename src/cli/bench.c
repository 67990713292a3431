#include "bench.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- choices ---- */

uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void bench_uniform_init(struct bench_zipf *z, uint64_t n)
{
    *z = (struct bench_zipf){ .n = n };
}

int bench_zipf_init(struct bench_zipf *z, uint64_t n, double exponent, struct penstock_error *error)
{
    bench_uniform_init(z, n < BENCH_ZIPF_MAX ? n : BENCH_ZIPF_MAX);
    z->cumulative = malloc(z->n * sizeof *z->cumulative);
    if (!z->cumulative)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the weights of %llu things",
                              (unsigned long long)z->n);
    double sum = 0;
    for (uint64_t i = 0; i < z->n; i++)
        z->cumulative[i] = sum += pow((double)(i + 1), -exponent);
    return 0;
}

void bench_zipf_fini(struct bench_zipf *z)
{
    free(z->cumulative);
}

uint64_t bench_zipf_pick(const struct bench_zipf *z, uint64_t random)
{
    if (!z->cumulative)
        return random % z->n;
    double at = (double)(random >> 11) * 0x1p-53 * z->cumulative[z->n - 1];
    uint64_t low = 0, high = z->n - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (z->cumulative[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- latencies ---- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void bench_percentiles(uint64_t *latencies_ns, size_t n, double out_us[BENCH_PERCENTILES])
{
    static const double quantiles[BENCH_PERCENTILES] = { 0.5, 0.9, 0.99, 0.999, 1.0 };
    if (n > 0)
        qsort(latencies_ns, n, sizeof *latencies_ns, compare);
    for (int i = 0; i < BENCH_PERCENTILES; i++) {
        size_t at = (size_t)ceil(quantiles[i] * (double)n);
        out_us[i] = n > 0 ? (double)latencies_ns[at > 0 ? at - 1 : 0] / 1e3 : 0;
    }
}

void bench_print_json_percentiles(const double latency_us[BENCH_PERCENTILES])
{
    static const char *const names[BENCH_PERCENTILES] = { "p50", "p90", "p99", "p999", "max" };
    fputs("\"latency_us\":{", stdout);
    for (int i = 0; i < BENCH_PERCENTILES; i++)
        printf("%s\"%s\":%.1f", i ? "," : "", names[i], latency_us[i]);
    putchar('}');
}

void bench_print_percentiles(const double latency_us[BENCH_PERCENTILES])
{
    for (int i = 0; i < BENCH_PERCENTILES; i++)
        printf(" %9.1f", latency_us[i]);
}

/* ---- completions ---- */

static void sleep_until_due(const struct penstock_session *s)
{
    struct pollfd p = { .fd = penstock_fd(s), .events = POLLIN };
    int64_t ns = penstock_timeout_ns(s);
    if (ns != 0)
        (void)poll(&p, 1, ns < 0 ? -1 : base_poll_ms(base_deadline_ns(ns)));
}

int bench_await(struct penstock_session *s, struct penstock_completion *completions, size_t max, size_t *done,
                struct penstock_error *error)
{
    for (;;) {
        int state = penstock_poll(s, completions, max, done);
        if (*done > 0)
            return 0;
        if (state) {
            const struct penstock_error *words = penstock_op_error(s, 0);
            if (words)
                *error = *words;
            else
                base_error_set(error, state, "the session ended");
            return state;
        }
        sleep_until_due(s);
    }
}

int bench_failed(const struct penstock_session *s, const struct penstock_completion *c, struct penstock_error *error)
{
    const struct penstock_error *words = penstock_op_error(s, c->op);
    if (words)
        *error = *words;
    else
        base_error_set(error, c->code, "an operation failed");
    return c->code;
}
