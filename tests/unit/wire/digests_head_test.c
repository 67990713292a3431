#include "wire_test.h"

static struct penstock_digests_head decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_digests_head_decode(buf, len, &decoded, consumed, fault);
}

static void counts_come_back(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 1, "digests status" }, { 5, "digest count" } };
    for (uint32_t n = 0; n <= PENSTOCK_DIGESTS_MAX; n += 64) {
        const struct penstock_digests_head head = { .status = PENSTOCK_STATUS_OK, .n = n };
        uint8_t bytes[PENSTOCK_DIGESTS_HEAD_BYTES_MAX];
        struct penstock_wire_fault fault;
        assert_int_equal(penstock_digests_head_encode(&head, bytes, &fault), 5);
        wire_test_whole(decode, bytes, 5);
        assert_int_equal(decoded.status, PENSTOCK_STATUS_OK);
        assert_int_equal(decoded.n, n);
        wire_test_truncations(decode, bytes, 5, fields);
    }
}

static void another_status_stands_alone(void **state)
{
    (void)state;
    for (unsigned status = 1; status < 256; status++) {
        const struct penstock_digests_head head = { .status = (uint8_t)status, .n = 7 };
        uint8_t byte;
        struct penstock_wire_fault fault;
        assert_int_equal(penstock_digests_head_encode(&head, &byte, &fault), 1);
        wire_test_whole(decode, &byte, 1);
        assert_int_equal(decoded.status, status);
        assert_int_equal(decoded.n, 0);
    }
}

static void too_many_are_refused_both_ways(void **state)
{
    (void)state;
    wire_test_refused(decode, "\x00\x01\x10\x00\x00", 5, "implausible digest count: 4097");
    wire_test_refused(decode, "\x00\xFF\xFF\xFF\xFF", 5, "implausible digest count: 4294967295");

    const struct penstock_digests_head head = { .status = PENSTOCK_STATUS_OK, .n = 4097 };
    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_digests_head_encode(&head, &out, &fault), 0);
    wire_test_message(&fault, "implausible digest count: 4097");
    assert_int_equal(out, '#');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_come_back),
        cmocka_unit_test(another_status_stands_alone),
        cmocka_unit_test(too_many_are_refused_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
