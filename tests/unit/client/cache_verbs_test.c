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

static void a_part_of_a_blob_is_all_that_is_read(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(1);
    uint32_t region = region_of(s);
    struct penstock_completion c;
    lay_blobs(1);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 1), 0);
    memset(memory, 0, sizeof memory);
    blobs[0] = (struct penstock_blob){ .at_bytes = 10, .from_bytes = 1000, .len_bytes = 100 };
    assert_int_equal(penstock_wait(s, submit(s, PENSTOCK_BLOB_GET, region, blobs, 1), &c, NULL), 0);
    assert_int_equal(c.landed_bytes, 100);
    assert_int_equal(memory[9], 0);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(memory[10 + i], fake_byte(0, 1000 + i));
    assert_int_equal(memory[110], 0);
    end(s);
}

/* ---- answers ---- */

static void misses_and_refusals_are_each_blobs_own(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(1);
    uint32_t region = region_of(s);
    struct penstock_completion c;
    struct penstock_error error;
    lay_blobs(4);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 2), 0);
    memset(memory, 0, sizeof memory);
    blobs[0].key.low = 77;
    assert_int_equal(penstock_wait(s, submit(s, PENSTOCK_BLOB_GET, region, blobs, 3), &c, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "cache peer 127.0.0.1:"));
    assert_non_null(
        strstr(error.message, "has not got 2 of 3 blobs, the first with key 0000000000000000000000000000004d"));
    assert_int_equal(c.landed_bytes, CACHE_BLOB);
    assert_int_equal(blobs[0].code, PENSTOCK_ENOTFOUND);
    assert_int_equal(blobs[1].code, 0);
    assert_int_equal(blobs[2].code, PENSTOCK_ENOTFOUND);
    assert_blob(memory + CACHE_BLOB, 1);
    assert_int_equal(run(s, PENSTOCK_BLOB_EXISTS, 0, 3), PENSTOCK_ENOTFOUND);
    assert_int_equal(blobs[1].code, 0);
    assert_int_equal(run(s, PENSTOCK_BLOB_REMOVE, 0, 3), 0); /* unknown ones too */
    assert_int_equal(run(s, PENSTOCK_BLOB_EXISTS, 0, 2), PENSTOCK_ENOTFOUND);
    assert_int_equal(blobs[1].code, PENSTOCK_ENOTFOUND);
    end(s);
}

static void a_peer_without_a_slot_refuses_all_and_goes_on(void **state)
{
    (void)state;
    peer = (struct cache_peer){ .no_slots = true };
    struct penstock_session *s = begin(1);
    uint32_t region = region_of(s);
    lay_blobs(8);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 8), PENSTOCK_EREFUSED);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(blobs[i].code, PENSTOCK_EREFUSED);
    assert_int_equal(work_requests(s), 0);
    assert_int_equal(asked(PENSTOCK_OP_COMMIT), 0);
    assert_int_equal(run(s, PENSTOCK_BLOB_EXISTS, 0, 8), PENSTOCK_ENOTFOUND);
    end(s);
}

/* The peer grants fewer slots than the client takes them to be: it asks again, with fewer under way. */
static void a_batch_survives_a_limit_on_slots(void **state)
{
    (void)state;
    for (unsigned limit = 1; limit <= 3; limit++) {
        peer = (struct cache_peer){ .quota = limit };
        struct penstock_session *s = begin(2);
        uint32_t region = region_of(s);
        lay_blobs(MANY);
        assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, MANY), 0);
        memset(memory, 0, sizeof memory);
        assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, MANY), 0);
        for (uint32_t i = 0; i < MANY; i++)
            assert_blob(memory + (size_t)i * CACHE_BLOB, i);
        assert_int_not_equal(atomic_load(&peer.errors), 0);
        settle(s);
        assert_int_equal(cache_peer_in_use(&peer), 0);
        end(s);
    }
}

static void one_key_many_times_in_a_batch_is_pinned_until_all_have_read_it(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(2);
    uint32_t region = region_of(s);
    lay_blobs(MANY);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 1), 0);
    for (size_t i = 0; i < MANY; i++)
        blobs[i].key.low = 0;
    memset(memory, 0, sizeof memory);
    assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_blob(memory + (size_t)i * CACHE_BLOB, 0);
    settle(s);
    assert_int_equal(atomic_load(&peer.most_keys), CACHE_SLOTS / 4);
    assert_int_equal(atomic_load(&peer.released), MANY);
    assert_int_equal(cache_peer_in_use(&peer), 0);
    end(s);
}

