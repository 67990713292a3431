#include "fake_world.h"

#include <errno.h>
#include <fcntl.h>

static struct verbs_device *device;
static struct verbs_cq *cq;

static int setup(void **state)
{
    int failed = fake_world_setup(state);
    if (failed)
        return failed;
    device = fake_device();
    return verbs_cq_new(device, 100, &cq, &error);
}

static int teardown(void **state)
{
    verbs_cq_free(cq);
    verbs_device_close(device);
    return fake_world_teardown(state);
}

static void its_fd_never_blocks(void **state)
{
    (void)state;
    assert_true(fcntl(cq->fd, F_GETFL) & O_NONBLOCK);
}

static void arming_takes_the_events_first_and_asks_for_any_completion(void **state)
{
    (void)state;
    fake->cq_events = 3;
    assert_int_equal(verbs_cq_arm(cq, &error), 0);
    assert_int_equal(fake->cq_events, 0);
    assert_int_equal(fake->notified, 1);
}

static void events_are_acknowledged_in_batches_and_the_rest_before_the_end(void **state)
{
    (void)state;
    fake->cq_events = 3;
    assert_int_equal(verbs_cq_arm(cq, &error), 0);
    assert_int_equal(fake->unacknowledged, 3);
    fake->cq_events = 100;
    assert_int_equal(verbs_cq_arm(cq, &error), 0);
    assert_int_equal(fake->unacknowledged, 0);
    fake->cq_events = 2;
    assert_int_equal(verbs_cq_arm(cq, &error), 0);
    assert_int_equal(fake->unacknowledged, 2); /* the fake aborts where a CQ is destroyed with some left */
}

static void a_channel_that_breaks_is_an_error(void **state)
{
    (void)state;
    fake_fail("ibv_get_cq_event", EIO, FAKE_MINUS_ONE);
    assert_int_equal(verbs_cq_arm(cq, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_get_cq_event: Input/output error");
    static const enum fake_failure ways[] = { FAKE_ERRNO_RETURNED, FAKE_MINUS_ONE, FAKE_NEGATIVE };
    for (size_t i = 0; i < 3; i++) {
        fake_fail("ibv_req_notify_cq", ENODEV, ways[i]);
        assert_int_equal(verbs_cq_arm(cq, &error), PENSTOCK_ESYS);
        assert_words("fake0: ibv_req_notify_cq: No such device");
    }
}

static void completions_come_with_their_context_until_there_are_no_more(void **state)
{
    (void)state;
    struct verbs_completion got[FAKE_WORK_MAX];
    for (int i = 0; i < 50; i++)
        fake->completions[i] = (struct ibv_wc){ .wr_id = (uint64_t)i + 1 };
    fake->completions[49].status = IBV_WC_REM_ACCESS_ERR;
    fake->completions[49].vendor_err = 0x81;
    fake->n_completions = 50;
    assert_int_equal(verbs_cq_poll(cq, got, 10, &error), 10);
    assert_int_equal(verbs_cq_poll(cq, got + 10, FAKE_WORK_MAX - 10, &error), 40); /* more than one batch */
    assert_int_equal(verbs_cq_poll(cq, got, 1, &error), 0);
    assert_int_equal((uintptr_t)got[0].context, 1);
    assert_int_equal(got[48].status, 0);
    assert_int_equal((uintptr_t)got[49].context, 50);
    assert_int_equal(got[49].status, IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(got[49].vendor_error, 0x81);
}

static void what_came_before_a_broken_poll_is_not_lost(void **state)
{
    (void)state;
    struct verbs_completion got[FAKE_WORK_MAX];
    fake->n_completions = 32;
    fake_fail("ibv_poll_cq", 0, 0);
    fake->fail_after = 1;
    assert_int_equal(verbs_cq_poll(cq, got, FAKE_WORK_MAX, &error), 32);
    assert_int_equal(verbs_cq_poll(cq, got, FAKE_WORK_MAX, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_poll_cq returned -2");
}

static void a_queue_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    struct verbs_cq *another;
    fake_fail("ibv_create_comp_channel", EMFILE, 0);
    assert_int_equal(verbs_cq_new(device, 1, &another, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_create_comp_channel: Too many open files; raise the limit on open files (ulimit -n)");
    fake_fail("ibv_create_cq", EINVAL, 0);
    assert_int_equal(verbs_cq_new(device, 100000, &another, &error), PENSTOCK_ESYS);
    assert_words("ibv_create_cq of 100000 entries (the device has 5000)");
    fake_fail("ibv_create_cq", ENOMEM, 0);
    assert_int_equal(verbs_cq_new(device, 1, &another, &error), PENSTOCK_ENOMEM);
    assert_words("fake0: the memlock limit (ulimit -l) is ");
    assert_int_equal(fake->channels, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(its_fd_never_blocks),
        TEST(arming_takes_the_events_first_and_asks_for_any_completion),
        TEST(events_are_acknowledged_in_batches_and_the_rest_before_the_end),
        TEST(a_channel_that_breaks_is_an_error),
        TEST(completions_come_with_their_context_until_there_are_no_more),
        TEST(what_came_before_a_broken_poll_is_not_lost),
        TEST(a_queue_that_cannot_be_made_leaves_nothing),
    };
    return fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
