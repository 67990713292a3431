#include "../test.h"

#include <errno.h>

#include "base/error.h"

static void a_code_tells_its_class(void **state)
{
    (void)state;
    assert_int_equal(penstock_error_class(0), PENSTOCK_LOST_NOTHING);
    assert_int_equal(penstock_error_class(PENSTOCK_ENOMEM), PENSTOCK_LOST_OPERATION);
    assert_int_equal(penstock_error_class(PENSTOCK_ECLOSED), PENSTOCK_LOST_CONNECTION);
    assert_int_equal(penstock_error_class(PENSTOCK_EDEAD), PENSTOCK_LOST_SESSION);
    assert_string_equal(penstock_error_name(PENSTOCK_ETIMEOUT), "PENSTOCK_ETIMEOUT");
    assert_string_equal(penstock_error_name(17), "unknown error code");
}

static void context_goes_in_front(void **state)
{
    (void)state;
    struct penstock_error e;
    assert_int_equal(base_error_set(&e, PENSTOCK_EPROTO, "implausible %s", "count"), PENSTOCK_EPROTO);
    assert_int_equal(base_error_in(&e, "peer %d", 7), PENSTOCK_EPROTO);
    assert_string_equal(e.message, "peer 7: implausible count");
}

static void a_failed_system_call_keeps_its_errno(void **state)
{
    (void)state;
    struct penstock_error e;
    assert_int_equal(base_error_sys(&e, ENOENT, "open %s", "x"), PENSTOCK_ESYS);
    assert_string_equal(e.message, "open x: No such file or directory");
    assert_int_equal(e.sys_errno, ENOENT);
    assert_int_equal(base_error_sys(&e, ENOMEM, "mmap"), PENSTOCK_ENOMEM);
}

static void what_can_be_done_about_too_many_files_is_said(void **state)
{
    (void)state;
    struct penstock_error e;
    assert_int_equal(base_error_sys(&e, EMFILE, "open %s", "x"), PENSTOCK_ESYS);
    assert_string_equal(e.message, "open x: Too many open files; raise the limit on open files (ulimit -n)");
}

static void words_that_do_not_fit_are_cut(void **state)
{
    (void)state;
    struct penstock_error e;
    char much[2000];
    memset(much, 'x', sizeof much - 1);
    much[sizeof much - 1] = 0;
    assert_int_equal(base_error_sys(&e, EIO, "%s", much), PENSTOCK_ESYS);
    assert_int_equal(base_error_in(&e, "%s", much), PENSTOCK_ESYS);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
}

static void no_error_to_fill_is_fine(void **state)
{
    (void)state;
    assert_int_equal(base_error_set(NULL, PENSTOCK_EINVAL, "x"), PENSTOCK_EINVAL);
    assert_int_equal(base_error_sys(NULL, EIO, "x"), PENSTOCK_ESYS);
    assert_true(base_error_in(NULL, "x") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_tells_its_class),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(a_failed_system_call_keeps_its_errno),
        cmocka_unit_test(what_can_be_done_about_too_many_files_is_said),
        cmocka_unit_test(words_that_do_not_fit_are_cut),
        cmocka_unit_test(no_error_to_fill_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
