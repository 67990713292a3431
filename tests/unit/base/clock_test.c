#include "../test.h"

#include <limits.h>

#include "base/clock.h"
#include "base/rng.h"

static void never_is_never(void **state)
{
    (void)state;
    assert_int_equal(base_poll_ms(BASE_NEVER), -1);
    assert_true(base_deadline_ns(BASE_NEVER) == BASE_NEVER);
    assert_true(base_deadline_ns(INT64_MAX - 1) == BASE_NEVER);
}

static void a_deadline_counts_down_to_0(void **state)
{
    (void)state;
    assert_int_equal(base_poll_ms(base_now_ns() - 1), 0);
    assert_int_equal(base_poll_ms(base_now_ns() + BASE_NEVER / 4), INT_MAX);
    int ms = base_poll_ms(base_deadline_ns(BASE_SECOND_NS * 1000));
    assert_true(ms > 0 && ms <= 1000000);
}

static void random_bytes_differ(void **state)
{
    (void)state;
    uint8_t a[32] = { 0 }, b[32] = { 0 };
    assert_int_equal(base_random(a, sizeof a), 0);
    assert_int_equal(base_random(b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_is_never),
        cmocka_unit_test(a_deadline_counts_down_to_0),
        cmocka_unit_test(random_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
