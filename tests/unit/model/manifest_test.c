#include "../test.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "model/manifest.h"

#define HEAD                                                                                                           \
    "{\"version\":1,\"model_id\":\"m7\",\"shard_files\":[\"s0.safetensors\"],\"shard_lens\":[16909060],\"tensors\":["
#define TENSOR                                                                                                         \
    "{\"name\":\"blk.0.attn.weight\",\"dtype\":\"BF16\",\"shape\":[2,3],\"offset_in_shard\":4096,\"len\":36,"          \
    "\"shard_index\":0,\"extra\":true}"
static const char golden[] = HEAD TENSOR "]}";

/* Reads a manifest whose padding is what would mislead a parser that believed it. */
static int read_manifest(const char *text, struct model_manifest *out, struct penstock_error *error)
{
    size_t len = strlen(text);
    char *padded = malloc(len + MODEL_JSON_PADDING);
    memcpy(padded, text, len);
    memset(padded + len, '}', MODEL_JSON_PADDING);
    int status = model_manifest_read(padded, len, len + MODEL_JSON_PADDING, out, error);
    free(padded);
    return status;
}

static void assert_written(const struct model_manifest *manifest, const char *want)
{
    struct base_buf buf = { 0 };
    assert_int_equal(model_manifest_write(manifest, &buf, NULL), 0);
    base_buf_append(&buf, "", 1);
    assert_string_equal((char *)buf.at, want);
    base_buf_fini(&buf);
}

static void the_golden_manifest_both_ways(void **state)
{
    (void)state;
    struct model_manifest m;
    struct penstock_error error = { 0 };
    assert_int_equal(read_manifest(golden, &m, &error), 0);
    assert_string_equal(m.model_id, "m7");
    assert_null(m.model_version);
    assert_int_equal(m.shards.n, 1);
    assert_string_equal(m.shards.at[0].name, "s0.safetensors");
    assert_int_equal(m.shards.at[0].len_bytes, 16909060);
    assert_int_equal(m.tensors.n, 1);
    const struct penstock_tensor *t = model_manifest_find(&m, "blk.0.attn.weight");
    assert_ptr_equal(t, m.tensors.at);
    assert_string_equal(t->dtype, "BF16");
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->offset_bytes, 4096);
    assert_int_equal(t->len_bytes, 36);
    assert_int_equal(t->extra, 1);
    assert_null(model_manifest_find(&m, "blk.0.attn"));
    assert_written(&m, golden);
    model_manifest_fini(&m);
}

static void version_and_files_follow_the_frozen_fields(void **state)
{
    (void)state;
    static const char text[] = HEAD "],\"model_version\":\"v1\",\"files\":[{\"name\":\"config.json\",\"len\":2},"
                                    "{\"name\":\"1_Pooling/config.json\",\"len\":18446744073709551615}]}";
    struct model_manifest m;
    assert_int_equal(read_manifest(text, &m, NULL), 0);
    assert_string_equal(m.model_version, "v1");
    assert_int_equal(m.files.n, 2);
    assert_true(m.files.at[1].len_bytes == UINT64_MAX);
    assert_int_equal(m.skipped_files, 0);
    assert_written(&m, text);
    model_manifest_fini(&m);
}

static void fields_come_in_any_order_with_others_between(void **state)
{
    (void)state;
    static const char text[] =
        " {\"new\":{\"a\":[1,{}]},\"tensors\":[{\"extra\":false,\"shard_index\":0,\"x\":null,\"len\":4,"
        "\"offset_in_shard\":8,\"sh\\u0061pe\":[],\"dtype\":\"NEW4\",\"name\":\"a\\\"\\u00e9\"}],\"shard_lens\":[12],"
        "\"shard_files\":[\"s\"],\"model_id\":\"x\",\"version\":1}\n";
    struct model_manifest m;
    assert_int_equal(read_manifest(text, &m, NULL), 0);
    const struct penstock_tensor *t = model_manifest_find(&m, "a\"\xC3\xA9");
    assert_non_null(t);
    assert_string_equal(t->dtype, "NEW4");
    assert_int_equal(t->rank, 0);
    assert_null(t->shape);
    model_manifest_fini(&m);
}

