/* A session on a KV cache, and the peer in the test's own thread. */
#include "fake_cache.h"

#include "client/cache/kv.h"

#define FINGERPRINT UINT64_C(0x5629922C51A16A10)
#define SALT UINT64_C(0xD00DF00D00000001)

/* Stripes of 4160 bytes, 8192 with padding; blocks of 4. */
enum { LAYERS = 3, BLOCKS = 5, HEADS = 2, STRIPE = 4160, STRIDE = 8192, BLOCK = 4 * STRIDE };

static struct penstock_kv_layout small(void)
{
    return (struct penstock_kv_layout){ .size = sizeof(struct penstock_kv_layout),
                                        .elem_bytes = 2,
                                        .block_size = 16,
                                        .head_dim = 130,
                                        .layers = LAYERS,
                                        .blocks = BLOCKS,
                                        .kv_heads = HEADS };
}

static struct penstock_kv_layout known(void)
{
    return (struct penstock_kv_layout){ .size = sizeof(struct penstock_kv_layout),
                                        .elem_bytes = 2,
                                        .block_size = 16,
                                        .head_dim = 128,
                                        .layers = 80,
                                        .blocks = 4096,
                                        .kv_heads = 8 };
}

static struct fake_peer ready(const struct penstock_kv *kv, uint64_t features)
{
    struct fake_peer f;
    struct net_stream stream;
    const struct penstock_options options = fake_options();
    fake_cache_stream(&f, &stream);
    assert_int_equal(client_kv_on_stream(&stream, kv, &options, &f.session, &f.open, NULL), 0);
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_KV,
                                                   .arena_bytes = kv->arena_bytes ? kv->arena_bytes / BLOCK * BLOCK
                                                                                  : LAYERS * BLOCKS * BLOCK,
                                                   .blob_bytes = kv->raw ? 0 : BLOCK };
    fake_cache_ready(&f, &header, features, kv->random_salt && !kv->raw && (features & PENSTOCK_FEATURE_OWN));
    return f;
}

static struct penstock_kv salted(const struct penstock_kv_layout *layout)
{
    return (struct penstock_kv){
        .size = sizeof(struct penstock_kv), .layout = layout, .fingerprint = FINGERPRINT, .salt = SALT
    };
}

static struct penstock_kv_info about(const struct fake_peer *f)
{
    struct penstock_kv_info info = { .size = sizeof info };
    assert_int_equal(penstock_kv_about(f->session, &info), 0);
    return info;
}

static uint64_t key_of(const struct fake_peer *f, uint64_t layer, uint64_t block)
{
    return penstock_kv_wire_key(about(f).namespace_id, layer * 2 * BLOCKS * HEADS + block * 2 * HEADS);
}

static int submit(const struct fake_peer *f, int action, uint32_t region, struct penstock_kv_block *blocks, size_t n,
                  penstock_op *op, struct penstock_error *error)
{
    const struct penstock_kv_blocks b = {
        .size = sizeof b, .action = action, .region = region, .blocks = blocks, .count = n
    };
    return penstock_submit_kv_blocks(f->session, &b, op, error);
}

static void the_known_layout_has_its_sizes_namespace_and_key(void **state)
{
    (void)state;
    struct penstock_kv_layout l = known();
    uint64_t ns, id;
    assert_int_equal(penstock_kv_layout_compute(&l, NULL), 0);
    assert_int_equal(l.fs_block_bytes, 4096);
    assert_int_equal(l.stripe_bytes, 4096);
    assert_int_equal(l.stripe_stride, 4096);
    assert_int_equal(l.block_bytes, 65536);
    assert_true(l.total_bytes == UINT64_C(80) * 4096 * 65536);
    assert_int_equal(penstock_kv_namespace(&l, FINGERPRINT, SALT, &ns, NULL), 0);
    assert_true(ns == UINT64_C(0x74B402B0F4215375));
    assert_true(penstock_kv_wire_key(ns, 42) == UINT64_C(0x6D2D470EF5947D4B));
    const struct penstock_kv_stripe s = { .layer = 3, .block = 17, .kv = 1, .head = 5 };
    assert_int_equal(penstock_kv_stripe_id(&l, &s, &id, NULL), 0);
    assert_int_equal(id, 3 * 2 * 4096 * 8 + 17 * 2 * 8 + 8 + 5);
}

