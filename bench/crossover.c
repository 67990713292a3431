/* crossover sendfile|writev|vmsplice file|random LEN FILE: how fast ranges of one length leave a warm file, a status
 * byte before each as in protocol 2.1, by each way; to find the lengths at which one overtakes another. The receiver is
 * a child that scatters status bytes and payloads to where they belong. One JSON object on stdout.
 *
 *   sendfile  a status byte with MSG_MORE, then sendfile, for each range
 *   writev    status bytes and ranges of the mapping, in batches of up to 1 MiB or 256 ranges
 *   vmsplice  the same batches into a pipe, and from there to the socket: the mapping's pages go out as they are */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH_RANGES = 256, BATCH_BYTES = 1 << 20, LANDING_BYTES = 64 << 20 };

struct ranges {
    int file;
    const char *mapping;
    uint64_t len, places, count; /* range i is at place i, or at a random one */
    bool random;
};

static uint64_t place(const struct ranges *r, uint64_t i, uint64_t *state)
{
    if (!r->random)
        return i % r->places * r->len;
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % r->places * r->len;
}

static void send_by_sendfile(int to, const struct ranges *r)
{
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < r->count; i++) {
        off_t at = (off_t)place(r, i, &random);
        if (send(to, "\0", 1, MSG_MORE | MSG_NOSIGNAL) != 1)
            bench_die("send: %s", strerror(errno));
        for (uint64_t left = r->len; left;) {
            ssize_t n = sendfile(to, r->file, &at, left);
            if (n <= 0)
                bench_die("sendfile: %s", strerror(errno));
            left -= (uint64_t)n;
        }
    }
}

/* Takes moved bytes off the front of iov: how many of them are done. */
static size_t advance(struct iovec *iov, size_t n, size_t moved)
{
    size_t i = 0;
    for (; i < n && moved >= iov[i].iov_len; i++)
        moved -= iov[i].iov_len;
    if (i < n) {
        iov[i].iov_base = (char *)iov[i].iov_base + moved;
        iov[i].iov_len -= moved;
    }
    return i;
}

/* Moves all of iov, by whichever call, in as few of them as there need be. */
static void move_all(int fd, struct iovec *iov, size_t n, bool out)
{
    while (n) {
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = n < IOV_MAX ? n : IOV_MAX };
        ssize_t moved = out ? sendmsg(fd, &m, MSG_NOSIGNAL) : recvmsg(fd, &m, MSG_WAITALL);
        if (moved <= 0)
            bench_die("%s: %s", out ? "sendmsg" : "recvmsg", moved < 0 ? strerror(errno) : "closed");
        size_t whole = advance(iov, n, (size_t)moved);
        iov += whole;
        n -= whole;
    }
}

static size_t batch_ranges(const struct ranges *r)
{
    uint64_t n = BATCH_BYTES / r->len;
    return n > BATCH_RANGES ? BATCH_RANGES : n ? n : 1;
}

static void send_by_writev(int to, const struct ranges *r)
{
    static char ok;
    struct iovec iov[2 * BATCH_RANGES];
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < r->count;) {
        size_t n = 0;
        for (; n < 2 * batch_ranges(r) && i < r->count; i++) {
            iov[n++] = (struct iovec){ &ok, 1 };
            iov[n++] = (struct iovec){ (void *)(uintptr_t)(r->mapping + place(r, i, &random)), r->len };
        }
        move_all(to, iov, n, true);
    }
}

