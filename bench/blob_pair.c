/* The rivals of the cache: blobs of one length put and fetched over TCP, by one connection that blocks at both ends.
 *
 *     blob_pair serve --blob BYTES --keys N [--disk FILE]
 *     blob_pair put|get|ping --dialect bare|redis|memcached|penstock --blob BYTES [--keys N] [--depth N] [--count N] \
 *         [--filled] HOST:PORT
 *
 * serve, of the bare dialect, can do nothing but move blobs: it prints its port and serves until it is ended. With
 * --disk it reads each blob from that file first, past the page cache where that can be, and takes none. The other
 * dialects are spoken to the servers of their names. put and get take keys in turn, and print one JSON object; get puts
 * them all before the clock starts, or --filled finds them there and takes them in an order that is not the disk's.
 * ping asks for nine bytes with nine bytes; a peer of Penstock, which answers GET only where there are rails, is asked
 * with EXISTS. */
#include "common.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <penstock/wire.h>

enum { PING = 0 }; /* of the bare dialect, beside PENSTOCK_OP_PUT and _FETCH */

#define REQUEST_BYTES 9 /* [u8 op][u64 key] */
#define HEAD_MAX 128

static uint64_t blob_bytes, n_keys = 64;
static bool filled;

static uint64_t key_of(uint64_t i)
{
    return (filled ? i * 37 : i) % n_keys;
}

/* ---- the bare server ---- */

static char *memory; /* all blobs, or from a disk one of them */
static int disk = -1;

static int open_disk(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        bench_die("cannot open %s", path);
    return fd;
}

