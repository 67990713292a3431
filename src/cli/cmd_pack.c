#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "pack.h"
#include "text.h"

/* Records that are compared where nothing is said: each a check that the disk gives back what it took. */
#define VERIFY_DEFAULT 16

static const char help[] =
    "usage: penstock pack CHECKPOINT -o STORE [OPTIONS]\n"
    "\n"
    "Packs the experts of a checkpoint (safetensors, compressed-tensors NVFP4) into a store that `penstock serve\n"
    "--experts` serves. Interrupted, the same command goes on where it was.\n"
    "\n"
    "  -o, --output STORE    the store's directory, made where there is none\n"
    "      --layers N        the first N MoE layers alone\n"
    "      --verify all|N    read all records back, or N spread over the store, and compare them with the checkpoint;\n"
    "                        default: 16\n"
    "  -j, --jobs N          threads, 1 to 64; default: one a processor\n"
    "      --follow-links    follow links that lead outside CHECKPOINT\n"
    "  -q, --quiet           no progress\n";

enum { OPT_LAYERS = 256, OPT_VERIFY, OPT_FOLLOW_LINKS };

static const struct option long_options[] = {
    { "output", required_argument, NULL, 'o' },
    { "layers", required_argument, NULL, OPT_LAYERS },
    { "verify", required_argument, NULL, OPT_VERIFY },
    { "jobs", required_argument, NULL, 'j' },
    { "follow-links", no_argument, NULL, OPT_FOLLOW_LINKS },
    { "quiet", no_argument, NULL, 'q' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static int wrong(const char *words, const char *what)
{
    fprintf(stderr, "penstock pack: %s%s\n`penstock pack --help` says how it is used\n", words, what);
    return CLI_USAGE;
}

static bool number_of(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && *out >= least && *out <= most;
}

/* CLI_OK with *help_asked, or filled options, or CLI_USAGE. */
static int parse(int argc, char **argv, struct pack_options *options, bool *help_asked)
{
    uint64_t number;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "o:j:qh", long_options, NULL)) != -1;) {
        switch (c) {
        case 'o':
            options->store = optarg;
            break;
        case OPT_LAYERS:
            if (!number_of(optarg, 1, 4096, &number))
                return wrong("--layers takes a number from 1 to 4096, not ", optarg);
            options->layers = (uint32_t)number;
            break;
        case OPT_VERIFY:
            if (strcmp(optarg, "all") == 0)
                options->verify = UINT64_MAX;
            else if (!number_of(optarg, 0, UINT32_MAX, &options->verify))
                return wrong("--verify takes all or a number, not ", optarg);
            break;
        case 'j':
            if (!number_of(optarg, 1, 64, &number))
                return wrong("--jobs takes a number from 1 to 64, not ", optarg);
            options->threads = (unsigned)number;
            break;
        case OPT_FOLLOW_LINKS:
            options->follow_all_links = true;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'h':
            *help_asked = true;
            return CLI_OK;
        default:
            return wrong("", "that option is not understood");
        }
    }
    if (argc - optind != 1)
        return wrong("", "one CHECKPOINT is needed");
    if (!options->store || !*options->store)
        return wrong("", "-o STORE is needed");
    options->checkpoint = argv[optind];
    return CLI_OK;
}

static void say_result(const struct pack_options *options, const struct pack_result *result)
{
    char size[CLI_SIZE_MAX], time[CLI_SIZE_MAX], layers[CLI_COUNT_MAX], experts[CLI_COUNT_MAX];
    cli_print_escaped(stdout, options->store);
    printf(": %s of %s, %s, in %s", cli_count(result->layers, "layer", layers),
           cli_count(result->experts, "expert", experts), cli_size(result->bytes, size),
           cli_duration(result->seconds, time));
    if (result->kept_layers > 0)
        printf("; %s there before", cli_count(result->kept_layers, "layer", layers));
    if (result->verified > 0)
        printf("; %s verified", cli_count(result->verified, "record", experts));
    putchar('\n');
}

int cmd_pack(int argc, char **argv)
{
    struct pack_options options = { .verify = VERIFY_DEFAULT };
    bool help_asked = false;
    int status = parse(argc, argv, &options, &help_asked);
    if (help_asked)
        fputs(help, stdout);
    if (help_asked || status != CLI_OK)
        return status;
    struct pack_result result;
    struct penstock_error error = { 0 };
    status = pack_run(&options, &result, &error);
    if (status == 0) {
        say_result(&options, &result);
        return CLI_OK;
    }
    char words[2048];
    cli_escape(words, sizeof words, error.message);
    fprintf(stderr, "penstock pack: %s\n", words);
    return status == PENSTOCK_ECANCELED ? CLI_INTERRUPTED : CLI_FAILED;
}
