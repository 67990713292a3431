#include "directory.h"

#include "model/identity.h"

static void each_part_of_an_identity_counts(void **state)
{
    (void)state;
    const struct stat st = { .st_dev = 1, .st_ino = 2, .st_size = 3, .st_mtim = { 4, 5 }, .st_ctim = { 6, 7 } };
    const struct model_identity id = model_identity_of(&st);
    assert_true(model_identity_same(&id, &id));
    struct stat others[] = { st, st, st, st, st, st, st };
    others[0].st_dev++;
    others[1].st_ino++;
    others[2].st_size++;
    others[3].st_mtim.tv_sec++;
    others[4].st_mtim.tv_nsec++;
    others[5].st_ctim.tv_sec++;
    others[6].st_ctim.tv_nsec++;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct model_identity other = model_identity_of(&others[i]);
        assert_false(model_identity_same(&id, &other));
    }
}

static void a_version_changes_with_all_but_the_device(void **state)
{
    (void)state;
    struct model_opened opened = { .fd = -1, .identity = { 1, 2, 3, 4, 5 } };
    struct penstock_file shard = { .name = "a" };
    struct model_staged staged = { .opened = { &opened, 1, 1 }, .manifest = { .shards = { &shard, 1, 1 } } };
    struct penstock_error error;
    char first[MODEL_VERSION_BYTES], version[MODEL_VERSION_BYTES];
    assert_int_equal(model_version_make(&staged, first, &error), 0);
    assert_int_equal(strlen(first), 32);
    opened.identity.device++;
    assert_int_equal(model_version_make(&staged, version, &error), 0);
    assert_string_equal(version, first);
    for (int part = 0; part < 5; part++) {
        opened.identity =
            (struct model_identity){ 1, 2 + (part == 0), 3 + (part == 1), 4 + (part == 2), 5 + (part == 3) };
        shard.name = part == 4 ? "b" : "a";
        assert_int_equal(model_version_make(&staged, version, &error), 0);
        assert_string_not_equal(version, first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_of_an_identity_counts),
        cmocka_unit_test(a_version_changes_with_all_but_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
