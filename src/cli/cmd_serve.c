#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd.h"
#include "peer/peer.h"
#include "serve_cache.h"
#include "serve_values.h"
#include "json/utf8.h"

static const char usage_text[] =
    "usage: penstock serve [--weights [NAME=]DIR ...] [--experts STORE] [--cache] [OPTIONS]\n"
    "\n"
    "Serves the models in directories of safetensors, an expert store, a cache of blobs, or any of these, to\n"
    "whoever can connect. Everything under a staged directory of weights that is not hidden can be read by\n"
    "clients, and every record of the store; the cache they can read and write: listen on addresses that only\n"
    "they can reach.\n"
    "\n"
    "  --weights [NAME=]DIR         a directory to serve, under its own name or NAME; repeatable\n"
    "  --listen-weights ADDR:PORT   where to listen; repeatable (127.0.0.1:9910; port 0: any)\n"
    "  --experts STORE              an expert store to serve, as `penstock pack` makes it\n"
    "  --listen-experts ADDR:PORT   where to listen for its clients; repeatable (127.0.0.1:9900)\n"
    "  --allow-any-path             stage any directory that a client names by its path\n"
    "  --follow-links               follow symbolic links that lead outside a staged directory\n"
    "  --rail DEVICE[:GID]          a rail for RDMA clients, repeatable; auto:N: so many at most; none: TCP only\n"
    "                               (every active port)\n"
    "  --hold HOW                   how RDMA's pages are held: map, copy, huge or auto (auto)\n"
    "  --max-memory SIZE            refuse models, stores and arenas beyond this: 64G, or bytes; K, M, G, T\n"
    "                               are binary (no limit)\n"
    "  --max-connections N          how many at once (4096)\n"
    "  --drain SECONDS              on SIGTERM, how long to finish what is being sent (10)\n"
    "  --congestion NAME            TCP congestion control, or `system` (cubic)\n"
    "  --no-warm                    do not read what is served into memory in the background\n"
    "  --no-digests                 do not compute digests: clients cannot verify what they pull\n"
    "  --log-level LEVEL            error, warning, info or debug (info)\n"
    "  --journal WHEN               log with systemd's priorities: yes, no or auto (auto)\n";
static const char environment_text[] =
    "\n"
    "Environment: PENSTOCK_RAILS (with commas) stands for --rail where that is not given.\n";
/* And --deadline-scale FACTOR, which multiplies every deadline of a client: for tests. */

enum serve_option {
    OPT_WEIGHTS = 256,
    OPT_LISTEN,
    OPT_EXPERTS,
    OPT_LISTEN_EXPERTS,
    OPT_ANY_PATH,
    OPT_LINKS,
    OPT_MAX,
    OPT_MEMORY,
    OPT_RAIL,
    OPT_HOLD,
    OPT_DRAIN,
    OPT_CONGESTION,
    OPT_NO_WARM,
    OPT_NO_DIGESTS,
    OPT_LEVEL,
    OPT_JOURNAL,
    OPT_SCALE,
};

