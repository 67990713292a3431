#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull_target.h"

/* A target T beside a directory that must stay as it is. */
struct place {
    char root[64], outside[96], inside[96];
    struct pull_target target;
};

static int set_up(void **state)
{
    struct place *p = malloc(sizeof *p);
    snprintf(p->root, sizeof p->root, "/tmp/penstock-target-XXXXXX");
    if (!mkdtemp(p->root))
        return -1;
    snprintf(p->outside, sizeof p->outside, "%s/outside", p->root);
    snprintf(p->inside, sizeof p->inside, "%s/a/b/T", p->root);
    *state = p;
    return mkdir(p->outside, 0777) < 0 ? -1 : pull_target_open(p->inside, &p->target, NULL);
}

static int tear_down(void **state)
{
    struct place *p = *state;
    char command[128];
    pull_target_close(&p->target);
    snprintf(command, sizeof command, "rm -r '%s'", p->root);
    int rc = system(command);
    free(p);
    return rc;
}

static int dir_of(const struct place *p)
{
    return p->target.dir_fd;
}

static void put(int dir_fd, const char *name, const char *bytes)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    close(fd);
}

static void make_temp(const struct place *p, size_t n)
{
    int fd;
    assert_int_equal(pull_target_create(&p->target, n, &fd, NULL), 0);
    assert_int_equal(write(fd, "new", 3), 3);
    close(fd);
}

static void a_file_gets_its_final_name_in_directories_that_are_made(void **state)
{
    struct place *p = *state;
    int fd;
    assert_int_equal(pull_target_prepare(&p->target, "x/y/z.json", NULL), 0);
    make_temp(p, 0);
    assert_int_equal(pull_target_open_final(&p->target, "x/y/z.json", 3, &fd), PENSTOCK_ENOTFOUND);
    assert_int_equal(pull_target_land(&p->target, 0, "x/y/z.json", NULL), 0);
    assert_int_equal(pull_target_open_final(&p->target, "x/y/z.json", 4, &fd), PENSTOCK_ENOTFOUND);
    assert_int_equal(pull_target_open_final(&p->target, "x/y/z.json", 3, &fd), 0);
    close(fd);
}

static void a_link_in_any_directory_position_is_refused(void **state)
{
    struct place *p = *state;
    static const char *const links[] = { "l", "d/l", "d/e/l" };
    assert_int_equal(mkdirat(dir_of(p), "d", 0777), 0);
    assert_int_equal(mkdirat(dir_of(p), "d/e", 0777), 0);
    make_temp(p, 0);
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        struct penstock_error error;
        int fd;
        assert_int_equal(symlinkat(p->outside, dir_of(p), links[i]), 0);
        snprintf(name, sizeof name, "%s/f", links[i]);
        assert_int_equal(pull_target_prepare(&p->target, name, &error), PENSTOCK_EINVAL);
        assert_non_null(strstr(error.message, name));
        assert_int_equal(pull_target_land(&p->target, 0, name, &error), PENSTOCK_EINVAL);
        assert_int_equal(pull_target_open_final(&p->target, name, 3, &fd), PENSTOCK_ENOTFOUND);
    }
    assert_int_equal(rmdir(p->outside), 0); /* still empty */
}

