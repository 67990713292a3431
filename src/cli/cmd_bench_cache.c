#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "bench_cache.h"
#include "cache_arena.h"
#include "cmd.h"
#include "reach.h"
#include "text.h"

#define KEYS_MAX 10000000
#define OPS_MAX 100000000
#define DEPTH_MAX 4096
#define SECONDS_MAX 3600.0
#define SHARE_MAX 1000000

static const char help[] =
    "usage: penstock bench cache PEER --blob SIZE [OPTIONS]\n"
    "\n"
    "Measures how a cache peer puts and gets: first every key is put once, then put, get, exists and rm are mixed, all "
    "of\n"
    "them on keys that are this run's alone and are removed at its end. The choice is the same in every run. More "
    "keys\n"
    "than the arena has room for go to the peer's disk. PEER is as for get.\n"
    "\n"
    "      --blob SIZE      of each blob, a multiple of 4096: bytes, or with K, M, G or T\n"
    "      --arena SIZE     of the arena where it is not there yet (default 1G, or 16 blobs)\n"
    "      --kind kv|ssm    of the arena (default kv)\n"
    "      --keys N         how many blobs (default 1000)\n"
    "      --mix A=N,...    shares of put, get, exists and rm (default put=20,get=80)\n"
    "      --depth N        blobs under way at once (default 16)\n"
    "      --seconds S      the mix takes at most so long (default 3)\n"
    "      --ops N          and at most so many operations (default 10000000)\n"
    "      --zipf[=E]       some keys are much likelier, by Zipf's law with exponent E (default 1)\n"
    "      --verify         compare what is got with what was put, which takes time of its own\n"
    "      --timeout SECONDS, --transport T, --rail RAIL  as for get\n"
    "      --json           print the figures as JSON\n"
    "  -v, --verbose        say more\n"
    "\n"
    "Environment: PENSTOCK_TRANSPORT, PENSTOCK_RAILS and PENSTOCK_CONGESTION, as for `penstock pull`.\n";

enum { OPT_KEYS = 256, OPT_MIX, OPT_DEPTH, OPT_SECONDS, OPT_OPS, OPT_ZIPF, OPT_VERIFY, OPT_JSON };

static const struct option long_options[] = {
    CACHE_LONG_OPTIONS,
    REACH_LONG_OPTIONS,
    { "keys", required_argument, NULL, OPT_KEYS },
    { "mix", required_argument, NULL, OPT_MIX },
    { "depth", required_argument, NULL, OPT_DEPTH },
    { "seconds", required_argument, NULL, OPT_SECONDS },
    { "ops", required_argument, NULL, OPT_OPS },
    { "zipf", optional_argument, NULL, OPT_ZIPF },
    { "verify", no_argument, NULL, OPT_VERIFY },
    { "json", no_argument, NULL, OPT_JSON },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static const char *const action_names[BENCH_CACHE_ACTIONS] = { [PENSTOCK_BLOB_PUT] = "put",
                                                               [PENSTOCK_BLOB_GET] = "get",
                                                               [PENSTOCK_BLOB_EXISTS] = "exists",
                                                               [PENSTOCK_BLOB_REMOVE] = "rm" };

struct command {
    struct bench_cache_options options;
    struct reach reach;
    bool json, verbose, help_asked;
};

static int wrong(const char *words, const char *what)
{
    return cli_wrong("bench cache", words, what);
}

/* "put=20,get=80" */
static bool parse_mix(const char *text, uint32_t mix[BENCH_CACHE_ACTIONS])
{
    char copy[128], *rest = NULL;
    uint64_t sum = 0;
    memset(mix, 0, BENCH_CACHE_ACTIONS * sizeof *mix);
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return false;
    for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(part, '=');
        uint64_t share;
        int action = 0;
        if (!equals || !cli_number(equals + 1, 0, SHARE_MAX, &share))
            return false;
        *equals = 0;
        while (action < BENCH_CACHE_ACTIONS && strcmp(part, action_names[action]) != 0)
            action++;
        if (action == BENCH_CACHE_ACTIONS || mix[action] != 0)
            return false;
        mix[action] = (uint32_t)share;
        sum += share;
    }
    return sum > 0;
}

static int take_count(uint64_t most, uint64_t *out, const char *words)
{
    return cli_number(optarg, 1, most, out) ? CLI_OK : wrong(words, optarg);
}

static int parse_one(struct command *c, int option)
{
    struct bench_cache_options *o = &c->options;
    uint64_t number;
    int status;
    switch (option) {
    case OPT_KEYS:
        return take_count(KEYS_MAX, &o->keys, "--keys takes a number from 1 to 10000000, not ");
    case OPT_MIX:
        return parse_mix(optarg, o->mix)
                   ? CLI_OK
                   : wrong("--mix takes shares of put, get, exists and rm, as put=20,get=80, not ", optarg);
    case OPT_DEPTH:
        status = take_count(DEPTH_MAX, &number, "--depth takes a number from 1 to 4096, not ");
        o->depth = (unsigned)number;
        return status;
    case OPT_SECONDS:
        return cli_real(optarg, 0.001, SECONDS_MAX, &o->seconds) ? CLI_OK
                                                                 : wrong("--seconds takes 0.001 to 3600, not ", optarg);
    case OPT_OPS:
        return take_count(OPS_MAX, &o->ops, "--ops takes a number from 1 to 100000000, not ");
    case OPT_ZIPF:
        o->zipf = true;
        return !optarg || cli_real(optarg, 0, 10, &o->exponent) ? CLI_OK : wrong("--zipf takes 0 to 10, not ", optarg);
    case OPT_VERIFY:
        o->verify = true;
        return CLI_OK;
    case OPT_JSON:
        c->json = true;
        return CLI_OK;
    case 'v':
        c->verbose = true;
        return CLI_OK;
    case 'h':
        c->help_asked = true;
        return CLI_OK;
    default:
        return cache_arena_take(&o->arena, "bench cache", option, optarg, &status)
                   ? status
                   : reach_take(&c->reach, "bench cache", option, optarg);
    }
}

