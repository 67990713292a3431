#include "../test.h"

#include "base/checked.h"

static void sums_and_products_say_when_they_do_not_fit(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(base_add_u64(UINT64_MAX - 1, 1, &n) && n == UINT64_MAX);
    assert_false(base_add_u64(UINT64_MAX, 1, &n));
    assert_true(base_mul_u64(UINT64_C(1) << 32, 3, &n) && n == UINT64_C(3) << 32);
    assert_false(base_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &n));
}

static void a_range_is_inside_or_it_is_not(void **state)
{
    (void)state;
    assert_true(base_range_inside(0, 10, 10));
    assert_true(base_range_inside(10, 0, 10));
    assert_false(base_range_inside(1, 10, 10));
    assert_false(base_range_inside(11, 0, 10));
    assert_false(base_range_inside(UINT64_MAX, 2, 10));
    assert_false(base_range_inside(2, UINT64_MAX, 10));
}

static void rounding_up_keeps_multiples(void **state)
{
    (void)state;
    assert_int_equal(base_round_up_u64(0, 4096), 0);
    assert_int_equal(base_round_up_u64(1, 4096), 4096);
    assert_int_equal(base_round_up_u64(4096, 4096), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_say_when_they_do_not_fit),
        cmocka_unit_test(a_range_is_inside_or_it_is_not),
        cmocka_unit_test(rounding_up_keeps_multiples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
