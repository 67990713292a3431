#include "directory.h"

#include "model/links.h"

static void make_directories(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mkdir(test_path(names[i]), 0700), 0);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, test_path(name)), 0);
}

/* What opening name below directory gives; the file is closed again. */
static int try_to_open(const char *directory, bool follow_all, const char *name, struct penstock_error *error)
{
    static struct model_root root;
    struct stat st;
    int fd;
    assert_int_equal(model_root_open(test_path(directory), follow_all, &root, error), 0);
    int code = model_root_file(&root, name, &fd, &st, error);
    if (code == 0)
        close(fd);
    model_root_close(&root);
    return code;
}

static void links_are_followed_inside_the_directory_alone(void **state)
{
    (void)state;
    static const char *const directories[] = { "m", "m/sub", "mm" };
    struct penstock_error error = { 0 };
    make_directories(directories, 3);
    test_text_file("m/file", "x");
    test_text_file("mm/outside", "x");
    link_to("../file", "m/sub/up_and_in");
    link_to("../mm/outside", "m/out"); /* a neighbour whose name begins as ours does */
    link_to("out", "m/twice");
    link_to("nowhere", "m/dangling");
    link_to("loop", "m/loop");
    link_to("/dev/null", "m/device");
    assert_int_equal(try_to_open("m", false, "sub/up_and_in", &error), 0);
    assert_int_equal(try_to_open("m", false, "out", &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "out: a link that leads outside"));
    assert_int_equal(try_to_open("m", false, "twice", &error), PENSTOCK_EDENIED);
    assert_int_equal(try_to_open("m", false, "dangling", &error), PENSTOCK_ENOTFOUND);
    assert_int_equal(try_to_open("m", false, "loop", &error), PENSTOCK_ESYS);
    assert_int_equal(try_to_open("m", false, "device", &error), PENSTOCK_EINVAL);
    assert_int_equal(try_to_open("m", true, "out", &error), 0);
    assert_int_equal(try_to_open("m", true, "device", &error), PENSTOCK_EINVAL);
}

static void a_snapshot_reaches_its_own_repositorys_blobs(void **state)
{
    (void)state;
    static const char *const directories[] = { "models--a--b",         "models--a--b/snapshots",
                                               "models--a--b/blobs",   "models--a--b/snapshots/rev",
                                               "models--a--b/private", "models--a--c",
                                               "models--a--c/blobs" };
    struct penstock_error error = { 0 };
    make_directories(directories, 7);
    test_text_file("models--a--b/blobs/1", "x");
    test_text_file("models--a--b/private/2", "x");
    test_text_file("models--a--c/blobs/3", "x");
    link_to("../../blobs/1", "models--a--b/snapshots/rev/own");
    link_to("../../private/2", "models--a--b/snapshots/rev/private");
    link_to("../../../models--a--c/blobs/3", "models--a--b/snapshots/rev/others");
    link_to("models--a--b/snapshots/rev", "alias");
    assert_int_equal(try_to_open("models--a--b/snapshots/rev", false, "own", &error), 0);
    assert_int_equal(try_to_open("alias", false, "own", &error), 0);
    assert_int_equal(try_to_open("alias", false, "private", &error), PENSTOCK_EDENIED);
    assert_int_equal(try_to_open("alias", false, "others", &error), PENSTOCK_EDENIED);
}

static void a_snapshot_has_its_repositorys_name(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "/c/models--org--name/snapshots/rev", "org/name" },
        { "/c/models--org--a--b/snapshots/rev", "org/a--b" },
        { "/c/models--gpt2/snapshots/rev/", "gpt2" },
        { "/c/models--org--name/snapshots", "" },
        { "/c/datasets--org--name/snapshots/rev", "" },
        { "/c/models--/snapshots/rev", "" },
        { "rev", "" },
        { "/", "" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char out[64] = "";
        assert_int_equal(model_hub_name(names[i][0], out), strlen(names[i][1]));
        assert_string_equal(out, names[i][1]);
    }
}

#define in_a_directory(name) cmocka_unit_test_setup_teardown(name, test_directory_setup, test_directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_directory(links_are_followed_inside_the_directory_alone),
        in_a_directory(a_snapshot_reaches_its_own_repositorys_blobs),
        cmocka_unit_test(a_snapshot_has_its_repositorys_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
