#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd.h"
#include "pull.h"
#include "text.h"

#define CONNECTIONS_MAX 64
#define TIMEOUT_MAX 86400

static const char help[] =
    "usage: penstock pull PEER MODEL [OPTIONS]\n"
    "\n"
    "Fetches a model from a peer: shards and other files under their own names, byte for byte. PEER is HOST,\n"
    "HOST:PORT or [IPV6]:PORT (9910 where no port is given); `penstock ls PEER` lists models. A pull that was\n"
    "interrupted goes on when the same command is run again.\n"
    "\n"
    "  -o, --output DIR       write there; default: the last component of the model's name\n"
    "      --tensors GLOB     only tensors of such names, into one file MODEL.safetensors (in -o DIR, or\n"
    "                         -o FILE.safetensors); can be given several times. Not verified: digests are of files\n"
    "  -j, --connections N    fetch through N connections at once (1 to 64)\n"
    "      --timeout SECONDS  give up on a connection that brings no byte for so long; default: 30, and 300 for\n"
    "                         the manifest, since the peer may have to stage the model first\n"
    "      --no-verify        do not compare digests with the peer's\n"
    "      --json             print a summary as JSON on standard output\n"
    "  -v, --verbose          say more\n"
    "  -q, --quiet            say nothing but errors\n";

enum { OPT_TENSORS = 256, OPT_NO_VERIFY, OPT_JSON, OPT_TIMEOUT, OPT_HELP };

static const struct option long_options[] = {
    { "output", required_argument, NULL, 'o' },
    { "tensors", required_argument, NULL, OPT_TENSORS },
    { "connections", required_argument, NULL, 'j' },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "no-verify", no_argument, NULL, OPT_NO_VERIFY },
    { "json", no_argument, NULL, OPT_JSON },
    { "verbose", no_argument, NULL, 'v' },
    { "quiet", no_argument, NULL, 'q' },
    { "help", no_argument, NULL, OPT_HELP },
    { 0 },
};

/* Two connections keep a second core busy where there is one; more mostly share what the network gives. */
static unsigned default_connections(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
}

static int wrong(const char *words, const char *what)
{
    fprintf(stderr, "penstock pull: %s%s\n`penstock pull --help` says how it is used\n", words, what);
    return CLI_USAGE;
}

/* CLI_OK with *help_asked, or a filled options, or CLI_USAGE. */
static int parse(int argc, char **argv, struct pull_options *options, bool *help_asked)
{
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "o:j:vqh", long_options, NULL)) != -1;) {
        char *end;
        unsigned long number;
        switch (c) {
        case 'o':
            options->output = optarg;
            break;
        case OPT_TENSORS:
            options->globs[options->n_globs++] = optarg;
            break;
        case 'j':
            number = strtoul(optarg, &end, 10);
            if (*end || end == optarg || number < 1 || number > CONNECTIONS_MAX)
                return wrong("-j takes a number from 1 to 64, not ", optarg);
            options->connections = (unsigned)number;
            break;
        case OPT_TIMEOUT:
            number = strtoul(optarg, &end, 10);
            if (*end || end == optarg || number < 1 || number > TIMEOUT_MAX)
                return wrong("--timeout takes seconds, 1 to 86400, not ", optarg);
            options->timeout_ns = (int64_t)number * BASE_SECOND_NS;
            break;
        case OPT_NO_VERIFY:
            options->verify = false;
            break;
        case OPT_JSON:
            options->json = true;
            break;
        case 'v':
            options->verbose = true;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'h':
        case OPT_HELP:
            *help_asked = true;
            return CLI_OK;
        default:
            return wrong("", "that option is not understood");
        }
    }
    if (argc - optind != 2)
        return wrong("", "a PEER and a MODEL are needed");
    options->peer = argv[optind];
    options->model = argv[optind + 1];
    if (options->output && !*options->output)
        return wrong("", "-o is empty");
    return CLI_OK;
}

static const char *verdict(const struct pull_options *options, const struct pull_result *result)
{
    if (result->verified)
        return "verified";
    if (options->n_globs > 0)
        return "not verified (digests are of whole files)";
    return result->no_digests ? "not verified (the peer keeps no digests)" : "not verified (--no-verify)";
}

static void print_json(const struct pull_options *options, const struct pull_result *result)
{
    double rate = result->seconds > 0 ? (double)result->fetched_bytes / result->seconds : 0;
    printf("{\"model\":");
    cli_print_json(stdout, result->model);
    printf(",\"model_version\":");
    if (strcmp(result->version, "-") == 0)
        fputs("null", stdout);
    else
        cli_print_json(stdout, result->version);
    printf(",\"output\":");
    cli_print_json(stdout, result->where);
    printf(",\"files\":%llu,\"bytes\":%llu,\"fetched\":%llu,\"resumed\":%llu,\"damaged_chunks\":%llu,"
           "\"seconds\":%.6f,\"bytes_per_second\":%.0f,\"verified\":%s,\"connections\":%u,\"transport\":\"tcp\"}\n",
           (unsigned long long)result->files, (unsigned long long)result->bytes,
           (unsigned long long)result->fetched_bytes, (unsigned long long)result->resumed_bytes,
           (unsigned long long)result->damaged, result->seconds, rate,
           result->verified     ? "true"
           : result->no_digests ? "\"no digests\""
                                : "false",
           result->connections);
    (void)options;
}

static void print_summary(const struct pull_options *options, const struct pull_result *result)
{
    char size[CLI_SIZE_MAX], rate[CLI_SIZE_MAX], count[CLI_COUNT_MAX];
    double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
    cli_print_escaped(stdout, result->where);
    printf(": %s, %s; fetched %llu bytes in %.2f s (%s/s), %s\n", cli_count(result->files, "file", count),
           cli_size(result->bytes, size), (unsigned long long)result->fetched_bytes, result->seconds,
           cli_size((uint64_t)((double)result->fetched_bytes / seconds), rate), verdict(options, result));
    if (result->damaged > 0)
        printf("%s that came damaged: fetched again\n", cli_count(result->damaged, "chunk", count));
    if (options->verbose)
        printf("%s over TCP\n", cli_count(result->connections, "connection", count));
}

static int finish(const struct pull_options *options, int rc, const struct pull_result *result,
                  const struct penstock_error *error)
{
    if (rc == PENSTOCK_ECANCELED) {
        fprintf(stderr, "penstock: interrupted%s\n", result->resumable ? "; run the same command again to resume" : "");
        return CLI_INTERRUPTED;
    }
    if (rc < 0) {
        fputs("penstock: ", stderr);
        cli_print_escaped(stderr, error->message);
        fputc('\n', stderr);
        if (result->resumable)
            fputs("penstock: run the same command again to resume\n", stderr);
        return CLI_FAILED;
    }
    if (options->json)
        print_json(options, result);
    else if (!options->quiet)
        print_summary(options, result);
    return CLI_OK;
}

int cmd_pull(int argc, char **argv)
{
    struct pull_options options = { .verify = true, .connections = default_connections() };
    bool help_asked = false;
    options.globs = calloc((size_t)argc + 1, sizeof *options.globs);
    if (!options.globs)
        return CLI_FAILED;
    int status = parse(argc, argv, &options, &help_asked);
    if (help_asked) {
        fputs(help, stdout);
    } else if (status == CLI_OK) {
        struct pull_result result;
        struct penstock_error error = { 0 };
        int rc = pull_run(&options, &result, &error);
        status = finish(&options, rc, &result, &error);
    }
    free(options.globs);
    return status;
}
