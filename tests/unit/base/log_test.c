#include "../test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

/* What one call of base_log writes to stderr. */
static ssize_t logged(char *out, size_t size, enum base_log_level level, const char *words)
{
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_true(saved >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    base_log(level, "%s", words);
    dup2(saved, STDERR_FILENO);
    ssize_t n = read(ends[0], out, size - 1);
    out[n < 0 ? 0 : n] = 0;
    close(saved);
    close(ends[0]);
    close(ends[1]);
    return n;
}

static void a_line_cannot_be_forged(void **state)
{
    (void)state;
    char line[4096];
    base_log_init(BASE_LOG_INFO, true);
    assert_true(logged(line, sizeof line, BASE_LOG_WARNING, "a\nb\x1b[31m") > 0);
    assert_string_equal(line, "<4>a\\x0ab\\x1b[31m\n");
    assert_true(logged(line, sizeof line, BASE_LOG_WARNING,
                       "\xc2\x9b"
                       "31m \xc2\xa9 \xe2\x80\x9b \xc2") > 0);
    assert_string_equal(line, "<4>\\xc2\\x9b"
                              "31m \xc2\xa9 \xe2\x80\x9b \xc2\n");
}

static void what_is_below_the_level_is_not_written(void **state)
{
    (void)state;
    char line[4096];
    base_log_init(BASE_LOG_WARNING, true);
    assert_true(logged(line, sizeof line, BASE_LOG_INFO, "quiet") < 0);
}

static void long_words_are_cut_and_still_end_a_line(void **state)
{
    (void)state;
    char much[5000], line[8192];
    memset(much, '\n', sizeof much - 1);
    much[sizeof much - 1] = 0;
    base_log_init(BASE_LOG_INFO, false);
    ssize_t n = logged(line, sizeof line, BASE_LOG_ERROR, much);
    assert_true(n > 0 && n <= 2048);
    assert_int_equal(line[n - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_cannot_be_forged),
        cmocka_unit_test(what_is_below_the_level_is_not_written),
        cmocka_unit_test(long_words_are_cut_and_still_end_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
