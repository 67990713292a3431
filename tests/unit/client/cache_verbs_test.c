/* A cache over rails of the simulated fabric. */
#include "cache_verbs_rig.h"

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
        cmocka_unit_test(raw_ranges_move_without_a_word),
        cmocka_unit_test(a_raw_operation_is_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
