#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/pull_journal.h"

static const struct pull_identity identity = { .version = "v1", .mark = "0123", .boot = "boot-1" };
static const uint8_t digest[PENSTOCK_DIGEST_BYTES] = { 1, 2, 0xff };

struct place {
    char path[64];
    int dir_fd;
};

static int set_up(void **state)
{
    struct place *place = malloc(sizeof *place);
    snprintf(place->path, sizeof place->path, "/tmp/penstock-journal-XXXXXX");
    if (!mkdtemp(place->path))
        return -1;
    place->dir_fd = open(place->path, O_RDONLY | O_DIRECTORY);
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    unlinkat(place->dir_fd, ".penstock-pull", 0);
    close(place->dir_fd);
    rmdir(place->path);
    free(place);
    return 0;
}

/* A journal with two chunks landed, one of them lost again, and a file done; its text. */
static void write_one(const struct place *place, struct base_buf *text)
{
    struct pull_journal journal;
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &journal, NULL), 0);
    assert_int_equal(pull_journal_begin(&journal, &identity, 0, NULL), 0);
    pull_journal_chunk(&journal, 3, digest);
    pull_journal_chunk(&journal, 4, NULL);
    pull_journal_lost(&journal, 3);
    pull_journal_done(&journal, 1, 77, -5);
    assert_false(journal.failed);
    assert_int_equal(pull_journal_text(&journal, text, NULL), 0);
    pull_journal_close(place->dir_fd, &journal, false);
}

static enum pull_past_state read_back(const void *text, size_t len, const struct pull_identity *now,
                                      struct pull_past *past)
{
    assert_int_equal(pull_past_read((const char *)test_against_a_guard_page(text, len), len, now, 10, 2, past, NULL),
                     0);
    return past->state;
}

static void what_was_written_is_read_back_in_order(void **state)
{
    struct base_buf text = { 0 };
    struct pull_past past;
    write_one(*state, &text);
    assert_int_equal(read_back(text.at, text.n, &identity, &past), PULL_PAST_SAME);
    assert_int_equal(past.whole_bytes, text.n);
    assert_int_equal(past.chunks.n, 3);
    assert_true(past.chunks.at[0].landed && past.chunks.at[0].hashed && past.chunks.at[0].this_boot);
    assert_memory_equal(past.chunks.at[0].digest, digest, sizeof digest);
    assert_true(past.chunks.at[1].landed && !past.chunks.at[1].hashed);
    assert_int_equal(past.chunks.at[1].chunk, 4);
    assert_false(past.chunks.at[2].landed);
    assert_int_equal(past.done.at[0].inode, 77);
    assert_int_equal(past.done.at[0].mtime_ns, -5);
    pull_past_fini(&past);
    base_buf_fini(&text);
}

static void a_journal_cut_anywhere_keeps_its_whole_lines(void **state)
{
    struct base_buf text = { 0 };
    write_one(*state, &text);
    for (size_t len = 0; len < text.n; len++) {
        struct pull_past past;
        size_t lines = 0, whole = 0;
        for (size_t i = 0; i < len; i++)
            if (text.at[i] == '\n') {
                lines++;
                whole = i + 1;
            }
        enum pull_past_state want = len == 0 ? PULL_PAST_NONE : lines < 2 ? PULL_PAST_DAMAGED : PULL_PAST_SAME;
        assert_int_equal(read_back(text.at, len, &identity, &past), want);
        if (want == PULL_PAST_SAME)
            assert_int_equal(past.whole_bytes, whole);
        assert_int_equal(past.chunks.n + past.done.n, lines < 4 ? 0 : lines - 3);
        pull_past_fini(&past);
    }
    base_buf_fini(&text);
}

static void any_changed_byte_is_damage_and_nothing_is_believed(void **state)
{
    struct base_buf text = { 0 };
    write_one(*state, &text);
    for (size_t i = 0; i + 1 < text.n; i++) {
        struct pull_past past;
        text.at[i] ^= 1;
        assert_int_equal(read_back(text.at, text.n, &identity, &past), PULL_PAST_DAMAGED);
        assert_int_equal(past.chunks.n + past.done.n, 0);
        pull_past_fini(&past);
        text.at[i] ^= 1;
    }
    base_buf_fini(&text);
}

static void another_version_or_plan_is_another_model_and_another_boot_is_remembered(void **state)
{
    struct base_buf text = { 0 };
    struct pull_past past;
    write_one(*state, &text);
    struct pull_identity other = identity;
    other.version = "v2";
    assert_int_equal(read_back(text.at, text.n, &other, &past), PULL_PAST_OTHER);
    pull_past_fini(&past);
    other = identity;
    other.mark[0] = '9';
    assert_int_equal(read_back(text.at, text.n, &other, &past), PULL_PAST_OTHER);
    pull_past_fini(&past);
    other = identity;
    other.boot[5] = '2';
    assert_int_equal(read_back(text.at, text.n, &other, &past), PULL_PAST_SAME);
    assert_false(past.chunks.at[0].this_boot);
    pull_past_fini(&past);
    base_buf_fini(&text);
}

static void numbers_outside_the_plan_are_damage(void **state)
{
    struct base_buf text = { 0 };
    struct pull_past past;
    write_one(*state, &text);
    assert_int_equal(pull_past_read((const char *)text.at, text.n, &identity, 4, 2, &past, NULL), 0);
    assert_int_equal(past.state, PULL_PAST_DAMAGED);
    pull_past_fini(&past);
    base_buf_fini(&text);
}

static void the_lock_is_exclusive_and_goes_with_the_journal(void **state)
{
    struct place *place = *state;
    struct pull_journal one, two;
    struct penstock_error error;
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &one, &error), 0);
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &two, &error), PENSTOCK_ELIMIT);
    pull_journal_close(place->dir_fd, &one, true);
    assert_int_equal(faccessat(place->dir_fd, ".penstock-pull", F_OK, 0), -1);
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &two, &error), 0);
    pull_journal_close(place->dir_fd, &two, true);
}

static void a_link_or_a_second_name_is_not_taken_for_a_journal(void **state)
{
    struct place *place = *state;
    struct pull_journal journal;
    assert_int_equal(symlinkat("/dev/null", place->dir_fd, ".penstock-pull"), 0);
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &journal, NULL), PENSTOCK_EINVAL);
    unlinkat(place->dir_fd, ".penstock-pull", 0);
    close(openat(place->dir_fd, "precious", O_CREAT | O_WRONLY, 0600));
    assert_int_equal(linkat(place->dir_fd, "precious", place->dir_fd, ".penstock-pull", 0), 0);
    assert_int_equal(pull_journal_open(place->dir_fd, place->path, &journal, NULL), PENSTOCK_EINVAL);
    unlinkat(place->dir_fd, "precious", 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_read_back_in_order),
        TEST(a_journal_cut_anywhere_keeps_its_whole_lines),
        TEST(any_changed_byte_is_damage_and_nothing_is_believed),
        TEST(another_version_or_plan_is_another_model_and_another_boot_is_remembered),
        TEST(numbers_outside_the_plan_are_damage),
        TEST(the_lock_is_exclusive_and_goes_with_the_journal),
        TEST(a_link_or_a_second_name_is_not_taken_for_a_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
