/* penstock put, get, rm and exists: one blob of a cache peer. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arguments.h"
#include "base/error.h"
#include "base/vec.h"
#include "cache_arena.h"
#include "cmd.h"
#include "model/identity.h"
#include "patience.h"
#include "pull_rails.h"
#include "reach.h"
#include "save.h"
#include "text.h"

#define HELP_OPTIONS                                                                                                   \
    "      --kind kv|ssm      of the arena that the blob lies in (default kv)\n"                                       \
    "      --blob SIZE        of each of that arena's blobs, a multiple of 4096: bytes, or with K, M, G or T\n"        \
    "      --arena SIZE       of the arena where it is not there yet (default 1G, or 16 blobs): whoever joins first "  \
    "sets it\n"                                                                                                        \
    "      --wide             KEY may have 128 bits\n"                                                                 \
    "      --timeout SECONDS  give up on a peer that brings no byte for so long (default 300; 30 to connect)\n"        \
    "      --transport T      rdma, tcp, or auto: RDMA where both ends have it, else TCP (the default)\n"              \
    "      --rail RAIL        a port for RDMA, as for `penstock pull`; can be given several times\n"                   \
    "  -v, --verbose          say what was done, and over what\n"                                                      \
    "\n"                                                                                                               \
    "PEER is HOST, HOST:PORT or [IPV6]:PORT (9916 where no port is given). KEY is a decimal number, or hexadecimal "   \
    "behind\n"                                                                                                         \
    "0x. Environment: PENSTOCK_TRANSPORT, PENSTOCK_RAILS and PENSTOCK_CONGESTION, as for `penstock pull`.\n"
#define HELP_SIZES "Without --blob the peer is asked which arena of that kind it has.\n"

static const struct verb {
    const char *name;
    int action;  /* enum penstock_blob_action */
    bool a_file; /* is taken */
    const char *help;
} verbs[] = {
    { "put", PENSTOCK_BLOB_PUT, true,
      "usage: penstock put PEER KEY [FILE] [OPTIONS]\n"
      "\n"
      "Puts what FILE holds into a peer's cache, for all of its clients: all of it, or nothing. Without FILE, or for "
      "-, "
      "it is\n"
      "standard input. The blob has the file's size; with --blob a shorter file is followed by zeros.\n"
      "\n" HELP_OPTIONS },
    { "get", PENSTOCK_BLOB_GET, true,
      "usage: penstock get PEER KEY [FILE] [OPTIONS]\n"
      "\n"
      "Gets a blob from a peer's cache into FILE, which is written whole or not at all. Without FILE, or for -, it "
      "goes "
      "to\n"
      "standard output. Exit status 3: the peer has no such blob. " HELP_SIZES "\n" HELP_OPTIONS },
    { "rm", PENSTOCK_BLOB_REMOVE, false,
      "usage: penstock rm PEER KEY [OPTIONS]\n"
      "\n"
      "Removes a blob from a peer's cache, whether it is there or not.\n" HELP_SIZES "\n" HELP_OPTIONS },
    { "exists", PENSTOCK_BLOB_EXISTS, false,
      "usage: penstock exists PEER KEY [OPTIONS]\n"
      "\n"
      "Says whether a blob is in a peer's cache: exit status 0 where it is, 3 where not.\n" HELP_SIZES
      "\n" HELP_OPTIONS },
};

enum { OPT_WIDE = 256 };

