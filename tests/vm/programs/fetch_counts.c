/* Fetches of experts over rails, and exactly what was posted for them.
 *
 *     fetch_counts [--rails WISHES] [--depth N] [--batches N] HOST:PORT
 *
 * Fetches experts 0, 1, 2 and so on, layer after layer, depth of them a rail at once, each batch waited for, and
 * compares each record's header. One JSON object. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/experts/experts.h"
#include "client/verbs.h"

static struct penstock_error error;
static struct penstock_session *session;

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "fetch_counts: %s: %s\n", what, error.message);
    exit(1);
}

/* Fetches number first to first + n - 1. */
static void fetch_batch(const struct penstock_expert_geometry *g, uint64_t first, uint64_t n)
{
    penstock_op *ops = calloc(n, sizeof *ops);
    must(ops ? 0 : PENSTOCK_ENOMEM, "operations");
    for (uint64_t i = 0; i < n; i++) {
        const struct penstock_fetch fetch = { .size = sizeof fetch,
                                              .slot = i,
                                              .layer = (uint32_t)((first + i) / g->experts % g->layers),
                                              .expert = (uint32_t)((first + i) % g->experts) };
        must(penstock_submit_fetch(session, &fetch, &ops[i], &error), "fetch");
    }
    for (uint64_t i = 0; i < n; i++)
        must(penstock_wait(session, ops[i], NULL, &error), "fetch");
    free(ops);
}

static void print(uint64_t records, uint64_t bytes, double seconds)
{
    printf("{\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seconds\":%.6f,\"rails\":[", records, bytes, seconds);
    for (size_t i = 0; i < session->verbs->devices.n; i++) {
        struct rail_stats s;
        rail_engine_stats(session->verbs->engine, i, &s);
        printf("%s{\"work_requests\":%" PRIu64 ",\"doorbells\":%" PRIu64 ",\"completions\":%" PRIu64
               ",\"outstanding_max\":%" PRIu32 ",\"bytes\":%" PRIu64 "}",
               i ? "," : "", s.work_requests, s.doorbells, s.completions, s.outstanding_max, s.bytes);
    }
    puts("]}");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "rails", 1, NULL, 'r' }, { "depth", 1, NULL, 'd' }, { "batches", 1, NULL, 'b' }, { NULL, 0, NULL, 0 }
    };
    struct penstock_options how = { .size = sizeof how, .transport = PENSTOCK_TRANSPORT_RDMA };
    uint64_t depth = 16, batches = 1;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'r')
            how.rails = optarg;
        else if (o == 'd')
            depth = strtoull(optarg, NULL, 10);
        else if (o == 'b')
            batches = strtoull(optarg, NULL, 10);
        else
            return 2;
    if (argc - optind != 1 || depth == 0)
        return 2;
    struct penstock_expert_geometry g = { .size = sizeof g };
    must(penstock_experts_open(argv[optind], NULL, &how, &session, &error), "open");
    must(penstock_experts_geometry(session, &g), "geometry");
    const uint64_t n = depth * penstock_session_rails(session);
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = n };
    must(penstock_experts_arena(session, &arena, &error), "arena");
    const int64_t begun_ns = base_now_ns();
    for (uint64_t i = 0; i < batches; i++)
        fetch_batch(&g, i * n, n);
    print(batches * n, batches * n * g.record_stride, (double)(base_now_ns() - begun_ns) / 1e9);
    penstock_session_free(session);
    return 0;
}
