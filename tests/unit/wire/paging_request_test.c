#include "wire_test.h"

static struct penstock_paging_framing framing;
static struct penstock_key keys[PENSTOCK_KEYS_MAX];
static struct penstock_paging_request decoded;
static uint8_t bytes[PENSTOCK_PAGING_REQUEST_BYTES_MAX];

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_paging_request_decode(buf, len, &framing, keys, &decoded, consumed, fault);
}

static size_t encode(const struct penstock_paging_request *request)
{
    struct penstock_wire_fault fault;
    size_t n = penstock_paging_request_encode(request, &framing, bytes, &fault);
    assert_true(n > 0);
    assert_int_equal(n, penstock_paging_request_size(request, &framing));
    assert_int_equal(bytes[0], request->op);
    return n;
}

static void keyed_requests_are_an_op_and_a_key(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 1, "paging op" },
                                                     { 9, "paging key" },
                                                     { 17, "paging key high" } };
    static const struct wire_test_field narrow[] = { { 1, "paging op" }, { 9, "paging key" } };
    static const uint8_t ops[] = { PENSTOCK_OP_ALLOC,  PENSTOCK_OP_COMMIT, PENSTOCK_OP_GET,  PENSTOCK_OP_REMOVE,
                                   PENSTOCK_OP_EXISTS, PENSTOCK_OP_PUT,    PENSTOCK_OP_FETCH };
    uint64_t seed = 13;
    for (unsigned i = 0; i < 4 * sizeof ops; i++) {
        framing = (struct penstock_paging_framing){ .tcp = i & 1, .wide = i & 2 };
        const struct penstock_paging_request request = {
            .op = ops[i / 4], .key = { test_random(&seed), framing.wide ? test_random(&seed) : 0 }
        };
        const size_t n = encode(&request);
        assert_int_equal(n, framing.wide ? 17 : 9);
        wire_test_whole(decode, bytes, n);
        assert_int_equal(decoded.op, request.op);
        assert_int_equal(decoded.key.low, request.key.low);
        assert_int_equal(decoded.key.high, request.key.high);
        wire_test_truncations(decode, bytes, n, framing.wide ? fields : narrow);
    }
}

static void frozen_requests_are_these_bytes(void **state)
{
    (void)state;
    framing = (struct penstock_paging_framing){ 0 };
    const struct penstock_paging_request get = { .op = PENSTOCK_OP_GET, .key = { 0x1122334455667788, 0 } };
    assert_int_equal(encode(&get), 9);
    assert_memory_equal(bytes, "\x03\x88\x77\x66\x55\x44\x33\x22\x11", 9);
}

static void a_bye_is_complete_at_its_op_and_sent_with_a_key(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 1, "paging op" } };
    const struct penstock_paging_request bye = { .op = PENSTOCK_OP_BYE, .key = { 42, 0 } };
    for (unsigned i = 0; i < 4; i++) {
        framing = (struct penstock_paging_framing){ .tcp = i & 1, .wide = i & 2 };
        assert_int_equal(encode(&bye), framing.wide ? 17 : 9);
        assert_int_equal(bytes[1], 42);
        wire_test_whole(decode, bytes, 1);
        assert_int_equal(decoded.op, PENSTOCK_OP_BYE);
        wire_test_truncations(decode, bytes, 1, fields);
    }
}

static void values_are_never_widened(void **state)
{
    (void)state;
    static const uint8_t ops[] = { PENSTOCK_OP_FEATURES, PENSTOCK_OP_OWN, PENSTOCK_OP_WIDE };
    static const struct wire_test_field fields[] = { { 1, "paging op" }, { 9, "paging value" } };
    for (unsigned i = 0; i < 4 * sizeof ops; i++) {
        framing = (struct penstock_paging_framing){ .tcp = i & 1, .wide = i & 2 };
        const struct penstock_paging_request request = { .op = ops[i / 4], .value = 0x8000000000000001 };
        assert_int_equal(encode(&request), 9);
        wire_test_whole(decode, bytes, 9);
        assert_int_equal(decoded.value, request.value);
        wire_test_truncations(decode, bytes, 9, fields);
    }
}

static void many_keys_come_back(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 1, 2, 1023, 1024 };
    struct penstock_key sent[PENSTOCK_KEYS_MAX];
    uint64_t seed = 14;
    for (unsigned i = 0; i < 16; i++) {
        framing = (struct penstock_paging_framing){ .tcp = i & 1, .wide = i & 2 };
        const struct penstock_paging_request request = { .op = i & 1 ? PENSTOCK_OP_MGET : PENSTOCK_OP_RELEASE,
                                                         .keys = sent,
                                                         .n_keys = counts[i / 4] };
        for (uint32_t k = 0; k < request.n_keys; k++)
            sent[k] = (struct penstock_key){ test_random(&seed), framing.wide ? test_random(&seed) : 0 };
        const size_t n = encode(&request);
        assert_int_equal(n, 5 + request.n_keys * (framing.wide ? 16 : 8));
        wire_test_whole(decode, bytes, n);
        assert_int_equal(decoded.n_keys, request.n_keys);
        assert_ptr_equal(decoded.keys, keys);
        assert_memory_equal(keys, sent, request.n_keys * sizeof *sent);
    }
}

static void truncated_keys_are_named(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 1, "paging op" },        { 5, "paging key count" }, { 13, "paging key" },
        { 21, "paging key high" }, { 29, "paging key" },      { 37, "paging key high" },
    };
    struct penstock_key sent[2] = { { 1, 2 }, { 3, 4 } };
    const struct penstock_paging_request request = { .op = PENSTOCK_OP_MGET, .keys = sent, .n_keys = 2 };
    framing = (struct penstock_paging_framing){ .wide = true };
    wire_test_truncations(decode, bytes, encode(&request), fields);
}

