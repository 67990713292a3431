/* The other end of a session on a cache: see fake_peer.h. */
#ifndef PENSTOCK_TEST_FAKE_CACHE_H
#define PENSTOCK_TEST_FAKE_CACHE_H

#include "fake_peer.h"

#include "client/cache/cache.h"

#define FAKE_ANY_FEATURES (PENSTOCK_FEATURE_EXISTS | PENSTOCK_FEATURE_OWN | PENSTOCK_FEATURE_WIDE)

/* Two ends of a stream: f has one, stream the other. */
static inline void fake_cache_stream(struct fake_peer *f, struct net_stream *stream)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(stream, fds[1]);
    f->fd = fds[0];
}

/* The session was started, for a paging or raw arena: takes it to its first request. own: it is to ask for that. */
static inline void fake_cache_ready(const struct fake_peer *f, const struct penstock_paging_header *header,
                                    uint64_t features, bool own)
{
    uint8_t hello[PENSTOCK_PAGING_HEADER_BYTES + 1 + 9] = { 0 };
    struct penstock_completion c = { 0 };
    penstock_paging_header_encode(header, hello);
    hello[PENSTOCK_PAGING_HEADER_BYTES + 1] = PENSTOCK_OP_FEATURES;
    hello[PENSTOCK_PAGING_HEADER_BYTES + 2] = 1;
    fake_expect(f, hello, sizeof hello);
    fake_send(f, "\0\0\0", 3);  /* no rails, STATUS_OK; ST_OK */
    fake_send(f, &features, 8); /* little-endian, as this machine is */
    if (own) {
        assert_int_equal(fake_poll(f, &c), 0);
        fake_expect(f, "\x23\1\0\0\0\0\0\0\0", 9);
        fake_status(f, PENSTOCK_ST_OK);
    }
    assert_int_equal(fake_poll(f, &c), 1);
    assert_int_equal(c.op, f->open);
    assert_int_equal(c.code, 0);
    fake_expect_nothing(f);
}

/* A request with a key. */
static inline void fake_cache_expect(const struct fake_peer *f, uint8_t op, uint64_t key)
{
    uint8_t bytes[9] = { op };
    memcpy(bytes + 1, &key, 8);
    fake_expect(f, bytes, sizeof bytes);
}

/* One of a raw arena, without the body of a WRITE. */
static inline void fake_cache_expect_raw(const struct fake_peer *f, uint8_t op, uint64_t offset, uint32_t len)
{
    uint8_t bytes[13] = { op };
    memcpy(bytes + 1, &offset, 8);
    memcpy(bytes + 9, &len, 4);
    fake_expect(f, bytes, sizeof bytes);
}

static inline void fake_fill(uint8_t *to, uint32_t file, uint64_t offset, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = fake_byte(file, offset + i);
}

static inline void fake_cache_expect_body(const struct fake_peer *f, uint32_t file, size_t n)
{
    uint8_t *got = malloc(n), *wanted = malloc(n);
    assert_true(got && wanted);
    fake_fill(wanted, file, 0, n);
    assert_int_equal(recv(f->fd, got, n, MSG_WAITALL), n);
    assert_memory_equal(got, wanted, n);
    free(got);
    free(wanted);
}

#endif