static void a_layout_or_a_stripe_that_cannot_be_is_named(void **state)
{
    (void)state;
    struct penstock_error error;
    struct penstock_kv_layout l = known();
    struct penstock_kv_stripe s = { .head = 8 };
    uint64_t id;
    assert_int_equal(penstock_kv_stripe_id(&l, &s, &id, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "head 8"));
    s = (struct penstock_kv_stripe){ .layer = 79, .block = 4096 };
    assert_int_equal(penstock_kv_stripe_id(&l, &s, &id, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "block 4096 of layer 79"));
    l.head_dim = 0;
    assert_int_equal(penstock_kv_layout_compute(&l, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "head_dim"));
    assert_int_equal(penstock_kv_namespace(&l, 0, 0, &id, &error), PENSTOCK_EINVAL);
}

static void blocks_are_put_and_got_by_layer_and_number(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    const struct penstock_kv kv = salted(&layout);
    struct fake_peer f = ready(&kv, FAKE_ANY_FEATURES);
    static uint8_t memory[2 * BLOCK];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_kv_block blocks[] = { { .layer = 2, .block = 4 }, { .layer = 0, .block = 1, .at_bytes = BLOCK } };
    struct penstock_completion c;
    penstock_op op;
    fake_fill(memory, 7, 0, BLOCK);
    fake_fill(memory + BLOCK, 8, 0, BLOCK);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_PUT, region, blocks, 2, &op, NULL), 0);
    assert_int_equal(blocks[0].code, PENSTOCK_ECANCELED);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect(&f, PENSTOCK_OP_PUT, key_of(&f, 2, 4));
    fake_cache_expect_body(&f, 7, BLOCK);
    fake_cache_expect(&f, PENSTOCK_OP_PUT, key_of(&f, 0, 1));
    fake_cache_expect_body(&f, 8, BLOCK);
    fake_send(&f, "\0\0", 2);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 2 * BLOCK);
    assert_int_equal(blocks[0].code, 0);
    assert_int_equal(blocks[1].code, 0);

    memset(memory, 0, sizeof memory);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, blocks + 1, 1, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect(&f, PENSTOCK_OP_FETCH, key_of(&f, 0, 1));
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 9, 0, BLOCK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    for (size_t i = 0; i < sizeof memory; i++)
        assert_int_equal(memory[i], i < BLOCK ? 0 : fake_byte(9, i - BLOCK));
    fake_end(&f);
}

static void a_miss_names_layer_and_block(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    const struct penstock_kv kv = salted(&layout);
    struct fake_peer f = ready(&kv, FAKE_ANY_FEATURES);
    static uint8_t memory[3 * BLOCK];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_kv_block blocks[] = { { .layer = 0, .block = 0 },
                                          { .layer = 1, .block = 3, .at_bytes = BLOCK },
                                          { .layer = 2, .block = 2, .at_bytes = BLOCK } };
    struct penstock_completion c;
    penstock_op op;
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, blocks, 3, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 0, 0, BLOCK);
    fake_send(&f, "\1\1", 2);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ENOTFOUND);
    assert_int_equal(c.landed_bytes, BLOCK);
    assert_string_equal(fake_words(&f, op),
                        "cache peer stream: has not got block 3 of layer 1 (a miss; 2 of 3 blocks)");
    assert_int_equal(blocks[0].code, 0);
    assert_int_equal(blocks[1].code, PENSTOCK_ENOTFOUND);
    assert_int_equal(blocks[2].code, PENSTOCK_ENOTFOUND);

    assert_int_equal(submit(&f, PENSTOCK_BLOB_REMOVE, 0, blocks, 3, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_send(&f, "\0\0\2", 3);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);
    assert_non_null(strstr(fake_words(&f, op), "could not remove block 2 of layer 2"));
    assert_int_equal(blocks[1].code, 0);
    assert_int_equal(blocks[2].code, PENSTOCK_EREFUSED);
    fake_end(&f);
}