static void ranges_come_back_on_a_tcp_data_plane(void **state)
{
    (void)state;
    static const uint8_t ops[] = { PENSTOCK_OP_READ, PENSTOCK_OP_WRITE };
    static const struct wire_test_field fields[] = { { 1, "paging op" },
                                                     { 9, "paging offset" },
                                                     { 13, "paging length" } };
    for (unsigned i = 0; i < 4; i++) {
        framing = (struct penstock_paging_framing){ .tcp = true, .wide = i & 1 };
        const struct penstock_paging_request request = { .op = ops[i / 2],
                                                         .offset = 0x1122334455667788,
                                                         .len_bytes = 1u << 26 };
        assert_int_equal(encode(&request), 13);
        wire_test_whole(decode, bytes, 13);
        assert_int_equal(decoded.offset, request.offset);
        assert_int_equal(decoded.len_bytes, request.len_bytes);
        wire_test_truncations(decode, bytes, 13, fields);
    }
}

static void refuse_writing(const struct penstock_paging_request *request, const char *message)
{
    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_paging_request_size(request, &framing), 0);
    assert_int_equal(penstock_paging_request_encode(request, &framing, &out, &fault), 0);
    wire_test_message(&fault, message);
    assert_int_equal(out, '#');
}

static void key_counts_out_of_bounds_are_refused_before_a_key(void **state)
{
    (void)state;
    framing = (struct penstock_paging_framing){ 0 };
    wire_test_refused(decode, "\x21\x00\x00\x00\x00", 5, "implausible paging key count: 0");
    wire_test_refused(decode, "\x21\x01\x04\x00\x00", 5, "implausible paging key count: 1025");
    wire_test_refused(decode, "\x22\xFF\xFF\xFF\xFF", 5, "implausible paging key count: 4294967295");
    struct penstock_paging_request request = { .op = PENSTOCK_OP_MGET };
    refuse_writing(&request, "implausible paging key count: 0");
    request.n_keys = 1025;
    refuse_writing(&request, "implausible paging key count: 1025");
}

/* A WRITE's body could not be skipped; a READ has none, and is answered. */
static void a_body_above_the_bound_is_refused(void **state)
{
    (void)state;
    framing = (struct penstock_paging_framing){ .tcp = true };
    wire_test_refused(decode, "\x12\0\0\0\0\0\0\0\0\x01\0\0\x04", 13, "implausible paging write length: 67108865");
    const struct penstock_paging_request request = { .op = PENSTOCK_OP_WRITE, .len_bytes = (1u << 26) + 1 };
    refuse_writing(&request, "implausible paging write length: 67108865");
    wire_test_whole(decode, "\x13\0\0\0\0\0\0\0\0\x01\0\0\x04", 13);
    assert_int_equal(decoded.len_bytes, (1u << 26) + 1);
}

static void an_unknown_op_has_a_key_on_verbs_and_is_refused_on_tcp(void **state)
{
    (void)state;
    static const uint8_t unknown[] = { 5, 0x0F, 0x14, 0x1F, 0x25, 0x7E, 0x80, 0xFF };
    for (size_t i = 0; i < sizeof unknown; i++) {
        const struct penstock_paging_request request = { .op = unknown[i], .key = { 7, 0 } };
        framing = (struct penstock_paging_framing){ 0 };
        assert_int_equal(encode(&request), 9);
        wire_test_whole(decode, bytes, 9);
        assert_int_equal(decoded.op, unknown[i]);

        size_t consumed;
        struct penstock_wire_fault fault;
        framing.tcp = true;
        assert_int_equal(wire_test_decode(decode, bytes, 1, &consumed, &fault), PENSTOCK_DECODE_MALFORMED);
        assert_string_equal(fault.field, "paging op");
        assert_int_equal(fault.value, unknown[i]);
    }
    wire_test_refused(decode, "\x55", 1, "unknown paging op on a TCP data plane: 0x55");
}

/* What a fleet peer makes of them as well. */
static void the_data_planes_ops_are_unknown_ones_on_verbs(void **state)
{
    (void)state;
    framing = (struct penstock_paging_framing){ 0 };
    for (uint8_t op = PENSTOCK_OP_PUT; op <= PENSTOCK_OP_READ; op++) {
        const struct penstock_paging_request request = { .op = op, .key = { 7, 0 } };
        assert_int_equal(encode(&request), 9);
        wire_test_whole(decode, bytes, 9);
        assert_int_equal(decoded.key.low, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keyed_requests_are_an_op_and_a_key),
        cmocka_unit_test(frozen_requests_are_these_bytes),
        cmocka_unit_test(a_bye_is_complete_at_its_op_and_sent_with_a_key),
        cmocka_unit_test(values_are_never_widened),
        cmocka_unit_test(many_keys_come_back),
        cmocka_unit_test(truncated_keys_are_named),
        cmocka_unit_test(ranges_come_back_on_a_tcp_data_plane),
        cmocka_unit_test(key_counts_out_of_bounds_are_refused_before_a_key),
        cmocka_unit_test(a_body_above_the_bound_is_refused),
        cmocka_unit_test(an_unknown_op_has_a_key_on_verbs_and_is_refused_on_tcp),
        cmocka_unit_test(the_data_planes_ops_are_unknown_ones_on_verbs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
