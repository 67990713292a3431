#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/experts.h>

#include "arguments.h"
#include "base/error.h"
#include "cmd.h"
#include "patience.h"
#include "pull_rails.h"
#include "reach.h"
#include "save.h"
#include "text.h"

static const char help[] =
    "usage: penstock fetch PEER LAYER EXPERT [OPTIONS]\n"
    "\n"
    "Fetches one expert's record from a peer and says what it is. PEER is HOST, HOST:PORT or [IPV6]:PORT (9900 where\n"
    "no port is given). LAYER counts the store's MoE layers, from 0.\n"
    "\n"
    "  -o, --output FILE      write the record there, header and padding included, as it lies in the store\n"
    "      --model-version V  refuse another store than that of an earlier fetch (--json and -v show it)\n"
    "      --timeout SECONDS  give up on a connection that brings no byte for so long; default: 30, 300 for the\n"
    "                         manifest and 1800 for rails\n"
    "      --transport T      rdma, tcp, or auto: RDMA where both ends have it, else TCP (the default)\n"
    "      --rail RAIL        a port for RDMA: DEVICE[:GID][@PEER_RAIL], can be given several times; auto[:N]; none\n"
    "      --json             print it as JSON on standard output\n"
    "  -v, --verbose          say more\n"
    "\n"
    "Environment: PENSTOCK_TRANSPORT, PENSTOCK_RAILS and PENSTOCK_CONGESTION, as for `penstock pull`.\n";

enum { OPT_VERSION = 256, OPT_JSON };