static const struct option options_table[] = {
    { "weights", required_argument, NULL, OPT_WEIGHTS },
    { "listen-weights", required_argument, NULL, OPT_LISTEN },
    { "experts", required_argument, NULL, OPT_EXPERTS },
    { "listen-experts", required_argument, NULL, OPT_LISTEN_EXPERTS },
    { "allow-any-path", no_argument, NULL, OPT_ANY_PATH },
    { "follow-links", no_argument, NULL, OPT_LINKS },
    { "rail", required_argument, NULL, OPT_RAIL },
    { "hold", required_argument, NULL, OPT_HOLD },
    { "max-memory", required_argument, NULL, OPT_MEMORY },
    { "max-connections", required_argument, NULL, OPT_MAX },
    { "drain", required_argument, NULL, OPT_DRAIN },
    { "congestion", required_argument, NULL, OPT_CONGESTION },
    { "no-warm", no_argument, NULL, OPT_NO_WARM },
    { "no-digests", no_argument, NULL, OPT_NO_DIGESTS },
    { "log-level", required_argument, NULL, OPT_LEVEL },
    { "journal", required_argument, NULL, OPT_JOURNAL },
    { "deadline-scale", required_argument, NULL, OPT_SCALE },
    SERVE_CACHE_OPTIONS,
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct serve {
    struct peer_options peer;
    struct serve_cache_said cache;
    enum base_log_level level;
    bool journal;
};

/* Each of these says what is wrong, and returns false. */

/* "[NAME=]DIR", cut in place. What begins like a path is one, whatever follows. */
static bool parse_weights(struct peer_options *options, char *text)
{
    struct peer_directory d = { .path = text };
    char *equals = text[0] == '/' || text[0] == '.' ? NULL : strchr(text, '=');
    if (equals) {
        *equals = 0;
        d.name = text;
        d.path = equals + 1;
    }
    if (!*d.path)
        return serve_bad_value("--weights", text, "a directory is wanted");
    if (d.name && (!*d.name || strncmp(d.name, "penstock:", 9) == 0 || !json_utf8_valid(d.name, strlen(d.name))))
        return serve_bad_value("--weights", text, "not a name that clients could ask for");
    if (!base_vec_push(&options->weights, d))
        return serve_bad_value("--weights", text, "no memory");
    return true;
}

/* One: the handshake of its clients names no store. */
static bool parse_experts(struct peer_options *options, const char *text)
{
    if (!*text)
        return serve_bad_value("--experts", text, "a store is wanted, as penstock pack makes it");
    if (options->experts)
        return serve_bad_value("--experts", text,
                               "one store a peer: its clients cannot say which; start another peer for this one");
    options->experts = text;
    return true;
}

static bool parse_rail(struct peer_options *options, const char *option, const char *text)
{
    struct penstock_error error;
    if (rail_wishes_add(&options->rails, text, true, &error) == 0)
        return true;
    fprintf(stderr, "penstock serve: %s: %s\n", option, error.message);
    return false;
}

/* What the environment says where the command line says nothing. */
static bool parse_environment(struct peer_options *options)
{
    const struct rail_wishes *wishes = &options->rails;
    const char *rails = getenv("PENSTOCK_RAILS");
    bool said = wishes->none || wishes->automatic || wishes->n_named > 0;
    if (said || !rails || !*rails)
        return true;
    options->rails_from = "PENSTOCK_RAILS";
    return parse_rail(options, options->rails_from, rails);
}

static bool parse_level(const char *text, enum base_log_level *out)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum base_log_level)i;
            return true;
        }
    return serve_bad_value("--log-level", text, "error, warning, info or debug is wanted");
}

