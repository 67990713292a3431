/* A cache session over simulated rails, its peer, and a region of blobs that tell one another apart. */
#ifndef PENSTOCK_TEST_CACHE_VERBS_RIG_H
#define PENSTOCK_TEST_CACHE_VERBS_RIG_H

#include "cache_peer.h"

static struct cache_peer peer;

static inline struct penstock_cache arena_of(uint64_t blob_bytes)
{
    return (struct penstock_cache){ .size = sizeof(struct penstock_cache),
                                    .kind = PENSTOCK_CACHE_KV,
                                    .blob_bytes = blob_bytes,
                                    .arena_bytes = (uint64_t)CACHE_SLOTS * CACHE_BLOB };
}

static inline int try_open(const struct penstock_cache *cache, int transport, struct penstock_session **s,
                           struct penstock_error *error)
{
    struct penstock_options options = fake_options();
    penstock_op op;
    options.transport = transport;
    options.rail_deadline_ns = 50000000;
    int code = client_cache_start(peer.p.client, peer.p.name, cache, &options, s, &op, error);
    if (code)
        return code;
    code = penstock_wait(*s, op, NULL, error);
    if (code)
        penstock_session_free(*s);
    return code;
}

static inline struct penstock_session *open_arena(const struct penstock_cache *cache, int transport)
{
    struct penstock_session *s = NULL;
    struct penstock_error error = { 0 };
    int code = try_open(cache, transport, &s, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return s;
}

static inline struct penstock_session *begin(size_t rails)
{
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    cache_peer_begin(&peer, rails);
    return open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
}

static inline void end(struct penstock_session *s)
{
    penstock_session_free(s);
    cache_peer_end(&peer);
}

/* ---- blobs in a region ---- */

enum { MANY = 48 };
static uint8_t memory[MANY * CACHE_BLOB];
static struct penstock_blob blobs[MANY];

static inline uint32_t region_of(struct penstock_session *s)
{
    const struct penstock_memory m = {
        .size = sizeof m, .address = memory, .len_bytes = sizeof memory, .where = PENSTOCK_HOST
    };
    uint32_t region;
    assert_int_equal(penstock_register(s, &m, &region, NULL), 0);
    return region;
}

static inline void fill(uint8_t *to, uint32_t file)
{
    for (uint64_t i = 0; i < CACHE_BLOB; i++)
        to[i] = fake_byte(file, i);
}

static inline void assert_blob(const uint8_t *at, uint32_t file)
{
    assert_non_null(at);
    for (uint64_t i = 0; i < CACHE_BLOB; i++)
        assert_int_equal(at[i], fake_byte(file, i));
}

/* Blobs 0 to n - 1, with keys of their number, and memory that tells them apart. */
static inline void lay_blobs(size_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fill(memory + (size_t)i * CACHE_BLOB, i);
        blobs[i] = (struct penstock_blob){ .key = { .low = i }, .at_bytes = (uint64_t)i * CACHE_BLOB };
    }
}

static inline penstock_op submit(struct penstock_session *s, int action, uint32_t region, struct penstock_blob *at,
                                 size_t n)
{
    penstock_op op = 0;
    const struct penstock_blobs b = { .size = sizeof b, .action = action, .region = region, .blobs = at, .count = n };
    assert_int_equal(penstock_submit_blobs(s, &b, &op, NULL), 0);
    return op;
}

static inline int finish(struct penstock_session *s, penstock_op op)
{
    struct penstock_error error = { 0 };
    return penstock_wait(s, op, NULL, &error);
}

static inline int run(struct penstock_session *s, int action, uint32_t region, size_t n)
{
    return finish(s, submit(s, action, region, blobs, n));
}

static inline uint64_t work_requests(const struct penstock_session *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->verbs->devices.n; i++) {
        struct rail_stats stats;
        rail_engine_stats(s->verbs->engine, i, &stats);
        n += stats.work_requests;
    }
    return n;
}

static inline unsigned asked(uint8_t op)
{
    return atomic_load(&peer.asked[op]);
}

/* Until the peer has heard what the session sent last, and has given back its slots. */
static inline void settle(struct penstock_session *s)
{
    struct penstock_blob nothing = { .key.low = 0xFFFFFF };
    (void)finish(s, submit(s, PENSTOCK_BLOB_EXISTS, 0, &nothing, 1));
}

#endif
