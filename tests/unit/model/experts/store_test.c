#include "made_store.h"

#include <utime.h>

#include "model/experts/store.h"

static int set_up(void **state)
{
    if (test_directory_setup(state) != 0)
        return -1;
    made_store();
    return 0;
}

static void whole_records_come_back(void **state)
{
    (void)state;
    struct model_store store;
    struct penstock_record_header header;
    assert_int_equal(model_store_open(test_path("store/"), NULL, &store, NULL), 0);
    assert_string_equal(store.directory, test_path("store"));
    assert_string_equal(store.name, "store");
    assert_int_equal(store.layers.n, MADE_LAYERS);
    assert_int_equal(store.manifest.model_layers[1], 3);
    assert_int_equal(strlen(store.manifest.model_version), 32);

    uint8_t *record = malloc((size_t)store.manifest.geometry.record_stride);
    assert_non_null(record);
    for (uint32_t layer = 0; layer < MADE_LAYERS; layer++)
        for (uint32_t expert = 0; expert < MADE_EXPERTS; expert++) {
            assert_int_equal(model_store_record(&store, layer, expert, record, &header, NULL), 0);
            assert_int_equal(header.layer, layer);
            assert_int_equal(header.expert, expert);
            assert_true(header.scale2[2] == (float)expert);
            assert_int_equal(record[PENSTOCK_RECORD_HEADER_BYTES], 16 * (layer + 1) + expert);
            assert_int_equal(record[store.manifest.geometry.record_stride - 1], 16 * (layer + 1) + expert);
            assert_int_equal(model_store_header(&store, layer, expert, &header, NULL), 0);
        }
    free(record);
    model_store_close(&store);
}

static void what_is_out_of_range_is_the_callers_mistake(void **state)
{
    (void)state;
    struct model_store store;
    struct penstock_error error = { 0 };
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    assert_int_equal(model_store_header(&store, MADE_LAYERS, 0, NULL, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, ": layer 2 of 2"));
    assert_int_equal(model_store_header(&store, 1, MADE_EXPERTS, NULL, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, ": layer 1: expert 3 of 3"));
    model_store_close(&store);
}

static void refused(int code, const char *words)
{
    struct model_store store;
    struct penstock_error error = { 0 };
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, &error), code);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\", not \"%s\"", error.message, words);
    assert_int_equal(strncmp(error.message, "store ", 6), 0);
    assert_null(store.directory);
    assert_null(store.layers.at);
    assert_int_equal(store.manifest_file.fd, -1);
}

static void a_directory_without_a_manifest_is_no_store(void **state)
{
    (void)state;
    assert_int_equal(unlink(test_path("store/manifest.json")), 0);
    refused(PENSTOCK_ECORRUPT, ": no manifest.json: not an expert store");
    test_text_file("store/.penstock-pack.json", "");
    refused(PENSTOCK_ECORRUPT, ": no manifest.json: packing has not finished");
}

static void no_directory_is_not_found(void **state)
{
    (void)state;
    assert_int_equal(rename(test_path("store"), test_path("other")), 0);
    refused(PENSTOCK_ENOTFOUND, "store");
    test_text_file("store", "");
    refused(PENSTOCK_ENOTFOUND, "store");
}

static void a_bad_manifest_is_named(void **state)
{
    (void)state;
    test_text_file("store/manifest.json", "");
    refused(PENSTOCK_ECORRUPT, "/store: manifest.json: empty");
    test_text_file("store/manifest.json", "{\"version\":7}");
    refused(PENSTOCK_ECORRUPT, "/store: manifest.json: manifest: version: 7");
    assert_int_equal(truncate(test_path("store/manifest.json"), PENSTOCK_EXPERT_MANIFEST_BYTES_MAX + 1), 0);
    refused(PENSTOCK_ECORRUPT, "manifest.json: 16777217 bytes, and 16777216 are the most");
    assert_int_equal(unlink(test_path("store/manifest.json")), 0);
    assert_int_equal(mkfifo(test_path("store/manifest.json"), 0600), 0);
    refused(PENSTOCK_ECORRUPT, "manifest.json: not a regular file");
}

static void a_layers_file_that_is_missing_or_of_another_size_is_named(void **state)
{
    (void)state;
    assert_int_equal(truncate(test_path("store/experts_00001.xpr"), 3 * 8192 - 1), 0);
    refused(PENSTOCK_ECORRUPT, "/store: experts_00001.xpr: 24575 bytes, but 3 records of 8192 bytes make 24576");
    assert_int_equal(truncate(test_path("store/experts_00001.xpr"), 3 * 8192 + 1), 0);
    refused(PENSTOCK_ECORRUPT, "experts_00001.xpr: 24577 bytes");
    assert_int_equal(unlink(test_path("store/experts_00001.xpr")), 0);
    refused(PENSTOCK_ECORRUPT, "/store: experts_00001.xpr: No such file");
}

