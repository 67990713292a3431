#include "wire_test.h"

static struct penstock_record_header decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_record_header_decode(buf, len, &decoded, consumed, fault);
}

static const struct penstock_record_header golden = {
    .layer = 0x01020304,
    .expert = 0x05060708,
    .inter = 512,
    .hidden = 2048,
    .group_size = 16,
    .input_scale_flags = 5,
    .scale2 = { 1.0f, -0.5f, 3.0f },
    .input_scale = { 2.0f, 0.0f, 0.25f },
};

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    uint8_t out[PENSTOCK_RECORD_HEADER_BYTES];
    memset(out, 0xEE, sizeof out);
    assert_int_equal(sizeof golden_record_header, sizeof out);
    penstock_record_header_encode(&golden, out);
    assert_memory_equal(out, golden_record_header, sizeof out);

    wire_test_whole(decode, golden_record_header, sizeof out);
    assert_memory_equal(&decoded, &golden, sizeof decoded);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 4, "record magic" },       { 8, "record version" },
        { 12, "record layer" },      { 16, "record expert" },
        { 20, "record inter" },      { 24, "record hidden" },
        { 28, "record group_size" }, { 32, "record input_scale_flags" },
        { 44, "record scale2" },     { 56, "record input_scale" },
        { 256, "record padding" },
    };
    wire_test_truncations(decode, golden_record_header, sizeof golden_record_header, fields);
}

static void another_magic_or_version_is_refused_at_once(void **state)
{
    (void)state;
    uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES];
    memcpy(bytes, golden_record_header, sizeof bytes);
    bytes[4] = 2;
    wire_test_refused(decode, bytes, 8, "record version 2, and this side knows 1");
    bytes[0] = 0x53;
    wire_test_refused(decode, bytes, 4, "record magic 0x58505253: not an expert's record");
    wire_test_refused(decode, bytes, sizeof bytes, "record magic 0x58505253: not an expert's record");
}

static void an_input_scale_that_is_not_there_is_written_as_zero(void **state)
{
    (void)state;
    struct penstock_record_header header = golden;
    uint8_t out[PENSTOCK_RECORD_HEADER_BYTES];
    header.input_scale[1] = 7.0f;
    penstock_record_header_encode(&header, out);
    assert_memory_equal(out, golden_record_header, sizeof out);
}

static void floats_keep_every_bit(void **state)
{
    (void)state;
    const uint32_t bits[] = { 0x7FA00001, 0x80000000, 0x00000001, 0xFF800000 }; /* a signalling NaN among them */
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        struct penstock_record_header header = golden;
        uint8_t out[PENSTOCK_RECORD_HEADER_BYTES];
        memcpy(&header.scale2[2], &bits[i], sizeof bits[i]);
        memcpy(&header.input_scale[0], &bits[i], sizeof bits[i]);
        penstock_record_header_encode(&header, out);
        wire_test_whole(decode, out, sizeof out);
        assert_memory_equal(&decoded, &header, sizeof header);
    }
}

static void what_the_padding_holds_does_not_matter(void **state)
{
    (void)state;
    uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES];
    memcpy(bytes, golden_record_header, sizeof bytes);
    memset(bytes + 56, 0xA5, sizeof bytes - 56);
    wire_test_whole(decode, bytes, sizeof bytes);
    assert_memory_equal(&decoded, &golden, sizeof decoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(another_magic_or_version_is_refused_at_once),
        cmocka_unit_test(an_input_scale_that_is_not_there_is_written_as_zero),
        cmocka_unit_test(floats_keep_every_bit),
        cmocka_unit_test(what_the_padding_holds_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