static void a_link_that_has_a_final_name_is_replaced_not_followed(void **state)
{
    struct place *p = *state;
    char secret[128];
    snprintf(secret, sizeof secret, "%s/secret", p->outside);
    put(AT_FDCWD, secret, "old");
    assert_int_equal(symlinkat(secret, dir_of(p), "f"), 0);
    int fd;
    assert_int_equal(pull_target_open_final(&p->target, "f", 3, &fd), PENSTOCK_ENOTFOUND);
    assert_int_equal(pull_target_prepare(&p->target, "f", NULL), 0);
    make_temp(p, 0);
    assert_int_equal(pull_target_land(&p->target, 0, "f", NULL), 0);
    struct stat st;
    assert_int_equal(fstatat(dir_of(p), "f", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    char bytes[4] = "";
    fd = open(secret, O_RDONLY);
    assert_int_equal(read(fd, bytes, 3), 3);
    assert_string_equal(bytes, "old");
    close(fd);
}

static void what_lies_where_a_temporary_file_goes_is_never_written_to(void **state)
{
    struct place *p = *state;
    char secret[128];
    int fd;
    snprintf(secret, sizeof secret, "%s/secret", p->outside);
    put(AT_FDCWD, secret, "old");
    assert_int_equal(symlinkat(secret, dir_of(p), ".penstock-pull.0"), 0);
    assert_int_equal(pull_target_reopen(&p->target, 0, 3, &fd), PENSTOCK_ENOTFOUND);
    assert_int_equal(linkat(AT_FDCWD, secret, dir_of(p), ".penstock-pull.1", 0), 0);
    assert_int_equal(pull_target_reopen(&p->target, 1, 3, &fd), PENSTOCK_ENOTFOUND); /* a second name of it */
    assert_int_equal(mkfifoat(dir_of(p), ".penstock-pull.2", 0600), 0);
    assert_int_equal(pull_target_reopen(&p->target, 2, 0, &fd), PENSTOCK_ENOTFOUND);
    for (size_t n = 0; n < 3; n++)
        make_temp(p, n);
    struct stat st;
    assert_int_equal(stat(secret, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(pull_target_reopen(&p->target, 1, 3, &fd), 0);
    close(fd);
}

static void names_that_lead_out_are_refused_here_as_well(void **state)
{
    struct place *p = *state;
    static const char *const names[] = { "..", "../f", "a/../../f", "/tmp/f", "", ".penstock-pull" };
    make_temp(p, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_not_equal(pull_target_prepare(&p->target, names[i], NULL), 0);
        assert_int_not_equal(pull_target_land(&p->target, 0, names[i], NULL), 0);
    }
}

static void a_directory_in_a_files_place_is_an_error_that_names_it(void **state)
{
    struct place *p = *state;
    struct penstock_error error;
    assert_int_equal(mkdirat(dir_of(p), "f", 0777), 0);
    assert_int_equal(pull_target_prepare(&p->target, "f", &error), PENSTOCK_ESYS);
    assert_int_equal(error.sys_errno, EISDIR);
    assert_non_null(strstr(error.message, "T/f"));
}

static void space_that_is_not_there_is_named_in_bytes(void **state)
{
    struct place *p = *state;
    struct penstock_error error;
    assert_int_equal(pull_target_space(&p->target, 1, &error), 0);
    assert_int_equal(pull_target_space(&p->target, UINT64_C(1) << 60, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "1152921504606846976 bytes) needed"));
    assert_int_equal(pull_target_capacity(&p->target, UINT64_C(1) << 60, &error), PENSTOCK_ELIMIT);
}

static void cleaning_takes_our_own_files_and_no_others(void **state)
{
    struct place *p = *state;
    make_temp(p, 0);
    make_temp(p, 12);
    put(dir_of(p), ".penstock-pull.x", "");
    put(dir_of(p), ".penstock-pull.", "");
    put(dir_of(p), "model", "");
    pull_target_clean(&p->target);
    assert_int_not_equal(faccessat(dir_of(p), ".penstock-pull.0", F_OK, 0), 0);
    assert_int_not_equal(faccessat(dir_of(p), ".penstock-pull.12", F_OK, 0), 0);
    assert_int_equal(faccessat(dir_of(p), ".penstock-pull.x", F_OK, 0), 0);
    assert_int_equal(faccessat(dir_of(p), ".penstock-pull.", F_OK, 0), 0);
    assert_int_equal(faccessat(dir_of(p), "model", F_OK, 0), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_gets_its_final_name_in_directories_that_are_made),
        TEST(a_link_in_any_directory_position_is_refused),
        TEST(a_link_that_has_a_final_name_is_replaced_not_followed),
        TEST(what_lies_where_a_temporary_file_goes_is_never_written_to),
        TEST(names_that_lead_out_are_refused_here_as_well),
        TEST(a_directory_in_a_files_place_is_an_error_that_names_it),
        TEST(space_that_is_not_there_is_named_in_bytes),
        TEST(cleaning_takes_our_own_files_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
