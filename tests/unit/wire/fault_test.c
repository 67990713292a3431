#include "wire_test.h"

static void numbers_go_where_the_reason_has_them(void **state)
{
    (void)state;
    struct penstock_wire_fault fault = { .field = "f", .reason = "{value} of {want} ({hex})", .value = 255, .want = 7 };
    wire_test_message(&fault, "255 of 7 (0xff)");
    fault.value = UINT64_MAX;
    fault.want = 0;
    wire_test_message(&fault, "18446744073709551615 of 0 (0xffffffffffffffff)");
}

static void a_short_read_is_its_field(void **state)
{
    (void)state;
    const struct penstock_wire_fault fault = { .field = "read server gid", .need = 28 };
    wire_test_message(&fault, "read server gid");
}

static void a_message_is_cut_to_its_buffer_and_terminated(void **state)
{
    (void)state;
    const struct penstock_wire_fault fault = { .field = "f", .reason = "count {value}", .value = 1234 };
    for (size_t size = 0; size <= 12; size++) {
        char buf[12];
        memset(buf, '#', sizeof buf);
        assert_int_equal(penstock_wire_fault_format(&fault, size > 0 ? buf : NULL, size), 10);
        if (size > 0) {
            size_t len = size <= 10 ? size - 1 : 10;
            assert_memory_equal(buf, "count 1234", len);
            assert_int_equal(buf[len], '\0');
        }
        if (size < sizeof buf)
            assert_int_equal(buf[size], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_go_where_the_reason_has_them),
        cmocka_unit_test(a_short_read_is_its_field),
        cmocka_unit_test(a_message_is_cut_to_its_buffer_and_terminated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
