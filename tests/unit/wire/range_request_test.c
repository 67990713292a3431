#include "wire_test.h"

static struct penstock_range_request decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_range_request_decode(buf, len, &decoded, consumed, fault);
}

static const uint8_t bytes[PENSTOCK_RANGE_REQUEST_BYTES] = {
    4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88
};

static void the_fields_lie_where_the_protocol_has_them(void **state)
{
    (void)state;
    wire_test_whole(decode, bytes, sizeof bytes);
    assert_int_equal(decoded.file, 0x01020304);
    assert_int_equal(decoded.offset, 0x1122334455667788);
    assert_int_equal(decoded.len, 0x8877665544332211);
    uint8_t back[sizeof bytes];
    penstock_range_request_encode(&decoded, back);
    assert_memory_equal(back, bytes, sizeof back);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 4, "range file" },
                                                     { 12, "range offset" },
                                                     { 20, "range length" } };
    wire_test_truncations(decode, bytes, sizeof bytes, fields);
}

static void random_requests_come_back(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < 1000; i++) {
        const struct penstock_range_request request = { .file = (uint32_t)test_random(&seed),
                                                        .offset = test_random(&seed),
                                                        .len = test_random(&seed) };
        uint8_t out[PENSTOCK_RANGE_REQUEST_BYTES];
        penstock_range_request_encode(&request, out);
        wire_test_whole(decode, out, sizeof out);
        assert_int_equal(decoded.file, request.file);
        assert_int_equal(decoded.offset, request.offset);
        assert_int_equal(decoded.len, request.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_lie_where_the_protocol_has_them),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(random_requests_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
