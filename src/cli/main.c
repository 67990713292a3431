#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "cmd_wire.h"

/* One row a subcommand, in the order that the help shows. */
static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "bench", cmd_bench, "measure a peer" },
    { "exists", cmd_cache, "say whether a blob is in a peer's cache" },
    { "fetch", cmd_fetch, "fetch an expert from a peer" },
    { "get", cmd_cache, "get a blob from a peer's cache" },
    { "inspect", cmd_inspect, "say what a store, a model or a file is made of" },
    { "lora", cmd_lora, "land a LoRA adapter as an engine's slot holds it" },
    { "ls", cmd_ls, "list a peer's models, or a model's tensors" },
    { "pack", cmd_pack, "pack the experts of a checkpoint into a store" },
    { "pull", cmd_pull, "fetch a model from a peer" },
    { "put", cmd_cache, "put a blob into a peer's cache" },
    { "rm", cmd_cache, "remove a blob from a peer's cache" },
    { "serve", cmd_serve, "serve models, experts and a cache to whoever may connect" },
    { "stat", cmd_stat, "say what a peer's cache holds" },
    { "wire", cmd_wire, "turn records of the wire protocol into JSON, and back" },
    { 0 },
};

static void usage(FILE *to)
{
    fputs("usage: penstock COMMAND [ARGUMENTS]\n\n", to);
    for (const struct command *c = commands; c->name; c++)
        fprintf(to, "  %-8s %s\n", c->name, c->summary);
    fputs("\n`penstock COMMAND --help` says more about one; `penstock --version` prints the version.\n", to);
}

/* A standard stream that came closed would be the number of the next file or socket, and get what is meant for people.
 */
static int hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
            return -1;
    return 0;
}

/* What could not be printed is a failure, whatever the command came to. */
static int printed(int status)
{
    bool before = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !before)
        return status;
    fprintf(stderr, "penstock: standard output can't be written%s%s\n", errno ? ": " : "",
            errno ? strerror(errno) : "");
    return status == CLI_OK ? CLI_FAILED : status;
}

int main(int argc, char **argv)
{
    if (hold_standard_streams() < 0)
        return CLI_FAILED;
    signal(SIGXFSZ, SIG_IGN); /* a limit on files' size is an error with words, not an end */
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0) {
        puts("penstock " PENSTOCK_CLI_VERSION);
        return printed(CLI_OK);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        usage(stdout);
        return printed(CLI_OK);
    }
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(word, c->name) == 0)
            return printed(c->run(argc - 1, argv + 1));
    if (*word)
        fprintf(stderr, "penstock: no command %s\n", word);
    usage(stderr);
    return CLI_USAGE;
}