static void send_by_vmsplice(int to, const struct ranges *r)
{
    static char ok;
    struct iovec iov[2 * BATCH_RANGES];
    uint64_t random = 88172645463325252u;
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0 || fcntl(pipe_fds[1], F_SETPIPE_SZ, BATCH_BYTES) < 0)
        bench_die("pipe: %s", strerror(errno));
    for (uint64_t i = 0; i < r->count;) {
        size_t n = 0, at = 0;
        for (; n < 2 * batch_ranges(r) && i < r->count; i++) {
            iov[n++] = (struct iovec){ &ok, 1 };
            iov[n++] = (struct iovec){ (void *)(uintptr_t)(r->mapping + place(r, i, &random)), r->len };
        }
        while (at < n) {
            /* As much as the pipe takes; every page, or part of one, takes one of its 256 places. */
            ssize_t filled = vmsplice(pipe_fds[1], iov + at, n - at, 0);
            if (filled <= 0)
                bench_die("vmsplice: %s", strerror(errno));
            for (size_t left = (size_t)filled; left;) {
                ssize_t moved = splice(pipe_fds[0], NULL, to, NULL, left, i < r->count ? SPLICE_F_MORE : 0);
                if (moved <= 0)
                    bench_die("splice: %s", strerror(errno));
                left -= (size_t)moved;
            }
            at += advance(iov + at, n - at, (size_t)filled);
        }
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void receive(int from, const struct ranges *r)
{
    static char status[BATCH_RANGES];
    char *memory = bench_memory(LANDING_BYTES);
    struct iovec iov[2 * BATCH_RANGES];
    bench_send(from, "", 1); /* ready */
    for (uint64_t i = 0, at = 0; i < r->count;) {
        size_t n = 0;
        for (; n < 2 * batch_ranges(r) && i < r->count; i++) {
            at = at + r->len > LANDING_BYTES ? 0 : at;
            iov[n] = (struct iovec){ &status[n / 2], 1 };
            iov[n + 1] = (struct iovec){ memory + at, r->len };
            n += 2;
            at += r->len;
        }
        move_all(from, iov, n, false);
    }
    bench_send(from, "", 1); /* all there */
}

/* A connected pair over loopback TCP, with cubic where the kernel has it. */
static void connect_pair(int *server, int *client)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    *client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&a, &len) < 0 || connect(*client, (struct sockaddr *)&a, len) < 0)
        bench_die("loopback: %s", strerror(errno));
    *server = accept(listener, NULL, NULL);
    close(listener);
    (void)setsockopt(*server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_die("usage: crossover sendfile|writev|vmsplice file|random LEN FILE");
    void (*send_all)(int, const struct ranges *) = strcmp(argv[1], "sendfile") == 0   ? send_by_sendfile
                                                   : strcmp(argv[1], "vmsplice") == 0 ? send_by_vmsplice
                                                                                      : send_by_writev;
    struct stat st;
    struct ranges r = { .random = strcmp(argv[2], "random") == 0, .len = bench_number(argv[3], "LEN") };
    r.file = open(argv[4], O_RDONLY | O_CLOEXEC);
    if (r.file < 0 || fstat(r.file, &st) < 0)
        bench_die("%s: %s", argv[4], strerror(errno));
    if (r.len == 0 || r.len > LANDING_BYTES || (uint64_t)st.st_size < r.len)
        bench_die("LEN: at least 1, at most 64 MiB and the file's length");
    r.places = (uint64_t)st.st_size / r.len;
    r.count = r.places;
    void *mapping = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, r.file, 0);
    if (mapping == MAP_FAILED)
        bench_die("%s: %s", argv[4], strerror(errno));
    r.mapping = mapping;

    int server, client;
    connect_pair(&server, &client);
    pid_t child = fork();
    if (child == 0) {
        close(server);
        receive(client, &r);
        _exit(0);
    }
    close(client);
    char byte;
    bench_receive(server, &byte, 1);
    int64_t began = bench_now_ns(), cpu_began = bench_cpu_ns();
    send_all(server, &r);
    double cpu_s = (double)(bench_cpu_ns() - cpu_began) / 1e9;
    bench_receive(server, &byte, 1);
    double wall_s = (double)(bench_now_ns() - began) / 1e9, gb = (double)(r.count * r.len) / 1e9;
    printf("{\"way\":\"%s\",\"order\":\"%s\",\"len\":%llu,\"gb_s\":%.3f,\"server_cpu_s_per_gb\":%.3f}\n", argv[1],
           argv[2], (unsigned long long)r.len, gb / wall_s, cpu_s / gb);
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
