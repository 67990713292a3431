#include "made_store.h"

#include "model/experts/store.h"

static bool there(const char *name)
{
    struct stat st;
    return lstat(test_path(name), &st) == 0;
}

static void refused(const char *source, const struct model_expert_geometry *sizes, int code, const char *words)
{
    const uint32_t model_layers[MADE_LAYERS] = { 1, 3 };
    struct model_expert_manifest manifest;
    struct model_store_writer *writer;
    struct penstock_error error = { 0 };
    assert_int_equal(model_expert_manifest_init(&manifest, sizes, model_layers, NULL), 0);
    assert_int_equal(model_store_writer_open(test_path("store"), &manifest, source, &writer, &error), code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\", not \"%s\"", error.message, words);
    model_expert_manifest_fini(&manifest);
}

static void a_store_comes_to_be_with_its_manifest(void **state)
{
    (void)state;
    struct model_store store;
    struct penstock_error error = { 0 };
    struct model_store_writer *writer = made_writer("source");
    assert_false(model_store_writer_has(writer, 0));
    made_layer(writer, 1);
    assert_true(model_store_writer_has(writer, 1));
    assert_int_equal(model_store_writer_finish(writer, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "/store: experts_00000.xpr: not written yet"));
    made_layer(writer, 0);
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), PENSTOCK_ECORRUPT);
    assert_int_equal(model_store_writer_finish(writer, NULL), 0);
    model_store_writer_free(writer);

    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    struct model_expert_manifest want = made_manifest();
    assert_true(model_expert_manifest_same(&store.manifest, &want));
    model_expert_manifest_fini(&want);
    model_store_close(&store);
    assert_false(there("store/.penstock-pack.json"));
    assert_false(there("store/.penstock-pack.lock"));
    assert_false(there("store/manifest.json.tmp"));
}

