/* The rival's client: GETs of ranges over HTTP/1.1, each body received straight into memory that is already there. It
 * does nothing that is not needed, so that what it gets is what the server can give.
 *
 *     http_get [--clients N] [--offset BYTES] [--len BYTES] [--repeat N] [--check] HOST:PORT /PATH
 *
 * The range [offset, offset + len) is dealt out evenly to the clients, each with a connection and a thread of its own
 * that GETs its part --repeat times. One JSON object on stdout. */
#include "common.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct get {
    const char *address, *path;
    uint64_t offset, part; /* bytes */
    uint64_t clients, repeat;
    char *memory;
    int *fds;
};

static void get_ready(size_t client, void *context)
{
    struct get *g = context;
    g->fds[client] = bench_dial(g->address);
}

/* Reads the response's head and nothing behind it, so that the body begins where it belongs. */
static void receive_head(int fd, uint64_t body_len)
{
    char head[4096];
    ssize_t n = recv(fd, head, sizeof head - 1, MSG_PEEK);
    if (n <= 0)
        bench_die("the server closed the connection");
    head[n] = 0;
    char *end = strstr(head, "\r\n\r\n");
    if (!end)
        bench_die("the response's head did not come in one piece");
    end[2] = 0;
    const char *length = strcasestr(head, "\r\ncontent-length:");
    if (strncmp(head, "HTTP/1.1 206 ", 13) != 0 || !length || strtoull(length + 17, NULL, 10) != body_len)
        bench_die("not the range that was asked for: %s", head);
    bench_receive(fd, head, (size_t)(end + 4 - head));
}

static void go(size_t client, void *context)
{
    struct get *g = context;
    uint64_t from = g->offset + client * g->part;
    char request[1024];
    int len = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\nRange: bytes=%llu-%llu\r\n\r\n",
                       g->path, (unsigned long long)from, (unsigned long long)(from + g->part - 1));
    for (uint64_t i = 0; i < g->repeat; i++) {
        bench_send(g->fds[client], request, (size_t)len);
        receive_head(g->fds[client], g->part);
        bench_receive(g->fds[client], g->memory + client * g->part, g->part);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "clients", 1, NULL, 'c' }, { "offset", 1, NULL, 'o' },
                                             { "len", 1, NULL, 'l' },     { "repeat", 1, NULL, 'r' },
                                             { "check", 0, NULL, 'k' },   { NULL, 0, NULL, 0 } };
    struct get g = { .clients = 1, .repeat = 1 };
    uint64_t len = 0;
    bool check = false;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (o) {
        case 'c':
            g.clients = bench_number(optarg, "--clients");
            break;
        case 'o':
            g.offset = bench_number(optarg, "--offset");
            break;
        case 'l':
            len = bench_number(optarg, "--len");
            break;
        case 'r':
            g.repeat = bench_number(optarg, "--repeat");
            break;
        case 'k':
            check = true;
            break;
        default:
            return 2;
        }
    if (argc - optind != 2 || g.clients == 0 || g.clients > 4096 || len < g.clients)
        bench_die("usage: http_get [--clients N] [--offset BYTES] --len BYTES [--repeat N] [--check] HOST:PORT /PATH");
    g.address = argv[optind];
    g.path = argv[optind + 1];
    g.part = len / g.clients / 8 * 8;
    g.memory = bench_memory(len);
    g.fds = calloc(g.clients, sizeof *g.fds);
    if (!g.fds)
        bench_die("no memory");

    struct bench_times t =
        bench_clients_run(&(struct bench_clients){ .n = g.clients, .get_ready = get_ready, .go = go, .context = &g });
    if (check)
        bench_check(g.memory, g.offset, g.part * g.clients, "http_get");
    printf("{\"bytes\":%llu,\"wall_s\":%.6f,\"client_cpu_s\":%.6f}\n",
           (unsigned long long)g.part * g.clients * g.repeat, t.wall_s, t.client_cpu_s);
    for (size_t i = 0; i < g.clients; i++)
        close(g.fds[i]);
    free(g.fds);
    return 0;
}
