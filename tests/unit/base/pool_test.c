#include "../test.h"

#include "base/pool.h"

static void what_was_put_in_stays_where_it_was(void **state)
{
    (void)state;
    struct base_pool pool = { 0 };
    char *strings[5000];
    for (size_t i = 0; i < 5000; i++) {
        char text[8] = { (char)('a' + i % 26), (char)('a' + i / 26 % 26), (char)('a' + i / 676) };
        strings[i] = base_pool_string(&pool, text, 3);
        uint64_t *number = base_pool_alloc(&pool, sizeof *number);
        assert_non_null(number);
        assert_int_equal((uintptr_t)number % 8, 0);
        *number = i;
    }
    for (size_t i = 0; i < 5000; i++) {
        assert_int_equal(strings[i][0], 'a' + i % 26);
        assert_int_equal(strings[i][2], 'a' + i / 676);
        assert_int_equal(strings[i][3], 0);
    }
    base_pool_fini(&pool);
    assert_null(pool.newest);
}

static void a_size_that_overflows_is_refused(void **state)
{
    (void)state;
    struct base_pool pool = { 0 };
    assert_false(base_pool_reserve(&pool, SIZE_MAX));
    assert_null(base_pool_alloc(&pool, SIZE_MAX - 8));
    assert_null(base_pool_string(&pool, "", SIZE_MAX));
    assert_true(base_pool_reserve(&pool, 9 << 20));
    char *at = base_pool_alloc(&pool, 9 << 20);
    memset(at, 1, 9 << 20);
    base_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_in_stays_where_it_was),
        cmocka_unit_test(a_size_that_overflows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
