#include "../test.h"

#include "cli/pull_plan.h"
#include "fake_catalogue.h"

#define CHUNK PENSTOCK_DIGEST_CHUNK_BYTES

static void names_that_lead_anywhere_else_have_a_fault(void **state)
{
    (void)state;
    static const char *const bad[] = { "",    "/a",     "a/",   "a//b",           ".",   "..",
                                       "a/.", "a/../b", "../a", ".penstock-pull", "x\n", "a/.penstock-pull.7",
                                       "\x7f" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(pull_name_fault(bad[i], false));
    static const char *const good[] = { "a", "a/b/c", "..a", "a..", ".hidden", "...", "é.json" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_null(pull_name_fault(good[i], false));
    assert_non_null(pull_name_fault("a/b", true));
}

static int plan_of(const struct penstock_file *files, size_t shards, size_t others, struct pull_plan *plan)
{
    struct penstock_catalogue catalogue = { .files = files, .n_shards = shards, .n_files = others };
    struct penstock_error error;
    return pull_plan_model(&catalogue, plan, &error);
}

static void of_two_files_that_cannot_both_exist_the_later_is_left_out(void **state)
{
    (void)state;
    static const struct penstock_file files[] = {
        { "s", 1 }, { "s/below", 2 }, { "d/e", 3 }, { "d", 4 }, { "d/e/f", 5 }, { "d/e", 6 }, { NULL, 7 }, { "t", 8 },
    };
    struct pull_plan plan;
    assert_int_equal(plan_of(files, 1, 7, &plan), 0);
    assert_int_equal(plan.files.n, 3);
    assert_string_equal(plan.files.at[0].name, "s");
    assert_string_equal(plan.files.at[1].name, "d/e");
    assert_int_equal(plan.files.at[1].source, 2);
    assert_string_equal(plan.files.at[2].name, "t");
    assert_int_equal(plan.files.at[2].source, 7);
    assert_int_equal(plan.skipped, 4);
    pull_plan_fini(&plan);
}

static void a_shard_that_is_not_acceptable_is_an_error(void **state)
{
    (void)state;
    static const struct penstock_file twice[] = { { "s", 1 }, { "s", 1 } };
    static const struct penstock_file out[] = { { "../s", 1 } };
    static const struct penstock_file huge[] = { { "s", UINT64_MAX } };
    struct pull_plan plan;
    assert_int_equal(plan_of(twice, 2, 0, &plan), PENSTOCK_EPROTO);
    assert_int_equal(plan_of(out, 1, 0, &plan), PENSTOCK_EPROTO);
    assert_int_equal(plan_of(huge, 1, 0, &plan), PENSTOCK_EPROTO);
}

static void chunks_are_numbered_through_and_the_last_of_a_file_is_shorter(void **state)
{
    (void)state;
    static const struct penstock_file files[] = {
        { "none", 0 }, { "a", 2 * CHUNK }, { "zero", 0 }, { "b", CHUNK + 1 }
    };
    struct pull_plan plan;
    assert_int_equal(plan_of(files, 4, 0, &plan), 0);
    assert_int_equal(plan.chunks, 4);
    static const struct pull_chunk_place want[] = {
        { 1, 0, CHUNK }, { 1, CHUNK, CHUNK }, { 3, 0, CHUNK }, { 3, CHUNK, 1 }
    };
    for (size_t i = 0; i < 4; i++) {
        struct pull_chunk_place place = pull_plan_place(&plan, i);
        assert_int_equal(place.file, want[i].file);
        assert_int_equal(place.offset_bytes, want[i].offset_bytes);
        assert_int_equal(place.len_bytes, want[i].len_bytes);
    }
    char mark[PULL_MARK_MAX], other[PULL_MARK_MAX];
    pull_plan_mark(&plan, mark);
    plan.files.at[3].len_bytes--;
    pull_plan_mark(&plan, other);
    assert_string_not_equal(mark, other);
    pull_plan_fini(&plan);
}

static const struct penstock_tensor tensors[] = {
    { .name = "b.2", .dtype = "U8", .len_bytes = 5, .offset_bytes = 107, .shard = 1 },
    { .name = "b.1", .dtype = "U8", .len_bytes = 7, .offset_bytes = 100, .shard = 1 },
    { .name = "a\"", .dtype = "F32", .len_bytes = 4, .offset_bytes = 900, .shard = 0 },
    { .name = "empty", .dtype = "F32", .offset_bytes = 4, .shard = 1 },
    { .name = "b.9", .dtype = "U8", .len_bytes = 3, .offset_bytes = 300, .shard = 1 },
};

static void chosen_tensors_are_packed_in_the_peers_order_and_neighbours_joined(void **state)
{
    (void)state;
    struct penstock_catalogue catalogue = { .tensors = tensors, .n_tensors = 5 };
    static const char *const globs[] = { "b.[12]", "a*", "empty" };
    struct pull_plan plan;
    assert_int_equal(pull_plan_tensors(&catalogue, globs, 3, "out.safetensors", &plan, NULL), 0);
    static const char json[] = "{\"a\\\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                               "\"empty\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,4]},"
                               "\"b.1\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,11]},"
                               "\"b.2\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[11,16]}}";
    assert_int_equal(plan.head.n % 8, 0);
    assert_int_equal(plan.head.at[0] | plan.head.at[1] << 8, plan.head.n - 8);
    assert_memory_equal(plan.head.at + 8, json, sizeof json - 1);
    assert_int_equal(plan.runs.n, 2);
    assert_int_equal(plan.files.at[0].len_bytes, plan.head.n + 16);
    assert_int_equal(plan.bytes, 16);

    struct penstock_range ranges[4];
    size_t n;
    assert_int_equal(pull_plan_ranges(&plan, 0, 2, 9, 1000, ranges, 4, &n), 9);
    assert_int_equal(n, 2);
    assert_int_equal(ranges[0].offset_bytes, 902);
    assert_int_equal(ranges[0].len_bytes, 2);
    assert_int_equal(ranges[0].dst_bytes, 1000);
    assert_int_equal(ranges[1].offset_bytes, 100);
    assert_int_equal(ranges[1].len_bytes, 7);
    assert_int_equal(ranges[1].dst_bytes, 1002);
    assert_int_equal(ranges[1].file, 1);
    assert_int_equal(pull_plan_ranges(&plan, 0, 2, 9, 0, ranges, 1, &n), 2);
    pull_plan_fini(&plan);
}

static void no_match_is_not_found(void **state)
{
    (void)state;
    struct penstock_catalogue catalogue = { .tensors = tensors, .n_tensors = 5 };
    static const char *const globs[] = { "c.*" };
    struct pull_plan plan;
    struct penstock_error error;
    assert_int_equal(pull_plan_tensors(&catalogue, globs, 1, "x", &plan, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "c.*"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_lead_anywhere_else_have_a_fault),
        cmocka_unit_test(of_two_files_that_cannot_both_exist_the_later_is_left_out),
        cmocka_unit_test(a_shard_that_is_not_acceptable_is_an_error),
        cmocka_unit_test(chunks_are_numbered_through_and_the_last_of_a_file_is_shorter),
        cmocka_unit_test(chosen_tensors_are_packed_in_the_peers_order_and_neighbours_joined),
        cmocka_unit_test(no_match_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
