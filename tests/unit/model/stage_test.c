#include "directory.h"

#include <sys/resource.h>

#include "model/stage.h"

#define U8(name, from, to) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" from "," to "]}"
#define ONE(name) "{" U8(name, "0", "4") "}"

static char warnings[4096];

static void keep_warning(void *context, const char *words)
{
    (void)context;
    size_t n = strlen(warnings);
    snprintf(warnings + n, sizeof warnings - n, "%s\n", words);
}

static const struct model_stage_options options = { .warn = keep_warning };

static void stage(struct model_staged *staged)
{
    struct penstock_error error = { 0 };
    warnings[0] = 0;
    if (model_stage(test_directory, &options, staged, &error) != 0)
        fail_msg("%s", error.message);
}

/* The names of all shards or all files, joined by spaces. */
static const char *joined(const struct penstock_file *files, size_t n)
{
    static char out[2048];
    out[0] = 0;
    for (size_t i = 0; i < n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i ? " " : "", files[i].name);
    return out;
}

#define assert_shards(staged, want)                                                                                    \
    assert_string_equal(joined((staged)->manifest.shards.at, (staged)->manifest.shards.n), want)
#define assert_files(staged, want)                                                                                     \
    assert_string_equal(joined((staged)->manifest.files.at, (staged)->manifest.files.n), want)

static void a_single_file_is_staged_with_what_lies_beside_it(void **state)
{
    (void)state;
    test_safetensors(
        "model.safetensors",
        "{\"__metadata__\":{\"a\":\"b\"},\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[16,16]}}   ",
        16);
    test_text_file("config.json", "{}");
    test_text_file("pytorch_model.bin", "x");
    test_text_file("other.safetensors", "x");
    test_text_file(".hidden", "x");
    assert_int_equal(mkdir(test_path("1_Pooling"), 0700), 0);
    assert_int_equal(mkdir(test_path(".git"), 0700), 0);
    test_text_file("1_Pooling/config.json", "{}");
    test_text_file(".git/config", "{}");
    assert_int_equal(mkdir(test_path("a"), 0700), 0);
    assert_int_equal(mkdir(test_path("a/b"), 0700), 0);
    assert_int_equal(mkdir(test_path("a/b/c"), 0700), 0);
    assert_int_equal(mkdir(test_path("a/b/c/d"), 0700), 0);
    test_text_file("a/b/c/four", "");
    test_text_file("a/b/c/d/five", "");
    assert_int_equal(mkfifo(test_path("pipe"), 0600), 0);

    struct model_staged staged;
    stage(&staged);
    assert_string_equal(staged.directory, test_directory);
    assert_string_equal(staged.manifest.model_id, test_directory);
    assert_string_equal(staged.name, strrchr(test_directory, '/') + 1);
    assert_shards(&staged, "model.safetensors");
    assert_files(&staged, "1_Pooling/config.json a/b/c/four config.json");
    assert_int_equal(staged.opened.n, 4);
    assert_int_equal(staged.manifest.tensors.n, 3);
    const struct penstock_tensor *w = model_manifest_find(&staged.manifest, "w");
    assert_string_equal(w->dtype, "BF16");
    assert_int_equal(w->len_bytes, 12);
    assert_int_equal(w->offset_bytes + w->len_bytes, staged.manifest.shards.at[0].len_bytes);
    assert_int_equal(model_manifest_find(&staged.manifest, "s")->rank, 0);
    assert_int_equal(model_manifest_find(&staged.manifest, "e")->len_bytes, 0);
    assert_int_equal(strlen(staged.manifest.model_version), 32);
    assert_string_equal(warnings, "");
    model_staged_fini(&staged);
}

