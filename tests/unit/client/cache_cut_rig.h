/* A session on a cache whose peer closes in the middle of a blob. */
#ifndef PENSTOCK_TEST_CACHE_CUT_RIG_H
#define PENSTOCK_TEST_CACHE_CUT_RIG_H

#include "fake_cache.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum { BLOB = 8192, CUT = 5000 };

/* The session is in f, and f.fd its connection of the moment. */
struct rig {
    struct fake_peer f;
    struct penstock_cache arena;
    int listener;
    char name[32];
};

/* ---- the peer ---- */

/* Polls the session, which is to live, until the peer's fd has something. */
static inline void turn(const struct rig *r, int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    size_t done;
    do
        assert_int_equal(penstock_poll(r->f.session, NULL, 0, &done), 0);
    while (poll(&p, 1, 1) == 0);
}

static inline void expect(const struct rig *r, const void *bytes, size_t n)
{
    uint8_t got[64];
    assert_true(n <= sizeof got);
    for (size_t have = 0; have < n;) {
        turn(r, r->f.fd);
        ssize_t part = recv(r->f.fd, got + have, n - have, 0);
        assert_true(part > 0);
        have += (size_t)part;
    }
    assert_memory_equal(got, bytes, n);
}

static inline void expect_key(const struct rig *r, uint8_t op, uint64_t key)
{
    uint8_t bytes[9] = { op };
    memcpy(bytes + 1, &key, 8);
    expect(r, bytes, sizeof bytes);
}

static inline void answer(const struct rig *r, uint32_t file)
{
    fake_status(&r->f, PENSTOCK_ST_OK);
    fake_payload(&r->f, file, 0, BLOB);
}

/* The peer has said ST_OK and some of the blob, which is there, and closes. Where it has requests to read, or with
 * reset, that is a reset. */
static inline void cut(struct rig *r, uint32_t file, bool reset)
{
    const struct linger now = { .l_onoff = reset };
    size_t done;
    fake_status(&r->f, PENSTOCK_ST_OK);
    fake_payload(&r->f, file, 0, CUT);
    do
        assert_int_equal(penstock_poll(r->f.session, NULL, 0, &done), 0);
    while (r->f.session->phase != CLIENT_PAYLOAD || r->f.session->payload_left != BLOB - CUT);
    assert_int_equal(setsockopt(r->f.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    fake_close(&r->f);
}

static inline void accept_one(struct rig *r)
{
    turn(r, r->listener);
    r->f.fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(r->f.fd >= 0);
}

/* The session dials, and says what it says first. */
static inline void greet(struct rig *r)
{
    uint8_t hello[PENSTOCK_PAGING_HEADER_BYTES + 1 + 9] = { 0 };
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_KV,
                                                   .arena_bytes = r->arena.arena_bytes,
                                                   .blob_bytes = r->arena.blob_bytes };
    penstock_paging_header_encode(&header, hello);
    hello[PENSTOCK_PAGING_HEADER_BYTES + 1] = PENSTOCK_OP_FEATURES;
    hello[PENSTOCK_PAGING_HEADER_BYTES + 2] = 1;
    accept_one(r);
    expect(r, hello, sizeof hello);
}

static inline void let_in(struct rig *r)
{
    const uint64_t features = FAKE_ANY_FEATURES;
    greet(r);
    fake_send(&r->f, "\0\0\0", 3);  /* no rails, STATUS_OK; ST_OK */
    fake_send(&r->f, &features, 8); /* little-endian, as this machine is */
    if (r->arena.wide) {
        expect(r, "\x24\1\0\0\0\0\0\0\0", 9);
        fake_status(&r->f, PENSTOCK_ST_OK);
    }
    if (r->arena.own) {
        expect(r, "\x23\1\0\0\0\0\0\0\0", 9);
        fake_status(&r->f, PENSTOCK_ST_OK);
    }
}

static inline void listen_on_loopback(struct rig *r)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(r->listener, 8), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&at, &len), 0);
    snprintf(r->name, sizeof r->name, "127.0.0.1:%u", ntohs(at.sin_port));
}

/* ---- the session ---- */

/* As a caller's own loop has it: until the fd or the timeout says that there is something to do. */
static inline struct penstock_completion next(const struct rig *r)
{
    struct penstock_completion c = { 0 };
    while (fake_poll(&r->f, &c) == 0) {
        struct pollfd p = { .fd = penstock_fd(r->f.session), .events = POLLIN };
        int64_t timeout_ns = penstock_timeout_ns(r->f.session);
        assert_true(poll(&p, 1, timeout_ns < 0 ? 20000 : (int)(timeout_ns / 1000000 + 1)) > 0 || timeout_ns >= 0);
    }
    return c;
}

static inline void expect_end(const struct rig *r, penstock_op op, int code)
{
    const struct penstock_completion c = next(r);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, code);
}

static inline void begin_with(struct rig *r, const struct penstock_cache *arena, const struct penstock_options *options)
{
    memset(r, 0, sizeof *r);
    r->arena = *arena;
    listen_on_loopback(r);
    assert_int_equal(penstock_cache_start(r->name, arena, options, &r->f.session, &r->f.open, NULL), 0);
    let_in(r);
    expect_end(r, r->f.open, 0);
}

static inline struct penstock_cache some_arena(void)
{
    return (struct penstock_cache){ .size = sizeof(struct penstock_cache),
                                    .kind = PENSTOCK_CACHE_KV,
                                    .blob_bytes = BLOB,
                                    .arena_bytes = UINT64_C(8) * BLOB };
}

static inline void begin(struct rig *r)
{
    const struct penstock_cache arena = some_arena();
    begin_with(r, &arena, NULL);
}

static inline void end(struct rig *r)
{
    fake_end(&r->f);
    close(r->listener);
}

static inline penstock_op submit(const struct rig *r, int action, uint32_t region, struct penstock_blob *blobs,
                                 size_t n)
{
    penstock_op op = 0;
    const struct penstock_blobs b = {
        .size = sizeof b, .action = action, .region = region, .blobs = blobs, .count = n
    };
    assert_int_equal(penstock_submit_blobs(r->f.session, &b, &op, NULL), 0);
    return op;
}

/* GETs of n keys from first on, one behind the other in memory. */
static inline penstock_op get(const struct rig *r, uint32_t region, struct penstock_blob *blobs, uint64_t first,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        blobs[i] = (struct penstock_blob){ .key.low = first + i, .at_bytes = (first + i) * BLOB };
    return submit(r, PENSTOCK_BLOB_GET, region, blobs, n);
}

#endif