static int parse(int argc, char **argv, struct command *c)
{
    struct penstock_cache *arena = &c->options.arena;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "vh", long_options, NULL)) != -1;) {
        int status = parse_one(c, option);
        if (status != CLI_OK || c->help_asked)
            return status;
    }
    if (argc - optind != 1)
        return wrong("", "a PEER is needed, and no more: cache PEER");
    if (arena->blob_bytes == 0)
        return wrong("", "--blob is needed");
    if (arena->arena_bytes % arena->blob_bytes != 0)
        return wrong("", "--arena is no multiple of --blob");
    cache_arena_default(arena);
    c->options.peer = argv[optind];
    return reach_settle(&c->reach, "bench cache");
}

/* ---- what came of it ---- */

static double each_second(double what, double seconds)
{
    return seconds > 0 ? what / seconds : 0;
}

static void print_figures_json(const char *name, const struct bench_cache_figures *f, double seconds)
{
    printf("\"%s\":{\"ops\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"refused\":%" PRIu64
           ",\"seconds\":%.6f,\"ops_per_second\":%.1f,\"bytes_per_second\":%.0f,",
           name, f->ops, f->missed, f->refused, seconds, each_second((double)f->ops, seconds),
           each_second((double)f->bytes, seconds));
    bench_print_json_percentiles(f->latency_us);
    putchar('}');
}

static void print_json(const struct bench_cache_options *o, const struct bench_cache_result *r)
{
    printf("{\"kind\":\"%s\",\"blob_bytes\":%" PRIu64 ",\"keys\":%" PRIu64 ",\"depth\":%u,\"zipf\":",
           cache_arena_kind(o->arena.kind), o->arena.blob_bytes, o->keys, o->depth);
    if (o->zipf)
        printf("%g", o->exponent);
    else
        fputs("null", stdout);
    printf(",\"verified\":%s,", o->verify ? "true" : "false");
    print_figures_json("fill", &r->fill, r->fill_seconds);
    printf(",\"mix\":{");
    const char *comma = "";
    for (int i = 0; i < BENCH_CACHE_ACTIONS; i++)
        if (o->mix[i] > 0) {
            fputs(comma, stdout);
            print_figures_json(action_names[i], &r->actions[i], r->seconds);
            comma = ",";
        }
    fputs("},", stdout);
    pull_rails_print_json(&r->rails, stdout);
    puts("}");
}

static void print_row(const char *name, const struct bench_cache_figures *f, double seconds)
{
    printf("%-6s %9" PRIu64 " %8" PRIu64 " %8" PRIu64 " %9.0f %9.3f", name, f->ops, f->missed, f->refused,
           each_second((double)f->ops, seconds), each_second((double)f->bytes / 1e9, seconds));
    bench_print_percentiles(f->latency_us);
    putchar('\n');
}

static void print_table(const struct bench_cache_options *o, const struct bench_cache_result *r)
{
    char size[CLI_SIZE_MAX], over[PULL_OVER_MAX], keys[CLI_COUNT_MAX], likely[32] = "all keys as likely";
    if (o->zipf)
        snprintf(likely, sizeof likely, "Zipf's law (%g)", o->exponent);
    printf("%s with %s blobs of %s, %s, %u at once, %s%s\n", cli_count(o->keys, "key", keys),
           cache_arena_kind(o->arena.kind), cli_size(o->arena.blob_bytes, size), likely, o->depth,
           pull_rails_over(&r->rails, over), o->verify ? ", verified" : "");
    puts("ACTION       OPS   MISSES  REFUSED     OPS/S      GB/S " BENCH_PERCENTILE_TITLES);
    print_row("fill", &r->fill, r->fill_seconds);
    for (int i = 0; i < BENCH_CACHE_ACTIONS; i++)
        if (o->mix[i] > 0)
            print_row(action_names[i], &r->actions[i], r->seconds);
}

static int run(const struct command *c)
{
    struct bench_cache_result result;
    struct penstock_error error = { 0 };
    if (bench_cache(&c->options, &result, &error) != 0)
        return cli_failed(&error);
    (c->json ? print_json : print_table)(&c->options, &result);
    if (c->verbose && !c->json) {
        struct progress progress;
        progress_init(&progress, false);
        pull_rails_say(&result.rails, &progress);
    }
    return CLI_OK;
}

int cmd_bench_cache(int argc, char **argv)
{
    struct command c = { .options = { .keys = 1000,
                                      .mix = { [PENSTOCK_BLOB_PUT] = 20, [PENSTOCK_BLOB_GET] = 80 },
                                      .depth = 16,
                                      .ops = 10000000,
                                      .seconds = 3,
                                      .exponent = 1 } };
    reach_init(&c.reach);
    cache_arena_init(&c.options.arena);
    c.options.how = &c.reach.options;
    int status = parse(argc, argv, &c);
    if (c.help_asked)
        fputs(help, stdout);
    else if (status == CLI_OK)
        status = run(&c);
    reach_fini(&c.reach);
    return status;
}