/* As many replies outstanding as there can be: those to a RELEASE, to what was asked for one by one, to a full MGET,
 * and to what comes behind it. */
static void every_reply_has_its_place(void **state)
{
    (void)state;
    enum { GETS = CLIENT_HOLD_MAX, LOOKS_MAX = CLIENT_JOBS_MAX - GETS - 1 };
    static struct penstock_blob gets[GETS], looks[LOOKS_MAX + 1];
    peer = (struct cache_peer){ .quota = 4 * GETS, .held_at = PENSTOCK_OP_RELEASE };
    struct penstock_cache cache = arena_of(CACHE_BLOB);
    cache.arena_bytes *= 4; /* a quarter of it is a full MGET */
    cache_peer_begin(&peer, 1);
    struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
    uint32_t region = region_of(s);
    lay_blobs(2);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 2), 0);
    for (uint32_t i = 0; i < GETS; i++)
        gets[i] = (struct penstock_blob){ .key = { .low = i % 2 }, .at_bytes = (uint64_t)i % MANY * CACHE_BLOB };
    for (uint32_t i = 0; i <= LOOKS_MAX; i++)
        looks[i].key.low = i % 3; /* the third is not there */
    atomic_store(&peer.held, true);
    assert_int_equal(finish(s, submit(s, PENSTOCK_BLOB_GET, region, gets, GETS)), 0);
    size_t done = 0;
    assert_int_equal(penstock_poll(s, NULL, 0, &done), 0);
    const uint32_t releases = s->cache->verbs->n_expected; /* of what it read: more where the READs ended apart */
    assert_in_range(releases, 1, GETS);
    const uint32_t n_looks = CLIENT_JOBS_MAX - GETS - releases;
    penstock_op first = submit(s, PENSTOCK_BLOB_EXISTS, 0, looks, n_looks);
    penstock_op second = submit(s, PENSTOCK_BLOB_GET, region, gets, GETS);
    penstock_op third = submit(s, PENSTOCK_BLOB_EXISTS, 0, &looks[n_looks], 1);
    assert_int_equal(penstock_poll(s, NULL, 0, &done), 0);
    assert_in_range(s->cache->verbs->n_expected, releases + n_looks, CLIENT_JOBS_MAX);
    atomic_store(&peer.held, false);
    assert_int_equal(finish(s, first), PENSTOCK_ENOTFOUND);
    assert_int_equal(finish(s, second), 0);
    assert_int_equal(finish(s, third), looks[n_looks].code);
    for (uint32_t i = 0; i <= n_looks; i++)
        assert_int_equal(looks[i].code, i % 3 < 2 ? 0 : PENSTOCK_ENOTFOUND);
    end(s);
}

static void requests_on_one_key_take_effect_in_their_order(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(2);
    uint32_t region = region_of(s);
    struct penstock_blob step[6];
    penstock_op ops[6];
    lay_blobs(4);
    memset(memory + 2 * CACHE_BLOB, 0, 2 * CACHE_BLOB);
    for (size_t i = 0; i < 6; i++)
        step[i] = (struct penstock_blob){ .key.low = 5 };
    step[1].at_bytes = CACHE_BLOB;
    step[2].at_bytes = 2 * CACHE_BLOB;
    ops[0] = submit(s, PENSTOCK_BLOB_PUT, region, &step[0], 1);
    ops[1] = submit(s, PENSTOCK_BLOB_PUT, region, &step[1], 1);
    ops[2] = submit(s, PENSTOCK_BLOB_GET, region, &step[2], 1);
    ops[3] = submit(s, PENSTOCK_BLOB_EXISTS, 0, &step[3], 1);
    ops[4] = submit(s, PENSTOCK_BLOB_REMOVE, 0, &step[4], 1);
    ops[5] = submit(s, PENSTOCK_BLOB_EXISTS, 0, &step[5], 1);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(finish(s, ops[i]), i == 5 ? PENSTOCK_ENOTFOUND : 0);
    assert_blob(memory + 2 * CACHE_BLOB, 1);
    end(s);
}

