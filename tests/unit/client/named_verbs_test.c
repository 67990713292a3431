/* KV blocks and snapshots over rails of the simulated fabric. */
#include "cache_peer.h"

#include "client/cache/kv.h"
#include "client/cache/snapshot.h"

static struct cache_peer peer;
static uint8_t memory[4 * CACHE_BLOB];

static struct penstock_options options_of(void)
{
    struct penstock_options options = fake_options();
    options.transport = PENSTOCK_TRANSPORT_RDMA;
    return options;
}

static struct penstock_session *opened(struct penstock_session *s, penstock_op op)
{
    struct penstock_error error = { 0 };
    int code = penstock_wait(s, op, NULL, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
    return s;
}

static uint32_t region_of(struct penstock_session *s)
{
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    uint32_t region;
    assert_int_equal(penstock_register(s, &m, &region, NULL), 0);
    return region;
}

static void fill(uint8_t *to, uint32_t file)
{
    for (uint64_t i = 0; i < CACHE_BLOB; i++)
        to[i] = fake_byte(file, i);
}

static struct rail_stats stats_of(const struct penstock_session *s, size_t slot)
{
    struct rail_stats stats;
    rail_engine_stats(s->verbs->engine, slot, &stats);
    return stats;
}

/* ---- KV ---- */

/* Blocks of one head's K and V, 4000 bytes each. */
static const struct penstock_kv_layout layout = {
    .size = sizeof layout, .elem_bytes = 2, .block_size = 16, .head_dim = 125, .layers = 2, .blocks = 4, .kv_heads = 1
};

static struct penstock_session *open_kv(int raw, bool random_salt)
{
    const struct penstock_kv kv = { .size = sizeof kv, .layout = &layout, .raw = raw, .random_salt = random_salt };
    const struct penstock_options options = options_of();
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    assert_int_equal(client_kv_start(peer.p.client, peer.p.name, &kv, &options, &s, &op, NULL), 0);
    return opened(s, op);
}

static void a_stripe_is_all_that_travels_of_its_block(void **state)
{
    (void)state;
    for (int raw = 0; raw < 2; raw++) {
        peer = (struct cache_peer){ 0 };
        cache_peer_begin(&peer, 1);
        struct penstock_session *s = open_kv(raw, false);
        uint32_t region = region_of(s);
        struct penstock_kv_block block = { .layer = 1, .block = 2 };
        const struct penstock_kv_blocks put = {
            .size = sizeof put, .action = PENSTOCK_BLOB_PUT, .region = region, .blocks = &block, .count = 1
        };
        struct penstock_kv_stripe stripe = { .layer = 1, .block = 2, .kv = 1, .at_bytes = 7 };
        const struct penstock_kv_stripes get = { .size = sizeof get, .region = region, .stripes = &stripe, .count = 1 };
        struct penstock_completion c;
        penstock_op op;
        fill(memory, 3);
        assert_int_equal(penstock_kv_blocks_wait(s, &put, NULL), 0);
        memset(memory, 0, sizeof memory);
        uint64_t bytes = stats_of(s, 0).bytes, requests = stats_of(s, 0).work_requests;
        assert_int_equal(penstock_submit_kv_stripes(s, &get, &op, NULL), 0);
        assert_int_equal(penstock_wait(s, op, &c, NULL), 0);
        assert_int_equal(c.landed_bytes, 4000);
        assert_int_equal(stats_of(s, 0).bytes - bytes, 4000);
        assert_int_equal(stats_of(s, 0).work_requests - requests, 1);
        for (size_t i = 0; i < CACHE_BLOB; i++)
            assert_int_equal(memory[i], i >= 7 && i < 4007 ? fake_byte(3, 4096 + i - 7) : 0);
        penstock_session_free(s);
        cache_peer_end(&peer);
    }
}

static void a_miss_names_layer_and_block_whatever_the_peer_is(void **state)
{
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        peer = (struct cache_peer){ .frozen = frozen };
        cache_peer_begin(&peer, 1);
        struct penstock_session *s = open_kv(0, true);
        struct penstock_kv_info info = { .size = sizeof info };
        struct penstock_kv_block blocks[2] = { { .layer = 0, .block = 1 }, { .layer = 1, .block = 3 } };
        struct penstock_kv_blocks batch = {
            .size = sizeof batch, .action = PENSTOCK_BLOB_PUT, .region = region_of(s), .blocks = blocks, .count = 1
        };
        struct penstock_error error;
        assert_int_equal(penstock_kv_about(s, &info), 0);
        assert_int_equal(info.owned, !frozen);
        assert_int_equal(penstock_kv_blocks_wait(s, &batch, NULL), 0);
        assert_non_null(cache_peer_blob(&peer, penstock_kv_wire_key(info.namespace_id, 2)));
        batch.action = PENSTOCK_BLOB_GET;
        batch.count = 2;
        assert_int_equal(penstock_kv_blocks_wait(s, &batch, &error), PENSTOCK_ENOTFOUND);
        assert_non_null(strstr(error.message, "has not got block 3 of layer 1 (a miss; 1 of 2 blocks)"));
        assert_int_equal(blocks[0].code, 0);
        assert_int_equal(blocks[1].code, PENSTOCK_ENOTFOUND);
        penstock_session_free(s);
        cache_peer_end(&peer);
    }
}

