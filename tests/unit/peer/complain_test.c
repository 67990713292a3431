#include "../test.h"

#include "peer/complain.h"

static void a_window_has_so_many_lines_and_tells_how_many_it_dropped(void **state)
{
    (void)state;
    struct peer_complaints c;
    unsigned dropped;
    int64_t now_ns = INT64_C(5000000000);
    peer_complaints_init(&c);
    for (int i = 0; i < PEER_COMPLAINTS_MAX; i++) {
        assert_true(peer_complaints_allow(&c, now_ns + i, &dropped));
        assert_int_equal(dropped, 0);
    }
    for (int i = 0; i < 7; i++)
        assert_false(peer_complaints_allow(&c, now_ns + PEER_COMPLAINTS_WINDOW_NS - 1, &dropped));
    assert_true(peer_complaints_allow(&c, now_ns + PEER_COMPLAINTS_WINDOW_NS, &dropped));
    assert_int_equal(dropped, 7);
    assert_true(peer_complaints_allow(&c, now_ns + PEER_COMPLAINTS_WINDOW_NS, &dropped));
    assert_int_equal(dropped, 0);
    peer_complaints_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_has_so_many_lines_and_tells_how_many_it_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