static void wide_keys_and_owners_work_over_rails(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(CACHE_BLOB);
    cache.wide = cache.own = 1;
    peer = (struct cache_peer){ 0 };
    cache_peer_begin(&peer, 1);
    struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
    uint32_t region = region_of(s);
    lay_blobs(2);
    blobs[0].key = (struct penstock_key){ .low = 1, .high = 2 };
    blobs[1].key = (struct penstock_key){ .low = 1, .high = 3 };
    assert_int_equal(asked(PENSTOCK_OP_OWN) + asked(PENSTOCK_OP_WIDE), 2);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 2), 0);
    memset(memory, 0, sizeof memory);
    assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, 2), 0);
    assert_blob(memory, 0);
    assert_blob(memory + CACHE_BLOB, 1);
    end(s);
}

/* ---- peers ---- */

static void a_peer_of_the_frozen_protocol_gets_frozen_operations_one_by_one(void **state)
{
    (void)state;
    for (int transport = PENSTOCK_TRANSPORT_AUTO; transport <= PENSTOCK_TRANSPORT_RDMA; transport++) {
        const struct penstock_cache cache = arena_of(CACHE_BLOB);
        peer = (struct cache_peer){ .frozen = true };
        cache_peer_begin(&peer, 2);
        struct penstock_session *s = open_arena(&cache, transport);
        assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
        assert_int_equal(penstock_session_rails(s), 2);
        uint32_t region = region_of(s);
        lay_blobs(8);
        assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, 8), 0);
        memset(memory, 0, sizeof memory);
        assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, 8), 0);
        for (uint32_t i = 0; i < 8; i++)
            assert_blob(memory + (size_t)i * CACHE_BLOB, i);
        assert_int_equal(run(s, PENSTOCK_BLOB_EXISTS, 0, 8), 0);
        assert_int_equal(run(s, PENSTOCK_BLOB_REMOVE, 0, 8), 0);
        assert_int_equal(work_requests(s), 16);
        assert_int_equal(asked(PENSTOCK_OP_FEATURES), 1);
        assert_int_equal(asked(PENSTOCK_OP_ALLOC), 8);
        assert_int_equal(asked(PENSTOCK_OP_COMMIT), 8);
        assert_int_equal(asked(PENSTOCK_OP_GET), 16);
        assert_int_equal(asked(PENSTOCK_OP_REMOVE), 8);
        assert_int_equal(asked(PENSTOCK_OP_MGET) + asked(PENSTOCK_OP_RELEASE) + asked(PENSTOCK_OP_EXISTS), 0);
        assert_int_equal(atomic_load(&peer.most_unanswered), 1);
        end(s);
    }
}

static void a_frozen_peer_with_fewer_rails_gives_those_that_it_has(void **state)
{
    (void)state;
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    peer = (struct cache_peer){ .frozen = true, .p.n_rails = 1 };
    cache_peer_begin(&peer, 3);
    struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_AUTO);
    assert_int_equal(penstock_session_rails(s), 1);
    end(s);
}

static void auto_takes_tcp_where_the_peer_has_no_rails_and_rdma_does_not(void **state)
{
    (void)state;
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    struct penstock_error error = { 0 };
    struct penstock_session *s;
    peer = (struct cache_peer){ .p.lists_none = true };
    cache_peer_begin(&peer, 1);
    assert_int_equal(try_open(&cache, PENSTOCK_TRANSPORT_RDMA, &s, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "has no rails"));
    s = open_arena(&cache, PENSTOCK_TRANSPORT_AUTO);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(strstr(penstock_session_transport_why(s), "has no rails"));
    settle(s);
    assert_int_equal(asked(PENSTOCK_OP_EXISTS), 1);
    end(s);
}

static void auto_ends_in_words_where_a_frozen_peer_has_no_rails_for_it(void **state)
{
    (void)state;
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    struct penstock_error error = { 0 };
    struct penstock_session *s;
    peer = (struct cache_peer){ .frozen = true, .p.lists_none = true };
    cache_peer_begin(&peer, 1);
    assert_int_equal(try_open(&cache, PENSTOCK_TRANSPORT_AUTO, &s, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "TCP is no way either"));
    assert_int_equal(try_open(&cache, PENSTOCK_TRANSPORT_TCP, &s, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "speaks only RDMA"));
    cache_peer_end(&peer);
}

