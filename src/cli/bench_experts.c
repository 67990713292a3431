#include "bench_experts.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- which experts ---- */

/* The same in every run, so that runs can be compared: splitmix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Zipf's law has hardly anything left for those behind them, and the number is the peer's word. */
#define ZIPF_EXPERTS_MAX (1u << 20)

struct picker {
    uint64_t state;
    uint32_t layers, experts;
    uint64_t n;         /* picked so far */
    double *cumulative; /* Zipf: up to each expert; NULL: uniform */
};

static int picker_init(struct picker *p, const struct penstock_expert_geometry *g, bool zipf, double exponent,
                       struct penstock_error *error)
{
    *p = (struct picker){ .state = 1, .layers = g->layers, .experts = g->experts };
    if (!zipf)
        return 0;
    if (p->experts > ZIPF_EXPERTS_MAX)
        p->experts = ZIPF_EXPERTS_MAX;
    p->cumulative = malloc(p->experts * sizeof *p->cumulative);
    if (!p->cumulative)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the weights of %u experts", p->experts);
    double sum = 0;
    for (uint32_t i = 0; i < p->experts; i++)
        p->cumulative[i] = sum += pow(i + 1, -exponent);
    return 0;
}

/* Layer after layer, as a model is run. */
static void pick(struct picker *p, struct penstock_fetch *fetch)
{
    fetch->layer = (uint32_t)(p->n++ % p->layers);
    uint64_t random = next_random(&p->state);
    if (!p->cumulative) {
        fetch->expert = (uint32_t)(random % p->experts);
        return;
    }
    double at = (double)(random >> 11) * 0x1p-53 * p->cumulative[p->experts - 1];
    uint32_t low = 0, high = p->experts - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->cumulative[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    fetch->expert = low;
}

/* ---- one measurement ---- */

struct run {
    struct penstock_session *session;
    const struct bench_options *options;
    struct picker *picker;
    int64_t *begun_ns;   /* by slot */
    uint64_t *latencies; /* ns, of those that came */
    uint64_t submitted, landed;
    int64_t stop_ns;
};

static int submit(struct run *r, uint64_t slot, struct penstock_error *error)
{
    struct penstock_fetch fetch = { .size = sizeof fetch, .slot = slot, .user = (void *)(uintptr_t)slot };
    penstock_op op;
    pick(r->picker, &fetch);
    r->begun_ns[slot] = base_now_ns();
    r->submitted++;
    return penstock_submit_fetch(r->session, &fetch, &op, error);
}

static bool goes_on(const struct run *r, int64_t now_ns)
{
    return r->submitted < r->options->count && now_ns < r->stop_ns;
}

static int take(struct run *r, const struct penstock_completion *c, struct penstock_error *error)
{
    int64_t now_ns = base_now_ns();
    uint64_t slot = (uintptr_t)c->user;
    if (c->code) {
        const struct penstock_error *words = penstock_op_error(r->session, c->op);
        if (words)
            *error = *words;
        else
            base_error_set(error, c->code, "a fetch failed");
        return c->code;
    }
    r->latencies[r->landed++] = (uint64_t)(now_ns - r->begun_ns[slot]);
    return goes_on(r, now_ns) ? submit(r, slot, error) : 0;
}

static void sleep_until_due(const struct penstock_session *s)
{
    struct pollfd p = { .fd = penstock_fd(s), .events = POLLIN };
    int64_t ns = penstock_timeout_ns(s);
    if (ns != 0)
        (void)poll(&p, 1, ns < 0 ? -1 : base_poll_ms(base_deadline_ns(ns)));
}

/* One at a time, each waited for, as a router does that has nothing else to do. */
static int run_one(struct run *r, struct penstock_error *error)
{
    int code = 0;
    while (code == 0 && goes_on(r, base_now_ns())) {
        struct penstock_fetch fetch = { .size = sizeof fetch };
        pick(r->picker, &fetch);
        int64_t begun_ns = base_now_ns();
        r->submitted++;
        code = penstock_fetch_wait(r->session, &fetch, error);
        if (code == 0)
            r->latencies[r->landed++] = (uint64_t)(base_now_ns() - begun_ns);
    }
    return code;
}

static int run_deep(struct run *r, unsigned depth, struct penstock_error *error)
{
    struct penstock_completion completions[64];
    int code = 0;
    for (unsigned slot = 0; code == 0 && slot < depth && goes_on(r, base_now_ns()); slot++)
        code = submit(r, slot, error);
    while (code == 0 && r->landed < r->submitted) {
        size_t done = 0;
        int state = penstock_poll(r->session, completions, sizeof completions / sizeof *completions, &done);
        for (size_t i = 0; i < done && code == 0; i++)
            code = take(r, &completions[i], error);
        if (code == 0 && done == 0 && state) {
            const struct penstock_error *words = penstock_op_error(r->session, 0);
            if (words)
                *error = *words;
            return state;
        }
        if (code == 0 && done == 0)
            sleep_until_due(r->session);
    }
    return code;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void summarize(struct run *r, int64_t begun_ns, struct bench_figures *f)
{
    static const double quantiles[BENCH_PERCENTILES] = { 0.5, 0.9, 0.99, 0.999, 1.0 };
    f->records = r->landed;
    f->seconds = (double)(base_now_ns() - begun_ns) / 1e9;
    qsort(r->latencies, r->landed, sizeof *r->latencies, compare);
    for (int i = 0; i < BENCH_PERCENTILES && r->landed > 0; i++) {
        uint64_t at = (uint64_t)ceil(quantiles[i] * (double)r->landed);
        f->latency_us[i] = (double)r->latencies[at > 0 ? at - 1 : 0] / 1e3;
    }
}

static int measure(struct penstock_session *s, const struct bench_options *options, const struct bench_result *result,
                   bool zipf, unsigned depth, struct bench_figures *f, struct penstock_error *error)
{
    struct picker picker;
    int code = picker_init(&picker, &result->geometry, zipf, options->exponent, error);
    if (code)
        return code;
    struct run r = { .session = s,
                     .options = options,
                     .picker = &picker,
                     .begun_ns = calloc(depth, sizeof *r.begun_ns),
                     .latencies = calloc(options->count, sizeof *r.latencies) };
    f->depth = depth;
    if (r.begun_ns && r.latencies) {
        int64_t begun_ns = base_now_ns();
        r.stop_ns = begun_ns + (int64_t)(options->seconds * 1e9);
        code = depth == 1 ? run_one(&r, error) : run_deep(&r, depth, error);
        summarize(&r, begun_ns, f);
    } else {
        code =
            base_error_set(error, PENSTOCK_ENOMEM, "no memory for %llu latencies", (unsigned long long)options->count);
    }
    free(picker.cumulative);
    free(r.begun_ns);
    free(r.latencies);
    return code;
}

/* ---- all of them ---- */

/* The first fetches into a slot touch its pages, and at the peer those of the store. */
static int warm_up(struct penstock_session *s, unsigned slots, struct penstock_error *error)
{
    int code = 0;
    for (unsigned i = 0; i < slots && code == 0; i++) {
        const struct penstock_fetch fetch = { .size = sizeof fetch, .slot = i };
        code = penstock_fetch_wait(s, &fetch, error);
    }
    return code;
}

int bench_experts(const struct bench_options *options, struct bench_result *result, struct penstock_error *error)
{
    struct penstock_session *s;
    *result = (struct bench_result){ .geometry = { .size = sizeof result->geometry } };
    int code = penstock_experts_open(options->peer, NULL, options->how, &s, error);
    if (code)
        return code;
    size_t rails = penstock_session_rails(s);
    unsigned deep = options->depth * (unsigned)(rails > 0 ? rails : 1);
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = deep };
    code = penstock_experts_geometry(s, &result->geometry);
    code = code ? code : penstock_experts_arena(s, &arena, error);
    code = code ? code : warm_up(s, deep, error);
    for (int experts = 0; experts < BENCH_EXPERTS && code == 0; experts++)
        for (int depth = 0; depth < BENCH_DEPTHS && code == 0; depth++)
            code = measure(s, options, result, experts == BENCH_ZIPF, depth == BENCH_ONE ? 1 : deep,
                           &result->figures[experts][depth], error);
    pull_rails_add(&result->rails, s, true);
    penstock_session_free(s);
    return code;
}
