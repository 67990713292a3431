#include "bench_experts.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- which experts ---- */

struct picker {
    uint64_t state;
    uint32_t layers;
    uint64_t n; /* picked so far */
    struct bench_zipf experts;
};

/* The number of experts is the peer's word. */
static int picker_init(struct picker *p, const struct penstock_expert_geometry *g, bool zipf, double exponent,
                       struct penstock_error *error)
{
    *p = (struct picker){ .state = 1, .layers = g->layers };
    if (zipf)
        return bench_zipf_init(&p->experts, g->experts, exponent, error);
    bench_uniform_init(&p->experts, g->experts);
    return 0;
}

/* Layer after layer, as a model is run. */
static void pick(struct picker *p, struct penstock_fetch *fetch)
{
    fetch->layer = (uint32_t)(p->n++ % p->layers);
    fetch->expert = (uint32_t)bench_zipf_pick(&p->experts, bench_random(&p->state));
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
    if (c->code)
        return bench_failed(r->session, c, error);
    r->latencies[r->landed++] = (uint64_t)(now_ns - r->begun_ns[slot]);
    return goes_on(r, now_ns) ? submit(r, slot, error) : 0;
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
        code = bench_await(r->session, completions, sizeof completions / sizeof *completions, &done, error);
        for (size_t i = 0; i < done && code == 0; i++)
            code = take(r, &completions[i], error);
    }
    return code;
}

static void summarize(struct run *r, int64_t begun_ns, struct bench_figures *f)
{
    f->records = r->landed;
    f->seconds = (double)(base_now_ns() - begun_ns) / 1e9;
    bench_percentiles(r->latencies, r->landed, f->latency_us);
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
    bench_zipf_fini(&picker.experts);
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