/* Two rails of the client's, of which one or both cannot be connected. */
static void rails_that_cannot_be_connected_are_left_out_and_then_it_is_tcp(void **state)
{
    (void)state;
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    peer = (struct cache_peer){ 0 };
    cache_peer_begin(&peer, 2);
    sim_fail_calls(peer.p.client, SIM_QP_CONNECT, 1, 1, PENSTOCK_ESYS);
    s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
    assert_int_equal(atomic_load(&peer.p.rails_granted), 1);
    penstock_session_free(s);
    sim_fail_calls(peer.p.client, SIM_QP_CONNECT, 1, 100, PENSTOCK_ESYS);
    assert_int_not_equal(try_open(&cache, PENSTOCK_TRANSPORT_RDMA, &s, &error), 0);
    sim_fail_calls(peer.p.client, SIM_QP_CONNECT, 1, 100, PENSTOCK_ESYS);
    s = open_arena(&cache, PENSTOCK_TRANSPORT_AUTO);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(penstock_session_transport_why(s));
    settle(s);
    end(s);
}

static void an_offset_beyond_every_arena_ends_the_session(void **state)
{
    (void)state;
    peer = (struct cache_peer){ .beyond = PENSTOCK_ARENA_BYTES_MAX };
    struct penstock_session *s = begin(1);
    lay_blobs(1);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region_of(s), 1), PENSTOCK_EPROTO);
    end(s);
}

/* ---- failures ---- */

static void a_rail_that_fails_leaves_its_blobs_to_the_other(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(2);
    uint32_t region = region_of(s);
    lay_blobs(MANY);
    sim_port_drop(peer.p.ports[0], true);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_blob(cache_peer_blob(&peer, i), i);
    memset(memory, 0, sizeof memory);
    assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_blob(memory + (size_t)i * CACHE_BLOB, i);
    assert_int_equal(asked(PENSTOCK_OP_COMMIT), MANY);
    assert_int_equal(atomic_load(&peer.p.shaken), 1); /* its rail is not built anew */
    end(s);
}

static void with_the_last_rail_the_session_ends_and_nothing_is_committed(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(1);
    struct penstock_error error = { 0 };
    lay_blobs(4);
    sim_port_drop(peer.p.ports[0], true);
    penstock_op op = submit(s, PENSTOCK_BLOB_PUT, region_of(s), blobs, 4);
    assert_int_not_equal(penstock_wait(s, op, NULL, &error), 0);
    assert_non_null(strstr(error.message, "no rail is left"));
    assert_int_equal(blobs[0].code, PENSTOCK_ECANCELED);
    assert_int_equal(asked(PENSTOCK_OP_COMMIT), 0);
    const struct penstock_blobs b = { .size = sizeof b, .action = PENSTOCK_BLOB_EXISTS, .blobs = blobs, .count = 1 };
    assert_int_equal(penstock_submit_blobs(s, &b, &op, &error), PENSTOCK_EDEAD);
    end(s);
}

static void a_connection_that_ends_within_a_put_commits_nothing(void **state)
{
    (void)state;
    static const uint8_t at[] = { PENSTOCK_OP_ALLOC, PENSTOCK_OP_COMMIT };
    for (size_t i = 0; i < sizeof at; i++) {
        peer = (struct cache_peer){ .close_at = at[i] };
        struct penstock_session *s = begin(2);
        struct penstock_error error = { 0 };
        lay_blobs(1);
        penstock_op op = submit(s, PENSTOCK_BLOB_PUT, region_of(s), blobs, 1);
        assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ECLOSED);
        assert_non_null(strstr(error.message, "has gone"));
        assert_int_equal(blobs[0].code, PENSTOCK_ECANCELED);
        verbs_peer_die(&peer.p);
        assert_null(cache_peer_blob(&peer, 0));
        assert_int_equal(cache_peer_in_use(&peer), 0);
        end(s);
    }
}