static void an_index_decides_which_tensor_comes_from_where(void **state)
{
    (void)state;
    test_text_file("model.safetensors.index.json",
                   "{\"metadata\":{},\"weight_map\":{\"b\":\"z.safetensors\",\"a\":\"y.safetensors\","
                   "\"c\":\"z.safetensors\",\"x\":\"extra_weights.safetensors\",\"gone\":\"y.safetensors\"}}");
    test_safetensors("z.safetensors", "{" U8("b", "0", "4") "," U8("c", "4", "8") "," U8("a", "8", "12") "}", 12);
    test_safetensors("y.safetensors", "{" U8("a", "0", "4") "," U8("unasked", "4", "8") "}", 8);
    test_safetensors("extra_weights.safetensors", "{" U8("x", "0", "4") "," U8("x2", "4", "8") "}", 8);
    test_safetensors("model.safetensors", ONE("not this one"), 4);
    struct model_staged staged;
    stage(&staged);
    assert_shards(&staged, "y.safetensors z.safetensors extra_weights.safetensors");
    assert_files(&staged, "model.safetensors.index.json");
    assert_int_equal(staged.manifest.tensors.n, 5);
    assert_int_equal(model_manifest_find(&staged.manifest, "a")->shard, 0);
    assert_int_equal(model_manifest_find(&staged.manifest, "b")->shard, 1);
    assert_int_equal(model_manifest_find(&staged.manifest, "x2")->shard, 2);
    assert_int_equal(model_manifest_find(&staged.manifest, "x2")->extra, 1);
    assert_int_equal(model_manifest_find(&staged.manifest, "a")->extra, 0);
    assert_null(model_manifest_find(&staged.manifest, "unasked"));
    assert_string_equal(warnings, "1 tensors of the index are not in their shards, \"gone\" first\n");
    model_staged_fini(&staged);
}

static void the_first_rule_that_matches_wins(void **state)
{
    (void)state;
    /* From the last rule to the first: each is put beside the ones that it wins over. */
    struct model_staged staged;
    test_safetensors("consolidated-2.safetensors", ONE("a"), 4);
    test_safetensors("model.safetensors-1.safetensors", ONE("b"), 4);
    test_safetensors("extra_weights.safetensors", ONE("x"), 4);
    stage(&staged);
    assert_shards(&staged, "consolidated-2.safetensors model.safetensors-1.safetensors extra_weights.safetensors");
    model_staged_fini(&staged);

    test_safetensors("adapter_model.safetensors", ONE("c"), 4);
    stage(&staged);
    assert_shards(&staged, "adapter_model.safetensors extra_weights.safetensors");
    model_staged_fini(&staged);

    test_safetensors("model.safetensors", ONE("d"), 4);
    stage(&staged);
    assert_shards(&staged, "model.safetensors extra_weights.safetensors");
    model_staged_fini(&staged);

    test_text_file("consolidated.safetensors.index.json", "{\"weight_map\":{\"a\":\"consolidated-2.safetensors\"}}");
    stage(&staged);
    assert_shards(&staged, "consolidated-2.safetensors extra_weights.safetensors");
    model_staged_fini(&staged);

    test_text_file("model.safetensors.index.json", "{\"weight_map\":{\"b\":\"model.safetensors-1.safetensors\"}}");
    stage(&staged);
    assert_shards(&staged, "model.safetensors-1.safetensors extra_weights.safetensors");
    model_staged_fini(&staged);
}

