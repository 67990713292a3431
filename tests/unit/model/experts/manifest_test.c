#include "../../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/experts/manifest.h"

/* Of inter 512, hidden 2048 and group 16, the protocol's check value. */
#define SIZES                                                                                                          \
    "\"num_moe_layers\":2,\"num_experts\":4,\"inter\":512,\"hidden\":2048,\"group_size\":16,\"sub_align\":256,"        \
    "\"fs_block_size\":4096,"
#define REST                                                                                                           \
    "\"record_stride\":1773568,\"record_raw_bytes\":1769728,\"file_template\":\"experts_{:05}.xpr\","                  \
    "\"moe_layer_to_model_layer\":[0,2]"
static const char compact[] = "{\"version\":1," SIZES REST "}";

static const char pretty[] = "{\n"
                             "  \"version\": 1,\n"
                             "  \"num_moe_layers\": 2,\n"
                             "  \"num_experts\": 4,\n"
                             "  \"inter\": 512,\n"
                             "  \"hidden\": 2048,\n"
                             "  \"group_size\": 16,\n"
                             "  \"sub_align\": 256,\n"
                             "  \"fs_block_size\": 4096,\n"
                             "  \"record_stride\": 1773568,\n"
                             "  \"record_raw_bytes\": 1769728,\n"
                             "  \"file_template\": \"experts_{:05}.xpr\",\n"
                             "  \"moe_layer_to_model_layer\": [\n"
                             "    0,\n"
                             "    2\n"
                             "  ]\n"
                             "}\n";

static int read_text(const char *text, struct model_expert_manifest *out, struct penstock_error *error)
{
    /* Against the guard page: nothing behind the text is read. */
    return model_expert_manifest_read((const char *)test_against_a_guard_page(text, strlen(text)), strlen(text), out,
                                      error);
}

static void assert_written(const struct model_expert_manifest *manifest, bool as_pretty, const char *want)
{
    struct base_buf buf = { 0 };
    assert_int_equal(model_expert_manifest_write(manifest, as_pretty, &buf, NULL), 0);
    base_buf_append(&buf, "", 1);
    assert_string_equal((char *)buf.at, want);
    base_buf_fini(&buf);
}

static void both_forms_both_ways(void **state)
{
    (void)state;
    const char *const texts[] = { compact, pretty };
    for (int i = 0; i < 2; i++) {
        struct model_expert_manifest m;
        struct penstock_error error = { 0 };
        assert_int_equal(read_text(texts[i], &m, &error), 0);
        assert_int_equal(m.geometry.num_moe_layers, 2);
        assert_int_equal(m.geometry.num_experts, 4);
        assert_int_equal(m.geometry.record_stride, 1773568);
        assert_int_equal(m.geometry.payload_bytes, 1769472);
        assert_int_equal(m.model_layers[0], 0);
        assert_int_equal(m.model_layers[1], 2);
        assert_string_equal(m.model_version, "");
        assert_written(&m, false, compact);
        assert_written(&m, true, pretty);
        model_expert_manifest_fini(&m);
    }
}

static void a_model_version_comes_last(void **state)
{
    (void)state;
    static const char text[] = "{\"version\":1," SIZES REST ",\"model_version\":\"v-1\"}";
    struct model_expert_manifest m;
    assert_int_equal(read_text(text, &m, NULL), 0);
    assert_string_equal(m.model_version, "v-1");
    assert_written(&m, false, text);
    model_expert_manifest_fini(&m);
}

static void order_does_not_matter_and_unknown_fields_are_ignored(void **state)
{
    (void)state;
    struct model_expert_manifest m;
    assert_int_equal(read_text("{\"new\":{\"a\":[1]}," REST "," SIZES "\"version\":1}", &m, NULL), 0);
    assert_int_equal(m.geometry.num_experts, 4);
    assert_written(&m, false, compact);
    model_expert_manifest_fini(&m);
}

static void refused(const char *text, const char *words)
{
    struct model_expert_manifest m;
    struct penstock_error error = { 0 };
    assert_int_equal(read_text(text, &m, &error), PENSTOCK_EPROTO);
    assert_int_equal(error.code, PENSTOCK_EPROTO);
    if (!strstr(error.message, words))
        fail_msg("\"%s\", not \"%s\"", error.message, words);
    assert_null(m.model_layers);
}