static void a_canceled_put_ends_when_what_it_began_is_committed(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(2);
    uint32_t region = region_of(s);
    lay_blobs(MANY);
    atomic_store(&peer.held, true);
    penstock_op op = submit(s, PENSTOCK_BLOB_PUT, region, blobs, MANY);
    assert_int_equal(penstock_poll(s, NULL, 0, &(size_t){ 0 }), 0);
    assert_int_equal(penstock_cancel(s, op), 0);
    assert_false(client_op_find(s, op)->done); /* its memory may still be read */
    atomic_store(&peer.held, false);
    assert_int_equal(finish(s, op), PENSTOCK_ECANCELED);
    settle(s);
    assert_int_equal(asked(PENSTOCK_OP_ALLOC), CACHE_SLOTS / 4);
    assert_int_equal(asked(PENSTOCK_OP_COMMIT), CACHE_SLOTS / 4);
    assert_int_equal(cache_peer_in_use(&peer), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(blobs[i].code, i < CACHE_SLOTS / 4 ? 0 : PENSTOCK_ECANCELED);
        assert_int_equal(cache_peer_blob(&peer, i) != NULL, i < CACHE_SLOTS / 4);
    }
    lay_blobs(MANY);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, MANY), 0);
    end(s);
}

static void a_session_is_freed_with_blobs_under_way(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(2);
    uint32_t region = region_of(s);
    lay_blobs(MANY);
    (void)submit(s, PENSTOCK_BLOB_PUT, region, blobs, MANY);
    for (int i = 0; i < 20; i++)
        (void)!penstock_poll(s, NULL, 0, &(size_t){ 0 });
    end(s);
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    struct penstock_session *s = begin(1);
    struct penstock_error error = { 0 };
    const struct penstock_blobs b = {
        .size = sizeof b, .action = PENSTOCK_BLOB_EXISTS, .blobs = blobs, .count = 1, .timeout_ns = 20000000
    };
    atomic_store(&peer.held, true);
    assert_int_equal(penstock_blobs_wait(s, &b, &error), PENSTOCK_ETIMEOUT);
    assert_non_null(strstr(error.message, "no reply"));
    atomic_store(&peer.held, false);
    end(s);
}

