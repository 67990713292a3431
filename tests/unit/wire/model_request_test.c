#include "wire_test.h"

static struct penstock_model_request decoded;
static uint8_t bytes[PENSTOCK_MODEL_REQUEST_BYTES_MAX];

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_model_request_decode(buf, len, &decoded, consumed, fault);
}

static size_t encode(const char *text, size_t n)
{
    const struct penstock_model_request request = { .text = text, .len_bytes = n };
    struct penstock_wire_fault fault;
    size_t size = penstock_model_request_encode(&request, bytes, &fault);
    assert_int_equal(size, penstock_model_request_size(&request));
    return size;
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    assert_int_equal(encode("m7", 2), sizeof golden_model_request);
    assert_memory_equal(bytes, golden_model_request, sizeof golden_model_request);

    size_t consumed;
    struct penstock_wire_fault fault;
    assert_int_equal(wire_test_decode(decode, golden_model_request, sizeof golden_model_request, &consumed, &fault),
                     PENSTOCK_DECODE_OK);
    assert_int_equal(decoded.len_bytes, 2);
    assert_memory_equal(decoded.text, "m7", 2);
    wire_test_whole(decode, golden_model_request, sizeof golden_model_request);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 4, "model request length" }, { 6, "model request" } };
    wire_test_truncations(decode, golden_model_request, sizeof golden_model_request, fields);
}

static void every_length_within_the_bound_comes_back(void **state)
{
    (void)state;
    static char text[PENSTOCK_MODEL_REQUEST_MAX];
    uint64_t seed = 12;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(' ' + test_random(&seed) % 95);
    for (size_t n = 1; n <= sizeof text; n++) {
        size_t consumed;
        struct penstock_wire_fault fault;
        assert_int_equal(wire_test_decode(decode, bytes, encode(text, n), &consumed, &fault), PENSTOCK_DECODE_OK);
        assert_int_equal(consumed, 4 + n);
        assert_int_equal(decoded.len_bytes, n);
        assert_memory_equal(decoded.text, text, n);
    }
}

static void refuse_writing(const char *text, size_t n, const char *message)
{
    const struct penstock_model_request request = { .text = text, .len_bytes = n };
    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_model_request_encode(&request, &out, &fault), 0);
    wire_test_message(&fault, message);
    assert_int_equal(out, '#');
}

static void an_implausible_length_is_refused_before_the_text(void **state)
{
    (void)state;
    wire_test_refused(decode, "\x00\x00\x00\x00", 4, "implausible model request length: 0");
    wire_test_refused(decode, "\x01\x20\x00\x00", 4, "implausible model request length: 8193");
    wire_test_refused(decode, "\xFF\xFF\xFF\xFF", 4, "implausible model request length: 4294967295");
    refuse_writing("", 0, "implausible model request length: 0");
    refuse_writing(NULL, 8193, "implausible model request length: 8193");
}

static void text_that_is_not_utf8_is_refused_both_ways(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        { "\x80", "model request is not UTF-8 from byte 0 on" },             /* a continuation alone */
        { "ab\xC3", "model request is not UTF-8 from byte 2 on" },           /* cut short */
        { "a\xC0\xAF", "model request is not UTF-8 from byte 1 on" },        /* long form of '/' */
        { "a\xE0\x9F\xBF", "model request is not UTF-8 from byte 1 on" },    /* long form */
        { "\xED\xA0\x80", "model request is not UTF-8 from byte 0 on" },     /* a surrogate */
        { "\xF0\x8F\xBF\xBF", "model request is not UTF-8 from byte 0 on" }, /* long form */
        { "\xF4\x90\x80\x80", "model request is not UTF-8 from byte 0 on" }, /* above U+10FFFF */
        { "\xF5\x80\x80\x80", "model request is not UTF-8 from byte 0 on" }, /* no such lead */
        { "\xE2\x82z", "model request is not UTF-8 from byte 0 on" },        /* no continuation */
        { "\xC3\xA9\xFF", "model request is not UTF-8 from byte 2 on" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        bytes[0] = (uint8_t)n;
        memset(bytes + 1, 0, 3);
        memcpy(bytes + 4, cases[i].text, n);
        wire_test_refused(decode, bytes, 4 + n, cases[i].message);
        refuse_writing(cases[i].text, n, cases[i].message);
    }
}

static void the_edges_of_utf8_are_accepted(void **state)
{
    (void)state;
    static const char edges[] = "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF"
                                "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF";
    wire_test_whole(decode, bytes, encode(edges, sizeof edges)); /* and the NUL behind it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(every_length_within_the_bound_comes_back),
        cmocka_unit_test(an_implausible_length_is_refused_before_the_text),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_both_ways),
        cmocka_unit_test(the_edges_of_utf8_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
