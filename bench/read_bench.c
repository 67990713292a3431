/* Our client, through the public API alone, reading tensors into memory that is already there.
 *
 *     read_bench [--clients N] [--order file|random] [--window W] [--repeat N] [--check] PEER MODEL
 *
 * A model of one tensor is dealt out evenly to the clients, each with a session and a thread of its own; of a model of
 * many, each client reads all, packed in the order in which they are asked for: so in random order nothing touches on
 * both sides. --window 0 (the default) reads with one operation; W > 0 with one a tensor, W of them under way. One JSON
 * object on stdout. */
#include "common.h"

#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/penstock.h>

struct bench_read {
    const char *peer, *model;
    uint64_t clients, repeat, window;
    bool random, check;
    struct penstock_catalogue *catalogue;
    struct client {
        struct penstock_session *session;
        struct penstock_range *ranges;
        size_t n;
        uint64_t bytes;
        uint8_t *memory;
        uint32_t region;
    } * client;
};

static void need(int rc, const struct penstock_error *error)
{
    if (rc < 0)
        bench_die("%s", error->message);
}

static void shuffle(struct penstock_range *ranges, size_t n)
{
    uint64_t random = 88172645463325252u; /* xorshift64: the same order every time */
    for (size_t i = n; i > 1; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t j = random % i;
        struct penstock_range swap = ranges[i - 1];
        ranges[i - 1] = ranges[j];
        ranges[j] = swap;
    }
}

static void lay_out(const struct bench_read *b, size_t number, struct client *c)
{
    size_t tensors = penstock_catalogue_tensors(b->catalogue);
    c->ranges = calloc(tensors, sizeof *c->ranges);
    if (!c->ranges)
        bench_die("no memory for %zu ranges", tensors);
    c->n = tensors;
    for (size_t i = 0; i < tensors; i++) {
        const struct penstock_tensor *t = penstock_catalogue_tensor(b->catalogue, i);
        c->ranges[i] =
            (struct penstock_range){ .offset_bytes = t->offset_bytes, .len_bytes = t->len_bytes, .file = t->shard };
    }
    if (tensors == 1) {
        c->ranges[0].len_bytes = c->ranges[0].len_bytes / b->clients / 8 * 8;
        c->ranges[0].offset_bytes += number * c->ranges[0].len_bytes;
    }
    if (b->random)
        shuffle(c->ranges, c->n);
    for (size_t i = 0; i < c->n; i++) {
        c->ranges[i].dst_bytes = c->bytes;
        c->bytes += c->ranges[i].len_bytes;
    }
}

static void get_ready(size_t number, void *context)
{
    struct bench_read *b = context;
    struct client *c = &b->client[number];
    struct penstock_error error;
    need(penstock_weights_open(b->peer, b->model, b->catalogue, NULL, &c->session, &error), &error);
    lay_out(b, number, c);
    c->memory = bench_memory(c->bytes);
    struct penstock_memory memory = { .size = sizeof memory, .address = c->memory, .len_bytes = c->bytes };
    need(penstock_register(c->session, &memory, &c->region, &error), &error);
}

static void read_as_one(struct client *c)
{
    struct penstock_error error;
    struct penstock_read read = { .size = sizeof read, .ranges = c->ranges, .count = c->n, .region = c->region };
    need(penstock_read_wait(c->session, &read, &error), &error);
}

static void wait_for_some(struct penstock_session *session)
{
    int64_t timeout_ns = penstock_timeout_ns(session);
    struct pollfd fd = { .fd = penstock_fd(session), .events = POLLIN };
    (void)poll(&fd, 1, timeout_ns < 0 ? -1 : (int)(timeout_ns / 1000000 + 1));
}

static void read_each(struct client *c, uint64_t window)
{
    struct penstock_completion done[256];
    struct penstock_error error;
    size_t sent = 0, landed = 0;
    while (landed < c->n) {
        for (; sent < c->n && sent - landed < window; sent++) {
            struct penstock_read read = {
                .size = sizeof read, .ranges = &c->ranges[sent], .count = 1, .region = c->region
            };
            penstock_op op;
            need(penstock_submit(c->session, &read, &op, &error), &error);
        }
        size_t n;
        int rc = penstock_poll(c->session, done, sizeof done / sizeof *done, &n);
        for (size_t i = 0; i < n; i++)
            if (done[i].code < 0)
                bench_die("%s", penstock_op_error(c->session, done[i].op)->message);
        if (rc < 0)
            bench_die("the session died (%d)", rc);
        landed += n;
        if (n == 0)
            wait_for_some(c->session);
    }
}

static void go(size_t number, void *context)
{
    struct bench_read *b = context;
    for (uint64_t i = 0; i < b->repeat; i++)
        if (b->window)
            read_each(&b->client[number], b->window);
        else
            read_as_one(&b->client[number]);
}

static void check(const struct client *c)
{
    for (size_t i = 0; i < c->n; i++)
        bench_check(c->memory + c->ranges[i].dst_bytes, c->ranges[i].offset_bytes, c->ranges[i].len_bytes,
                    "read_bench");
}

static void parse(int argc, char **argv, struct bench_read *b)
{
    static const struct option options[] = { { "clients", 1, NULL, 'c' }, { "order", 1, NULL, 'o' },
                                             { "window", 1, NULL, 'w' },  { "repeat", 1, NULL, 'r' },
                                             { "check", 0, NULL, 'k' },   { NULL, 0, NULL, 0 } };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (o) {
        case 'c':
            b->clients = bench_number(optarg, "--clients");
            break;
        case 'o':
            b->random = strcmp(optarg, "random") == 0;
            if (!b->random && strcmp(optarg, "file") != 0)
                bench_die("--order: file or random, not %s", optarg);
            break;
        case 'w':
            b->window = bench_number(optarg, "--window");
            break;
        case 'r':
            b->repeat = bench_number(optarg, "--repeat");
            break;
        case 'k':
            b->check = true;
            break;
        default:
            exit(2);
        }
    if (argc - optind != 2 || b->clients == 0 || b->clients > 4096)
        bench_die("usage: read_bench [--clients N] [--order file|random] [--window W] [--repeat N] [--check] PEER "
                  "MODEL");
    b->peer = argv[optind];
    b->model = argv[optind + 1];
}

int main(int argc, char **argv)
{
    struct bench_read b = { .clients = 1, .repeat = 1 };
    parse(argc, argv, &b);
    b.client = calloc(b.clients, sizeof *b.client);
    if (!b.client)
        bench_die("no memory");

    int64_t began = bench_now_ns();
    struct penstock_session *first;
    struct penstock_error error;
    need(penstock_weights_open(b.peer, b.model, NULL, NULL, &first, &error), &error);
    b.catalogue = penstock_session_catalogue(first);
    double open_s = (double)(bench_now_ns() - began) / 1e9;
    penstock_session_free(first);

    struct bench_times t =
        bench_clients_run(&(struct bench_clients){ .n = b.clients, .get_ready = get_ready, .go = go, .context = &b });
    uint64_t bytes = 0;
    for (size_t i = 0; i < b.clients; i++) {
        struct client *c = &b.client[i];
        if (b.check)
            check(c);
        bytes += c->bytes * b.repeat;
        penstock_session_free(c->session);
        free(c->ranges);
    }
    printf("{\"bytes\":%llu,\"wall_s\":%.6f,\"client_cpu_s\":%.6f,\"open_s\":%.6f}\n", (unsigned long long)bytes,
           t.wall_s, t.client_cpu_s, open_s);
    penstock_catalogue_unref(b.catalogue);
    free(b.client);
    return 0;
}
