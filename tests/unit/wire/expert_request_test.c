#include "wire_test.h"

static struct penstock_expert_request decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_expert_request_decode(buf, len, &decoded, consumed, fault);
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    const struct penstock_expert_request request = { .layer = 0x01020304, .expert = 0x05060708 };
    uint8_t out[PENSTOCK_EXPERT_REQUEST_BYTES];
    assert_int_equal(sizeof golden_expert_request, sizeof out);
    penstock_expert_request_encode(&request, out);
    assert_memory_equal(out, golden_expert_request, sizeof out);

    wire_test_whole(decode, golden_expert_request, sizeof out);
    assert_int_equal(decoded.layer, request.layer);
    assert_int_equal(decoded.expert, request.expert);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 4, "expert request layer" }, { 8, "expert request expert" } };
    wire_test_truncations(decode, golden_expert_request, sizeof golden_expert_request, fields);
}

static void the_marker_in_both_fields_is_a_shutdown(void **state)
{
    (void)state;
    wire_test_whole(decode, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    assert_true(penstock_expert_request_is_shutdown(&decoded));
    wire_test_whole(decode, "\xFF\xFF\xFF\xFF\xFE\xFF\xFF\xFF", 8);
    assert_false(penstock_expert_request_is_shutdown(&decoded));
    wire_test_whole(decode, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    assert_false(penstock_expert_request_is_shutdown(&decoded));
}

static void random_requests_come_back(void **state)
{
    (void)state;
    uint64_t seed = 10;
    for (int i = 0; i < 1000; i++) {
        const struct penstock_expert_request request = { (uint32_t)test_random(&seed), (uint32_t)test_random(&seed) };
        uint8_t out[PENSTOCK_EXPERT_REQUEST_BYTES];
        penstock_expert_request_encode(&request, out);
        wire_test_whole(decode, out, sizeof out);
        assert_int_equal(decoded.layer, request.layer);
        assert_int_equal(decoded.expert, request.expert);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(the_marker_in_both_fields_is_a_shutdown),
        cmocka_unit_test(random_requests_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
