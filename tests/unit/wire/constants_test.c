#include "wire_test.h"

static void frozen_constants(void **state)
{
    (void)state;
    assert_int_equal(PENSTOCK_STATUS_OK, 0);
    assert_int_equal(PENSTOCK_STATUS_ERR, 1);
    assert_int_equal(PENSTOCK_MODE_TCP, 0);
    assert_int_equal(PENSTOCK_MODE_VERBS, 1);
    assert_int_equal(PENSTOCK_SHUTDOWN_MARKER, 0xFFFFFFFF);
    assert_int_equal(PENSTOCK_PAGING_MAGIC_V2, 0x5041474500000002);
    assert_int_equal(PENSTOCK_PAGING_MAGIC_V1, 0x5041474500000001);
    assert_int_equal(PENSTOCK_ARENA_SSM, 0);
    assert_int_equal(PENSTOCK_ARENA_KV, 1);
    assert_int_equal(PENSTOCK_OP_BYE, 0);
    assert_int_equal(PENSTOCK_OP_ALLOC, 1);
    assert_int_equal(PENSTOCK_OP_COMMIT, 2);
    assert_int_equal(PENSTOCK_OP_GET, 3);
    assert_int_equal(PENSTOCK_OP_REMOVE, 4);
    assert_int_equal(PENSTOCK_ST_OK, 0);
    assert_int_equal(PENSTOCK_ST_MISS, 1);
    assert_int_equal(PENSTOCK_ST_ERR, 2);
    assert_int_equal(PENSTOCK_MODEL_REQUEST_MAX, 8192);
    assert_int_equal(PENSTOCK_RAILS_MAX, 8);
    assert_int_equal(PENSTOCK_LAYERS_MAX, 4096);
    assert_int_equal(PENSTOCK_EXPERT_MANIFEST_BYTES_MAX, 16777216);
    assert_int_equal(PENSTOCK_WEIGHT_MANIFEST_BYTES_MAX, 268435456);
    assert_int_equal(PENSTOCK_ARENA_BYTES_MAX, 4398046511104);
    assert_int_equal(PENSTOCK_PORT_EXPERTS, 9900);
    assert_int_equal(PENSTOCK_PORT_WEIGHTS, 9910);
    assert_int_equal(PENSTOCK_PORT_CACHE, 9916);
}

static void constants_of_the_extensions(void **state)
{
    (void)state;
    assert_int_equal(PENSTOCK_RANGE_BYTES_MAX, 67108864);
    assert_int_equal(PENSTOCK_FILE_DIGESTS, 0xFFFFFFFE);
    assert_int_equal(PENSTOCK_FILE_END, 0xFFFFFFFF);
    assert_int_equal(PENSTOCK_DIGESTS_MAX, 4096);
    assert_int_equal(PENSTOCK_OP_PUT, 0x10);
    assert_int_equal(PENSTOCK_OP_FETCH, 0x11);
    assert_int_equal(PENSTOCK_OP_WRITE, 0x12);
    assert_int_equal(PENSTOCK_OP_READ, 0x13);
    assert_int_equal(PENSTOCK_OP_EXISTS, 0x20);
    assert_int_equal(PENSTOCK_OP_MGET, 0x21);
    assert_int_equal(PENSTOCK_OP_RELEASE, 0x22);
    assert_int_equal(PENSTOCK_OP_OWN, 0x23);
    assert_int_equal(PENSTOCK_OP_WIDE, 0x24);
    assert_int_equal(PENSTOCK_OP_FEATURES, 0x7F);
    assert_int_equal(PENSTOCK_FEATURE_EXISTS, 1);
    assert_int_equal(PENSTOCK_FEATURE_MGET, 2);
    assert_int_equal(PENSTOCK_FEATURE_OWN, 4);
    assert_int_equal(PENSTOCK_FEATURE_WIDE, 8);
    assert_int_equal(PENSTOCK_KEYS_MAX, 1024);
    assert_int_equal(PENSTOCK_UNANSWERED_MAX, 256);
    assert_int_equal(PENSTOCK_MODEL_VERSION_MAX, 128);
    assert_int_equal(PENSTOCK_MODELS_REPLY_BYTES_MAX, 16777216);
    assert_int_equal(PENSTOCK_CACHE_STATISTICS_BYTES_MAX, 1048576);
    assert_int_equal(PENSTOCK_ARENA_STATISTICS, 0xFF);
    assert_int_equal(PENSTOCK_PEER_RAIL_ANY, 0xFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_constants),
        cmocka_unit_test(constants_of_the_extensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
