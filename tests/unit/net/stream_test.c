#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/stream.h"
#include "script_stream.h"

struct pair {
    struct net_stream a, b;
};

static void pair_open(struct pair *p)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(&p->a, fds[0]);
    net_stream_plain(&p->b, fds[1]);
}

static void pair_close(struct pair *p)
{
    p->a.ops->close(&p->a);
    p->b.ops->close(&p->b);
}

/* A file without a name that says text. */
static int file_of(const char *text)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0 && fflush(f) == 0, 1);
    int fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 0);
    fclose(f);
    assert_true(fd >= 0);
    return fd;
}

static void bytes_cross_in_several_pieces(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    const struct iovec out[2] = { { (void *)(uintptr_t) "abc", 3 }, { (void *)(uintptr_t) "defg", 4 } };
    assert_int_equal(p.a.ops->writev(&p.a, out, 2, true), 7);
    char head[2], rest[8];
    const struct iovec in[2] = { { head, sizeof head }, { rest, sizeof rest } };
    assert_int_equal(p.b.ops->readv(&p.b, in, 2), 7);
    assert_memory_equal(head, "ab", 2);
    assert_memory_equal(rest, "cdefg", 5);
    p.a.ops->shutdown(&p.a, SHUT_WR);
    assert_int_equal(p.b.ops->readv(&p.b, in, 2), 0);
    pair_close(&p);
}

static void a_file_is_sent_from_an_offset(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    int fd = file_of("0123456789");
    assert_int_equal(p.a.ops->sendfile(&p.a, fd, 7, 100, false), 3);
    assert_int_equal(p.a.ops->sendfile(&p.a, fd, 10, 100, false), 0);
    assert_int_equal(p.a.ops->sendfile(&p.a, fd, UINT64_MAX, 1, false), -EOVERFLOW);
    char got[3];
    assert_int_equal(net_stream_read_all(&p.b, got, 3, BASE_NEVER, NULL, NULL), 0);
    assert_memory_equal(got, "789", 3);
    close(fd);
    pair_close(&p);
}

static void what_cannot_be_sent_as_a_file_says_so(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    ssize_t sent = p.a.ops->sendfile(&p.a, ends[0], 0, 1, false);
    assert_true(sent == -EOPNOTSUPP || sent == -ESPIPE);
    close(ends[0]);
    close(ends[1]);
    pair_close(&p);
}

/* The writing end does not block. */
static void tcp_pair_open(struct pair *p)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&a, len), 0);
    net_stream_plain(&p->b, client);
    net_stream_plain(&p->a, accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    assert_true(p->a.fd >= 0);
    close(listener);
}

static size_t read_some(struct pair *p, uint8_t *got, size_t room)
{
    const struct iovec in = { got, room };
    ssize_t n = p->b.ops->readv(&p->b, &in, 1);
    assert_true(n > 0);
    return (size_t)n;
}

/* More than the pipe and the socket take at once, in pieces with ragged edges. */
static void pages_arrive_whole_and_in_order_however_little_goes_at_once(void **state)
{
    (void)state;
    enum { PIECES = 300, PIECE = 20011 };
    static uint8_t sent[PIECES * PIECE], got[sizeof sent];
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)test_random(&seed);
    struct iovec iov[PIECES], *at = iov;
    for (int i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){ sent + i * PIECE, PIECE };
    struct pair p;
    tcp_pair_open(&p);

    size_t have = 0, refused = 0;
    while (at < iov + PIECES) {
        ssize_t moved = p.a.ops->write_pages(&p.a, at, (int)(iov + PIECES - at), false);
        if (moved == -EAGAIN) {
            refused++;
            have += read_some(&p, got + have, sizeof got - have);
            continue;
        }
        assert_true(moved > 0);
        for (; at < iov + PIECES && (size_t)moved >= at->iov_len; at++)
            moved -= (ssize_t)at->iov_len;
        if (moved > 0)
            *at = (struct iovec){ (uint8_t *)at->iov_base + moved, at->iov_len - (size_t)moved };
    }
    while (have < sizeof got)
        have += read_some(&p, got + have, sizeof got - have);
    assert_memory_equal(got, sent, sizeof sent);
    assert_true(refused > 0);
    pair_close(&p);
}