static const struct option long_options[] = {
    CACHE_LONG_OPTIONS,
    REACH_LONG_OPTIONS,
    { "wide", no_argument, NULL, OPT_WIDE },
    { "output", required_argument, NULL, 'o' },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct command {
    const struct verb *verb;
    struct reach reach;
    struct penstock_cache arena;
    struct penstock_key key;
    const char *peer, *key_text, *file; /* file "-": standard input or output */
    bool verbose, help_asked;
};

static int wrong(const struct command *c, const char *words, const char *what)
{
    return cli_wrong(c->verb->name, words, what);
}

static int parse_words(int n, char **words, struct command *c)
{
    const char *why;
    if (n < 2 || n > (c->verb->a_file ? 3 : 2) || (n == 3 && c->file))
        return wrong(c, "a PEER and a KEY are needed", c->verb->a_file ? ", and a FILE at most" : ", and no more");
    c->peer = words[0];
    c->key_text = words[1];
    if (!cache_key_parse(c->key_text, c->arena.wide != 0, &c->key, &why))
        return wrong(c, why, c->key_text);
    if (n == 3)
        c->file = words[2];
    if (c->file && !*c->file)
        return wrong(c, "", "FILE is empty");
    if (!c->file && c->verb->action == PENSTOCK_BLOB_GET && isatty(STDOUT_FILENO))
        return wrong(c, "", "standard output is a terminal: name a FILE, or - where that is meant");
    if (!c->file)
        c->file = "-";
    if (c->arena.blob_bytes && c->arena.arena_bytes % c->arena.blob_bytes != 0)
        return wrong(c, "", "--arena is no multiple of --blob");
    return reach_settle(&c->reach, c->verb->name);
}

static int parse(int argc, char **argv, struct command *c)
{
    const char *short_options = c->verb->action == PENSTOCK_BLOB_GET ? "o:vh" : "vh";
    int status = CLI_OK;
    optind = 1;
    for (int option; status == CLI_OK && (option = getopt_long(argc, argv, short_options, long_options, NULL)) != -1;)
        switch (option) {
        case OPT_WIDE:
            c->arena.wide = 1;
            break;
        case 'o':
            if (c->verb->action != PENSTOCK_BLOB_GET)
                return wrong(c, "", "-o is for get");
            c->file = optarg;
            break;
        case 'v':
            c->verbose = true;
            break;
        case 'h':
            c->help_asked = true;
            return CLI_OK;
        default:
            if (!cache_arena_take(&c->arena, c->verb->name, option, optarg, &status))
                status = reach_take(&c->reach, c->verb->name, option, optarg);
        }
    return status != CLI_OK ? status : parse_words(argc - optind, argv + optind, c);
}

/* ---- what is put ---- */

static int read_all(int fd, uint64_t most, struct base_buf *out)
{
    ssize_t n = 1;
    while (n > 0 && out->n <= most) {
        uint8_t *room = base_buf_room(out, 1 << 20);
        if (!room)
            return ENOMEM;
        n = read(fd, room, 1 << 20);
        out->n += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno != EINTR)
            return errno;
        n = n < 0 ? 1 : n;
    }
    return 0;
}

/* A blob is whole, or it is not put: a file that is written to meanwhile is neither what it was nor what it will be. */
static int read_still(int fd, uint64_t most, struct base_buf *out, bool *changed)
{
    struct stat before, after;
    int failed = fstat(fd, &before) < 0 ? errno : read_all(fd, most, out);
    if (!failed && fstat(fd, &after) < 0)
        failed = errno;
    if (failed || !S_ISREG(before.st_mode))
        return failed;
    const struct model_identity was = model_identity_of(&before), is = model_identity_of(&after);
    *changed = !model_identity_same(&was, &is);
    return 0;
}

/* A blob has whole pages: what it lacks is only filled up where the caller has said how long it is to be. */
static int fill_up(struct command *c, const char *name, struct base_buf *blob, struct penstock_error *error)
{
    uint64_t wanted = c->arena.blob_bytes;
    if (wanted == 0 && blob->n == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "%s is empty: a blob has 4096 bytes at least", name);
    if (wanted == 0 && blob->n % 4096 != 0)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "%s has %zu bytes, and blobs a multiple of 4096: --blob %zu takes it, with zeros behind "
                              "it (and is then wanted of who gets it)",
                              name, blob->n, (blob->n + 4095) / 4096 * 4096);
    if (wanted != 0 && blob->n > wanted)
        return base_error_set(error, PENSTOCK_EINVAL, "%s has more bytes than the %" PRIu64 " of --blob", name, wanted);
    if (wanted == 0)
        c->arena.blob_bytes = wanted = blob->n;
    uint8_t *room = base_buf_room(blob, wanted - blob->n);
    if (!room && wanted > blob->n)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a blob of %" PRIu64 " bytes", wanted);
    if (wanted > blob->n)
        memset(room, 0, wanted - blob->n);
    blob->n = wanted;
    return 0;
}