static void a_stripe_is_cut_out_of_its_block(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    const struct penstock_kv kv = salted(&layout);
    struct fake_peer f = ready(&kv, FAKE_ANY_FEATURES);
    static uint8_t memory[2 * STRIPE + 1];
    struct penstock_kv_stripe stripes[] = { { .layer = 1, .block = 2, .kv = 1, .head = 0, .at_bytes = STRIPE },
                                            { .layer = 1, .block = 2, .kv = 0, .head = 1 } };
    const struct penstock_kv_stripes s = {
        .size = sizeof s, .region = fake_region(&f, memory, sizeof memory), .stripes = stripes, .count = 2
    };
    struct penstock_completion c;
    penstock_op op;
    memory[2 * STRIPE] = 0xEE;
    assert_int_equal(penstock_submit_kv_stripes(f.session, &s, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (int i = 0; i < 2; i++) {
        fake_cache_expect(&f, PENSTOCK_OP_FETCH, key_of(&f, 1, 2));
        fake_status(&f, PENSTOCK_ST_OK);
        fake_payload(&f, 5, 0, BLOCK);
    }
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 2 * STRIPE);
    for (size_t i = 0; i < STRIPE; i++) {
        assert_int_equal(memory[i], fake_byte(5, STRIDE + i));
        assert_int_equal(memory[STRIPE + i], fake_byte(5, 2 * STRIDE + i));
    }
    assert_int_equal(memory[2 * STRIPE], 0xEE);

    assert_int_equal(penstock_submit_kv_stripes(f.session, &s, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_send(&f, "\1\1", 2);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(fake_words(&f, op), "has not got V of head 0 in block 2 of layer 1"));
    fake_end(&f);
}

static void in_a_raw_arena_everything_lies_at_its_number_of_strides(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    const struct penstock_kv kv = { .size = sizeof kv, .layout = &layout, .raw = 1, .random_salt = 1 };
    struct fake_peer f = ready(&kv, 0);
    static uint8_t memory[BLOCK];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_kv_block block = { .layer = 2, .block = 1 };
    struct penstock_kv_stripe stripe = { .layer = 2, .block = 1, .kv = 1, .head = 1, .at_bytes = 3 };
    const struct penstock_kv_stripes s = { .size = sizeof s, .region = region, .stripes = &stripe, .count = 1 };
    const uint64_t first = 2 * (2 * BLOCKS * HEADS) + 1 * (2 * HEADS);
    struct penstock_error error;
    struct penstock_completion c;
    penstock_op op;
    fake_fill(memory, 7, 0, BLOCK);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_PUT, region, &block, 1, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect_raw(&f, PENSTOCK_OP_WRITE, first * STRIDE, BLOCK);
    fake_cache_expect_body(&f, 7, BLOCK);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(block.code, 0);

    assert_int_equal(penstock_submit_kv_stripes(f.session, &s, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect_raw(&f, PENSTOCK_OP_READ, (first + HEADS + 1) * STRIDE, STRIPE);
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 8, 0, STRIPE);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(stripe.code, 0);
    assert_int_equal(memory[3], fake_byte(8, 0));
    assert_int_equal(memory[3 + STRIPE - 1], fake_byte(8, STRIPE - 1));
    assert_int_equal(memory[3 + STRIPE], fake_byte(7, 3 + STRIPE));

    assert_int_equal(submit(&f, PENSTOCK_BLOB_EXISTS, region, &block, 1, &op, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "raw"));
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, &block, 1, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_ST_ERR);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(block.code, PENSTOCK_EREFUSED);
    fake_end(&f);
}

static void a_random_salt_is_nobody_elses_and_its_blocks_go_where_the_peer_can(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    struct penstock_kv kv = salted(&layout);
    uint64_t salts[2];
    kv.random_salt = 1;
    kv.arena_bytes = 3 * BLOCK + 1;
    for (int i = 0; i < 2; i++) {
        struct fake_peer f = ready(&kv, i == 0 ? FAKE_ANY_FEATURES : PENSTOCK_FEATURE_EXISTS);
        const struct penstock_kv_info info = about(&f);
        uint64_t ns;
        assert_int_equal(info.owned, i == 0);
        assert_int_equal(info.arena_bytes, 3 * BLOCK);
        assert_int_equal(penstock_kv_namespace(&layout, FINGERPRINT, info.salt, &ns, NULL), 0);
        assert_true(info.namespace_id == ns);
        salts[i] = info.salt;
        fake_end(&f);
    }
    assert_true(salts[0] != salts[1] && salts[0] != SALT);
}

static void what_cannot_be_asked_for_is_refused_before_anything_is_sent(void **state)
{
    (void)state;
    struct penstock_error error;
    struct net_stream stream;
    struct fake_peer f;
    struct penstock_kv_layout layout = small();
    struct penstock_kv kv = salted(&layout);
    const struct penstock_options options = fake_options();
    kv.raw = 1;
    kv.arena_bytes = BLOCK;
    fake_cache_stream(&f, &stream);
    assert_int_equal(client_kv_on_stream(&stream, &kv, &options, &f.session, &f.open, &error), PENSTOCK_EINVAL);
    close(f.fd);
    layout.layers = 0;
    assert_int_equal(penstock_kv_open("127.0.0.1:1", &kv, NULL, &f.session, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "layers"));

    layout = small();
    kv = salted(&layout);
    kv.arena_bytes = BLOCK - 1;
    assert_int_equal(penstock_kv_open("127.0.0.1:1", &kv, NULL, &f.session, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "does not hold one block"));
    layout.fs_block_bytes = 64;
    assert_int_equal(penstock_kv_open("127.0.0.1:1", &kv, NULL, &f.session, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "fs_block_bytes 4096"));

    layout = small();
    kv = salted(&layout);
    f = ready(&kv, FAKE_ANY_FEATURES);
    static uint8_t memory[BLOCK];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_kv_block block = { .layer = LAYERS };
    struct penstock_kv_info info = { 0 };
    penstock_op op;
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, &block, 1, &op, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "block 0 of layer 3"));
    block = (struct penstock_kv_block){ .at_bytes = 1 };
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, &block, 1, &op, &error), PENSTOCK_EINVAL);
    assert_int_equal(submit(&f, 4, region, &block, 1, &op, &error), PENSTOCK_EINVAL);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, NULL, 1, &op, &error), PENSTOCK_EINVAL);
    assert_int_equal(penstock_kv_about(f.session, &info), PENSTOCK_EINVAL);
    assert_int_equal(penstock_unregister(f.session, region, NULL), 0);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, 0, NULL, 0, &op, &error), PENSTOCK_EINVAL);
    fake_expect_nothing(&f);
    fake_end(&f);
}

