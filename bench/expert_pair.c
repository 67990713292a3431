/* The rival of the expert tier: a server and a client that can do nothing but send and take records of one length over
 * TCP, blocking at both ends. What they reach is what there is to be had.
 *
 *     expert_pair serve [--how sendfile|writev|splice] [--congestion NAME] [--manifest FILE] --stride BYTES FILE...
 *     expert_pair fetch [--depth N] [--count N] --stride BYTES --layers N --experts N HOST:PORT
 *
 * serve prints its port and serves until it is ended: requests and replies are those of the expert tier's data plane,
 * FILE is a layer each; with --manifest, compact JSON, it says that first and takes a mode byte, so that any client of
 * the tier can be measured with it. fetch prints one JSON object. */
#include "common.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum how { SENDFILE, WRITEV, SPLICE };

struct layer {
    int fd;
    char *mapped;
    uint64_t experts;
};

static struct {
    enum how how;
    uint64_t stride;
    const char *manifest; /* NULL: none */
    struct layer *layers;
    size_t n_layers;
} store;

/* ---- serve ---- */

static bool by_sendfile(int fd, const struct layer *layer, off_t at)
{
    for (uint64_t left = store.stride; left > 0;) {
        ssize_t n = sendfile(fd, layer->fd, &at, left);
        if (n <= 0)
            return false;
        left -= (uint64_t)n;
    }
    return true;
}

static bool by_splice(int fd, const int *pipe, const char *at)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)at, .iov_len = store.stride };
    while (iov.iov_len > 0) {
        ssize_t in = vmsplice(pipe[1], &iov, 1, 0);
        if (in <= 0)
            return false;
        iov.iov_base = (char *)iov.iov_base + in;
        iov.iov_len -= (size_t)in;
        while (in > 0) {
            ssize_t out = splice(pipe[0], NULL, fd, NULL, (size_t)in, iov.iov_len > 0 ? SPLICE_F_MORE : 0);
            if (out <= 0)
                return false;
            in -= out;
        }
    }
    return true;
}

static bool answer(int fd, const int *pipe, const uint32_t *request)
{
    static const uint8_t ok = 0;
    if (request[0] >= store.n_layers || request[1] >= store.layers[request[0]].experts)
        return false;
    const struct layer *layer = &store.layers[request[0]];
    uint64_t at = request[1] * store.stride;
    if (store.how == WRITEV) {
        struct iovec iov[2] = { { .iov_base = (void *)(uintptr_t)&ok, .iov_len = 1 },
                                { .iov_base = layer->mapped + at, .iov_len = store.stride } };
        ssize_t n = writev(fd, iov, 2);
        return n > 0 && bench_send_all(fd, layer->mapped + at + (n - 1), store.stride - (size_t)(n - 1), 0);
    }
    if (!bench_send_all(fd, &ok, 1, MSG_MORE))
        return false;
    return store.how == SENDFILE ? by_sendfile(fd, layer, (off_t)at) : by_splice(fd, pipe, layer->mapped + at);
}

/* The tier's steps before the data plane. */
static bool greet(int fd)
{
    char text[65536], mode;
    FILE *from = fopen(store.manifest, "re");
    if (!from)
        bench_die("%s: can't be read", store.manifest);
    uint32_t len = (uint32_t)fread(text, 1, sizeof text, from);
    fclose(from);
    return bench_send_all(fd, &len, sizeof len, MSG_MORE) && bench_send_all(fd, text, len, 0) &&
           recv(fd, &mode, 1, 0) == 1 && mode == 0;
}

static void serve_one(int fd)
{
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0)
        bench_die("no pipe");
    (void)fcntl(pipe[0], F_SETPIPE_SZ, 1 << 20);
    uint32_t requests[512];
    size_t got = 0;
    for (bool ok = !store.manifest || greet(fd); ok;) {
        ssize_t n = recv(fd, (char *)requests + got, sizeof requests - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
        size_t whole = got / 8;
        for (size_t i = 0; i < whole && ok; i++)
            ok = answer(fd, pipe, &requests[2 * i]);
        got -= 8 * whole;
        memmove(requests, &requests[2 * whole], got);
    }
    close(pipe[0]);
    close(pipe[1]);
}

