#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "bench_experts.h"
#include "cmd.h"
#include "reach.h"
#include "text.h"

#define COUNT_MAX 10000000
#define SECONDS_MAX 3600.0
#define DEPTH_MAX 4096

static const char help[] =
    "usage: penstock bench experts PEER [OPTIONS]\n"
    "       penstock bench cache PEER [OPTIONS]  (which has a --help of its own)\n"
    "\n"
    "Measures how an expert peer answers: how long one fetch takes while nothing else is asked for, and how many "
    "records\n"
    "come in a second when many are; with every expert as likely, and by Zipf's law, some much likelier. Layers take\n"
    "turns, and the choice is the same in every run. PEER is as for fetch.\n"
    "\n"
    "      --seconds S      each of the four measurements takes at most so long (default 3)\n"
    "      --count N        and at most so many fetches (default 100000)\n"
    "      --depth N        fetches under way where there are many: over TCP in all, over RDMA on each rail (default "
    "16)\n"
    "      --zipf E         the exponent of Zipf's law (default 1)\n"
    "      --timeout SECONDS, --transport T, --rail RAIL  as for fetch\n"
    "      --json           print the figures as JSON\n"
    "  -v, --verbose        say more\n"
    "\n"
    "Environment: PENSTOCK_TRANSPORT, PENSTOCK_RAILS and PENSTOCK_CONGESTION, as for `penstock pull`.\n";

enum { OPT_SECONDS = 256, OPT_COUNT, OPT_DEPTH, OPT_ZIPF, OPT_JSON };

static const struct option long_options[] = {
    { "seconds", required_argument, NULL, OPT_SECONDS },
    { "count", required_argument, NULL, OPT_COUNT },
    { "depth", required_argument, NULL, OPT_DEPTH },
    { "zipf", required_argument, NULL, OPT_ZIPF },
    REACH_LONG_OPTIONS,
    { "json", no_argument, NULL, OPT_JSON },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct command {
    struct bench_options options;
    struct reach reach;
    bool json, verbose, help_asked;
};

static int wrong(const char *words, const char *what)
{
    return cli_wrong("bench", words, what);
}

static int parse_one(struct command *c, int option)
{
    uint64_t number;
    switch (option) {
    case OPT_SECONDS:
        return cli_real(optarg, 0.001, SECONDS_MAX, &c->options.seconds)
                   ? CLI_OK
                   : wrong("--seconds takes 0.001 to 3600, not ", optarg);
    case OPT_COUNT:
        return cli_number(optarg, 1, COUNT_MAX, &c->options.count)
                   ? CLI_OK
                   : wrong("--count takes a number from 1 to 10000000, not ", optarg);
    case OPT_DEPTH:
        if (!cli_number(optarg, 1, DEPTH_MAX, &number))
            return wrong("--depth takes a number from 1 to 4096, not ", optarg);
        c->options.depth = (unsigned)number;
        return CLI_OK;
    case OPT_ZIPF:
        return cli_real(optarg, 0, 10, &c->options.exponent) ? CLI_OK : wrong("--zipf takes 0 to 10, not ", optarg);
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
        return reach_take(&c->reach, "bench", option, optarg);
    }
}

static int parse(int argc, char **argv, struct command *c)
{
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "vh", long_options, NULL)) != -1;) {
        int status = parse_one(c, option);
        if (status != CLI_OK || c->help_asked)
            return status;
    }
    if (argc - optind != 2 || strcmp(argv[optind], "experts") != 0)
        return wrong("", "what to measure and a PEER are needed: experts PEER, or cache PEER");
    c->options.peer = argv[optind + 1];
    return reach_settle(&c->reach, "bench");
}

/* ---- what came of it ---- */

static const char *const experts_names[BENCH_EXPERTS] = { "uniform", "zipf" };

static double each_second(const struct bench_figures *f, double what)
{
    return f->seconds > 0 ? (double)f->records * what / f->seconds : 0;
}

static void print_json(const struct bench_result *r)
{
    const double bytes = (double)r->geometry.record_stride;
    printf("{\"record_bytes\":%.0f,\"layers\":%" PRIu32 ",\"experts\":%" PRIu32 ",\"measurements\":[", bytes,
           r->geometry.layers, r->geometry.experts);
    for (int i = 0; i < BENCH_EXPERTS * BENCH_DEPTHS; i++) {
        const struct bench_figures *f = &r->figures[i / BENCH_DEPTHS][i % BENCH_DEPTHS];
        printf("%s{\"experts\":\"%s\",\"depth\":%u,\"records\":%" PRIu64
               ",\"seconds\":%.6f,\"records_per_second\":%.1f,\"bytes_per_second\":%.0f,",
               i ? "," : "", experts_names[i / BENCH_DEPTHS], f->depth, f->records, f->seconds, each_second(f, 1),
               each_second(f, bytes));
        bench_print_json_percentiles(f->latency_us);
        putchar('}');
    }
    fputs("],", stdout);
    pull_rails_print_json(&r->rails, stdout);
    puts("}");
}

static void print_table(const struct bench_result *r)
{
    char size[CLI_SIZE_MAX], over[PULL_OVER_MAX];
    printf("records of %s, %" PRIu32 " layers of %" PRIu32 " experts, %s\n", cli_size(r->geometry.record_stride, size),
           r->geometry.layers, r->geometry.experts, pull_rails_over(&r->rails, over));
    puts("EXPERTS  DEPTH   RECORDS  RECORDS/S      GB/S " BENCH_PERCENTILE_TITLES);
    for (int i = 0; i < BENCH_EXPERTS * BENCH_DEPTHS; i++) {
        const struct bench_figures *f = &r->figures[i / BENCH_DEPTHS][i % BENCH_DEPTHS];
        printf("%-8s %5u %9" PRIu64 " %10.0f %9.3f", experts_names[i / BENCH_DEPTHS], f->depth, f->records,
               each_second(f, 1), each_second(f, (double)r->geometry.record_stride / 1e9));
        bench_print_percentiles(f->latency_us);
        putchar('\n');
    }
}

static int run(const struct command *c)
{
    struct bench_result result;
    struct penstock_error error = { 0 };
    if (bench_experts(&c->options, &result, &error) != 0)
        return cli_failed(&error);
    if (c->json) {
        print_json(&result);
        return CLI_OK;
    }
    print_table(&result);
    if (c->verbose) {
        struct progress progress;
        progress_init(&progress, false);
        pull_rails_say(&result.rails, &progress);
    }
    return CLI_OK;
}

int cmd_bench(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "cache") == 0)
        return cmd_bench_cache(argc - 1, argv + 1);
    struct command c = { .options = { .count = 100000, .seconds = 3, .depth = 16, .exponent = 1 } };
    reach_init(&c.reach);
    c.options.how = &c.reach.options;
    int status = parse(argc, argv, &c);
    if (c.help_asked)
        fputs(help, stdout);
    else if (status == CLI_OK)
        status = run(&c);
    reach_fini(&c.reach);
    return status;
}