static void a_hugging_face_snapshot_is_staged_through_its_links(void **state)
{
    (void)state;
    assert_int_equal(mkdir(test_path("models--org--na--me"), 0700), 0);
    assert_int_equal(mkdir(test_path("models--org--na--me/blobs"), 0700), 0);
    assert_int_equal(mkdir(test_path("models--org--na--me/snapshots"), 0700), 0);
    assert_int_equal(mkdir(test_path("models--org--na--me/snapshots/r1"), 0700), 0);
    test_safetensors("models--org--na--me/blobs/1", ONE("a"), 4);
    test_text_file("models--org--na--me/blobs/2", "{}");
    test_text_file("outside", "secret");
    const char *links[][2] = { { "model.safetensors", "../../blobs/1" },
                               { "config.json", "../../blobs/2" },
                               { "secret.json", "../../../outside" } };
    for (size_t i = 0; i < 3; i++) {
        char name[100];
        snprintf(name, sizeof name, "models--org--na--me/snapshots/r1/%s", links[i][0]);
        assert_int_equal(symlink(links[i][1], test_path(name)), 0);
    }
    struct model_staged staged;
    warnings[0] = 0;
    assert_int_equal(model_stage(test_path("models--org--na--me//./snapshots/r1/"), &options, &staged, NULL), 0);
    assert_string_equal(staged.name, "org/na--me");
    assert_shards(&staged, "model.safetensors");
    assert_files(&staged, "config.json");
    assert_non_null(strstr(warnings, "secret.json: a link that leads outside"));
    model_staged_fini(&staged);

    struct model_stage_options all = { .follow_all_links = true };
    assert_int_equal(model_stage(test_path("models--org--na--me/snapshots/r1"), &all, &staged, NULL), 0);
    assert_files(&staged, "config.json secret.json");
    model_staged_fini(&staged);
}

static void refusals_name_the_file_the_tensor_and_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *header; /* NULL: an empty file */
        int code;
        const char *words;
    } cases[] = {
        { NULL, PENSTOCK_ECORRUPT, "model.safetensors: empty" },
        { "[]", PENSTOCK_ECORRUPT, "model.safetensors: header: not a JSON object" },
        { "{\"a\":1}", PENSTOCK_ECORRUPT, "model.safetensors: tensor \"a\": not of the right type, or does not fit" },
        { "{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": dtype: missing" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": data_offsets: reversed" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,12]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": data_offsets: end 4 bytes past the end of the file" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,3]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": data_offsets: 3 bytes, but dtype and shape make 4" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": shape: no whole number of bytes, or more than 64 bits can say" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": shape: no whole number of bytes, or more than 64 bits can say" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": data_offsets: not two numbers" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,8]}}", PENSTOCK_ECORRUPT,
          "model.safetensors: tensor \"a\": data_offsets: too many numbers" },
        { "{" U8("a", "0", "4") "," U8("a", "4", "8") "}", PENSTOCK_ECORRUPT, "tensor \"a\": there twice" },
        { "{" U8("a\\u0000b", "0", "4") "}", PENSTOCK_ECORRUPT, "model.safetensors: has a NUL in it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].header)
            test_safetensors("model.safetensors", cases[i].header, 8);
        else
            test_text_file("model.safetensors", "");
        struct model_staged staged;
        struct penstock_error error = { 0 };
        char want[1000];
        snprintf(want, sizeof want, "stage %s: %s", test_directory, cases[i].words);
        assert_int_equal(model_stage(test_directory, NULL, &staged, &error), cases[i].code);
        assert_string_equal(error.message, want);
        assert_null(staged.opened.at);
    }
}

static void a_header_longer_than_its_file_is_refused(void **state)
{
    (void)state;
    struct model_staged staged;
    struct penstock_error error = { 0 };
    test_file("model.safetensors", "\x00\x00\x00\x08\x00\x00\x00\x00{}", 10);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "model.safetensors: header: 134217728 bytes, and 64 MiB are the most"));
    test_file("model.safetensors", "\x03\x00\x00\x00\x00\x00\x00\x00{}", 10);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "model.safetensors: header: 3 bytes, and the file ends before"));
    test_file("model.safetensors", "\x03\x00", 2);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "shorter than the length of a header"));
}

static void what_is_no_file_or_leads_outside_is_no_shard(void **state)
{
    (void)state;
    struct model_staged staged;
    struct penstock_error error = { 0 };
    assert_int_equal(model_stage(test_path("nowhere"), NULL, &staged, &error), PENSTOCK_ENOTFOUND);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "no weights here"));
    test_text_file("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"pipe.safetensors\"}}");
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ENOTFOUND);
    assert_int_equal(mkfifo(test_path("pipe.safetensors"), 0600), 0);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "pipe.safetensors: not a regular file"));
    test_text_file("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"link.safetensors\"}}");
    assert_int_equal(symlink("/proc/self/status", test_path("link.safetensors")), 0);
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "link.safetensors: a link that leads outside the model's directory"));
    test_text_file("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../a.safetensors\"}}");
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "weight_map: \"../a.safetensors\" is no plain file name"));
    test_text_file("model.safetensors.index.json", "{\"weight_map\":[]}");
    assert_int_equal(model_stage(test_directory, NULL, &staged, &error), PENSTOCK_ECORRUPT);
}