static const struct option long_options[] = {
    { "output", required_argument, NULL, 'o' },
    { "model-version", required_argument, NULL, OPT_VERSION },
    REACH_LONG_OPTIONS,
    { "json", no_argument, NULL, OPT_JSON },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct command {
    struct reach reach;
    const char *peer, *version, *output;
    uint32_t layer, expert;
    bool json, verbose, help_asked;
};

static int wrong(const char *words, const char *what)
{
    return cli_wrong("fetch", words, what);
}

static bool parse_index(const char *text, uint32_t *out)
{
    uint64_t number;
    bool good = cli_number(text, 0, UINT32_MAX - 1, &number);
    *out = (uint32_t)number;
    return good;
}

static int parse(int argc, char **argv, struct command *c)
{
    int status = CLI_OK;
    optind = 1;
    for (int option; status == CLI_OK && (option = getopt_long(argc, argv, "o:vh", long_options, NULL)) != -1;)
        switch (option) {
        case 'o':
            c->output = optarg;
            break;
        case OPT_VERSION:
            c->version = optarg;
            break;
        case OPT_JSON:
            c->json = true;
            break;
        case 'v':
            c->verbose = true;
            break;
        case 'h':
            c->help_asked = true;
            return CLI_OK;
        default:
            status = reach_take(&c->reach, "fetch", option, optarg);
        }
    if (status != CLI_OK)
        return status;
    if (argc - optind != 3)
        return wrong("", "a PEER, a LAYER and an EXPERT are needed");
    c->peer = argv[optind];
    if (!parse_index(argv[optind + 1], &c->layer))
        return wrong("LAYER is a number, not ", argv[optind + 1]);
    if (!parse_index(argv[optind + 2], &c->expert))
        return wrong("EXPERT is a number, not ", argv[optind + 2]);
    if (c->output && !*c->output)
        return wrong("", "-o is empty");
    return reach_settle(&c->reach, "fetch");
}

/* ---- what came ---- */

static const char *const projections[] = { "gate", "up", "down" };
static const char *const kinds[] = { "packed", "scale" };

/* null: there is none, or one that JSON has no number for. flags: bit i, there is scales[i]. */
static void print_scales(const char *name, const float scales[3], uint32_t flags)
{
    printf("\"%s\":[", name);
    for (int i = 0; i < 3; i++)
        if ((flags >> i & 1) && isfinite(scales[i]))
            printf("%s%.9g", i ? "," : "", (double)scales[i]);
        else
            fputs(i ? ",null" : "null", stdout);
    fputs("],", stdout);
}

static void print_json(const struct penstock_expert_geometry *g, const struct penstock_expert *x,
                       const struct pull_rails *over)
{
    fputs("{\"model_version\":", stdout);
    if (g->model_version)
        cli_print_json(stdout, g->model_version);
    else
        fputs("null", stdout);
    printf(",\"layer\":%" PRIu32 ",\"model_layer\":%" PRIu32 ",\"expert\":%" PRIu32 ",\"inter\":%" PRIu32
           ",\"hidden\":%" PRIu32 ",\"group_size\":%" PRIu32 ",\"bytes\":%" PRIu64 ",",
           x->layer, g->model_layers[x->layer], x->expert, g->inter, g->hidden, g->group_size, g->record_stride);
    print_scales("scale2", x->scale2, 7);
    print_scales("input_scale", x->input_scale, x->input_scale_flags);
    fputs("\"parts\":[", stdout);
    for (int i = 0; i < PENSTOCK_EXPERT_PARTS; i++)
        printf("%s{\"name\":\"%s.%s\",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", i ? "," : "", projections[i / 2],
               kinds[i % 2], g->part_offset[i], g->part_bytes[i]);
    fputs("],", stdout);
    pull_rails_print_json(over, stdout);
    puts("}");
}

static void print_text(const struct command *c, const struct penstock_expert_geometry *g,
                       const struct penstock_expert *x, const struct pull_rails *rails)
{
    char size[CLI_SIZE_MAX], over[PULL_OVER_MAX];
    printf("layer %" PRIu32 " (the model's %" PRIu32 "), expert %" PRIu32 ": inter %" PRIu32 ", hidden %" PRIu32
           ", groups of %" PRIu32 "; %s %s\n",
           x->layer, g->model_layers[x->layer], x->expert, g->inter, g->hidden, g->group_size,
           cli_size(g->record_stride, size), pull_rails_over(rails, over));
    for (int i = 0; i < 3; i++) {
        printf("%-5s scale2 %-12.9g", projections[i], (double)x->scale2[i]);
        if (x->input_scale_flags >> i & 1)
            printf(" input_scale %.9g", (double)x->input_scale[i]);
        putchar('\n');
    }
    for (int i = 0; i < PENSTOCK_EXPERT_PARTS; i++)
        printf("%s.%-6s %12" PRIu64 " bytes at %" PRIu64 "\n", projections[i / 2], kinds[i % 2], g->part_bytes[i],
               g->part_offset[i]);
    if (!c->verbose)
        return;
    struct progress progress;
    progress_init(&progress, false);
    progress_say(&progress, "model_version %s", g->model_version ? g->model_version : "(the peer gives none)");
    pull_rails_say(rails, &progress);
}

static int write_out(const char *path, const void *record, uint64_t bytes)
{
    struct penstock_error error;
    return cli_save(path, record, bytes, &error) == 0 ? CLI_OK : cli_failed(&error);
}

static int show(const struct command *c, const struct penstock_session *s)
{
    struct penstock_expert_geometry g = { .size = sizeof g };
    struct penstock_expert x = { .size = sizeof x };
    struct pull_rails rails = { 0 };
    if (penstock_experts_geometry(s, &g) != 0 || penstock_expert_at(s, 0, &x) != 0)
        return CLI_FAILED;
    pull_rails_add(&rails, s, true);
    int status = c->output ? write_out(c->output, (uint8_t *)x.parts[0] - g.part_offset[0], g.record_stride) : CLI_OK;
    if (status != CLI_OK)
        return status;
    if (c->json)
        print_json(&g, &x, &rails);
    else
        print_text(c, &g, &x, &rails);
    return CLI_OK;
}

static int run(const struct command *c)
{
    const struct penstock_fetch one = { .size = sizeof one, .layer = c->layer, .expert = c->expert };
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = 1 };
    struct penstock_session *s = NULL;
    struct penstock_error error = { 0 };
    patience_begin("waiting for %s...", c->peer);
    int code = penstock_experts_open(c->peer, c->version, &c->reach.options, &s, &error);
    code = code ? code : penstock_experts_arena(s, &arena, &error);
    code = code ? code : penstock_fetch_wait(s, &one, &error);
    patience_end();
    int status = code == 0 ? show(c, s) : cli_failed(&error);
    penstock_session_free(s);
    return status;
}

int cmd_fetch(int argc, char **argv)
{
    struct command c = { 0 };
    reach_init(&c.reach);
    int status = parse(argc, argv, &c);
    if (c.help_asked)
        fputs(help, stdout);
    else if (status == CLI_OK)
        status = run(&c);
    reach_fini(&c.reach);
    return status;
}
