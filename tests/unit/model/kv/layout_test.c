#include "../../test.h"

#include "model/kv/layout.h"

static struct model_kv_layout known(void)
{
    return (struct model_kv_layout){ .elem_bytes = 2,
                                     .block_size = 16,
                                     .head_dim = 128,
                                     .layers = 80,
                                     .blocks = 4096,
                                     .kv_heads = 8,
                                     .fs_block_bytes = 4096 };
}

static void hashes_have_their_check_values(void **state)
{
    (void)state;
    assert_true(model_fnv1a(MODEL_FNV_BASIS, "foobar", 6) == UINT64_C(0x85944171F73967E8));
    assert_true(model_mix64(1, 2) == UINT64_C(0xBEEB8DA1658EEC67));
}

static void the_known_layout_has_its_namespace_and_key(void **state)
{
    (void)state;
    struct model_kv_layout l = known();
    assert_int_equal(model_kv_layout_compute(&l, NULL), 0);
    assert_int_equal(l.group_stride, 4096);
    assert_int_equal(l.block_bytes, 2 * 8 * 4096);
    assert_true(l.total_bytes == UINT64_C(80) * 4096 * 2 * 8 * 4096);
    uint64_t ns = model_kv_namespace(&l, UINT64_C(0x5629922C51A16A10), UINT64_C(0xD00DF00D00000001));
    assert_true(ns == UINT64_C(0x74B402B0F4215375));
    assert_true(model_kv_wire_key(ns, 42) == UINT64_C(0x6D2D470EF5947D4B));
}

static void stripes_are_numbered_in_the_order_that_they_lie_in(void **state)
{
    (void)state;
    struct model_kv_layout l = known();
    l.layers = 3, l.blocks = 5, l.kv_heads = 2, l.head_dim = 129;
    assert_int_equal(model_kv_layout_compute(&l, NULL), 0);
    assert_int_equal(l.group_bytes, 2 * 16 * 129);
    assert_int_equal(l.group_stride, 8192);
    uint64_t group = 0;
    for (uint64_t layer = 0; layer < l.layers; layer++)
        for (uint64_t block = 0; block < l.blocks; block++) {
            uint64_t at = 0;
            for (unsigned kv = 0; kv < 2; kv++)
                for (uint64_t head = 0; head < l.kv_heads; head++) {
                    struct model_kv_stripe s = { layer, block, kv, head };
                    assert_int_equal(model_kv_group(&l, &s), group++);
                    assert_int_equal(model_kv_stripe_at(&l, &s), at);
                    at += l.group_stride;
                }
            assert_int_equal(at, l.block_bytes);
        }
    assert_int_equal(group, l.groups);
    assert_int_equal(l.total_bytes, l.groups * l.group_stride);
}

static void every_field_counts_for_the_namespace(void **state)
{
    (void)state;
    struct model_kv_layout l = known();
    assert_int_equal(model_kv_layout_compute(&l, NULL), 0);
    uint64_t ns = model_kv_namespace(&l, 1, 2);
    uint64_t *fields[] = { &l.elem_bytes, &l.block_size, &l.head_dim,       &l.layers,
                           &l.blocks,     &l.kv_heads,   &l.fs_block_bytes, &l.group_stride };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ++*fields[i];
        assert_true(model_kv_namespace(&l, 1, 2) != ns);
        --*fields[i];
    }
    assert_true(model_kv_namespace(&l, 2, 2) != ns);
    assert_true(model_kv_namespace(&l, 1, 3) != ns);
    assert_true(model_kv_namespace(&l, 1, 2) == ns);
}

static void what_no_arena_could_hold_is_refused_by_its_field(void **state)
{
    (void)state;
    static const size_t fields[] = {
        offsetof(struct model_kv_layout, elem_bytes),    offsetof(struct model_kv_layout, block_size),
        offsetof(struct model_kv_layout, head_dim),      offsetof(struct model_kv_layout, layers),
        offsetof(struct model_kv_layout, blocks),        offsetof(struct model_kv_layout, kv_heads),
        offsetof(struct model_kv_layout, fs_block_bytes)
    };
    static const char *const names[] = { "elem_bytes", "block_size", "head_dim",      "layers",
                                         "blocks",     "kv_heads",   "fs_block_bytes" };
    static const uint64_t bad[] = { 0, UINT64_C(1) << 42, UINT64_C(1) << 63, UINT64_MAX };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
            struct model_kv_layout l = known();
            struct penstock_error error = { 0 };
            *(uint64_t *)(void *)((uint8_t *)&l + fields[i]) = bad[j];
            assert_int_equal(model_kv_layout_compute(&l, &error), PENSTOCK_EINVAL);
            assert_true(strstr(error.message, names[i]) || bad[j] == UINT64_C(1) << 42);
        }
    struct model_kv_layout l = known();
    l.fs_block_bytes = 3000;
    assert_int_equal(model_kv_layout_compute(&l, NULL), PENSTOCK_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_have_their_check_values),
        cmocka_unit_test(the_known_layout_has_its_namespace_and_key),
        cmocka_unit_test(stripes_are_numbered_in_the_order_that_they_lie_in),
        cmocka_unit_test(every_field_counts_for_the_namespace),
        cmocka_unit_test(what_no_arena_could_hold_is_refused_by_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