static void an_unknown_dtype_is_staged_with_a_warning(void **state)
{
    (void)state;
    struct model_staged staged;
    test_safetensors("model.safetensors", "{\"a\":{\"dtype\":\"Q3\",\"shape\":[9],\"data_offsets\":[0,7]}}", 7);
    stage(&staged);
    assert_string_equal(staged.manifest.tensors.at[0].dtype, "Q3");
    assert_int_equal(staged.manifest.tensors.at[0].len_bytes, 7);
    assert_non_null(strstr(warnings, "model.safetensors: tensor \"a\": dtype \"Q3\" is not known"));
    model_staged_fini(&staged);
}

static void tensors_above_4_gib_are_staged(void **state)
{
    (void)state;
    struct model_staged staged;
    test_safetensors("model.safetensors",
                     "{\"a\":{\"dtype\":\"F64\",\"shape\":[1024,1048576],\"data_offsets\":[0,8589934592]}}",
                     8589934592);
    stage(&staged);
    assert_true(staged.manifest.tensors.at[0].len_bytes == UINT64_C(8589934592));
    model_staged_fini(&staged);
}

static void many_unknown_dtypes_are_two_warnings(void **state)
{
    (void)state;
    test_safetensors("model.safetensors",
                     "{\"a\":{\"dtype\":\"Q3\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"b\":{\"dtype\":\"Q3\",\"shape\":[1],\"data_offsets\":[1,2]},"
                     "\"c\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                     3);
    struct model_staged staged;
    stage(&staged);
    assert_int_equal(staged.manifest.tensors.n, 3);
    assert_string_equal(warnings,
                        "model.safetensors: tensor \"a\": dtype \"Q3\" is not known: its length is taken as given\n"
                        "model.safetensors: 3 tensors in all have a dtype that is not known\n");
    model_staged_fini(&staged);
}

static void a_shard_of_any_name_is_no_other_file(void **state)
{
    (void)state;
    test_text_file("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"weights.st\"}}");
    test_safetensors("weights.st", ONE("a"), 4);
    struct model_staged staged;
    stage(&staged);
    assert_shards(&staged, "weights.st");
    assert_files(&staged, "model.safetensors.index.json");
    model_staged_fini(&staged);
}

static void a_manifest_that_no_reader_takes_is_refused(void **state)
{
    (void)state;
    test_safetensors("model.safetensors", ONE("a"), 4);
    struct model_staged staged;
    struct penstock_error error = { 0 };
    struct base_buf text = { 0 };
    stage(&staged);
    assert_int_equal(model_manifest_write(&staged.manifest, &text, &error), 0);
    model_staged_fini(&staged);
    struct model_stage_options bounded = { .manifest_bytes_max = text.n };
    assert_int_equal(model_stage(test_directory, &bounded, &staged, &error), 0);
    model_staged_fini(&staged);
    bounded.manifest_bytes_max = text.n - 1;
    assert_int_equal(model_stage(test_directory, &bounded, &staged, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, test_directory));
    assert_non_null(strstr(error.message, "manifest has"));
    base_buf_fini(&text);
}

static void a_directory_that_cannot_be_looked_at_is_no_change(void **state)
{
    (void)state;
    test_safetensors("model.safetensors", ONE("a"), 4);
    struct model_staged staged;
    struct rlimit files, none;
    stage(&staged);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum model_change change = model_staged_changed(&staged, &options);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(change, MODEL_SAME);
    model_staged_fini(&staged);
}

static void a_directory_that_is_gone_has_been_replaced(void **state)
{
    (void)state;
    test_safetensors("model.safetensors", ONE("a"), 4);
    struct model_staged staged;
    stage(&staged);
    char away[PATH_MAX];
    snprintf(away, sizeof away, "%.4000s-away", test_directory);
    assert_int_equal(rename(test_directory, away), 0);
    enum model_change change = model_staged_changed(&staged, &options);
    assert_int_equal(rename(away, test_directory), 0);
    assert_int_equal(change, MODEL_REPLACED);
    assert_int_equal(model_staged_changed(&staged, &options), MODEL_SAME);
    model_staged_fini(&staged);
}

static void a_change_is_told_as_replaced_or_rewritten(void **state)
{
    (void)state;
    struct model_staged staged;
    char version[33];
    test_safetensors("model.safetensors", ONE("a"), 4);
    test_text_file("config.json", "{}");
    stage(&staged);
    memcpy(version, staged.manifest.model_version, sizeof version);
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_SAME);
    test_text_file("pytorch_model.bin", "not served");
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_SAME);
    test_text_file("tokenizer.json", "{}");
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_REPLACED);
    model_staged_fini(&staged);

    stage(&staged);
    assert_string_not_equal(staged.manifest.model_version, version);
    test_safetensors("new", ONE("b"), 4);
    assert_int_equal(rename(test_path("new"), test_path("model.safetensors")), 0);
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_REPLACED);
    model_staged_fini(&staged);

    stage(&staged);
    assert_int_equal(truncate(test_path("model.safetensors"), 9), 0);
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_REWRITTEN);
    model_staged_fini(&staged);

    test_safetensors("model.safetensors", ONE("b"), 4);
    stage(&staged);
    assert_int_equal(unlink(test_path("model.safetensors")), 0);
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_REPLACED);
    model_staged_fini(&staged);
}