static bool receive_all(int fd, void *to, size_t len)
{
    return recv(fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static bool send_blob(int fd, const char *blob)
{
    static const uint8_t ok = PENSTOCK_ST_OK;
    struct iovec iov[2] = { { .iov_base = (void *)(uintptr_t)&ok, .iov_len = 1 },
                            { .iov_base = (void *)(uintptr_t)blob, .iov_len = blob_bytes } };
    ssize_t n = writev(fd, iov, 2);
    return n > 0 && bench_send_all(fd, blob + (n - 1), blob_bytes - (size_t)(n - 1), 0);
}

static bool answer(int fd, const uint8_t *request)
{
    static const uint8_t ok = PENSTOCK_ST_OK;
    uint64_t key;
    memcpy(&key, request + 1, sizeof key);
    uint64_t offset = key % n_keys * blob_bytes;
    char *blob = disk < 0 ? memory + offset : memory;
    if (request[0] == PENSTOCK_OP_FETCH)
        return (disk < 0 || pread(disk, blob, blob_bytes, (off_t)offset) == (ssize_t)blob_bytes) && send_blob(fd, blob);
    if (request[0] == PENSTOCK_OP_PUT && disk < 0)
        return receive_all(fd, blob, blob_bytes) && send(fd, &ok, 1, MSG_NOSIGNAL) == 1;
    return send(fd, request, REQUEST_BYTES, MSG_NOSIGNAL) == REQUEST_BYTES;
}

static void serve_one(int fd)
{
    uint8_t request[REQUEST_BYTES];
    while (receive_all(fd, request, sizeof request) && answer(fd, request))
        continue;
}

/* ---- dialects ---- */

/* What goes before and after a blob, either way; a reply that comes without a blob is a head alone. */
struct frame {
    char head[HEAD_MAX], tail[8];
    size_t head_len, tail_len;
};

struct dialect {
    const char *name;
    void (*hello)(int fd);                            /* NULL: none */
    void (*put)(struct frame *request, uint64_t key); /* a blob follows the head */
    void (*get)(struct frame *request, uint64_t key);
    void (*stored)(struct frame *reply);
    void (*found)(struct frame *reply, uint64_t key);
};

__attribute__((format(printf, 3, 4))) static void print(char *out, size_t *len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *len = (size_t)vsnprintf(out, HEAD_MAX, format, args);
    va_end(args);
}

#define KEY "%08llx" /* of the texts: as long for every key */
#define ULL(n) ((unsigned long long)(n))

static void binary(struct frame *f, uint8_t op, uint64_t key)
{
    f->head[0] = (char)op;
    memcpy(f->head + 1, &key, sizeof key);
    f->head_len = REQUEST_BYTES;
}

static void bare_put(struct frame *f, uint64_t key)
{
    binary(f, PENSTOCK_OP_PUT, key);
}

static void bare_get(struct frame *f, uint64_t key)
{
    binary(f, PENSTOCK_OP_FETCH, key);
}

static void bare_stored(struct frame *f)
{
    f->head[0] = PENSTOCK_ST_OK;
    f->head_len = 1;
}

static void bare_found(struct frame *f, uint64_t key)
{
    (void)key;
    bare_stored(f);
}

static void redis_put(struct frame *f, uint64_t key)
{
    print(f->head, &f->head_len, "*3\r\n$3\r\nSET\r\n$8\r\n" KEY "\r\n$%llu\r\n", ULL(key), ULL(blob_bytes));
    memcpy(f->tail, "\r\n", f->tail_len = 2);
}

static void redis_get(struct frame *f, uint64_t key)
{
    print(f->head, &f->head_len, "*2\r\n$3\r\nGET\r\n$8\r\n" KEY "\r\n", ULL(key));
}

static void redis_stored(struct frame *f)
{
    print(f->head, &f->head_len, "+OK\r\n");
}

static void redis_found(struct frame *f, uint64_t key)
{
    (void)key;
    print(f->head, &f->head_len, "$%llu\r\n", ULL(blob_bytes));
    memcpy(f->tail, "\r\n", f->tail_len = 2);
}

static void memcached_put(struct frame *f, uint64_t key)
{
    print(f->head, &f->head_len, "set " KEY " 0 0 %llu\r\n", ULL(key), ULL(blob_bytes));
    memcpy(f->tail, "\r\n", f->tail_len = 2);
}

static void memcached_get(struct frame *f, uint64_t key)
{
    print(f->head, &f->head_len, "get " KEY "\r\n", ULL(key));
}

static void memcached_stored(struct frame *f)
{
    print(f->head, &f->head_len, "STORED\r\n");
}

static void memcached_found(struct frame *f, uint64_t key)
{
    print(f->head, &f->head_len, "VALUE " KEY " 0 %llu\r\n", ULL(key), ULL(blob_bytes));
    memcpy(f->tail, "\r\nEND\r\n", f->tail_len = 7);
}

/* The arena of (KV, blob_bytes), without rails. */
static void penstock_hello(int fd)
{
    uint8_t hello[PENSTOCK_PAGING_HEADER_BYTES + 1] = { 0 }, answered[2];
    const struct penstock_paging_header header = { .kind = 1,
                                                   .blob_bytes = blob_bytes,
                                                   .arena_bytes = 2 * n_keys * blob_bytes };
    penstock_paging_header_encode(&header, hello);
    bench_send(fd, hello, sizeof hello);
    bench_receive(fd, answered, sizeof answered);
    if (answered[0] != 0 || answered[1] != PENSTOCK_STATUS_OK)
        bench_die("the peer refused the arena");
}

static const struct dialect dialects[] = {
    { "bare", NULL, bare_put, bare_get, bare_stored, bare_found },
    { "redis", NULL, redis_put, redis_get, redis_stored, redis_found },
    { "memcached", NULL, memcached_put, memcached_get, memcached_stored, memcached_found },
    { "penstock", penstock_hello, bare_put, bare_get, bare_stored, bare_found },
};

/* ---- the client ---- */

static void send_framed(int fd, struct frame *f, const char *blob)
{
    struct iovec iov[3] = { { .iov_base = f->head, .iov_len = f->head_len },
                            { .iov_base = (void *)(uintptr_t)blob, .iov_len = blob ? blob_bytes : 0 },
                            { .iov_base = f->tail, .iov_len = f->tail_len } };
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 3 };
    while (message.msg_iovlen > 0) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n <= 0)
            bench_die("the server closed the connection");
        while (message.msg_iovlen > 0 && (size_t)n >= message.msg_iov->iov_len) {
            n -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + n;
            message.msg_iov->iov_len -= (size_t)n;
        }
    }
}

/* The whole reply in one go, the blob straight to where it belongs. */
static void take_framed(int fd, const struct frame *expected, char *blob)
{
    char head[HEAD_MAX], tail[8];
    size_t whole = expected->head_len + (blob ? blob_bytes : 0) + expected->tail_len;
    struct iovec iov[3] = { { .iov_base = head, .iov_len = expected->head_len },
                            { .iov_base = blob, .iov_len = blob ? blob_bytes : 0 },
                            { .iov_base = tail, .iov_len = expected->tail_len } };
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 3 };
    if (recvmsg(fd, &message, MSG_WAITALL) != (ssize_t)whole || memcmp(head, expected->head, expected->head_len) != 0 ||
        memcmp(tail, expected->tail, expected->tail_len) != 0)
        bench_die("the server answered something else");
}

