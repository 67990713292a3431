#include "../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "json/json.h"
#include "json/write.h"

static void assert_text(struct base_buf *buf, const char *want)
{
    base_buf_append(buf, "", 1);
    assert_false(buf->failed);
    assert_string_equal((char *)buf->at, want);
    base_buf_fini(buf);
}

static void pretty_is_a_line_a_value_and_two_blanks_a_level(void **state)
{
    (void)state;
    struct base_buf buf = { 0 };
    struct json_writer w = { .buf = &buf, .pretty = true };
    json_write_object(&w);
    json_write_key_u64(&w, "n", 1);
    json_write_key(&w, "list");
    json_write_array(&w);
    json_write_u64(&w, 2);
    json_write_i64(&w, -3);
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_object(&w);
    json_write_key_text(&w, "text", "x");
    json_write_object_end(&w);
    json_write_array_end(&w);
    json_write_key(&w, "none");
    json_write_object(&w);
    json_write_object_end(&w);
    json_write_object_end(&w);
    assert_text(&buf,
                "{\n  \"n\": 1,\n  \"list\": [\n    2,\n    -3,\n    [],\n    {\n      \"text\": \"x\"\n    }\n  ],\n"
                "  \"none\": {}\n}");
}

static void commas_and_colons_come_by_themselves(void **state)
{
    (void)state;
    struct base_buf buf = { 0 };
    struct json_writer w = { .buf = &buf };
    json_write_object(&w);
    json_write_key(&w, "list");
    json_write_array(&w);
    json_write_u64(&w, 1);
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_i64(&w, -2);
    json_write_array_end(&w);
    json_write_key_text(&w, "text", "x");
    json_write_key_text(&w, "none", NULL);
    json_write_key_u64(&w, "n", 0);
    json_write_key_bool(&w, "yes", true);
    json_write_key(&w, "rate");
    json_write_double(&w, 1.25);
    json_write_key(&w, "endless");
    json_write_double(&w, 1.0 / 0.0);
    json_write_object_end(&w);
    assert_text(&buf, "{\"list\":[1,[],-2],\"text\":\"x\",\"none\":null,\"n\":0,\"yes\":true,\"rate\":1.25,"
                      "\"endless\":null}");
}

static void integers_are_exact(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        uint64_t value = test_random(&seed) >> (test_random(&seed) % 64);
        char want[24], got[24];
        snprintf(want, sizeof want, "%llu", (unsigned long long)value);
        *json_put_u64(got, value) = 0;
        assert_string_equal(got, want);
    }
    static const uint64_t edges[] = { 0, 9, 10, 99, 100, UINT64_MAX };
    static const char *const words[] = { "0", "9", "10", "99", "100", "18446744073709551615" };
    for (size_t i = 0; i < 6; i++) {
        char got[24];
        *json_put_u64(got, edges[i]) = 0;
        assert_string_equal(got, words[i]);
    }
    struct base_buf buf = { 0 };
    struct json_writer w = { .buf = &buf };
    json_write_i64(&w, INT64_MIN);
    assert_text(&buf, "-9223372036854775808");
}

static void strings_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        { "", "\"\"" },
        { "plain and longer than eight", "\"plain and longer than eight\"" },
        { "\"", "\"\\\"\"" },
        { "0123456\\89", "\"0123456\\\\89\"" },
        { "\b\t\n\v\f\r\x1f\x7f", "\"\\b\\t\\n\\u000b\\f\\r\\u001f\x7f\"" },
        { "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80", "\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\"" },
        { "a\xFF\x62", "\"a\xEF\xBF\xBD\x62\"" },                       /* no byte of UTF-8 */
        { "\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"" },                 /* overlong */
        { "\xE2\x82", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"" },                 /* cut short */
        { "\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"" }, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct base_buf buf = { 0 };
        struct json_writer w = { .buf = &buf };
        json_write_text(&w, cases[i].text);
        assert_text(&buf, cases[i].json);
    }
}

static void any_bytes_come_back_as_they_were_or_replaced(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        char text[40], out[JSON_STRING_MAX_BYTES(sizeof text) + 2];
        size_t len = test_random(&seed) % sizeof text;
        bool ascii = test_random(&seed) % 2 == 0;
        for (size_t i = 0; i < len; i++)
            text[i] = (char)(test_random(&seed) & (ascii ? 0x7F : 0xFF));
        out[0] = '[';
        char *end = json_put_string(out + 1, (const char *)test_against_a_guard_page(text, len), len);
        assert_true(end - out - 1 <= (ptrdiff_t)JSON_STRING_MAX_BYTES(len));
        *end++ = ']';
        struct json_doc doc;
        assert_int_equal(json_parse(out, (size_t)(end - out), &doc, NULL), 0);
        if (ascii) {
            assert_int_equal(doc.root.array.at[0].string.len, len);
            assert_memory_equal(doc.root.array.at[0].string.at, text, len);
        }
        json_doc_fini(&doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pretty_is_a_line_a_value_and_two_blanks_a_level),
        cmocka_unit_test(commas_and_colons_come_by_themselves),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(any_bytes_come_back_as_they_were_or_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
