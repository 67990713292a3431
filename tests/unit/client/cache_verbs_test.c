/* A cache over rails of the simulated fabric. */
#include "cache_peer.h"

static struct cache_peer peer;

static struct penstock_cache arena_of(uint64_t blob_bytes)
{
    return (struct penstock_cache){ .size = sizeof(struct penstock_cache),
                                    .kind = PENSTOCK_CACHE_KV,
                                    .blob_bytes = blob_bytes,
                                    .arena_bytes = (uint64_t)CACHE_SLOTS * CACHE_BLOB };
}

static int try_open(const struct penstock_cache *cache, int transport, struct penstock_session **s,
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

static struct penstock_session *open_arena(const struct penstock_cache *cache, int transport)
{
    struct penstock_session *s = NULL;
    struct penstock_error error = { 0 };
    int code = try_open(cache, transport, &s, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
    return s;
}

static struct penstock_session *begin(size_t rails)
{
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    cache_peer_begin(&peer, rails);
    return open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
}

static void end(struct penstock_session *s)
{
    penstock_session_free(s);
    cache_peer_end(&peer);
}

/* ---- blobs in a region ---- */

enum { MANY = 48 };
static uint8_t memory[MANY * CACHE_BLOB];
static struct penstock_blob blobs[MANY];

static uint32_t region_of(struct penstock_session *s)
{
    const struct penstock_memory m = {
        .size = sizeof m, .address = memory, .len_bytes = sizeof memory, .where = PENSTOCK_HOST
    };
    uint32_t region;
    assert_int_equal(penstock_register(s, &m, &region, NULL), 0);
    return region;
}

static void fill(uint8_t *to, uint32_t file)
{
    for (uint64_t i = 0; i < CACHE_BLOB; i++)
        to[i] = fake_byte(file, i);
}

static void assert_blob(const uint8_t *at, uint32_t file)
{
    assert_non_null(at);
    for (uint64_t i = 0; i < CACHE_BLOB; i++)
        assert_int_equal(at[i], fake_byte(file, i));
}

/* Blobs 0 to n - 1, with keys of their number, and memory that tells them apart. */
static void lay_blobs(size_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fill(memory + (size_t)i * CACHE_BLOB, i);
        blobs[i] = (struct penstock_blob){ .key = { .low = i }, .at_bytes = (uint64_t)i * CACHE_BLOB };
    }
}

static penstock_op submit(struct penstock_session *s, int action, uint32_t region, struct penstock_blob *at, size_t n)
{
    penstock_op op = 0;
    const struct penstock_blobs b = { .size = sizeof b, .action = action, .region = region, .blobs = at, .count = n };
    assert_int_equal(penstock_submit_blobs(s, &b, &op, NULL), 0);
    return op;
}

static int finish(struct penstock_session *s, penstock_op op)
{
    struct penstock_error error = { 0 };
    return penstock_wait(s, op, NULL, &error);
}

static int run(struct penstock_session *s, int action, uint32_t region, size_t n)
{
    return finish(s, submit(s, action, region, blobs, n));
}

static uint64_t work_requests(const struct penstock_session *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->verbs->devices.n; i++) {
        struct rail_stats stats;
        rail_engine_stats(s->verbs->engine, i, &stats);
        n += stats.work_requests;
    }
    return n;
}

static unsigned asked(uint8_t op)
{
    return atomic_load(&peer.asked[op]);
}

/* Until the peer has heard what the session sent last, and has given back its slots. */
static void settle(struct penstock_session *s)
{
    struct penstock_blob nothing = { .key.low = 0xFFFFFF };
    (void)finish(s, submit(s, PENSTOCK_BLOB_EXISTS, 0, &nothing, 1));
}

static void a_blob_is_one_write_and_one_read(void **state)
{
    (void)state;
    for (size_t rails = 1; rails <= 2; rails++) {
        peer = (struct cache_peer){ 0 };
        struct penstock_session *s = begin(rails);
        assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
        assert_int_equal(penstock_session_rails(s), rails);
        uint32_t region = region_of(s);
        lay_blobs(MANY);
        assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, MANY), 0);
        assert_int_equal(work_requests(s), MANY);
        assert_int_equal(asked(PENSTOCK_OP_ALLOC), MANY);
        assert_int_equal(asked(PENSTOCK_OP_COMMIT), MANY);
        for (uint32_t i = 0; i < MANY; i++)
            assert_blob(cache_peer_blob(&peer, i), i);

        memset(memory, 0, sizeof memory);
        assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, MANY), 0);
        assert_int_equal(work_requests(s), 2 * MANY);
        assert_int_equal(atomic_load(&peer.mget_keys), MANY);
        assert_int_equal(asked(PENSTOCK_OP_GET), 0);
        assert_int_equal(atomic_load(&peer.most_keys), CACHE_SLOTS / 4); /* READs in flight */
        assert_int_equal(atomic_load(&peer.errors), 0);
        for (uint32_t i = 0; i < MANY; i++)
            assert_blob(memory + (size_t)i * CACHE_BLOB, i);
        settle(s);
        assert_int_equal(atomic_load(&peer.released), MANY);
        assert_int_equal(cache_peer_in_use(&peer), 0);
        /* FEATURES; ALLOC and COMMIT of each; MGET and RELEASE, each with a head; EXISTS */
        unsigned heads = asked(PENSTOCK_OP_MGET) + asked(PENSTOCK_OP_RELEASE);
        assert_int_equal(atomic_load(&peer.control_bytes), 9 + MANY * 18 + MANY * 16 + heads * 5 + 9);
        end(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_is_one_write_and_one_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
