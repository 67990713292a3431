#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "cmd_wire.h"

/* One row a subcommand, in the order that the help shows. */
static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    { "ls", cmd_ls, "list a peer's models, or a model's tensors" },
    { "pull", cmd_pull, "fetch a model from a peer" },
    { "serve", cmd_serve, "serve models to whoever may connect" },
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

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0) {
        puts("penstock " PENSTOCK_CLI_VERSION);
        return CLI_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        usage(stdout);
        return CLI_OK;
    }
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(word, c->name) == 0)
            return c->run(argc - 1, argv + 1);
    if (*word)
        fprintf(stderr, "penstock: no command %s\n", word);
    usage(stderr);
    return CLI_USAGE;
}