static void the_source_is_no_part_of_the_manifest(void **state)
{
    (void)state;
    char text[2048] = { 0 };
    made_store();
    FILE *file = fopen(test_path("store/manifest.json"), "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 100);
    fclose(file);
    assert_int_equal(strncmp(text, "{\n  \"version\": 1,\n", 18), 0);
    assert_null(strstr(text, "source"));
    assert_null(strstr(text, "model_version"));
}

static void an_interrupted_writer_is_taken_up(void **state)
{
    (void)state;
    int fd;
    struct model_store_writer *writer = made_writer("source");
    made_layer(writer, 0);
    assert_int_equal(model_store_writer_begin(writer, 1, &fd, NULL), 0);
    made_fill(fd, 1);
    assert_true(there("store/experts_00001.xpr.tmp"));
    model_store_writer_free(writer);
    assert_false(there("store/experts_00001.xpr.tmp"));
    assert_false(there("store/experts_00001.xpr"));

    test_text_file("store/experts_00001.xpr.tmp", "of a writer that was killed");
    writer = made_writer("source");
    assert_false(there("store/experts_00001.xpr.tmp"));
    assert_true(model_store_writer_has(writer, 0));
    assert_false(model_store_writer_has(writer, 1));
    made_layer(writer, 1);
    assert_int_equal(model_store_writer_finish(writer, NULL), 0);
    model_store_writer_free(writer);
}

static void a_finished_layer_that_was_damaged_is_written_again(void **state)
{
    (void)state;
    struct model_store_writer *writer = made_writer("source");
    made_layer(writer, 0);
    made_layer(writer, 1);
    model_store_writer_free(writer);

    uint8_t header[PENSTOCK_RECORD_HEADER_BYTES];
    made_header(1, 0, header); /* of another layer */
    int fd = open(test_path("store/experts_00000.xpr"), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
    assert_int_equal(close(fd), 0);
    assert_int_equal(truncate(test_path("store/experts_00001.xpr"), 8192), 0);

    writer = made_writer("source");
    assert_false(model_store_writer_has(writer, 0));
    assert_false(model_store_writer_has(writer, 1));
    model_store_writer_free(writer);
}

static void a_layer_that_is_dropped_is_missing(void **state)
{
    (void)state;
    struct penstock_error error = { 0 };
    struct model_store_writer *writer = made_writer("source");
    made_layer(writer, 0);
    made_layer(writer, 1);
    assert_int_equal(model_store_writer_drop(writer, 1, NULL), 0);
    assert_false(there("store/experts_00001.xpr"));
    assert_int_equal(model_store_writer_drop(writer, 1, NULL), 0); /* another thread was first */
    assert_int_equal(model_store_writer_finish(writer, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "experts_00001.xpr: not written yet"));
    model_store_writer_free(writer);
}

static void layers_of_another_source_or_size_are_left_alone(void **state)
{
    (void)state;
    struct model_expert_geometry other = made_sizes;
    struct model_store_writer *writer = made_writer("source");
    made_layer(writer, 0);
    model_store_writer_free(writer);

    refused("another", &made_sizes, PENSTOCK_EDENIED, "/store: holds layers of another checkpoint");
    other.num_experts = 4;
    refused("source", &other, PENSTOCK_EDENIED, "/store: holds layers of other sizes");
    assert_int_equal(unlink(test_path("store/.penstock-pack.json")), 0);
    refused("source", &made_sizes, PENSTOCK_EDENIED, "/store: holds layers, and nothing says of which checkpoint");
    assert_true(there("store/experts_00000.xpr"));
    assert_false(there("store/.penstock-pack.lock"));
}

static void a_plan_without_a_layer_binds_nobody(void **state)
{
    (void)state;
    struct model_store_writer *writer = made_writer("source");
    model_store_writer_free(writer);
    assert_true(there("store/.penstock-pack.json"));
    writer = made_writer("another");
    model_store_writer_free(writer);
}

static void a_finished_store_is_not_written_to(void **state)
{
    (void)state;
    made_store();
    refused("source", &made_sizes, PENSTOCK_EDENIED, "/store: is a finished store");
}

static void two_writers_into_one_directory_are_refused(void **state)
{
    (void)state;
    struct model_store_writer *writer = made_writer("source");
    refused("source", &made_sizes, PENSTOCK_ELIMIT, "/store: another process is packing into it");
    assert_true(there("store/.penstock-pack.lock"));
    made_layer(writer, 0); /* the one refused has taken nothing away */
    model_store_writer_free(writer);
    writer = made_writer("source");
    model_store_writer_free(writer);
}

static void a_lock_that_a_killed_writer_left_holds_nobody(void **state)
{
    (void)state;
    assert_int_equal(mkdir(test_path("store"), 0700), 0);
    test_text_file("store/.penstock-pack.lock", "");
    made_store();
}

static void a_record_that_was_not_written_is_not_committed(void **state)
{
    (void)state;
    int fd;
    uint8_t nothing[PENSTOCK_RECORD_HEADER_BYTES] = { 0 };
    struct penstock_error error = { 0 };
    struct model_store_writer *writer = made_writer("source");
    assert_int_equal(model_store_writer_begin(writer, 0, &fd, NULL), 0);
    made_fill(fd, 0);
    assert_int_equal(pwrite(fd, nothing, sizeof nothing, 8192), sizeof nothing);
    assert_int_equal(model_store_writer_commit(writer, 0, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "/store: experts_00000.xpr: layer 0, expert 1: record magic"));
    assert_false(model_store_writer_has(writer, 0));
    assert_false(there("store/experts_00000.xpr"));
    assert_false(there("store/experts_00000.xpr.tmp"));
    made_layer(writer, 0); /* and can be begun again */
    model_store_writer_free(writer);
}

static void a_link_under_a_temporary_name_is_not_followed(void **state)
{
    (void)state;
    test_text_file("precious", "kept");
    struct model_store_writer *writer = made_writer("source");
    assert_int_equal(symlink("../precious", test_path("store/experts_00000.xpr.tmp")), 0);
    assert_int_equal(symlink("../precious", test_path("store/manifest.json.tmp")), 0);
    made_layer(writer, 0);
    made_layer(writer, 1);
    assert_int_equal(model_store_writer_finish(writer, NULL), 0);
    model_store_writer_free(writer);
    struct stat st;
    assert_int_equal(stat(test_path("precious"), &st), 0);
    assert_int_equal(st.st_size, 4);
}

static void a_directory_that_cannot_be_is_named(void **state)
{
    (void)state;
    refused("bad source", &made_sizes, PENSTOCK_EINVAL, "source: not 1 to 128 printable characters");
    test_text_file("store", "a file");
    refused("source", &made_sizes, PENSTOCK_ESYS, "/store: open: Not a directory");
}

#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, test_directory_setup, test_directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(a_store_comes_to_be_with_its_manifest),
        IN_A_DIRECTORY(the_source_is_no_part_of_the_manifest),
        IN_A_DIRECTORY(an_interrupted_writer_is_taken_up),
        IN_A_DIRECTORY(a_finished_layer_that_was_damaged_is_written_again),
        IN_A_DIRECTORY(a_layer_that_is_dropped_is_missing),
        IN_A_DIRECTORY(layers_of_another_source_or_size_are_left_alone),
        IN_A_DIRECTORY(a_plan_without_a_layer_binds_nobody),
        IN_A_DIRECTORY(a_finished_store_is_not_written_to),
        IN_A_DIRECTORY(two_writers_into_one_directory_are_refused),
        IN_A_DIRECTORY(a_lock_that_a_killed_writer_left_holds_nobody),
        IN_A_DIRECTORY(a_record_that_was_not_written_is_not_committed),
        IN_A_DIRECTORY(a_link_under_a_temporary_name_is_not_followed),
        IN_A_DIRECTORY(a_directory_that_cannot_be_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
