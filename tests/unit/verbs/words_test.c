#include "../test.h"

#include <infiniband/verbs.h>

#include "verbs/verbs.h"

static struct penstock_error error;

static int words_of(int status, enum verbs_opcode opcode)
{
    const struct verbs_completion c = { .status = status, .vendor_error = 0x81 };
    return verbs_completion_error(&c, opcode, &error);
}

static void a_failed_completion_says_what_and_what_it_means(void **state)
{
    (void)state;
    assert_int_equal(words_of(IBV_WC_RETRY_EXC_ERR, VERBS_READ), PENSTOCK_ETIMEOUT);
    assert_int_equal(error.wc_status, 12);
    assert_string_equal(error.message, "READ failed: transport retry counter exceeded (status 12, vendor error 0x81): "
                                       "the other side does not answer: it is gone, its link is down, or the path MTU "
                                       "or GID is wrong");
    assert_int_equal(words_of(IBV_WC_REM_ACCESS_ERR, VERBS_WRITE), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "WRITE failed: remote access error (status 10"));
}

static void every_status_has_words_and_costs_the_rail(void **state)
{
    (void)state;
    for (int status = 1; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
        assert_int_equal(penstock_error_class(words_of(status, VERBS_READ)), PENSTOCK_LOST_CONNECTION);
        assert_int_equal(error.wc_status, status);
        assert_null(strstr(error.message, "unknown status"));
    }
    assert_int_equal(VERBS_STATUS_FLUSHED, IBV_WC_WR_FLUSH_ERR);
}

static void a_status_of_tomorrow_is_an_error_too(void **state)
{
    (void)state;
    assert_int_equal(words_of(IBV_WC_TM_RNDV_INCOMPLETE + 1, VERBS_READ), PENSTOCK_ECLOSED);
    assert_non_null(strstr(error.message, "unknown status"));
    assert_int_equal(words_of(-1, VERBS_READ), PENSTOCK_ECLOSED);
    assert_true(words_of(0, VERBS_READ) < 0);
}

static void mtus_have_their_bytes(void **state)
{
    (void)state;
    assert_int_equal(verbs_mtu_bytes(IBV_MTU_256), 256);
    assert_int_equal(verbs_mtu_bytes(IBV_MTU_4096), 4096);
    assert_int_equal(verbs_mtu_bytes(0), 0);
    assert_int_equal(verbs_mtu_bytes(6), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_completion_says_what_and_what_it_means),
        cmocka_unit_test(every_status_has_words_and_costs_the_rail),
        cmocka_unit_test(a_status_of_tomorrow_is_an_error_too),
        cmocka_unit_test(mtus_have_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