static void a_request_names_a_directory(void **state)
{
    (void)state;
    static const struct {
        const char *request, *directory;
        bool same;
    } cases[] = {
        { "/models/llama", "/models/llama", true },
        { "/models//llama/", "/models/llama", true },
        { "/./models/./llama/.", "/models/llama", true },
        { "llama", "/models/llama", true },
        { "llama", "/models/llama/", true },
        { "models/llama", "/models/llama", false },
        { "/models/llam", "/models/llama", false },
        { "/models", "/models/llama", false },
        { "/models/llama/x", "/models/llama", false },
        { "llama/", "/models/llama", false },
        { "", "/models/llama", false },
        { "/", "/", true },
        { "models", "/models/llama", false },
        { "/models/../models/llama", "/models/llama", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(model_request_names(cases[i].request, cases[i].directory), cases[i].same);
}

int main(void)
{
#define in_a_directory(f) cmocka_unit_test_setup_teardown(f, test_directory_setup, test_directory_teardown)
    const struct CMUnitTest tests[] = {
        in_a_directory(a_single_file_is_staged_with_what_lies_beside_it),
        in_a_directory(an_index_decides_which_tensor_comes_from_where),
        in_a_directory(the_first_rule_that_matches_wins),
        in_a_directory(a_hugging_face_snapshot_is_staged_through_its_links),
        in_a_directory(refusals_name_the_file_the_tensor_and_the_field),
        in_a_directory(a_header_longer_than_its_file_is_refused),
        in_a_directory(what_is_no_file_or_leads_outside_is_no_shard),
        in_a_directory(an_unknown_dtype_is_staged_with_a_warning),
        in_a_directory(tensors_above_4_gib_are_staged),
        in_a_directory(many_unknown_dtypes_are_two_warnings),
        in_a_directory(a_shard_of_any_name_is_no_other_file),
        in_a_directory(a_manifest_that_no_reader_takes_is_refused),
        in_a_directory(a_directory_that_cannot_be_looked_at_is_no_change),
        in_a_directory(a_directory_that_is_gone_has_been_replaced),
        in_a_directory(a_change_is_told_as_replaced_or_rewritten),
        cmocka_unit_test(a_request_names_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
