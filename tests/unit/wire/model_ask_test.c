#include "wire_test.h"

static struct penstock_model_ask ask;
static struct penstock_wire_fault fault;

static enum penstock_ask parse(const char *text)
{
    const size_t n = strlen(text);
    const struct penstock_model_request request = { .text = (const char *)test_against_a_guard_page(text, n),
                                                    .len_bytes = n };
    return penstock_model_ask_parse(&request, &ask, &fault);
}

static void assert_slice(const char *at, size_t n, const char *text)
{
    assert_int_equal(n, strlen(text));
    assert_memory_equal(at, text, n);
}

static void a_name_is_a_model(void **state)
{
    (void)state;
    static const char *const names[] = {
        "m7", "org/name", "/srv/models/m7", "penstock", "penstoc:models", " penstock:"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(parse(names[i]), PENSTOCK_ASK_MODEL);
        assert_slice(ask.model, ask.model_bytes, names[i]);
    }
}

static void models_stands_alone(void **state)
{
    (void)state;
    assert_int_equal(parse("penstock:models"), PENSTOCK_ASK_MODELS);
    assert_int_equal(parse("penstock:models "), PENSTOCK_ASK_UNKNOWN);
    assert_int_equal(parse("penstock:model"), PENSTOCK_ASK_UNKNOWN);
}

static void join_has_a_version_and_the_rest_is_the_model(void **state)
{
    (void)state;
    assert_int_equal(parse("penstock:join v1-abc org/name"), PENSTOCK_ASK_JOIN);
    assert_slice(ask.version, ask.version_bytes, "v1-abc");
    assert_slice(ask.model, ask.model_bytes, "org/name");
    assert_int_equal(parse("penstock:join !~  a name with blanks "), PENSTOCK_ASK_JOIN);
    assert_slice(ask.version, ask.version_bytes, "!~");
    assert_slice(ask.model, ask.model_bytes, " a name with blanks ");
    assert_int_equal(parse("penstock:join v penstock:models"), PENSTOCK_ASK_JOIN);
    assert_slice(ask.model, ask.model_bytes, "penstock:models");
}

static void what_is_not_known_is_refused_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "penstock:", "unknown request: penstock:models and penstock:join are known" },
        { "penstock:delete m7", "unknown request: penstock:models and penstock:join are known" },
        { "penstock:join", "unknown request: penstock:models and penstock:join are known" },
        { "penstock:join ", "join request without a model version" },
        { "penstock:join  m7", "join request without a model version" },
        { "penstock:join v\"1 m7", "join request without a model version" },
        { "penstock:join v1", "join request without a model" },
        { "penstock:join v1 ", "join request without a model" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text), PENSTOCK_ASK_UNKNOWN);
        wire_test_message(&fault, cases[i].message);
    }
}

static void versions_have_a_length_and_an_alphabet(void **state)
{
    (void)state;
    char version[129];
    memset(version, 'v', sizeof version);
    assert_false(penstock_model_version_valid(version, 0));
    assert_true(penstock_model_version_valid(version, 1));
    assert_true(penstock_model_version_valid(version, 128));
    assert_false(penstock_model_version_valid(version, 129));
    for (int c = 0; c < 256; c++) {
        version[1] = (char)c;
        assert_int_equal(penstock_model_version_valid(version, 3), c >= 0x21 && c <= 0x7E && c != '"' && c != '\\');
    }
}

static size_t format(enum penstock_ask kind, const char *version, const char *model, size_t model_bytes, char *out)
{
    const struct penstock_model_ask parts = {
        .model = model, .model_bytes = model_bytes, .version = version, .version_bytes = strlen(version)
    };
    out[0] = '#';
    size_t n = penstock_model_ask_format(kind, &parts, out, &fault);
    if (n == 0)
        assert_int_equal(out[0], '#');
    return n;
}

static void requests_are_written_as_they_are_read(void **state)
{
    (void)state;
    char out[PENSTOCK_MODEL_REQUEST_MAX];
    assert_slice(out, format(PENSTOCK_ASK_MODEL, "", "org/name", 8, out), "org/name");
    assert_slice(out, format(PENSTOCK_ASK_MODELS, "", "", 0, out), "penstock:models");
    assert_slice(out, format(PENSTOCK_ASK_JOIN, "v1", "org/name", 8, out), "penstock:join v1 org/name");
}

static void requests_that_would_be_misread_are_not_written(void **state)
{
    (void)state;
    static char model[PENSTOCK_MODEL_REQUEST_MAX + 1];
    static char out[PENSTOCK_MODEL_REQUEST_MAX];
    memset(model, 'm', sizeof model);

    assert_int_equal(format(PENSTOCK_ASK_MODEL, "", "penstock:models", 15, out), 0);
    wire_test_message(&fault, "no model name begins with penstock:");
    assert_int_equal(format(PENSTOCK_ASK_MODEL, "", "", 0, out), 0);
    wire_test_message(&fault, "implausible model name length: 0");
    assert_int_equal(format(PENSTOCK_ASK_MODEL, "", model, 8193, out), 0);
    wire_test_message(&fault, "implausible model name length: 8193");
    assert_int_equal(format(PENSTOCK_ASK_MODEL, "", model, 8192, out), 8192);

    assert_int_equal(format(PENSTOCK_ASK_JOIN, "v 1", "m7", 2, out), 0);
    wire_test_message(&fault, "join request without a model version");
    assert_int_equal(format(PENSTOCK_ASK_JOIN, "v1", "", 0, out), 0);
    wire_test_message(&fault, "implausible model name length: 0");
    const size_t most = PENSTOCK_MODEL_REQUEST_MAX - strlen("penstock:join v1 ");
    assert_int_equal(format(PENSTOCK_ASK_JOIN, "v1", model, most, out), PENSTOCK_MODEL_REQUEST_MAX);
    assert_int_equal(format(PENSTOCK_ASK_JOIN, "v1", model, most + 1, out), 0);
    assert_int_equal(format(PENSTOCK_ASK_UNKNOWN, "", "m7", 2, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_a_model),
        cmocka_unit_test(models_stands_alone),
        cmocka_unit_test(join_has_a_version_and_the_rest_is_the_model),
        cmocka_unit_test(what_is_not_known_is_refused_in_words),
        cmocka_unit_test(versions_have_a_length_and_an_alphabet),
        cmocka_unit_test(requests_are_written_as_they_are_read),
        cmocka_unit_test(requests_that_would_be_misread_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
