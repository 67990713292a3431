#include "wire_test.h"

static struct penstock_verbs_client_params decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_verbs_client_params_decode(buf, len, &decoded, consumed, fault);
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    const struct penstock_verbs_client_params params = { .qp = wire_test_golden_qp(0x10) };
    uint8_t out[PENSTOCK_VERBS_CLIENT_PARAMS_BYTES];
    assert_int_equal(sizeof golden_verbs_client_params, sizeof out);
    penstock_verbs_client_params_encode(&params, out);
    assert_memory_equal(out, golden_verbs_client_params, sizeof out);

    wire_test_whole(decode, golden_verbs_client_params, sizeof out);
    wire_test_qp_equal(&decoded.qp, &params.qp);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 4, "read u32" }, { 8, "read u32" }, { 24, "read client gid" } };
    wire_test_truncations(decode, golden_verbs_client_params, sizeof golden_verbs_client_params, fields);
}

static void random_records_come_back(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 1000; i++) {
        const struct penstock_verbs_client_params params = { .qp = wire_test_random_qp(&seed) };
        uint8_t out[PENSTOCK_VERBS_CLIENT_PARAMS_BYTES];
        penstock_verbs_client_params_encode(&params, out);
        wire_test_whole(decode, out, sizeof out);
        wire_test_qp_equal(&decoded.qp, &params.qp);
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