static void a_link_that_leads_outside_is_followed_only_when_allowed(void **state)
{
    (void)state;
    const struct model_stage_options allow = { .follow_all_links = true };
    struct model_store store;
    assert_int_equal(rename(test_path("store/experts_00000.xpr"), test_path("elsewhere")), 0);
    assert_int_equal(symlink("../elsewhere", test_path("store/experts_00000.xpr")), 0);
    refused(PENSTOCK_EDENIED, "experts_00000.xpr: a link that leads outside");
    assert_int_equal(model_store_open(test_path("store"), &allow, &store, NULL), 0);
    model_store_close(&store);
}

static void overwrite(const char *name, off_t at, const void *bytes, size_t len)
{
    int fd = open(test_path(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    assert_int_equal(close(fd), 0);
}

static void a_record_that_is_not_its_own_is_named(void **state)
{
    (void)state;
    struct model_store store;
    struct penstock_error error = { 0 };
    uint8_t header[PENSTOCK_RECORD_HEADER_BYTES], record[8192];
    made_header(1, 0, header);
    overwrite("store/experts_00001.xpr", 2 * 8192, header, sizeof header);
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    assert_int_equal(model_store_record(&store, 1, 2, record, NULL, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "/store/experts_00001.xpr: layer 1, expert 2: record expert: 0, not 2"));
    assert_int_equal(model_store_record(&store, 1, 1, record, NULL, &error), 0);

    assert_int_equal(truncate(test_path("store/experts_00001.xpr"), 8192 + 100), 0);
    assert_int_equal(model_store_record(&store, 1, 1, record, NULL, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "/store/experts_00001.xpr: layer 1, expert 1: ends at byte 8292"));
    model_store_close(&store);
}

static void the_version_follows_the_files(void **state)
{
    (void)state;
    struct model_store a, b;
    assert_int_equal(model_store_open(test_path("store"), NULL, &a, NULL), 0);
    assert_int_equal(model_store_open(test_path("store"), NULL, &b, NULL), 0);
    assert_string_equal(a.manifest.model_version, b.manifest.model_version);
    model_store_close(&b);
    const struct utimbuf long_ago = { 1, 1 };
    assert_int_equal(utime(test_path("store/experts_00001.xpr"), &long_ago), 0);
    assert_int_equal(model_store_open(test_path("store"), NULL, &b, NULL), 0);
    assert_string_not_equal(a.manifest.model_version, b.manifest.model_version);
    model_store_close(&a);
    model_store_close(&b);
}

static void changes_are_told_apart(void **state)
{
    (void)state;
    struct model_store store;
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    assert_int_equal(model_store_changed(&store), MODEL_SAME);

    /* Another layer under the name: the open one is what it was. */
    assert_int_equal(rename(test_path("store/experts_00000.xpr"), test_path("kept")), 0);
    assert_int_equal(model_store_changed(&store), MODEL_REPLACED);
    assert_int_equal(rename(test_path("kept"), test_path("store/experts_00000.xpr")), 0);
    model_store_close(&store);

    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    test_text_file("store/manifest.json", "rewritten");
    assert_int_equal(model_store_changed(&store), MODEL_REPLACED);
    assert_int_equal(rename(test_path("store"), test_path("moved")), 0);
    assert_int_equal(model_store_changed(&store), MODEL_REPLACED);
    assert_int_equal(truncate(test_path("moved/experts_00001.xpr"), 1), 0);
    assert_int_equal(model_store_changed(&store), MODEL_REWRITTEN);
    model_store_close(&store);
}

static void a_store_is_told_from_a_model(void **state)
{
    (void)state;
    assert_true(model_store_likely(test_path("store")));
    assert_int_equal(unlink(test_path("store/manifest.json")), 0);
    assert_true(model_store_likely(test_path("store")));
    assert_int_equal(unlink(test_path("store/experts_00000.xpr")), 0);
    assert_false(model_store_likely(test_path("store")));
    assert_false(model_store_likely(test_path("nowhere")));
}

static void layers_above_99999_have_more_digits(void **state)
{
    (void)state;
    char name[MODEL_LAYER_NAME_BYTES];
    assert_string_equal(model_layer_name(7, name), "experts_00007.xpr");
    assert_string_equal(model_layer_name(UINT32_MAX, name), "experts_4294967295.xpr");
}

#define WITH_A_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, test_directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_A_STORE(whole_records_come_back),
        WITH_A_STORE(what_is_out_of_range_is_the_callers_mistake),
        WITH_A_STORE(a_directory_without_a_manifest_is_no_store),
        WITH_A_STORE(no_directory_is_not_found),
        WITH_A_STORE(a_bad_manifest_is_named),
        WITH_A_STORE(a_layers_file_that_is_missing_or_of_another_size_is_named),
        WITH_A_STORE(a_link_that_leads_outside_is_followed_only_when_allowed),
        WITH_A_STORE(a_record_that_is_not_its_own_is_named),
        WITH_A_STORE(the_version_follows_the_files),
        WITH_A_STORE(changes_are_told_apart),
        WITH_A_STORE(a_store_is_told_from_a_model),
        cmocka_unit_test(layers_above_99999_have_more_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
