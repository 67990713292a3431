/* A cache session over RDMA where something fails: a rail, the connection, the peer, memory. */
#include "cache_verbs_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_that_fails_leaves_its_blobs_to_the_other),
        cmocka_unit_test(with_the_last_rail_the_session_ends_and_nothing_is_committed),
        cmocka_unit_test(a_connection_that_ends_within_a_put_commits_nothing),
        cmocka_unit_test(a_canceled_put_ends_when_what_it_began_is_committed),
        cmocka_unit_test(a_session_is_freed_with_blobs_under_way),
        cmocka_unit_test(a_peer_that_says_nothing_is_given_up),
        cmocka_unit_test(memory_that_cannot_be_registered_is_copied_both_ways),
        cmocka_unit_test(nonsense_ends_operations_or_the_session_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