static void open_layer(struct layer *layer, const char *path)
{
    struct stat status;
    layer->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (layer->fd < 0 || fstat(layer->fd, &status) != 0 || (uint64_t)status.st_size < store.stride)
        bench_die("%s: no layer", path);
    layer->experts = (uint64_t)status.st_size / store.stride;
    layer->mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, layer->fd, 0);
    if (layer->mapped == MAP_FAILED)
        bench_die("%s: can't be mapped", path);
}

/* ---- fetch ---- */

static void ask(int fd, const struct bench_fetches *f, uint64_t i)
{
    uint32_t request[2];
    bench_fetch_choose(f, i, &request[0], &request[1]);
    bench_send(fd, request, sizeof request);
}

/* The status and the record in one go, straight to where it belongs. */
static void take(int fd, char *slot)
{
    uint8_t status;
    struct iovec iov[2] = { { .iov_base = &status, .iov_len = 1 }, { .iov_base = slot, .iov_len = store.stride } };
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };
    if (recvmsg(fd, &message, MSG_WAITALL) != (ssize_t)store.stride + 1 || status != 0)
        bench_die("the server did not send a record");
}

static void fetch(const char *address, struct bench_fetches *f)
{
    int fd = bench_dial(address);
    char *slots = bench_memory(f->depth * store.stride);
    int64_t *begun_ns = calloc(f->depth, sizeof *begun_ns);
    if (!begun_ns)
        bench_die("no memory");
    ask(fd, f, 0); /* the connection's window opens before the clock starts */
    take(fd, slots);
    bench_fetches_begin(f);
    for (uint64_t i = 0; i < f->depth && i < f->count; i++) {
        begun_ns[i] = bench_now_ns();
        ask(fd, f, i);
    }
    for (uint64_t i = 0; i < f->count; i++) {
        size_t slot = i % f->depth;
        take(fd, slots + slot * store.stride);
        bench_fetches_took(f, bench_now_ns() - begun_ns[slot]);
        if (i + f->depth < f->count) {
            begun_ns[slot] = bench_now_ns();
            ask(fd, f, i + f->depth);
        }
    }
    bench_fetches_end(f, store.stride);
    close(fd);
    free(begun_ns);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "how", 1, NULL, 'h' },     { "congestion", 1, NULL, 'g' },
                                             { "stride", 1, NULL, 's' },  { "depth", 1, NULL, 'd' },
                                             { "count", 1, NULL, 'c' },   { "layers", 1, NULL, 'l' },
                                             { "experts", 1, NULL, 'e' }, { "manifest", 1, NULL, 'm' },
                                             { NULL, 0, NULL, 0 } };
    struct bench_fetches f = { .depth = 1, .count = 1000 };
    const char *congestion = NULL;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (o) {
        case 'h':
            store.how = strcmp(optarg, "writev") == 0 ? WRITEV : strcmp(optarg, "splice") == 0 ? SPLICE : SENDFILE;
            break;
        case 'm':
            store.manifest = optarg;
            break;
        case 'g':
            congestion = optarg;
            break;
        case 's':
            store.stride = bench_number(optarg, "--stride");
            break;
        case 'd':
            f.depth = bench_number(optarg, "--depth");
            break;
        case 'c':
            f.count = bench_number(optarg, "--count");
            break;
        case 'l':
            f.layers = (uint32_t)bench_number(optarg, "--layers");
            break;
        case 'e':
            f.experts = (uint32_t)bench_number(optarg, "--experts");
            break;
        default:
            return 2;
        }
    if (argc - optind < 2 || store.stride == 0 || f.depth == 0)
        bench_die("usage: expert_pair serve|fetch OPTIONS FILE...|HOST:PORT");
    if (strcmp(argv[optind], "serve") == 0) {
        store.n_layers = (size_t)(argc - optind - 1);
        store.layers = calloc(store.n_layers, sizeof *store.layers);
        for (size_t i = 0; store.layers && i < store.n_layers; i++)
            open_layer(&store.layers[i], argv[(size_t)optind + 1 + i]);
        bench_serve(congestion, serve_one);
    }
    fetch(argv[optind + 1], &f);
    return 0;
}