static int read_blob(struct command *c, struct base_buf *blob, struct penstock_error *error)
{
    bool standard = strcmp(c->file, "-") == 0;
    const char *name = standard ? "standard input" : c->file;
    int fd = standard ? STDIN_FILENO : open(c->file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return base_error_sys(error, errno, "%s", name);
    bool changed = false;
    int failed = read_still(fd, c->arena.blob_bytes ? c->arena.blob_bytes : PENSTOCK_ARENA_BYTES_MAX, blob, &changed);
    if (!standard)
        close(fd);
    if (changed)
        return base_error_set(error, PENSTOCK_EINVAL, "%s changed while it was read: nothing is put", name);
    return failed ? base_error_sys(error, failed, "%s", name) : fill_up(c, name, blob, error);
}

/* ---- with the peer ---- */

static int transfer(const struct command *c, struct penstock_session *s, void *at, struct penstock_error *error)
{
    struct penstock_blob blob = { .key = c->key };
    struct penstock_blobs blobs = { .size = sizeof blobs, .action = c->verb->action, .blobs = &blob, .count = 1 };
    const struct penstock_memory memory = { .size = sizeof memory, .address = at, .len_bytes = c->arena.blob_bytes };
    int code = at ? penstock_register(s, &memory, &blobs.region, error) : 0;
    return code ? code : penstock_blobs_wait(s, &blobs, error);
}

static void say(const struct command *c, const struct penstock_session *s)
{
    char size[CLI_SIZE_MAX];
    struct pull_rails rails = { 0 };
    struct progress progress;
    pull_rails_add(&rails, s, true);
    progress_init(&progress, false);
    progress_say(&progress, "%s %s, in the %s arena with blobs of %s", c->verb->name, c->key_text,
                 cache_arena_kind(c->arena.kind), cli_size(c->arena.blob_bytes, size));
    pull_rails_say(&rails, &progress);
}

/* at: of a blob's size, or NULL where none moves. */
static int ask(const struct command *c, void *at, struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    patience_begin("waiting for %s...", c->peer);
    int code = penstock_cache_open(c->peer, &c->arena, &c->reach.options, &s, error);
    if (code == PENSTOCK_ENOTFOUND)
        code = PENSTOCK_EUNSUPPORTED; /* it is a rail that is not there, and nobody was asked for a blob */
    code = code ? code : transfer(c, s, at, error);
    patience_end();
    if (c->verbose && (code == 0 || code == PENSTOCK_ENOTFOUND))
        say(c, s);
    penstock_session_free(s);
    return code;
}

/* ---- the four of them ---- */

static int put(struct command *c, struct penstock_error *error)
{
    struct base_buf blob = { 0 };
    int code = read_blob(c, &blob, error);
    if (code == 0) {
        bool said = c->arena.arena_bytes != 0;
        cache_arena_default(&c->arena);
        code = ask(c, blob.at, error);
        if (code == PENSTOCK_EDENIED && !said)
            base_error_in(error, "without --arena");
    }
    base_buf_fini(&blob);
    return code;
}

static int print(const void *blob, uint64_t bytes, struct penstock_error *error)
{
    if (fwrite(blob, 1, bytes, stdout) == bytes && fflush(stdout) == 0)
        return 0;
    int failed = errno;
    clearerr(stdout); /* it is said here, with its reason */
    return base_error_sys(error, failed, "standard output can't be written");
}

static int get(const struct command *c, struct penstock_error *error)
{
    uint64_t bytes = c->arena.blob_bytes;
    void *blob = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (blob == MAP_FAILED)
        return base_error_sys(error, errno, "no memory for a blob of %" PRIu64 " bytes", bytes);
    int code = ask(c, blob, error);
    if (code == 0)
        code = strcmp(c->file, "-") == 0 ? print(blob, bytes, error) : cli_save(c->file, blob, bytes, error);
    munmap(blob, bytes);
    return code;
}

static int run(struct command *c)
{
    struct penstock_error error = { 0 };
    int action = c->verb->action, code = 0;
    if (action == PENSTOCK_BLOB_PUT) {
        code = put(c, &error);
        return code ? cli_failed(&error) : CLI_OK;
    }
    code = cache_arena_find(&c->arena, c->peer, &c->reach.options, &error);
    if (code == PENSTOCK_ENOTFOUND && action == PENSTOCK_BLOB_GET) {
        (void)cli_failed(&error); /* it has no such arena, and so no blob */
        return CLI_MISS;
    }
    if (code == 0)
        code = action == PENSTOCK_BLOB_GET ? get(c, &error) : ask(c, NULL, &error);
    if (action == PENSTOCK_BLOB_REMOVE && code == PENSTOCK_ENOTFOUND)
        return CLI_OK;
    if (action == PENSTOCK_BLOB_EXISTS && (code == 0 || code == PENSTOCK_ENOTFOUND)) {
        puts(code ? "not there" : "there");
        return code ? CLI_MISS : CLI_OK;
    }
    if (code == PENSTOCK_ENOTFOUND)
        fprintf(stderr, "penstock: %s is not there\n", c->key_text);
    else if (code)
        return cli_failed(&error);
    return code ? CLI_MISS : CLI_OK;
}

int cmd_cache(int argc, char **argv)
{
    struct command c = { 0 };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[0], verbs[i].name) == 0)
            c.verb = &verbs[i];
    reach_init(&c.reach);
    cache_arena_init(&c.arena);
    int status = parse(argc, argv, &c);
    if (c.help_asked)
        fputs(c.verb->help, stdout);
    else if (status == CLI_OK)
        status = run(&c);
    reach_fini(&c.reach);
    return status;
}
