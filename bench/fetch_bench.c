/* Fetches of experts through penstock.h, for bench/run: the same records in the same order as expert_pair's.
 *
 *     fetch_bench [--depth N] [--count N] HOST:PORT
 *
 * One JSON object on stdout. */
#include "common.h"

#include <getopt.h>
#include <poll.h>
#include <stdlib.h>

#include <penstock/experts.h>

static struct penstock_session *session;

static void check(int code, const struct penstock_error *error)
{
    if (code)
        bench_die("%s", error && error->message[0] ? error->message : penstock_error_name(code));
}

static void one_at_a_time(struct bench_fetches *f)
{
    struct penstock_error error = { 0 };
    for (uint64_t i = 0; i < f->count; i++) {
        struct penstock_fetch fetch = { .size = sizeof fetch };
        bench_fetch_choose(f, i, &fetch.layer, &fetch.expert);
        int64_t begun_ns = bench_now_ns();
        check(penstock_fetch_wait(session, &fetch, &error), &error);
        bench_fetches_took(f, bench_now_ns() - begun_ns);
    }
}

static void submit(const struct bench_fetches *f, uint64_t i, uint64_t slot, int64_t *begun_ns)
{
    struct penstock_error error = { 0 };
    struct penstock_fetch fetch = { .size = sizeof fetch, .slot = slot, .user = (void *)(uintptr_t)slot };
    penstock_op op;
    bench_fetch_choose(f, i, &fetch.layer, &fetch.expert);
    begun_ns[slot] = bench_now_ns();
    check(penstock_submit_fetch(session, &fetch, &op, &error), &error);
}

static void many_at_once(struct bench_fetches *f)
{
    struct penstock_completion completions[64];
    int64_t *begun_ns = calloc(f->depth, sizeof *begun_ns);
    if (!begun_ns)
        bench_die("no memory");
    uint64_t submitted = 0, landed = 0;
    while (submitted < f->depth && submitted < f->count) {
        submit(f, submitted, submitted, begun_ns);
        submitted++;
    }
    while (landed < f->count) {
        size_t done;
        check(penstock_poll(session, completions, 64, &done), penstock_op_error(session, 0));
        for (size_t i = 0; i < done; i++, landed++) {
            uint64_t slot = (uintptr_t)completions[i].user;
            check(completions[i].code, penstock_op_error(session, completions[i].op));
            bench_fetches_took(f, bench_now_ns() - begun_ns[slot]);
            if (submitted < f->count)
                submit(f, submitted++, slot, begun_ns);
        }
        int64_t ns = penstock_timeout_ns(session);
        struct pollfd p = { .fd = penstock_fd(session), .events = POLLIN };
        if (landed < f->count && ns != 0)
            (void)poll(&p, 1, ns < 0 ? -1 : (int)(ns / 1000000) + 1);
    }
    free(begun_ns);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "depth", 1, NULL, 'd' },
                                             { "count", 1, NULL, 'c' },
                                             { NULL, 0, NULL, 0 } };
    struct bench_fetches f = { .depth = 1, .count = 1000 };
    struct penstock_error error = { 0 };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'd')
            f.depth = bench_number(optarg, "--depth");
        else if (o == 'c')
            f.count = bench_number(optarg, "--count");
        else
            return 2;
    if (argc - optind != 1 || f.depth == 0)
        bench_die("usage: fetch_bench [--depth N] [--count N] HOST:PORT");
    struct penstock_expert_geometry g = { .size = sizeof g };
    const struct penstock_options how = { .size = sizeof how, .transport = PENSTOCK_TRANSPORT_TCP };
    check(penstock_experts_open(argv[optind], NULL, &how, &session, &error), &error);
    check(penstock_experts_geometry(session, &g), NULL);
    const struct penstock_memory memory = { .size = sizeof memory,
                                            .address = bench_memory(f.depth * g.record_stride),
                                            .len_bytes = f.depth * g.record_stride };
    const struct penstock_expert_arena arena = { .size = sizeof arena, .memory = &memory, .slots = f.depth };
    check(penstock_experts_arena(session, &arena, &error), &error);
    f.layers = g.layers;
    f.experts = g.experts;
    const struct penstock_fetch first = { .size = sizeof first };
    check(penstock_fetch_wait(session, &first, &error), &error); /* the connection's window opens before the clock */
    bench_fetches_begin(&f);
    if (f.depth == 1)
        one_at_a_time(&f);
    else
        many_at_once(&f);
    bench_fetches_end(&f, g.record_stride);
    penstock_session_free(session);
    return 0;
}
