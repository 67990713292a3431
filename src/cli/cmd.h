/* penstock(1)'s subcommands. Each gets its own name as argv[0], and returns the exit status. */
#ifndef PENSTOCK_CLI_CMD_H
#define PENSTOCK_CLI_CMD_H

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_MISS = 3, /* what was asked for is not there, which the peer can tell */
    CLI_INTERRUPTED = 130
};

int cmd_bench(int argc, char **argv);
int cmd_bench_cache(int argc, char **argv); /* where "cache" follows */
int cmd_cache(int argc, char **argv);       /* put, get, rm, exists */
int cmd_fetch(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_lora(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_stat(int argc, char **argv);

#endif