/* compact with the first `from` in it replaced. */
static const char *but(const char *from, const char *to)
{
    static char text[1024];
    const char *at = strstr(compact, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - compact), compact, to, at + strlen(from));
    return text;
}

static void every_mandatory_field_is_missed_by_name(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "version",       "num_moe_layers",   "num_experts",   "inter",
        "hidden",        "group_size",       "sub_align",     "fs_block_size",
        "record_stride", "record_raw_bytes", "file_template", "moe_layer_to_model_layer",
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char from[64], words[64];
        snprintf(from, sizeof from, "\"%s\":", fields[i]);
        snprintf(words, sizeof words, "manifest: field \"%s\": missing", fields[i]);
        refused(but(from, "\"other\":"), words);
    }
}

static void what_is_of_another_type_is_refused(void **state)
{
    (void)state;
    refused("[]", "manifest: not a JSON object");
    refused("", "manifest: ");
    refused("{", "manifest: ");
    refused(but("\"inter\":512", "\"inter\":\"512\""), "field \"inter\": a string");
    refused(but("\"inter\":512", "\"inter\":-512"), "field \"inter\": a negative number");
    refused(but("\"inter\":512", "\"inter\":4294967296"), "field \"inter\": 4294967296 is above 4294967295");
    refused(but("\"inter\":512", "\"inter\":512,\"inter\":512"), "field \"inter\": there twice");
    refused(but("[0,2]", "2"), "field \"moe_layer_to_model_layer\": a number");
    refused(but("[0,2]", "[0,-2]"), "moe_layer_to_model_layer: entry 1 is no layer");
    refused(but("[0,2]", "[4294967296,1]"), "moe_layer_to_model_layer: entry 0 is no layer");
}

static void what_does_not_hold_is_refused(void **state)
{
    (void)state;
    refused(but("\"version\":1", "\"version\":2"), "version: 2, and this side knows 1");
    refused(but("1773568", "1777664"), "record_stride: 1777664, but the sizes make 1773568");
    refused(but("1769728", "1769472"), "record_raw_bytes: 1769472, but the sizes make 1769728");
    refused(but("\"hidden\":2048", "\"hidden\":4096"), "record_raw_bytes: ");
    refused(but("\"hidden\":2048", "\"hidden\":2047"), "hidden: 2047 is odd");
    refused(but("\"num_experts\":4", "\"num_experts\":0"), "num_experts: 0");
    refused(but("{:05}", "{:06}"), "file_template: \"experts_{:06}.xpr\", not \"experts_{:05}.xpr\"");
    refused(but("[0,2]", "[0]"), "moe_layer_to_model_layer: 1 entries, and num_moe_layers is 2");
    refused(but("[0,2]", "[0,2],\"model_version\":\"\""), "model_version: not 1 to 128");
    refused(but("[0,2]", "[0,2],\"model_version\":7"), "model_version: not 1 to 128");
}

static void manifests_are_compared_without_their_versions(void **state)
{
    (void)state;
    struct model_expert_manifest a, b;
    assert_int_equal(read_text(compact, &a, NULL), 0);
    assert_int_equal(read_text(but("[0,2]", "[0,2],\"model_version\":\"x\""), &b, NULL), 0);
    assert_true(model_expert_manifest_same(&a, &b));
    b.model_layers[1] = 3;
    assert_false(model_expert_manifest_same(&a, &b));
    b.model_layers[1] = 2;
    b.geometry.num_experts = 5;
    assert_false(model_expert_manifest_same(&a, &b));
    model_expert_manifest_fini(&a);
    model_expert_manifest_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_both_ways),
        cmocka_unit_test(a_model_version_comes_last),
        cmocka_unit_test(order_does_not_matter_and_unknown_fields_are_ignored),
        cmocka_unit_test(every_mandatory_field_is_missed_by_name),
        cmocka_unit_test(what_is_of_another_type_is_refused),
        cmocka_unit_test(what_does_not_hold_is_refused),
        cmocka_unit_test(manifests_are_compared_without_their_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
