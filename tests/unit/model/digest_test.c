#include "directory.h"

#include <xxhash.h>

#include "model/digest.h"
#include "model/digest_format.h"

static uint8_t scratch[64 << 10];

static void stage(struct model_staged *staged, struct model_digests *digests)
{
    struct penstock_error error = { 0 };
    if (model_stage(test_directory, NULL, staged, &error) != 0 || model_digests_init(staged, digests, &error) != 0)
        fail_msg("%s", error.message);
}

static void drop(struct model_staged *staged, struct model_digests *digests)
{
    model_digests_fini(digests);
    model_staged_fini(staged);
}

static void compute_all(const struct model_staged *staged, struct model_digests *digests)
{
    for (size_t i = 0; i < digests->n; i++)
        while (digests->files[i].known < digests->files[i].chunks)
            assert_int_equal(model_digests_next(staged, digests, i, scratch, sizeof scratch, NULL), 0);
}

/* 17 MiB: one chunk and a piece of another. */
static void make_model(void)
{
    test_safetensors("model.safetensors",
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[17825792],\"data_offsets\":[0,17825792]}}", 17825792);
    test_text_file("config.json", "{}");
    test_text_file("empty", "");
    assert_int_equal(setenv("XDG_CACHE_HOME", test_path("cache"), 1), 0);
}

static void each_chunk_has_the_digest_of_its_bytes(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests;
    stage(&staged, &digests);
    assert_int_equal(digests.n, 3);
    assert_int_equal(digests.files[0].chunks, 2);
    assert_int_equal(digests.files[2].chunks, 0);
    compute_all(&staged, &digests);
    assert_int_equal(model_digests_next(&staged, &digests, 0, scratch, sizeof scratch, NULL), PENSTOCK_EINVAL);
    XXH128_canonical_t want;
    XXH128_canonicalFromHash(&want, XXH3_128bits("{}", 2));
    assert_memory_equal(digests.files[1].at[0], want.digest, 16);
    drop(&staged, &digests);
}

static void a_file_cut_short_is_corrupt(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests;
    struct penstock_error error = { 0 };
    stage(&staged, &digests);
    assert_int_equal(truncate(test_path("model.safetensors"), 100), 0);
    assert_int_equal(model_digests_next(&staged, &digests, 0, scratch, sizeof scratch, &error), PENSTOCK_ECORRUPT);
    assert_string_equal(error.message, "ends at byte 100");
    assert_int_equal(digests.files[0].known, 0);
    drop(&staged, &digests);
}

static void digests_are_kept_beside_the_model_until_a_file_changes(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests, again;
    char where[PATH_MAX];
    stage(&staged, &digests);
    assert_int_equal(model_digests_load(&staged, &digests), 0);
    compute_all(&staged, &digests);
    assert_int_equal(model_digests_save(&staged, &digests, where, sizeof where, NULL), 0);
    assert_string_equal(where, test_path(".penstock-digests"));
    assert_int_equal(model_staged_changed(&staged, NULL), MODEL_SAME);
    assert_int_equal(model_digests_init(&staged, &again, NULL), 0);
    assert_int_equal(model_digests_load(&staged, &again), 3);
    for (size_t i = 0; i < 2; i++)
        assert_memory_equal(again.files[i].at, digests.files[i].at, 16 * digests.files[i].chunks);
    model_digests_fini(&again);
    drop(&staged, &digests);

    test_text_file("new", "[]");
    assert_int_equal(rename(test_path("new"), test_path("config.json")), 0);
    stage(&staged, &digests);
    assert_int_equal(model_digests_load(&staged, &digests), 2);
    assert_int_equal(digests.files[0].known, 2);
    assert_int_equal(digests.files[1].known, 0);
    drop(&staged, &digests);
}

static void a_link_in_the_caches_place_is_replaced_and_never_followed(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests;
    stage(&staged, &digests);
    compute_all(&staged, &digests);
    test_text_file("victim.pt", "precious");
    assert_int_equal(symlink("victim.pt", test_path(".penstock-digests")), 0);
    assert_int_equal(model_digests_save(&staged, &digests, NULL, 0, NULL), 0);
    struct stat st;
    assert_int_equal(lstat(test_path(".penstock-digests"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(stat(test_path("victim.pt"), &st), 0);
    assert_int_equal(st.st_size, 8);
    assert_int_equal(rename(test_path(".penstock-digests"), test_path("moved.pt")), 0);
    assert_int_equal(symlink("moved.pt", test_path(".penstock-digests")), 0);
    struct model_digests again;
    assert_int_equal(model_digests_init(&staged, &again, NULL), 0);
    assert_int_equal(model_digests_load(&staged, &again), 0);
    model_digests_fini(&again);
    drop(&staged, &digests);
}

static void a_cache_that_cannot_lie_beside_goes_to_the_users_folder(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests, again;
    char where[PATH_MAX];
    stage(&staged, &digests);
    compute_all(&staged, &digests);
    assert_int_equal(mkdir(test_path(".penstock-digests"), 0700), 0); /* even root cannot rename over it */
    assert_int_equal(model_digests_save(&staged, &digests, where, sizeof where, NULL), 0);
    assert_memory_equal(where, test_path("cache/penstock/"), strlen(test_path("cache/penstock/")));
    assert_int_equal(model_digests_init(&staged, &again, NULL), 0);
    assert_int_equal(model_digests_load(&staged, &again), 3);
    model_digests_fini(&again);
    drop(&staged, &digests);
}

static void a_cache_damaged_anywhere_is_no_cache(void **state)
{
    (void)state;
    make_model();
    struct model_staged staged;
    struct model_digests digests, again;
    struct base_buf bytes = { 0 };
    stage(&staged, &digests);
    compute_all(&staged, &digests);
    assert_int_equal(model_digests_encode(&staged, &digests, &bytes, NULL), 0);
    assert_int_equal(model_digests_init(&staged, &again, NULL), 0);
    for (size_t i = 0; i < bytes.n; i++) {
        bytes.at[i] ^= 1;
        assert_int_equal(model_digests_decode(test_against_a_guard_page(bytes.at, bytes.n), bytes.n, &staged, &again),
                         0);
        bytes.at[i] ^= 1;
        assert_int_equal(model_digests_decode(test_against_a_guard_page(bytes.at, i), i, &staged, &again), 0);
    }
    assert_int_equal(model_digests_decode(bytes.at, bytes.n, &staged, &again), 3);
    base_buf_fini(&bytes);
    model_digests_fini(&again);
    drop(&staged, &digests);
}

int main(void)
{
#define in_a_directory(f) cmocka_unit_test_setup_teardown(f, test_directory_setup, test_directory_teardown)
    const struct CMUnitTest tests[] = {
        in_a_directory(each_chunk_has_the_digest_of_its_bytes),
        in_a_directory(a_file_cut_short_is_corrupt),
        in_a_directory(digests_are_kept_beside_the_model_until_a_file_changes),
        in_a_directory(a_link_in_the_caches_place_is_replaced_and_never_followed),
        in_a_directory(a_cache_that_cannot_lie_beside_goes_to_the_users_folder),
        in_a_directory(a_cache_damaged_anywhere_is_no_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
