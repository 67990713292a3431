#include "fake_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void a_device_has_its_name_and_an_fd_that_never_blocks(void **state)
{
    (void)state;
    struct verbs_device *device = fake_device();
    assert_string_equal(device->name, "fake0");
    assert_true(fcntl(device->event_fd, F_GETFL) & O_NONBLOCK);
    verbs_device_close(device);
}

static void another_name_is_answered_with_those_there_are(void **state)
{
    (void)state;
    struct verbs_device *device;
    fake->n_devices = 2;
    assert_int_equal(verbs_device_open(world, "mlx5_7", &device, &error), PENSTOCK_ENOTFOUND);
    assert_words("no RDMA device mlx5_7 (there is fake0, fake1)");
    fake->n_devices = 0;
    assert_int_equal(verbs_device_open(world, "mlx5_7", &device, &error), PENSTOCK_ENOTFOUND);
    assert_words("there is none");
}

static void what_keeps_a_device_from_being_opened_is_said(void **state)
{
    (void)state;
    struct verbs_device *device;
    struct verbs_ib_places *places = &((struct verbs_ib_world *)(void *)world)->places;
    char nodes[] = "/tmp/penstock-nodes-XXXXXX", node[64];
    assert_non_null(mkdtemp(nodes));
    snprintf(node, sizeof node, "%s/uverbs0", nodes);
    places->nodes = nodes;

    fake_fail("ibv_open_device", EACCES, 0);
    assert_int_equal(verbs_device_open(world, "fake0", &device, &error), PENSTOCK_ESYS);
    assert_int_equal(error.sys_errno, ENOENT); /* the node's own, whatever libibverbs says */
    assert_words("--device=/dev/infiniband");

    FILE *f = fopen(node, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(verbs_device_open(world, "fake0", &device, &error), PENSTOCK_ESYS);
    assert_int_equal(error.sys_errno, EACCES);
    assert_words("fake0: ibv_open_device uses /tmp/penstock-nodes-");
    assert_words("/uverbs0, which this user must be able to read and write");
    assert_int_equal(unlink(node), 0);
    assert_int_equal(rmdir(nodes), 0);
    places->nodes = "/nowhere";
}

static void a_call_that_fails_on_the_way_is_named(void **state)
{
    (void)state;
    struct verbs_device *device;
    fake_fail("ibv_get_device_list", EMFILE, 0);
    assert_int_equal(verbs_device_open(world, "fake0", &device, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_get_device_list");
    fake_fail("ibv_query_device", EIO, FAKE_MINUS_ONE);
    assert_int_equal(verbs_device_open(world, "fake0", &device, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_query_device: Input/output error");
}

static void events_come_with_their_port_and_are_acknowledged_at_once(void **state)
{
    (void)state;
    static const struct {
        enum ibv_event_type type;
        enum verbs_event event;
        bool of_port;
    } cases[] = {
        { IBV_EVENT_PORT_ERR, VERBS_EVENT_PORT_DOWN, true }, { IBV_EVENT_PORT_ACTIVE, VERBS_EVENT_OTHER, true },
        { IBV_EVENT_GID_CHANGE, VERBS_EVENT_OTHER, true },   { IBV_EVENT_DEVICE_FATAL, VERBS_EVENT_DEVICE_GONE, false },
        { IBV_EVENT_QP_FATAL, VERBS_EVENT_OTHER, false },
    };
    struct verbs_device *device = fake_device();
    uint8_t port = 9;
    assert_int_equal(verbs_device_event(device, &port), VERBS_EVENT_NONE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake->async_events[0] = (struct ibv_async_event){ .event_type = cases[i].type, .element = { .port_num = 2 } };
        fake->n_async_events = 1;
        assert_int_equal(verbs_device_event(device, &port), cases[i].event);
        assert_int_equal(port, cases[i].of_port ? 2 : 0);
        assert_int_equal(fake->async_unacknowledged, 0);
    }
    verbs_device_close(device);
}

static void a_channel_that_breaks_means_that_the_device_is_gone(void **state)
{
    (void)state;
    struct verbs_device *device = fake_device();
    uint8_t port;
    fake_fail("ibv_get_async_event", EIO, FAKE_MINUS_ONE);
    assert_int_equal(verbs_device_event(device, &port), VERBS_EVENT_DEVICE_GONE);
    fake_fail("ibv_get_async_event", EIO, FAKE_MINUS_ONE); /* as it does from then on: said once */
    assert_int_equal(verbs_device_event(device, &port), VERBS_EVENT_NONE);
    verbs_device_close(device);

    device = fake_device();
    fake_fail("ibv_get_async_event", EINTR, FAKE_MINUS_ONE);
    assert_int_equal(verbs_device_event(device, &port), VERBS_EVENT_NONE);
    verbs_device_close(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(a_device_has_its_name_and_an_fd_that_never_blocks),
        FAKE_TEST(another_name_is_answered_with_those_there_are),
        FAKE_TEST(what_keeps_a_device_from_being_opened_is_said),
        FAKE_TEST(a_call_that_fails_on_the_way_is_named),
        FAKE_TEST(events_come_with_their_port_and_are_acknowledged_at_once),
        FAKE_TEST(a_channel_that_breaks_means_that_the_device_is_gone),
    };
    return fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