static void pages_that_are_not_there_are_an_error(void **state)
{
    (void)state;
    struct pair p;
    tcp_pair_open(&p);
    uint8_t *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    const struct iovec out = { page, 4096 };
    assert_int_equal(p.a.ops->write_pages(&p.a, &out, 1, false), -EFAULT);
    munmap(page, 4096);
    pair_close(&p);
}

static void a_process_that_may_open_no_pipe_is_told_to_copy(void **state)
{
    (void)state;
    struct pair p;
    tcp_pair_open(&p);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const struct iovec out = { (void *)(uintptr_t) "x", 1 };
    ssize_t moved = p.a.ops->write_pages(&p.a, &out, 1, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(moved, -EOPNOTSUPP);
    pair_close(&p);
}

/* With the default action in force a SIGPIPE would end the test here. */
static void nothing_raises_sigpipe(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    p.b.ops->close(&p.b);
    int fd = file_of("x");
    assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    const struct iovec out = { (void *)(uintptr_t) "x", 1 };
    assert_int_equal(p.a.ops->writev(&p.a, &out, 1, false), -EPIPE);
    assert_int_equal(p.a.ops->sendfile(&p.a, fd, 0, 1, false), -EPIPE);
    ssize_t moved = p.a.ops->write_pages(&p.a, &out, 1, false);
    assert_true(moved == -EPIPE || moved == -EOPNOTSUPP); /* UNIX sockets of older kernels take no pages */

    sigset_t now;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    assert_int_equal(sigismember(&now, SIGPIPE), 0);
    assert_int_equal(sigpending(&now), 0);
    assert_int_equal(sigismember(&now, SIGPIPE), 0);
    close(fd);
    p.a.ops->close(&p.a);
}

static void a_sigpipe_of_someone_else_stays_pending(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    p.b.ops->close(&p.b);
    int fd = file_of("x");
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe_only, &before), 0);
    assert_int_equal(raise(SIGPIPE), 0);
    assert_int_equal(p.a.ops->sendfile(&p.a, fd, 0, 1, false), -EPIPE);
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGPIPE), 1);

    const struct timespec at_once = { 0 };
    assert_int_equal(sigtimedwait(&pipe_only, NULL, &at_once), SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    close(fd);
    p.a.ops->close(&p.a);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    assert_int_equal(p.a.ops->wait(&p.a, POLLIN, 0), -ETIMEDOUT);
    assert_int_equal(p.a.ops->wait(&p.a, POLLOUT, BASE_NEVER), 0);
    p.b.ops->shutdown(&p.b, SHUT_WR);
    assert_int_equal(p.a.ops->wait(&p.a, POLLIN, BASE_NEVER), 0);
    pair_close(&p);
}

/* So many bytes go through; what the reader's window may then be. */
static int window_after(struct pair *p, size_t len)
{
    static char out[64 << 10], in[64 << 10];
    int clamp = 0;
    socklen_t clamp_len = sizeof clamp;
    for (size_t done = 0; done < len; done += sizeof in) {
        struct penstock_error error;
        assert_int_equal(net_stream_write_all(&p->a, out, sizeof out, BASE_SECOND_NS, &error), 0);
        assert_int_equal(net_stream_read_all(&p->b, in, sizeof in, BASE_SECOND_NS, NULL, &error), 0);
    }
    if (getsockopt(p->b.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &clamp, &clamp_len) < 0)
        return -1;
    return clamp;
}

