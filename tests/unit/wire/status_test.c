#include "wire_test.h"

static uint8_t byte;

static enum penstock_decode decode_ack(const uint8_t *buf, size_t len, size_t *consumed,
                                       struct penstock_wire_fault *fault)
{
    return penstock_ack_decode(buf, len, consumed, fault);
}

static enum penstock_decode decode_mode(const uint8_t *buf, size_t len, size_t *consumed,
                                        struct penstock_wire_fault *fault)
{
    return penstock_mode_decode(buf, len, &byte, consumed, fault);
}

static enum penstock_decode decode_status(const uint8_t *buf, size_t len, size_t *consumed,
                                          struct penstock_wire_fault *fault)
{
    return penstock_status_decode(buf, len, &byte, consumed, fault);
}

static void only_status_ok_acknowledges(void **state)
{
    (void)state;
    wire_test_whole(decode_ack, "\0", 1);
    wire_test_refused(decode_ack, "\x01", 1, "refused connection (ack 1)");
    wire_test_refused(decode_ack, "\xFF", 1, "refused connection (ack 255)");
}

static void two_modes_are_known(void **state)
{
    (void)state;
    wire_test_whole(decode_mode, "\0", 1);
    assert_int_equal(byte, PENSTOCK_MODE_TCP);
    wire_test_whole(decode_mode, "\x01", 1);
    assert_int_equal(byte, PENSTOCK_MODE_VERBS);
    wire_test_refused(decode_mode, "\x02", 1, "unknown transport mode: 2");
}

static void any_status_is_handed_on(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 256; i++) {
        const uint8_t sent = (uint8_t)i;
        wire_test_whole(decode_status, &sent, 1);
        assert_int_equal(byte, i);
    }
}

static void nothing_yet_names_the_byte(void **state)
{
    (void)state;
    static const struct wire_test_field ack = { 1, "ack" }, mode = { 1, "transport mode" },
                                        status = { 1, "reply status" };
    wire_test_truncations(decode_ack, "\0", 1, &ack);
    wire_test_truncations(decode_mode, "\0", 1, &mode);
    wire_test_truncations(decode_status, "\0", 1, &status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_status_ok_acknowledges),
        cmocka_unit_test(two_modes_are_known),
        cmocka_unit_test(any_status_is_handed_on),
        cmocka_unit_test(nothing_yet_names_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