static void memory_that_cannot_be_registered_is_copied_both_ways(void **state)
{
    (void)state;
    peer = (struct cache_peer){ 0 };
    const struct penstock_cache cache = arena_of(CACHE_BLOB);
    cache_peer_begin(&peer, 1);
    sim_host_memlock(peer.p.client, sizeof memory - 1);
    struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
    uint32_t region = region_of(s);
    lay_blobs(MANY);
    assert_int_equal(run(s, PENSTOCK_BLOB_PUT, region, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_blob(cache_peer_blob(&peer, i), i);
    memset(memory, 0, sizeof memory);
    assert_int_equal(run(s, PENSTOCK_BLOB_GET, region, MANY), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_blob(memory + (size_t)i * CACHE_BLOB, i);
    assert_non_null(penstock_session_bounce_why(s));
    end(s);
}

static void nonsense_ends_operations_or_the_session_and_no_more(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        peer = (struct cache_peer){ .nonsense = seed };
        struct penstock_session *s = begin(2);
        uint32_t region = region_of(s);
        penstock_op ops[4];
        static struct penstock_blob own[4][MANY];
        for (size_t i = 0; i < 4; i++) {
            struct penstock_blobs b = { .size = sizeof b, .action = (int)(i + seed) % 4, .region = region };
            b.blobs = own[i];
            b.count = MANY;
            b.timeout_ns = 50000000;
            for (size_t j = 0; j < MANY; j++)
                own[i][j] = (struct penstock_blob){ .key.low = j % 20, .at_bytes = j * CACHE_BLOB };
            assert_int_equal(penstock_submit_blobs(s, &b, &ops[i], NULL), 0);
        }
        for (size_t i = 0; i < 4; i++)
            (void)finish(s, ops[i]);
        end(s);
    }
}

/* ---- raw ---- */

static penstock_op move_raw(struct penstock_session *s, bool write, uint32_t region, uint64_t offset, uint64_t at)
{
    const struct penstock_raw_range range = { .offset_bytes = offset, .len_bytes = CACHE_BLOB, .at_bytes = at };
    const struct penstock_raw raw = {
        .size = sizeof raw, .write = write, .region = region, .ranges = &range, .count = 1
    };
    penstock_op op = 0;
    assert_int_equal(penstock_submit_raw(s, &raw, &op, NULL), 0);
    return op;
}

static void raw_ranges_move_without_a_word(void **state)
{
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        const struct penstock_cache cache = arena_of(0);
        peer = (struct cache_peer){ .frozen = frozen };
        cache_peer_begin(&peer, 2);
        struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
        uint32_t region = region_of(s);
        penstock_op ops[3];
        lay_blobs(3);
        memset(memory + 2 * CACHE_BLOB, 0, CACHE_BLOB);
        /* The same bytes, twice written and then read. */
        ops[0] = move_raw(s, true, region, 1000, 0);
        ops[1] = move_raw(s, true, region, 1000, CACHE_BLOB);
        ops[2] = move_raw(s, false, region, 1000, 2 * CACHE_BLOB);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(finish(s, ops[i]), 0);
        assert_blob(memory + 2 * CACHE_BLOB, 1);
        assert_blob(peer.p.regions[0] + 1000, 1);
        assert_int_equal(work_requests(s), 3);
        assert_int_equal(atomic_load(&peer.raw_bytes), 0);
        end(s);
    }
}

static void a_raw_operation_is_canceled(void **state)
{
    (void)state;
    const struct penstock_cache cache = arena_of(0);
    peer = (struct cache_peer){ 0 };
    cache_peer_begin(&peer, 1);
    struct penstock_session *s = open_arena(&cache, PENSTOCK_TRANSPORT_RDMA);
    uint32_t region = region_of(s);
    penstock_op first = move_raw(s, true, region, 0, 0), second = move_raw(s, true, region, 0, 0);
    assert_int_equal(penstock_cancel(s, second), 0);
    assert_int_equal(finish(s, second), PENSTOCK_ECANCELED);
    assert_int_equal(finish(s, first), 0);
    assert_int_equal(penstock_unregister(s, region, NULL), 0);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_is_one_write_and_one_read),
        cmocka_unit_test(a_part_of_a_blob_is_all_that_is_read),
        cmocka_unit_test(misses_and_refusals_are_each_blobs_own),
        cmocka_unit_test(a_peer_without_a_slot_refuses_all_and_goes_on),
        cmocka_unit_test(a_batch_survives_a_limit_on_slots),
        cmocka_unit_test(one_key_many_times_in_a_batch_is_pinned_until_all_have_read_it),
        cmocka_unit_test(every_reply_has_its_place),
        cmocka_unit_test(requests_on_one_key_take_effect_in_their_order),
        cmocka_unit_test(wide_keys_and_owners_work_over_rails),
        cmocka_unit_test(a_peer_of_the_frozen_protocol_gets_frozen_operations_one_by_one),
        cmocka_unit_test(a_frozen_peer_with_fewer_rails_gives_those_that_it_has),
        cmocka_unit_test(auto_takes_tcp_where_the_peer_has_no_rails_and_rdma_does_not),
        cmocka_unit_test(auto_ends_in_words_where_a_frozen_peer_has_no_rails_for_it),
        cmocka_unit_test(rails_that_cannot_be_connected_are_left_out_and_then_it_is_tcp),
        cmocka_unit_test(an_offset_beyond_every_arena_ends_the_session),
        cmocka_unit_test(a_rail_that_fails_leaves_its_blobs_to_the_other),
        cmocka_unit_test(with_the_last_rail_the_session_ends_and_nothing_is_committed),
        cmocka_unit_test(a_connection_that_ends_within_a_put_commits_nothing),
        cmocka_unit_test(a_canceled_put_ends_when_what_it_began_is_committed),
        cmocka_unit_test(a_session_is_freed_with_blobs_under_way),
        cmocka_unit_test(a_peer_that_says_nothing_is_given_up),
        cmocka_unit_test(memory_that_cannot_be_registered_is_copied_both_ways),
        cmocka_unit_test(nonsense_ends_operations_or_the_session_and_no_more),
        cmocka_unit_test(raw_ranges_move_without_a_word),
        cmocka_unit_test(a_raw_operation_is_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
