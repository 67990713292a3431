/* Blobs put and fetched through cache.h, for bench/run: what blob_pair does to the rivals.
 *
 *     cache_bench put|get [--blob BYTES] [--keys N] [--slots N] [--depth N] [--count N] [--check] \
 *         [--filled] HOST:PORT
 *
 * All keys are put before the clock starts, but for those that an earlier run has --filled; more of them than slots,
 * and they come from the peer's disk: keys are taken in an order that is far from the one they were put in, and comes
 * to each of them before it comes to one again, so that what is resident is never what is wanted. One JSON object on
 * stdout. */
#include "common.h"

#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/cache.h>

static struct penstock_session *session;
static uint64_t blob_bytes = 1 << 20, n_keys = 64, n_slots;
static uint32_t region;
static char *memory;

static void check(int code, const struct penstock_error *error)
{
    if (code)
        bench_die("%s", error && error->message[0] ? error->message : penstock_error_name(code));
}

/* The i-th key to be taken: every one once in n_keys of them. */
static uint64_t choose(uint64_t i)
{
    static const uint64_t strides[] = { 37, 41, 43 };
    size_t s = 0;
    while (n_keys % strides[s] == 0 && s < 2)
        s++;
    return i * strides[s] % n_keys;
}

struct asked {
    struct penstock_blob blob;
    int64_t begun_ns;
};

static void submit(int action, uint64_t key, uint64_t slot, struct asked *asked)
{
    struct penstock_error error = { 0 };
    penstock_op op;
    asked->blob = (struct penstock_blob){ .key.low = key, .at_bytes = slot * blob_bytes };
    const struct penstock_blobs blobs = {
        .size = sizeof blobs, .action = action, .region = region, .blobs = &asked->blob, .count = 1, .user = asked
    };
    asked->begun_ns = bench_now_ns();
    check(penstock_submit_blobs(session, &blobs, &op, &error), &error);
}

static void take_turns(int action, struct bench_fetches *f)
{
    struct penstock_completion completions[64];
    struct asked *asked = calloc(f->depth, sizeof *asked);
    uint64_t submitted = 0, landed = 0;
    if (!asked)
        bench_die("no memory");
    for (; submitted < f->depth && submitted < f->count; submitted++)
        submit(action, choose(submitted), submitted, &asked[submitted]);
    while (landed < f->count) {
        size_t done;
        check(penstock_poll(session, completions, 64, &done), penstock_op_error(session, 0));
        for (size_t i = 0; i < done; i++, landed++) {
            struct asked *a = completions[i].user;
            check(completions[i].code, penstock_op_error(session, completions[i].op));
            bench_fetches_took(f, bench_now_ns() - a->begun_ns);
            if (submitted < f->count)
                submit(action, choose(submitted++), (uint64_t)(a - asked), a);
        }
        int64_t ns = penstock_timeout_ns(session);
        struct pollfd p = { .fd = penstock_fd(session), .events = POLLIN };
        if (landed < f->count && ns != 0)
            (void)poll(&p, 1, ns < 0 ? -1 : (int)(ns / 1000000) + 1);
    }
    free(asked);
}

static void one(int action, uint64_t key)
{
    struct penstock_error error = { 0 };
    struct penstock_blob blob = { .key.low = key };
    const struct penstock_blobs blobs = {
        .size = sizeof blobs, .action = action, .region = region, .blobs = &blob, .count = 1
    };
    check(penstock_blobs_wait(session, &blobs, &error), &error);
}

static void fill(uint64_t key)
{
    uint64_t *words = (uint64_t *)(void *)memory;
    for (uint64_t i = 0; i < blob_bytes / 8; i++)
        words[i] = bench_word(key * blob_bytes / 8 + i);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "blob", 1, NULL, 'b' },   { "keys", 1, NULL, 'k' },
                                             { "slots", 1, NULL, 's' },  { "depth", 1, NULL, 'd' },
                                             { "count", 1, NULL, 'c' },  { "check", 0, NULL, 'v' },
                                             { "filled", 0, NULL, 'f' }, { NULL, 0, NULL, 0 } };
    struct bench_fetches f = { .depth = 1, .count = 1000 };
    struct penstock_error error = { 0 };
    bool checking = false, filled = false;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (o == 'v')
            checking = true;
        else if (o == 'f')
            filled = true;
        else if (o == '?')
            return 2;
        else
            *(o == 'b'   ? &blob_bytes
              : o == 'k' ? &n_keys
              : o == 's' ? &n_slots
              : o == 'd' ? &f.depth
                         : &f.count) = bench_number(optarg, "an option");
    if (argc - optind != 2 || blob_bytes == 0 || n_keys == 0 || f.depth == 0)
        bench_die("usage: cache_bench put|get OPTIONS HOST:PORT");
    int action = strcmp(argv[optind], "put") == 0 ? PENSTOCK_BLOB_PUT : PENSTOCK_BLOB_GET;

    const struct penstock_options how = { .size = sizeof how, .transport = PENSTOCK_TRANSPORT_TCP };
    const struct penstock_cache cache = { .size = sizeof cache,
                                          .kind = PENSTOCK_CACHE_KV,
                                          .blob_bytes = blob_bytes,
                                          .arena_bytes = (n_slots ? n_slots : 2 * n_keys) * blob_bytes };
    check(penstock_cache_open(argv[optind + 1], &cache, &how, &session, &error), &error);
    memory = bench_memory(f.depth * blob_bytes);
    const struct penstock_memory mine = { .size = sizeof mine, .address = memory, .len_bytes = f.depth * blob_bytes };
    check(penstock_register(session, &mine, &region, &error), &error);
    for (uint64_t key = 0; !filled && key < n_keys; key++) {
        fill(key);
        one(PENSTOCK_BLOB_PUT, key);
    }
    for (uint64_t key = 0; checking && key < n_keys; key++) {
        memset(memory, 0, blob_bytes);
        one(PENSTOCK_BLOB_GET, key);
        bench_check(memory, key * blob_bytes, blob_bytes, "a blob");
    }
    bench_fetches_begin(&f);
    take_turns(action, &f);
    bench_fetches_end(&f, blob_bytes);
    penstock_session_free(session);
    return 0;
}
