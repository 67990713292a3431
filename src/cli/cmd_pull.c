#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/vec.h"
#include "cmd.h"
#include "pull.h"
#include "rail/wish.h"
#include "reach.h"
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
    "      --timeout SECONDS  give up on a connection that brings no byte for so long; default: 30, 300 for the\n"
    "                         manifest (the peer may have to stage the model first) and 1800 for rails (and\n"
    "                         to register it)\n"
    "      --transport T      rdma, tcp, or auto: RDMA where both ends have it, else TCP (the default)\n"
    "      --rail RAIL        a port for RDMA: DEVICE[:GID][@PEER_RAIL], can be given several times; auto[:N]: every\n"
    "                         active port, or N of them (the default); none. GID is an index or an address\n"
    "      --no-verify        do not compare digests with the peer's\n"
    "      --json             print a summary as JSON on standard output\n"
    "  -v, --verbose          say more\n"
    "  -q, --quiet            say nothing but errors\n"
    "\n"
    "Each connection uses all rails. Environment: PENSTOCK_TRANSPORT and PENSTOCK_RAILS (with commas) stand for\n"
    "--transport and --rail where these are not given; PENSTOCK_CONGESTION names the TCP congestion control (cubic).\n";

enum { OPT_TENSORS = 256, OPT_NO_VERIFY, OPT_JSON, OPT_TIMEOUT, OPT_TRANSPORT, OPT_RAIL, OPT_HELP };

static const struct option long_options[] = {
    { "output", required_argument, NULL, 'o' },
    { "tensors", required_argument, NULL, OPT_TENSORS },
    { "connections", required_argument, NULL, 'j' },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "transport", required_argument, NULL, OPT_TRANSPORT },
    { "rail", required_argument, NULL, OPT_RAIL },
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
    return cli_wrong("pull", words, what);
}

/* CLI_OK with *help_asked, or a filled options, or CLI_USAGE. */
static int parse(int argc, char **argv, struct pull_options *options, struct base_buf *rails, bool *help_asked)
{
    struct rail_wishes wishes = { 0 }; /* what is wrong with them is said before anything is done */
    struct penstock_error error;
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
        case OPT_TRANSPORT:
            if (!reach_transport_of(optarg, &options->transport))
                return wrong("--transport takes auto, rdma or tcp, not ", optarg);
            unsetenv("PENSTOCK_TRANSPORT"); /* which is for who says nothing: auto said here is auto */
            break;
        case OPT_RAIL:
            if (rail_wishes_add(&wishes, optarg, false, &error) != 0)
                return wrong("--rail: ", error.message);
            if (rails->n > 0)
                base_buf_append(rails, ",", 1);
            base_buf_append(rails, optarg, strlen(optarg));
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
    if (rails->n > 0) {
        base_buf_append(rails, "", 1);
        if (rails->failed)
            return wrong("", "no memory for the names of rails");
        options->rails = (const char *)rails->at;
    }
    options->peer = argv[optind];
    options->model = argv[optind + 1];
    if (options->output && !*options->output)
        return wrong("", "-o is empty");
    return reach_environment(options->transport, options->rails, &error) ? CLI_OK : wrong("", error.message);
}

static const char *verdict(const struct pull_options *options, const struct pull_result *result)
{
    if (result->verified)
        return "verified";
    if (options->n_globs > 0)
        return "not verified (digests are of whole files)";
    return result->no_digests ? "not verified (the peer keeps no digests)" : "not verified (--no-verify)";
}

static void print_json(const struct pull_result *result)
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
           "\"seconds\":%.6f,\"bytes_per_second\":%.0f,\"verified\":%s,\"connections\":%u,",
           (unsigned long long)result->files, (unsigned long long)result->bytes,
           (unsigned long long)result->fetched_bytes, (unsigned long long)result->resumed_bytes,
           (unsigned long long)result->damaged, result->seconds, rate,
           result->verified     ? "true"
           : result->no_digests ? "\"no digests\""
                                : "false",
           result->connections);
    pull_rails_print_json(&result->rails, stdout);
    fputs("}\n", stdout);
}

static bool names_rails(const struct pull_options *options)
{
    const char *rails = options->rails;
    return rails && strcmp(rails, "none") != 0 && strncmp(rails, "auto", 4) != 0;
}

static void print_summary(const struct pull_options *options, const struct pull_result *result)
{
    char size[CLI_SIZE_MAX], rate[CLI_SIZE_MAX], count[CLI_COUNT_MAX], over[PULL_OVER_MAX];
    double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
    cli_print_escaped(stdout, result->where);
    printf(": %s, %s; fetched %llu bytes in %.2f s (%s/s) %s, %s\n", cli_count(result->files, "file", count),
           cli_size(result->bytes, size), (unsigned long long)result->fetched_bytes, result->seconds,
           cli_size((uint64_t)((double)result->fetched_bytes / seconds), rate), pull_rails_over(&result->rails, over),
           verdict(options, result));
    if (result->damaged > 0)
        printf("%s that came damaged: fetched again\n", cli_count(result->damaged, "chunk", count));
    pull_rails_print_failures(&result->rails, stdout);
    if (*result->rails.why_tcp && names_rails(options)) {
        fputs("not over the rails that were named: ", stdout);
        cli_print_escaped(stdout, result->rails.why_tcp);
        fputc('\n', stdout);
    }
    if (options->verbose)
        printf("%s %s\n", cli_count(result->connections, "connection", count), over);
}

static int finish(const struct pull_options *options, int rc, const struct pull_result *result,
                  const struct penstock_error *error)
{
    if (rc == PENSTOCK_ECANCELED) {
        fprintf(stderr, "penstock: interrupted%s\n", result->resumable ? "; run the same command again to resume" : "");
        return CLI_INTERRUPTED;
    }
    if (rc < 0) {
        (void)cli_failed(error);
        if (result->resumable)
            fputs("penstock: run the same command again to resume\n", stderr);
        return CLI_FAILED;
    }
    if (options->json)
        print_json(result);
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
    struct base_buf rails = { 0 };
    int status = parse(argc, argv, &options, &rails, &help_asked);
    if (help_asked) {
        fputs(help, stdout);
    } else if (status == CLI_OK) {
        struct pull_result result;
        struct penstock_error error = { 0 };
        int rc = pull_run(&options, &result, &error);
        status = finish(&options, rc, &result, &error);
    }
    free(options.globs);
    base_buf_fini(&rails);
    return status;
}