/* What is under way is forgotten with the session: its blocks keep the code that says so. */
static void a_session_may_end_under_its_work(void **state)
{
    (void)state;
    const struct penstock_kv_layout layout = small();
    const struct penstock_kv kv = salted(&layout);
    for (int dies = 0; dies < 2; dies++) {
        struct fake_peer f = ready(&kv, FAKE_ANY_FEATURES);
        static uint8_t memory[BLOCK];
        struct penstock_kv_block block = { .layer = 0 };
        struct penstock_completion c;
        penstock_op op;
        assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, fake_region(&f, memory, BLOCK), &block, 1, &op, NULL), 0);
        assert_int_equal(fake_poll(&f, &c), 0);
        if (dies) {
            fake_close(&f);
            assert_int_equal(fake_poll(&f, &c), 1);
            assert_int_equal(c.code, PENSTOCK_ECLOSED);
        }
        fake_end(&f);
        assert_int_equal(block.code, PENSTOCK_ECANCELED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_known_layout_has_its_sizes_namespace_and_key),
        cmocka_unit_test(a_layout_or_a_stripe_that_cannot_be_is_named),
        cmocka_unit_test(blocks_are_put_and_got_by_layer_and_number),
        cmocka_unit_test(a_miss_names_layer_and_block),
        cmocka_unit_test(a_stripe_is_cut_out_of_its_block),
        cmocka_unit_test(in_a_raw_arena_everything_lies_at_its_number_of_strides),
        cmocka_unit_test(a_random_salt_is_nobody_elses_and_its_blocks_go_where_the_peer_can),
        cmocka_unit_test(what_cannot_be_asked_for_is_refused_before_anything_is_sent),
        cmocka_unit_test(a_session_may_end_under_its_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
