#include "../test.h"

#include <stdlib.h>

#include "json/json.h"

static struct json_doc parsed(const char *text)
{
    struct json_doc doc;
    struct penstock_error error = { 0 };
    assert_int_equal(json_parse(text, strlen(text), &doc, &error), 0);
    return doc;
}

static void every_type_comes_through(void **state)
{
    (void)state;
    struct json_doc doc = parsed("{\"a\":null,\"b\":true,\"c\":18446744073709551615,\"d\":-9223372036854775808,"
                                 "\"e\":1.5,\"f\":\"x\\u00e9\\n\",\"g\":[1,[],{}],\"h\":{\"i\":false}}");
    const struct json_value *root = &doc.root;
    assert_int_equal(root->object.n, 8);
    assert_int_equal(json_find(root, "a")->type, JSON_NULL);
    assert_true(json_find(root, "b")->boolean);
    assert_int_equal(json_find(root, "c")->type, JSON_U64);
    assert_true(json_find(root, "c")->u64 == UINT64_MAX);
    assert_int_equal(json_find(root, "d")->type, JSON_I64);
    assert_true(json_find(root, "d")->i64 == INT64_MIN);
    assert_true(json_find(root, "e")->number == 1.5);
    assert_string_equal(json_find(root, "f")->string.at, "x\xC3\xA9\n");
    assert_int_equal(json_find(root, "f")->string.len, 4);
    const struct json_value *array = json_find(root, "g");
    assert_int_equal(array->array.n, 3);
    assert_int_equal(array->array.at[0].u64, 1);
    assert_int_equal(array->array.at[1].array.n, 0);
    assert_int_equal(array->array.at[2].type, JSON_OBJECT);
    assert_false(json_find(json_find(root, "h"), "i")->boolean);
    assert_null(json_find(root, "z"));
    assert_null(json_find(array, "a"));
    json_doc_fini(&doc);
}

static void malformed_text_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "JSON is empty" },
        { "   ", "JSON is empty" },
        { "1", "malformed JSON" },
        { "\"a\"", "malformed JSON" },
        { "{", "JSON is cut short" },
        { "{\"a\":1", "JSON is cut short" },
        { "{\"a\":[1,2}", "malformed JSON" },
        { "{\"a\":{\"b\":1}", "malformed JSON" },
        { "[1,2", "JSON is cut short" },
        { "{\"a\":1}}", NULL },
        { "{\"a\":1} x", NULL },
        { "[1] [2]", "something follows the JSON document" },
        { "[1 2]", "malformed JSON" },
        { "[1,]", NULL },
        { "{\"a\" 1}", "malformed JSON" },
        { "{\"a\":1,}", "malformed JSON" },
        { "{a:1}", "malformed JSON" },
        { "[\"a", "JSON ends inside a string" },
        { "[\"\\q\"]", "bad escape in a JSON string" },
        { "[\"\\ud800\"]", "bad escape in a JSON string" },
        { "[\"\x01\"]", "control character in a JSON string" },
        { "[\"\xFF\"]", "JSON is not UTF-8" },
        { "[18446744073709551616]", "bad number in JSON, or one that does not fit" },
        { "[-9223372036854775809]", "bad number in JSON, or one that does not fit" },
        { "[01]", "bad number in JSON, or one that does not fit" },
        { "[1e999]", "bad number in JSON, or one that does not fit" },
        { "[tru]", NULL },
        { "[nul]", NULL },
        { "[,]", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_doc doc;
        struct penstock_error error = { 0 };
        assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), &doc, &error), PENSTOCK_ECORRUPT);
        if (cases[i].words)
            assert_string_equal(error.message, cases[i].words);
        assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), &doc, NULL), PENSTOCK_ECORRUPT);
        json_doc_fini(&doc);
    }
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        char text[2 * (JSON_DEPTH_MAX + 1)];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        struct json_doc doc;
        struct penstock_error error = { 0 };
        int status = json_parse(text, 2 * depth, &doc, &error);
        assert_int_equal(status, depth <= JSON_DEPTH_MAX ? 0 : PENSTOCK_ECORRUPT);
        json_doc_fini(&doc);
    }
    size_t len = 1 << 20;
    char *brackets = malloc(len);
    memset(brackets, '[', len - 1);
    brackets[len - 1] = ']';
    struct json_doc doc;
    assert_int_equal(json_parse(brackets, len, &doc, NULL), PENSTOCK_ECORRUPT);
    free(brackets);
}

static void a_key_that_is_there_twice_is_found(void **state)
{
    (void)state;
    struct penstock_error error = { 0 };
    struct json_doc doc = parsed("{\"b\":1,\"a\":2,\"\\u0062\":3}");
    assert_int_equal(json_find(&doc.root, "b")->u64, 1);
    assert_int_equal(json_unique_keys(&doc.root, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"b\": there twice");
    json_doc_fini(&doc);
    doc = parsed("{\"b\":1,\"a\":2,\"ab\":3}");
    assert_int_equal(json_unique_keys(&doc.root, &error), 0);
    json_doc_fini(&doc);
}

static void members_are_asked_for_by_type(void **state)
{
    (void)state;
    struct json_doc doc = parsed("{\"n\":7,\"s\":\"x\",\"z\":\"a\\u0000b\",\"l\":[],\"o\":{},\"t\":true,\"m\":-1}");
    struct penstock_error error = { 0 };
    uint64_t n;
    bool t;
    const char *s;
    const struct json_value *v;
    assert_int_equal(json_get_u64(&doc.root, "n", 7, &n, &error), 0);
    assert_int_equal(n, 7);
    assert_int_equal(json_get_string(&doc.root, "s", &s, &error), 0);
    assert_string_equal(s, "x");
    assert_int_equal(json_get_bool(&doc.root, "t", &t, &error), 0);
    assert_true(t);
    assert_int_equal(json_get_array(&doc.root, "l", &v, &error), 0);
    assert_int_equal(json_get_object(&doc.root, "o", &v, &error), 0);

    assert_int_equal(json_get_u64(&doc.root, "n", 6, &n, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"n\": 7 is above 6");
    assert_int_equal(json_get_u64(&doc.root, "m", 6, &n, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"m\": a negative number, not a number");
    assert_int_equal(json_get_u64(&doc.root, "q", 6, &n, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"q\": missing");
    assert_int_equal(json_get_string(&doc.root, "z", &s, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"z\": has a NUL in it");
    assert_int_equal(json_get_array(&doc.root, "o", &v, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "field \"o\": an object, not an array");
    json_doc_fini(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_through),
        cmocka_unit_test(malformed_text_is_refused),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(a_key_that_is_there_twice_is_found),
        cmocka_unit_test(members_are_asked_for_by_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
