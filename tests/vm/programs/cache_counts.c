/* Puts and gets of blobs over rails, and exactly what was posted for them.
 *
 *     cache_counts [--rails WISHES] [--depth N] [--blob BYTES] [--rounds N] [--get] HOST:PORT
 *
 * Puts the same depth blobs in one operation, as often as there are rounds, then gets them likewise, and compares them;
 * with --get it finds them there. One JSON object. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/cache.h>

#include "base/clock.h"
#include "client/session.h"
#include "client/verbs.h"

static struct penstock_error error;
static struct penstock_session *session;
static struct penstock_blob *blobs;
static uint64_t depth = 16, blob_bytes = 1 << 20, rounds = 1;
static bool putting = true;

static void must(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "cache_counts: %s: %s\n", what, error.message);
    exit(1);
}

static void print_rails(const struct rail_stats *before)
{
    printf("\"rails\":[");
    for (size_t i = 0; i < session->verbs->devices.n; i++) {
        struct rail_stats s;
        rail_engine_stats(session->verbs->engine, i, &s);
        printf("%s{\"work_requests\":%" PRIu64 ",\"completions\":%" PRIu64 ",\"outstanding_max\":%" PRIu32
               ",\"bytes\":%" PRIu64 "}",
               i ? "," : "", s.work_requests - before[i].work_requests, s.completions - before[i].completions,
               s.outstanding_max, s.bytes - before[i].bytes);
    }
    printf("]");
}

static void run(int action, uint32_t region, const char *name)
{
    struct rail_stats before[64];
    for (size_t i = 0; i < session->verbs->devices.n && i < 64; i++)
        rail_engine_stats(session->verbs->engine, i, &before[i]);
    const struct penstock_blobs work = {
        .size = sizeof work, .action = action, .region = region, .blobs = blobs, .count = depth
    };
    const int64_t begun_ns = base_now_ns();
    for (uint64_t i = 0; i < rounds; i++)
        must(penstock_blobs_wait(session, &work, &error), name);
    printf("\"%s\":{\"bytes\":%" PRIu64 ",\"seconds\":%.6f,", name, rounds * depth * blob_bytes,
           (double)(base_now_ns() - begun_ns) / 1e9);
    print_rails(before);
    printf("}");
}

/* No two words of all blobs are the same. */
static void fill(uint64_t *words)
{
    for (uint64_t i = 0; i < depth * blob_bytes / 8; i++)
        words[i] = i * UINT64_C(0x9E3779B97F4A7C15);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "rails", 1, NULL, 'r' }, { "depth", 1, NULL, 'd' },
                                             { "blob", 1, NULL, 'b' },  { "rounds", 1, NULL, 'n' },
                                             { "get", 0, NULL, 'g' },   { NULL, 0, NULL, 0 } };
    struct penstock_options how = { .size = sizeof how, .transport = PENSTOCK_TRANSPORT_RDMA };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'r')
            how.rails = optarg;
        else if (o == 'd')
            depth = strtoull(optarg, NULL, 10);
        else if (o == 'b')
            blob_bytes = strtoull(optarg, NULL, 10);
        else if (o == 'n')
            rounds = strtoull(optarg, NULL, 10);
        else if (o == 'g')
            putting = false;
        else
            return 2;
    if (argc - optind != 1 || depth == 0)
        return 2;
    const struct penstock_cache arena = {
        .size = sizeof arena, .kind = PENSTOCK_CACHE_KV, .blob_bytes = blob_bytes, .arena_bytes = 4 * depth * blob_bytes
    };
    must(penstock_cache_open(argv[optind], &arena, &how, &session, &error), "open");
    const uint64_t len_bytes = depth * blob_bytes;
    uint64_t *put = aligned_alloc(4096, len_bytes), *got = aligned_alloc(4096, len_bytes);
    uint32_t put_region, got_region;
    blobs = calloc(depth, sizeof *blobs);
    must(put && got && blobs ? 0 : PENSTOCK_ENOMEM, "memory");
    fill(put);
    memset(got, 0, len_bytes);
    must(penstock_register(session,
                           &(struct penstock_memory){
                               .size = sizeof(struct penstock_memory), .address = put, .len_bytes = len_bytes },
                           &put_region, &error),
         "register");
    must(penstock_register(session,
                           &(struct penstock_memory){
                               .size = sizeof(struct penstock_memory), .address = got, .len_bytes = len_bytes },
                           &got_region, &error),
         "register");
    for (uint64_t i = 0; i < depth; i++)
        blobs[i] = (struct penstock_blob){ .key = { .low = i }, .at_bytes = i * blob_bytes };
    printf("{");
    if (putting) {
        run(PENSTOCK_BLOB_PUT, put_region, "put");
        printf(",");
    }
    run(PENSTOCK_BLOB_GET, got_region, "get");
    puts("}");
    penstock_session_free(session);
    bool same = memcmp(put, got, len_bytes) == 0;
    if (!same)
        fprintf(stderr, "cache_counts: what was got is not what was put\n");
    free(put);
    free(got);
    free(blobs);
    return !same;
}