static void a_bulk_readers_window_within_a_machine_stays_small(void **state)
{
    (void)state;
    enum { WIDE = 8 << 20, SMALL = 512 << 10 };
    int wide = WIDE;
    struct pair p;
    tcp_pair_open(&p);
    assert_int_equal(setsockopt(p.b.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &wide, sizeof wide), 0);
    assert_int_not_equal(window_after(&p, 1 << 20), SMALL); /* nobody asked */
    p.b.small_window = true;
    assert_in_range(window_after(&p, 1 << 20), 1, SMALL);
    assert_int_equal(setsockopt(p.b.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &wide, sizeof wide), 0);
    assert_in_range(window_after(&p, 1 << 20), 1, SMALL); /* and again, when it has grown */
    assert_true(p.b.small_window);
    pair_close(&p);
    pair_open(&p);
    p.b.small_window = true;
    assert_int_equal(window_after(&p, 1 << 20), -1);
    assert_false(p.b.small_window); /* no TCP: never asked again */
    pair_close(&p);
}

enum { MUCH_BYTES = 100, FEW_BYTES = 10 };

/* Writes a few bytes once the other end waits for much, and the rest if it is told to. */
struct dripping {
    struct pair *pair;
    bool all;
};

static void *drip(void *argument)
{
    struct dripping *d = argument;
    int mark = 0;
    socklen_t len = sizeof mark;
    while (mark != MUCH_BYTES)
        if (getsockopt(d->pair->b.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &len) < 0)
            return NULL;
    static const char bytes[MUCH_BYTES] = "much";
    (void)!send(d->pair->a.fd, bytes, FEW_BYTES, 0);
    if (d->all)
        (void)!send(d->pair->a.fd, bytes + FEW_BYTES, MUCH_BYTES - FEW_BYTES, 0);
    return NULL;
}

static ssize_t read_much_while_dripping(struct pair *p, bool all, int64_t deadline_ns)
{
    struct dripping d = { .pair = p, .all = all };
    char in[2 * MUCH_BYTES];
    const struct iovec into = { in, sizeof in };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drip, &d), 0);
    ssize_t got = p->b.ops->readv_much(&p->b, &into, 1, MUCH_BYTES, deadline_ns);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return got;
}

static void a_read_of_much_does_not_come_back_with_few_bytes(void **state)
{
    (void)state;
    struct pair p;
    tcp_pair_open(&p);
    assert_int_equal(read_much_while_dripping(&p, true, BASE_NEVER), MUCH_BYTES);
    pair_close(&p);
}

static void a_read_of_much_takes_what_came_until_its_deadline(void **state)
{
    (void)state;
    struct pair p;
    tcp_pair_open(&p);
    assert_int_equal(read_much_while_dripping(&p, false, base_now_ns() + 300000000), FEW_BYTES);
    pair_close(&p);
}

static void a_read_of_much_leaves_other_reads_as_they_were(void **state)
{
    (void)state;
    struct pair p;
    tcp_pair_open(&p);
    char in[MUCH_BYTES];
    const struct iovec into = { in, sizeof in };
    assert_int_equal(p.b.ops->readv_much(&p.b, &into, 1, MUCH_BYTES, base_now_ns()), -EAGAIN);
    assert_int_equal(send(p.a.fd, "few", 3, 0), 3);
    assert_int_equal(p.b.ops->readv(&p.b, &into, 1), 3);
    p.a.ops->shutdown(&p.a, SHUT_WR);
    assert_int_equal(p.b.ops->readv_much(&p.b, &into, 1, MUCH_BYTES, BASE_NEVER), 0);
    pair_close(&p);
}

static void a_blocking_write_comes_back_after_the_sockets_own_timeout(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    const struct timeval soon = { .tv_usec = 1000 };
    assert_int_equal(setsockopt(p.a.fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon), 0);
    static char much[1 << 20];
    const struct iovec out = { much, sizeof much };
    ssize_t moved;
    do
        moved = p.a.ops->writev(&p.a, &out, 1, false);
    while (moved > 0);
    assert_int_equal(moved, -EAGAIN);
    struct penstock_error error;
    assert_int_equal(net_stream_write_all(&p.a, much, 1, 1, &error), PENSTOCK_ETIMEOUT);
    assert_non_null(strstr(error.message, "took no byte"));
    pair_close(&p);
}