/* systemd names the device and inode of the stream that it connected to its journal. */
static bool stderr_is_the_journal(void)
{
    const char *named = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return named && sscanf(named, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

static bool parse_journal(const char *text, bool *out)
{
    if (strcmp(text, "auto") == 0)
        *out = stderr_is_the_journal();
    else if (strcmp(text, "yes") == 0 || strcmp(text, "no") == 0)
        *out = text[0] == 'y';
    else
        return serve_bad_value("--journal", text, "yes, no or auto is wanted");
    return true;
}

static bool parse_one(struct serve *s, int option)
{
    double number;
    switch (option) {
    case OPT_WEIGHTS:
        return parse_weights(&s->peer, optarg);
    case OPT_LISTEN:
        return base_vec_push(&s->peer.listen[PEER_TIER_WEIGHTS], optarg) ||
               serve_bad_value("--listen-weights", optarg, "no memory");
    case OPT_EXPERTS:
        return parse_experts(&s->peer, optarg);
    case OPT_LISTEN_EXPERTS:
        return base_vec_push(&s->peer.listen[PEER_TIER_EXPERTS], optarg) ||
               serve_bad_value("--listen-experts", optarg, "no memory");
    case OPT_ANY_PATH:
        return s->peer.allow_any_path = true;
    case OPT_LINKS:
        return s->peer.follow_links = true;
    case OPT_MAX:
        if (!serve_number("--max-connections", optarg, 1, 1000000, &number))
            return false;
        s->peer.max_connections = (size_t)number;
        return true;
    case OPT_RAIL:
        return parse_rail(&s->peer, "--rail", optarg);
    case OPT_HOLD:
        return peer_hold_parse(optarg, &s->peer.hold) ||
               serve_bad_value("--hold", optarg, "auto, map, copy or huge is wanted");
    case OPT_MEMORY:
        return serve_size("--max-memory", optarg, false, &s->peer.max_memory_bytes);
    case OPT_DRAIN:
        if (!serve_number("--drain", optarg, 0, 86400, &number))
            return false;
        s->peer.drain_ns = (int64_t)(number * 1e9);
        return true;
    case OPT_CONGESTION:
        s->peer.congestion = strcmp(optarg, "system") == 0 ? NULL : optarg;
        return true;
    case OPT_NO_WARM:
        return s->peer.no_warm = true;
    case OPT_NO_DIGESTS:
        return s->peer.no_digests = true;
    case OPT_LEVEL:
        return parse_level(optarg, &s->level);
    case OPT_JOURNAL:
        return parse_journal(optarg, &s->journal);
    case OPT_SCALE:
        return serve_number("--deadline-scale", optarg, 0.001, 1000, &s->peer.deadline_scale);
    default:
        return serve_cache_parse(&s->peer, &s->cache, option, optarg);
    }
}

/* An address is a promise. */
static bool nothing_listens_in_vain(const struct peer_options *options)
{
    if (options->listen[PEER_TIER_WEIGHTS].n > 0 && options->weights.n == 0 && !options->allow_any_path)
        return serve_bad_value("--listen-weights", options->listen[PEER_TIER_WEIGHTS].at[0],
                               "there are no weights to serve: give a directory with --weights");
    if (options->listen[PEER_TIER_EXPERTS].n > 0 && !options->experts)
        return serve_bad_value("--listen-experts", options->listen[PEER_TIER_EXPERTS].at[0],
                               "there are no experts to serve: give a store with --experts");
    return true;
}

/* True: go on and serve; false: *status is what to end with. */
static bool parse(struct serve *s, int argc, char **argv, int *status)
{
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "h", options_table, NULL)) != -1;) {
        if (option == 'h') {
            printf("%s%s%s", usage_text, serve_cache_usage, environment_text);
            *status = CLI_OK;
            return false;
        }
        *status = CLI_USAGE;
        if (!parse_one(s, option))
            return false;
    }
    *status = CLI_USAGE;
    if (optind < argc) {
        fprintf(stderr,
                "penstock serve: %s: not an option; a directory is given with --weights, a store with --experts\n",
                argv[optind]);
        return false;
    }
    if (!parse_environment(&s->peer))
        return false;
    if (!serve_cache_check(&s->peer, &s->cache))
        return false;
    if (s->peer.weights.n == 0 && !s->peer.allow_any_path && !s->peer.experts && !s->peer.cache.on) {
        fputs("penstock serve: nothing to serve: give a directory with --weights, or --allow-any-path, or a store with "
              "--experts, or --cache\n",
              stderr);
        return false;
    }
    return nothing_listens_in_vain(&s->peer);
}

int cmd_serve(int argc, char **argv)
{
    struct serve s = { .level = BASE_LOG_INFO, .journal = stderr_is_the_journal() };
    int status;
    peer_options_init(&s.peer);
    if (parse(&s, argc, argv, &status)) {
        struct penstock_error error;
        base_log_init(s.level, s.journal);
        status = CLI_OK;
        if (peer_run(&s.peer, &error)) {
            base_log_error("%s", error.message);
            status = CLI_FAILED;
        }
    }
    peer_options_fini(&s.peer);
    return status;
}
