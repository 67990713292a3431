#include "directory.h"

#include <sys/resource.h>

#include "model/listing.h"

static void list(struct model_listing *out)
{
    static struct model_root root;
    struct penstock_error error = { 0 };
    assert_int_equal(model_root_open(test_directory, false, &root, &error), 0);
    assert_int_equal(model_listing_read(&root, NULL, out, &error), 0);
    model_root_close(&root);
}

#define assert_names(list, ...)                                                                                        \
    do {                                                                                                               \
        static const char *const want[] = { __VA_ARGS__ };                                                             \
        assert_int_equal((list).n, sizeof want / sizeof *want);                                                        \
        for (size_t i_ = 0; i_ < (list).n; i_++)                                                                       \
            assert_string_equal((list).at[i_], want[i_]);                                                              \
    } while (0)

static void weights_of_any_format_are_no_files(void **state)
{
    (void)state;
    static const char *const weights[] = { "a.bin",    "a.pt",      "a.pth",  "a.ckpt", "a.gguf",
                                           "a.h5",     "a.msgpack", "a.onnx", "a.ot",   "sub/model.safetensors",
                                           "sub/a.bin" };
    struct model_listing listing;
    assert_int_equal(mkdir(test_path("sub"), 0700), 0);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        test_text_file(weights[i], "");
    test_text_file("z.safetensors", "");
    test_text_file("m.safetensors", "");
    test_text_file("bin", "");
    test_text_file("a.BIN", "");
    test_text_file("a.bin.json", "");
    list(&listing);
    assert_names(listing.weights, "m.safetensors", "z.safetensors");
    assert_names(listing.files, "a.BIN", "a.bin.json", "bin");
    model_listing_fini(&listing);
}

static void names_go_four_components_deep_and_are_sorted_by_bytes(void **state)
{
    (void)state;
    static const char *const directories[] = { "d", "d/e", "d/e/f", "d/e/f/g", ".git" };
    struct model_listing listing;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(mkdir(test_path(directories[i]), 0700), 0);
    test_text_file("d/e/f/four", "");
    test_text_file("d/e/f/g/five", "");
    test_text_file("d/.hidden", "");
    test_text_file(".git/config", "");
    test_text_file("b", "");
    test_text_file("Z", "");
    test_text_file("bad\nname", "");
    test_text_file("bad\xff", "");
    assert_int_equal(symlink("d", test_path("link")), 0); /* listed; whoever opens it sees that it is no file */
    assert_int_equal(mkfifo(test_path("pipe"), 0600), 0);
    list(&listing);
    assert_names(listing.files, "Z", "b", "d/e/f/four", "link");
    model_listing_fini(&listing);
}

static void the_hash_is_over_names_that_matter(void **state)
{
    (void)state;
    struct model_listing listing;
    test_text_file("model.safetensors", "");
    test_text_file("config.json", "");
    list(&listing);
    uint64_t before = listing.hash;
    model_listing_fini(&listing);
    test_text_file("config.json", "other bytes");
    test_text_file(".penstock-digests", "");
    test_text_file("pytorch_model.bin", "");
    list(&listing);
    assert_true(listing.hash == before);
    model_listing_fini(&listing);
    test_text_file("tokenizer.json", "");
    list(&listing);
    assert_true(listing.hash != before);
    model_listing_fini(&listing);
}

static void a_directory_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    struct model_root root;
    struct model_listing listing;
    struct penstock_error error = { 0 };
    struct rlimit files, none;
    assert_int_equal(model_root_open(test_directory, false, &root, &error), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = model_listing_read(&root, NULL, &listing, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(code, PENSTOCK_ESYS);
    assert_ptr_equal(strstr(error.message, "read the directory: Too many open files"), error.message);
    model_root_close(&root);
}

#define in_a_directory(name) cmocka_unit_test_setup_teardown(name, test_directory_setup, test_directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_directory(weights_of_any_format_are_no_files),
        in_a_directory(names_go_four_components_deep_and_are_sorted_by_bytes),
        in_a_directory(the_hash_is_over_names_that_matter),
        in_a_directory(a_directory_that_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