static void read_all_goes_on_after_short_reads(void **state)
{
    (void)state;
    struct script_stream s;
    script_stream_init(&s, "0123456789", 10, 0);
    s.piece = 3;
    char got[10];
    size_t n;
    assert_int_equal(net_stream_read_all(&s.stream, got, 10, BASE_SECOND_NS, &n, NULL), 0);
    assert_int_equal(n, 10);
    assert_memory_equal(got, "0123456789", 10);
    assert_int_equal(s.reads, 4);
    s.stream.ops->close(&s.stream);
}

static void read_all_says_how_a_stream_ended(void **state)
{
    (void)state;
    static const struct {
        int end, code;
        const char *words;
    } cases[] = {
        { 0, PENSTOCK_ECLOSED, "connection closed after 4 of 8 bytes" },
        { ECONNRESET, PENSTOCK_ECLOSED, "read: connection closed by the other side" },
        { EAGAIN, PENSTOCK_ETIMEOUT, "read: no byte moved in 1 s" },
        { ETIMEDOUT, PENSTOCK_ETIMEOUT, "read: the other side does not answer any more" },
        { EIO, PENSTOCK_ESYS, "read: Input/output error" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script_stream s;
        script_stream_init(&s, "0123", 4, 0);
        s.in_end = cases[i].end;
        char got[8];
        size_t n;
        struct penstock_error error;
        assert_int_equal(net_stream_read_all(&s.stream, got, 8, BASE_SECOND_NS, &n, &error), cases[i].code);
        assert_string_equal(error.message, cases[i].words);
        assert_int_equal(n, 4);
        s.stream.ops->close(&s.stream);
    }
}

static void write_all_goes_on_after_short_writes(void **state)
{
    (void)state;
    struct script_stream s;
    script_stream_init(&s, NULL, 0, 10);
    s.piece = 3;
    assert_int_equal(net_stream_write_all(&s.stream, "0123456789", 10, BASE_SECOND_NS, NULL), 0);
    assert_memory_equal(s.out, "0123456789", 10);
    struct penstock_error error;
    assert_int_equal(net_stream_write_all(&s.stream, "x", 1, BASE_SECOND_NS, &error), PENSTOCK_ECLOSED);
    assert_string_equal(error.message, "write: connection closed by the other side");
    s.stream.ops->close(&s.stream);
}

static void a_lingering_close_reads_what_is_there(void **state)
{
    (void)state;
    struct script_stream s;
    script_stream_init(&s, "0123456789", 10, 0);
    s.piece = 4;
    net_stream_linger_close(&s.stream, BASE_SECOND_NS);
    assert_true(s.shut && s.closed);
    assert_int_equal(s.in_at, 10);

    script_stream_init(&s, "0123", 4, 0);
    s.in_end = EAGAIN; /* and does not close */
    net_stream_linger_close(&s.stream, BASE_SECOND_NS);
    assert_true(s.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_cross_in_several_pieces),
        cmocka_unit_test(a_file_is_sent_from_an_offset),
        cmocka_unit_test(what_cannot_be_sent_as_a_file_says_so),
        cmocka_unit_test(pages_arrive_whole_and_in_order_however_little_goes_at_once),
        cmocka_unit_test(pages_that_are_not_there_are_an_error),
        cmocka_unit_test(a_process_that_may_open_no_pipe_is_told_to_copy),
        cmocka_unit_test(nothing_raises_sigpipe),
        cmocka_unit_test(a_sigpipe_of_someone_else_stays_pending),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(a_bulk_readers_window_within_a_machine_stays_small),
        cmocka_unit_test(a_read_of_much_does_not_come_back_with_few_bytes),
        cmocka_unit_test(a_read_of_much_takes_what_came_until_its_deadline),
        cmocka_unit_test(a_read_of_much_leaves_other_reads_as_they_were),
        cmocka_unit_test(a_blocking_write_comes_back_after_the_sockets_own_timeout),
        cmocka_unit_test(read_all_goes_on_after_short_reads),
        cmocka_unit_test(read_all_says_how_a_stream_ended),
        cmocka_unit_test(write_all_goes_on_after_short_writes),
        cmocka_unit_test(a_lingering_close_reads_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
