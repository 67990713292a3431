/* The other end of a session, in the test's own thread: what the client sent is looked at, and what it is to get is
 * sent, between two polls. */
#ifndef PENSTOCK_TEST_FAKE_PEER_H
#define PENSTOCK_TEST_FAKE_PEER_H

#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/weights/weights.h"

/* shard 0: 100,000 bytes; shard 1: 40 MiB; files 2 and 3; a name that no client accepts is file 4 */
#define FAKE_SHARD0 UINT64_C(100000)
#define FAKE_SHARD1 (UINT64_C(40) << 20)
static const char fake_manifest[] =
    "{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"a.safetensors\",\"b.safetensors\"],"
    "\"shard_lens\":[100000,41943040],\"tensors\":[{\"name\":\"t\",\"dtype\":\"U8\",\"shape\":[100],"
    "\"offset_in_shard\":8,\"len\":100,\"shard_index\":0,\"extra\":false}],\"model_version\":\"v1\","
    "\"files\":[{\"name\":\"config.json\",\"len\":50},{\"name\":\"empty\",\"len\":0},{\"name\":\"../x\",\"len\":9}]}";

struct fake_peer {
    int fd;
    struct penstock_session *session;
    penstock_op open;
};

/* What lies at offset of file, so that a byte in the wrong place is seen. */
static inline uint8_t fake_byte(uint32_t file, uint64_t offset)
{
    uint64_t x = offset * UINT64_C(0x9E3779B97F4A7C15) + file;
    return (uint8_t)(x >> 56 ^ x >> 24);
}

static inline struct penstock_options fake_options(void)
{
    return (struct penstock_options){ .size = sizeof(struct penstock_options) };
}

static inline struct fake_peer fake_begin(const struct penstock_options *options, enum client_purpose purpose,
                                          struct penstock_catalogue *catalogue)
{
    int fds[2];
    struct fake_peer f;
    struct net_stream stream;
    struct penstock_error error = { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(&stream, fds[1]);
    f.fd = fds[0];
    int code = client_session_on_stream(&stream, options, purpose, "m", catalogue, &f.session, &f.open, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return f;
}

static inline void fake_end(struct fake_peer *f)
{
    penstock_session_free(f->session);
    if (f->fd >= 0)
        close(f->fd);
}

static inline void fake_close(struct fake_peer *f)
{
    close(f->fd);
    f->fd = -1;
}

static inline void fake_send(const struct fake_peer *f, const void *bytes, size_t n)
{
    assert_int_equal(send(f->fd, bytes, n, MSG_NOSIGNAL), n);
}

static inline void fake_send_text(const struct fake_peer *f, const char *text)
{
    uint32_t len = (uint32_t)strlen(text);
    fake_send(f, &len, 4);
    fake_send(f, text, len);
}

static inline void fake_expect(const struct fake_peer *f, const void *bytes, size_t n)
{
    uint8_t got[512];
    assert_true(n <= sizeof got);
    assert_int_equal(recv(f->fd, got, n, 0), n);
    assert_memory_equal(got, bytes, n);
}

static inline void fake_expect_nothing(const struct fake_peer *f)
{
    uint8_t byte;
    assert_int_equal(recv(f->fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

static inline struct penstock_range_request fake_request(const struct fake_peer *f)
{
    uint8_t bytes[PENSTOCK_RANGE_REQUEST_BYTES];
    struct penstock_range_request r = { 0 };
    struct penstock_wire_fault fault;
    size_t consumed;
    assert_int_equal(recv(f->fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(penstock_range_request_decode(bytes, sizeof bytes, &r, &consumed, &fault), PENSTOCK_DECODE_OK);
    return r;
}

/* One poll; *c is the completion where there is one. */
static inline size_t fake_poll(const struct fake_peer *f, struct penstock_completion *c)
{
    size_t done;
    (void)!penstock_poll(f->session, c, 1, &done);
    return done;
}

static inline const char *fake_words(const struct fake_peer *f, penstock_op op)
{
    const struct penstock_error *error = penstock_op_error(f->session, op);
    assert_non_null(error);
    return error->message;
}

/* A session past its mode byte. */
static inline struct fake_peer fake_ready(const struct penstock_options *options)
{
    struct fake_peer f = fake_begin(options, CLIENT_FOR_MANIFEST, NULL);
    struct penstock_completion c = { 0 };
    fake_expect(&f, "\1\0\0\0m", 5);
    fake_send_text(&f, fake_manifest);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, f.open);
    assert_int_equal(c.code, 0);
    fake_expect(&f, "\0", 1);
    return f;
}

static inline void fake_status(const struct fake_peer *f, uint8_t status)
{
    fake_send(f, &status, 1);
}

static inline void fake_payload(const struct fake_peer *f, uint32_t file, uint64_t offset, size_t n)
{
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = fake_byte(file, offset + i);
    fake_send(f, bytes, n);
    free(bytes);
}

static inline void fake_answer(const struct fake_peer *f, const struct penstock_range_request *r)
{
    fake_status(f, PENSTOCK_STATUS_OK);
    fake_payload(f, r->file, r->offset, (size_t)r->len);
}

static inline uint32_t fake_region(const struct fake_peer *f, void *at, size_t n)
{
    uint32_t region;
    const struct penstock_memory memory = { .size = sizeof memory, .address = at, .len_bytes = n };
    assert_int_equal(penstock_register(f->session, &memory, &region, NULL), 0);
    return region;
}

static inline penstock_op fake_submit(const struct fake_peer *f, uint32_t region, const struct penstock_range *ranges,
                                      size_t n)
{
    penstock_op op = 0;
    struct penstock_error error;
    const struct penstock_read read = { .size = sizeof read, .ranges = ranges, .count = n, .region = region };
    int code = penstock_submit(f->session, &read, &op, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return op;
}

static inline void fake_assert_landed(const uint8_t *memory, const struct penstock_range *r)
{
    for (uint64_t i = 0; i < r->len_bytes; i++)
        assert_int_equal(memory[r->dst_bytes + i], fake_byte(r->file, r->offset_bytes + i));
}

#endif
