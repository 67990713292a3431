#include "../test.h"

#include "model/names.h"

static bool plain(const char *name)
{
    return model_name_plain(name, strlen(name));
}

static bool relative(const char *name)
{
    return model_name_relative(name, strlen(name));
}

static void a_plain_name_is_one_component(void **state)
{
    (void)state;
    static const char *const good[] = { "a", "model.safetensors", ".hidden", "...", "..a", "a b", "\xc3\xa9", "\\" };
    static const char *const bad[] = { "", ".", "..", "/", "a/b", "a/", "/a", "a\nb", "\x7f", "\xff", "\xc3" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(plain(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(plain(bad[i]));
    assert_false(model_name_plain("a\0b", 3));
}

static void a_component_is_as_long_as_a_file_system_takes(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'a', sizeof name);
    assert_true(model_name_plain(name, 255));
    assert_false(model_name_plain(name, 256));
}

static void a_relative_name_has_four_plain_components_at_most(void **state)
{
    (void)state;
    static const char *const good[] = { "a", "a/b", "1_Pooling/config.json", "a/b/c/d" };
    static const char *const bad[] = { "",     "/a",     "a/",        "a//b",     "a/./b", "../a",
                                       "a/..", "a/../b", "a/b/c/d/e", "a/b/c/d/", "a/\x01" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(relative(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(relative(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_name_is_one_component),
        cmocka_unit_test(a_component_is_as_long_as_a_file_system_takes),
        cmocka_unit_test(a_relative_name_has_four_plain_components_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