static void file_names_that_lead_out_lose_their_name_and_keep_their_place(void **state)
{
    (void)state;
    static const char *const bad[] = { "/etc/passwd", "../x",      "a/../b",      "",
                                       "a//b",        ".",         "a/",          "a/b/c/d/e",
                                       "a\\u0001b",   "a\\u0000b", "config.json", "s0.safetensors" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[500];
        snprintf(text, sizeof text,
                 HEAD "],\"files\":[{\"name\":\"config.json\",\"len\":1},{\"name\":\"%s\",\"len\":2}"
                      ",{\"name\":\"a/b/c/d\",\"len\":3}]}",
                 bad[i]);
        struct model_manifest m;
        assert_int_equal(read_manifest(text, &m, NULL), 0);
        assert_int_equal(m.files.n, 3);
        assert_int_equal(m.skipped_files, 1);
        assert_true((m.files.at[0].name == NULL) != (m.files.at[1].name == NULL));
        assert_string_equal(m.files.at[2].name, "a/b/c/d");
        model_manifest_fini(&m);
    }
}

static void refusals_name_the_field_and_the_tensor(void **state)
{
    (void)state;
#define T(offset, len, shard, extra)                                                                                   \
    HEAD "{\"name\":\"t\",\"dtype\":\"U8\",\"shape\":[1],\"offset_in_shard\":" offset ",\"len\":" len                  \
         ",\"shard_index\":" shard ",\"extra\":" extra "}]}"
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "manifest: JSON is empty" },
        { "[]", "manifest: not a JSON object" },
        { "{\"version\":2}", "manifest: version: 2, and this side knows 1" },
        { "{\"version\":\"1\"}", "manifest: version: not of the right type, or does not fit" },
        { "{\"version\":1,\"model_id\":\"a\\u0000\"}", "manifest: model_id: has a NUL in it" },
        { "{\"version\":1,\"version\":1}", "manifest: version: there twice" },
        { "{\"version\":1,\"model_id\":\"x\"}", "manifest: shard_files: missing" },
        { "{\"version\":1,\"model_id\":\"x\",\"shard_files\":[],\"shard_lens\":[1],\"tensors\":[]}",
          "manifest: shard_lens: 1 lengths for 0 shards" },
        { "{\"version\":1,\"model_id\":\"x\",\"shard_files\":[\"../a\"],\"shard_lens\":[1],\"tensors\":[]}",
          "manifest: shard_files: \"../a\" is no plain file name" },
        { "{\"version\":1,\"model_id\":\"x\",\"shard_files\":[\"a\",\"a\"],\"shard_lens\":[1,1],\"tensors\":[]}",
          "manifest: shard_files: \"a\" is there twice" },
        { T("0", "1", "1", "false"), "manifest: tensor \"t\": shard_index: 1 of 1 shards" },
        { T("0", "1", "4294967296", "false"), "manifest: tensor \"t\": shard_index: out of range" },
        { T("0", "16909061", "0", "false"), "manifest: tensor \"t\": offset_in_shard and len: leaves s0.safetensors" },
        { T("18446744073709551615", "2", "0", "false"),
          "manifest: tensor \"t\": offset_in_shard and len: leaves s0.safetensors" },
        { T("18446744073709551616", "2", "0", "false"),
          "manifest: tensor \"t\": offset_in_shard: not of the right type, or does not fit" },
        { T("-1", "2", "0", "false"), NULL },
        { T("0", "1.0", "0", "false"), NULL },
        { T("0", "1", "0", "0"), "manifest: tensor \"t\": extra: not of the right type, or does not fit" },
        { HEAD "{\"name\":\"t\",\"dtype\":\"U8\"}]}", "manifest: tensor \"t\": shape: missing" },
        { HEAD "{\"name\":\"t\",\"name\":\"u\"}]}", "manifest: tensor \"t\": name: there twice" },
        { HEAD "{\"name\":\"t\\u0000\"}]}", "manifest: name: has a NUL in it" },
        { HEAD "{\"name\":\"t\",\"shape\":[[1]]}]}", NULL },
        { HEAD "{\"name\":\"t\",\"new\":[1 2]}]}", NULL },
        { HEAD TENSOR "," TENSOR "]}", "manifest: tensor \"blk.0.attn.weight\": there twice" },
        { HEAD TENSOR "]} x", "manifest: JSON is cut short" },
        { HEAD TENSOR "]}{}", "manifest: something follows the JSON document" },
        { HEAD "],\"model_version\":\"\"}", "manifest: model_version: not 1 to 128 printable characters" },
        { HEAD "],\"model_version\":\"a b\"}", "manifest: model_version: not 1 to 128 printable characters" },
        { HEAD "],\"files\":[{\"name\":\"a\"}]}", "manifest: len: missing" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_manifest m;
        struct penstock_error error = { 0 };
        assert_int_equal(read_manifest(cases[i].text, &m, &error), PENSTOCK_EPROTO);
        assert_int_equal(error.code, PENSTOCK_EPROTO);
        if (cases[i].words)
            assert_string_equal(error.message, cases[i].words);
        assert_null(m.tensors.at);
        assert_int_equal(read_manifest(cases[i].text, &m, NULL), PENSTOCK_EPROTO);
    }
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    char text[sizeof golden];
    for (size_t n = 0; n < sizeof golden - 1; n++) {
        memcpy(text, golden, n);
        text[n] = 0;
        struct model_manifest m;
        assert_int_equal(read_manifest(text, &m, NULL), PENSTOCK_EPROTO);
    }
}