/* ---- snapshots ---- */

static void snapshots_are_striped_over_the_rails_in_chunks(void **state)
{
    (void)state;
    const struct penstock_snapshot_arena arena = { .size = sizeof arena,
                                                   .blob_bytes = CACHE_BLOB,
                                                   .arena_bytes = (uint64_t)CACHE_SLOTS * CACHE_BLOB,
                                                   .namespace_id = 9,
                                                   .chunk_bytes = 4096,
                                                   .depth = 1 };
    const struct penstock_options options = options_of();
    for (int raw = 0; raw < 2; raw++) {
        struct penstock_snapshot_arena a = arena;
        struct penstock_snapshot snapshots[3] = { { .key = 1 },
                                                  { .key = 2, .at_bytes = CACHE_BLOB },
                                                  { .key = 3, .at_bytes = 2 * CACHE_BLOB } };
        struct penstock_session *s = NULL;
        penstock_op op = 0;
        peer = (struct cache_peer){ 0 };
        cache_peer_begin(&peer, 2);
        a.raw = raw;
        assert_int_equal(client_snapshots_start(peer.p.client, peer.p.name, &a, &options, &s, &op, NULL), 0);
        struct penstock_snapshots batch = { .size = sizeof batch,
                                            .action = PENSTOCK_BLOB_PUT,
                                            .region = region_of(opened(s, op)),
                                            .snapshots = snapshots,
                                            .count = 3 };
        for (uint32_t i = 0; i < 3; i++)
            fill(memory + (size_t)i * CACHE_BLOB, i);
        assert_int_equal(penstock_snapshots_wait(s, &batch, NULL), 0);
        for (size_t slot = 0; slot < 2; slot++) {
            assert_int_equal(stats_of(s, slot).work_requests, 3);
            assert_int_equal(stats_of(s, slot).bytes, 3 * 4096);
            assert_int_equal(stats_of(s, slot).outstanding_max, 1);
        }
        for (uint32_t i = 0; i < 3; i++) {
            const uint8_t *at = raw ? peer.p.regions[0] + snapshots[i].key * CACHE_BLOB
                                    : cache_peer_blob(&peer, penstock_snapshot_wire_key(snapshots[i].key, 9));
            assert_non_null(at);
            assert_memory_equal(at, memory + (size_t)i * CACHE_BLOB, CACHE_BLOB);
        }
        memset(memory, 0, sizeof memory);
        batch.action = PENSTOCK_BLOB_GET;
        assert_int_equal(penstock_snapshots_wait(s, &batch, NULL), 0);
        for (size_t i = 0; i < 3 * (size_t)CACHE_BLOB; i++)
            assert_int_equal(memory[i], fake_byte((uint32_t)(i / CACHE_BLOB), i % CACHE_BLOB));
        penstock_session_free(s);
        cache_peer_end(&peer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stripe_is_all_that_travels_of_its_block),
        cmocka_unit_test(a_miss_names_layer_and_block_whatever_the_peer_is),
        cmocka_unit_test(snapshots_are_striped_over_the_rails_in_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
