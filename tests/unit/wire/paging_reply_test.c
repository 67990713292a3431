#include "wire_test.h"

static uint8_t op;
static struct penstock_paging_reply decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_paging_reply_decode(buf, len, op, &decoded, consumed, fault);
}

static size_t encode(uint8_t status, uint64_t value, uint8_t *out)
{
    const struct penstock_paging_reply reply = { .status = status, .value = value };
    penstock_paging_reply_encode(op, &reply, out);
    return penstock_paging_reply_size(op, &reply);
}

static void hits_carry_a_value(void **state)
{
    (void)state;
    static const struct {
        uint8_t op;
        const char *field;
    } cases[] = {
        { PENSTOCK_OP_ALLOC, "arena offset" },
        { PENSTOCK_OP_GET, "arena offset" },
        { PENSTOCK_OP_MGET, "arena offset" },
        { PENSTOCK_OP_FEATURES, "feature bits" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[PENSTOCK_PAGING_REPLY_BYTES_MAX];
        op = cases[i].op;
        assert_int_equal(encode(PENSTOCK_ST_OK, 0x1122334455667788, bytes), 9);
        assert_memory_equal(bytes, "\0\x88\x77\x66\x55\x44\x33\x22\x11", 9);
        wire_test_whole(decode, bytes, 9);
        assert_int_equal(decoded.status, PENSTOCK_ST_OK);
        assert_int_equal(decoded.value, 0x1122334455667788);
        const struct wire_test_field fields[] = { { 1, "paging status" }, { 9, cases[i].field } };
        wire_test_truncations(decode, bytes, 9, fields);
    }
}

static void other_replies_are_a_status(void **state)
{
    (void)state;
    static const uint8_t ops[] = { PENSTOCK_OP_COMMIT,
                                   PENSTOCK_OP_REMOVE,
                                   PENSTOCK_OP_PUT,
                                   PENSTOCK_OP_FETCH,
                                   PENSTOCK_OP_WRITE,
                                   PENSTOCK_OP_READ,
                                   PENSTOCK_OP_OWN,
                                   PENSTOCK_OP_WIDE,
                                   PENSTOCK_OP_EXISTS,
                                   PENSTOCK_OP_RELEASE,
                                   0x55 };
    static const struct wire_test_field field = { 1, "paging status" };
    for (size_t i = 0; i < sizeof ops; i++) {
        uint8_t byte;
        op = ops[i];
        assert_int_equal(encode(PENSTOCK_ST_OK, 7, &byte), 1);
        wire_test_whole(decode, &byte, 1);
        assert_int_equal(decoded.status, PENSTOCK_ST_OK);
        wire_test_truncations(decode, &byte, 1, &field);
    }
}

static void a_status_that_is_not_ok_has_no_value(void **state)
{
    (void)state;
    op = PENSTOCK_OP_GET;
    for (unsigned status = 1; status < 256; status++) {
        uint8_t byte;
        assert_int_equal(encode((uint8_t)status, 7, &byte), 1);
        wire_test_whole(decode, &byte, 1);
        assert_int_equal(decoded.status, status);
        assert_int_equal(decoded.value, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_carry_a_value),
        cmocka_unit_test(other_replies_are_a_status),
        cmocka_unit_test(a_status_that_is_not_ok_has_no_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