static void a_buffer_without_padding_is_refused(void **state)
{
    (void)state;
    struct model_manifest m;
    assert_int_equal(model_manifest_read(golden, sizeof golden - 1, sizeof golden - 1, &m, NULL), PENSTOCK_EINVAL);
}

static void many_tensors_are_all_found(void **state)
{
    (void)state;
    struct base_buf buf = { 0 };
    base_buf_printf(&buf, HEAD);
    enum { N = 5000 };
    for (int i = 0; i < N; i++)
        base_buf_printf(&buf,
                        "%s{\"name\":\"layers.%d.w\",\"dtype\":\"F8_E4M3\",\"shape\":[%d],\"offset_in_shard\":%d,"
                        "\"len\":%d,\"shard_index\":0,\"extra\":false}",
                        i ? "," : "", i, i, i, i);
    base_buf_append(&buf, "]}", 3);
    struct model_manifest m;
    assert_int_equal(read_manifest((char *)buf.at, &m, NULL), 0);
    assert_int_equal(m.tensors.n, N);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.w", i);
        const struct penstock_tensor *t = model_manifest_find(&m, name);
        assert_non_null(t);
        assert_int_equal(t->shape[0], i);
    }
    model_manifest_fini(&m);
    base_buf_fini(&buf);
}

/* ---- lookups ---- */

enum { COLLIDING = 200 };

/* Names made so that without a seed all of them want the first slot: one long run, and a lookup that walks it. */
static void names_that_were_chosen_to_collide_do_not(void **state)
{
    (void)state;
    static char names[COLLIDING][24];
    struct model_manifest m = { 0 };
    uint64_t n = 0;
    for (size_t i = 0; i < COLLIDING; i++) {
        do
            snprintf(names[i], sizeof names[i], "t%llu", (unsigned long long)n++);
        while ((XXH3_64bits(names[i], strlen(names[i])) & 511) != 0);
        const struct penstock_tensor tensor = { .name = names[i] };
        assert_true(base_vec_push(&m.tensors, tensor));
    }
    assert_int_equal(model_manifest_index(&m, NULL), 0);
    assert_int_equal(m.index_mask, 511);
    size_t taken = 0;
    for (size_t i = 0; i < COLLIDING; i++) {
        taken += m.index[i] != 0;
        assert_ptr_equal(model_manifest_find(&m, names[i]), &m.tensors.at[i]);
    }
    assert_true(taken < COLLIDING);
    uint64_t seed = m.index_seed;
    assert_int_equal(model_manifest_index(&m, NULL), 0);
    assert_true(m.index_seed != seed);
    model_manifest_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_golden_manifest_both_ways),
        cmocka_unit_test(version_and_files_follow_the_frozen_fields),
        cmocka_unit_test(fields_come_in_any_order_with_others_between),
        cmocka_unit_test(file_names_that_lead_out_lose_their_name_and_keep_their_place),
        cmocka_unit_test(refusals_name_the_field_and_the_tensor),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_buffer_without_padding_is_refused),
        cmocka_unit_test(many_tensors_are_all_found),
        cmocka_unit_test(names_that_were_chosen_to_collide_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
