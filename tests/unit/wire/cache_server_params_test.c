#include "wire_test.h"

static struct penstock_cache_server_params decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_cache_server_params_decode(buf, len, &decoded, consumed, fault);
}

static void check(const struct penstock_cache_server_params *params)
{
    wire_test_qp_equal(&decoded.qp, &params->qp);
    assert_int_equal(decoded.base_addr, params->base_addr);
    assert_int_equal(decoded.rkey, params->rkey);
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    const struct penstock_cache_server_params params = { .qp = wire_test_golden_qp(0x50),
                                                         .base_addr = 0x1122334455667788,
                                                         .rkey = 0x99AABBCC };
    uint8_t out[PENSTOCK_CACHE_SERVER_PARAMS_BYTES];
    assert_int_equal(sizeof golden_cache_server_params, sizeof out);
    penstock_cache_server_params_encode(&params, out);
    assert_memory_equal(out, golden_cache_server_params, sizeof out);

    wire_test_whole(decode, golden_cache_server_params, sizeof out);
    check(&params);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 4, "kv qpn" }, { 8, "kv psn" }, { 24, "kv gid" }, { 32, "kv base" }, { 36, "kv rkey" },
    };
    wire_test_truncations(decode, golden_cache_server_params, sizeof golden_cache_server_params, fields);
}

static void random_records_come_back(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 1000; i++) {
        const struct penstock_cache_server_params params = { .qp = wire_test_random_qp(&seed),
                                                             .base_addr = test_random(&seed),
                                                             .rkey = (uint32_t)test_random(&seed) };
        uint8_t out[PENSTOCK_CACHE_SERVER_PARAMS_BYTES];
        penstock_cache_server_params_encode(&params, out);
        wire_test_whole(decode, out, sizeof out);
        check(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(random_records_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