static void ask(int fd, const struct dialect *d, bool put, uint64_t i, const char *blob)
{
    struct frame request = { .tail_len = 0 };
    if (put)
        d->put(&request, key_of(i));
    else
        d->get(&request, key_of(i));
    send_framed(fd, &request, put ? blob : NULL);
}

static void take(int fd, const struct dialect *d, bool put, uint64_t i, char *blob)
{
    struct frame reply = { .tail_len = 0 };
    if (put)
        d->stored(&reply);
    else
        d->found(&reply, key_of(i));
    take_framed(fd, &reply, put ? NULL : blob);
}

static void move(int fd, const struct dialect *d, bool put, struct bench_fetches *f)
{
    char *blobs = bench_memory(f->depth * blob_bytes);
    int64_t *begun_ns = calloc(f->depth, sizeof *begun_ns);
    if (!begun_ns)
        bench_die("no memory");
    for (uint64_t i = 0; i < n_keys && !filled; i++) { /* what is fetched is there; what is put replaces what was */
        ask(fd, d, true, i, blobs);
        take(fd, d, true, i, NULL);
    }
    bench_fetches_begin(f);
    for (uint64_t i = 0; i < f->count + f->depth; i++) {
        uint64_t slot = i % f->depth;
        if (i >= f->depth) {
            take(fd, d, put, i - f->depth, blobs + slot * blob_bytes);
            bench_fetches_took(f, bench_now_ns() - begun_ns[slot]);
        }
        begun_ns[slot] = bench_now_ns();
        if (i < f->count)
            ask(fd, d, put, i, blobs + slot * blob_bytes);
    }
    bench_fetches_end(f, blob_bytes);
    free(begun_ns);
}

static void ping(int fd, const struct dialect *d, struct bench_fetches *f)
{
    struct frame request = { .tail_len = 0 };
    uint8_t reply[REQUEST_BYTES];
    binary(&request, d->hello ? PENSTOCK_OP_EXISTS : PING, 0);
    bench_fetches_begin(f);
    for (uint64_t i = 0; i < f->count; i++) {
        int64_t begun_ns = bench_now_ns();
        send_framed(fd, &request, NULL);
        bench_receive(fd, reply, d->hello ? 1 : sizeof reply);
        bench_fetches_took(f, bench_now_ns() - begun_ns);
    }
    bench_fetches_end(f, REQUEST_BYTES);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "dialect", 1, NULL, 't' }, { "blob", 1, NULL, 'b' },
                                             { "keys", 1, NULL, 'k' },    { "depth", 1, NULL, 'd' },
                                             { "count", 1, NULL, 'c' },   { "filled", 0, NULL, 'f' },
                                             { "disk", 1, NULL, 'i' },    { NULL, 0, NULL, 0 } };
    struct bench_fetches f = { .depth = 1, .count = 1000 };
    const struct dialect *dialect = &dialects[0];
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (o) {
        case 't':
            for (dialect = dialects; dialect < dialects + 4 && strcmp(dialect->name, optarg) != 0;)
                dialect++;
            break;
        case 'b':
            blob_bytes = bench_number(optarg, "--blob");
            break;
        case 'k':
            n_keys = bench_number(optarg, "--keys");
            break;
        case 'd':
            f.depth = bench_number(optarg, "--depth");
            break;
        case 'c':
            f.count = bench_number(optarg, "--count");
            break;
        case 'f':
            filled = true;
            break;
        case 'i':
            disk = open_disk(optarg);
            break;
        default:
            return 2;
        }
    bool serving = argc - optind == 1 && strcmp(argv[optind], "serve") == 0;
    if ((!serving && argc - optind != 2) || blob_bytes == 0 || n_keys == 0 || f.depth == 0 || dialect == dialects + 4)
        bench_die("usage: blob_pair serve|put|get|ping OPTIONS [HOST:PORT]");
    if (serving) {
        memory = bench_memory((disk < 0 ? n_keys : 1) * blob_bytes);
        bench_serve(NULL, serve_one);
    }
    int fd = bench_dial(argv[optind + 1]);
    if (dialect->hello)
        dialect->hello(fd);
    if (strcmp(argv[optind], "ping") == 0)
        ping(fd, dialect, &f);
    else
        move(fd, dialect, strcmp(argv[optind], "put") == 0, &f);
    close(fd);
    return 0;
}
