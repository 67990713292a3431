#include "fake_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char sysfs[] = "/tmp/penstock-sysfs-XXXXXX";

/* A file below fake0/ports/1; folders as needed. */
static void write_fact(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/fake0/ports/1/%s", sysfs, name);
    for (char *slash = path + sizeof sysfs; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    fake->sysfs = sysfs;
}

static struct verbs_ports ports;

static const struct verbs_port *the_port(void)
{
    verbs_ports_fini(&ports);
    if (verbs_ports(world, &ports, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(ports.n, 1);
    return &ports.at[0];
}

static int teardown(void **state)
{
    verbs_ports_fini(&ports);
    return fake_world_teardown(state);
}

static void a_port_is_what_its_device_says(void **state)
{
    (void)state;
    const struct verbs_port *port = the_port();
    assert_string_equal(port->device, "fake0");
    assert_int_equal(port->port, 1);
    assert_true(port->active);
    assert_true(port->ethernet);
    assert_string_equal(port->state, "ACTIVE");
    assert_int_equal(port->mtu, 5);
    assert_int_equal(port->reads_out, 16);
    assert_int_equal(port->reads_in, 16);
    assert_int_equal(port->work_requests_max, 4096);
    assert_int_equal(port->sges_max, 16); /* a READ's */
    assert_int_equal(port->mr_bytes_max, UINT64_C(1) << 40);
    assert_int_equal(port->message_bytes_max, 1u << 30);
}

static void only_gids_in_use_are_there_with_index_and_type(void **state)
{
    (void)state;
    const struct verbs_port *port = the_port();
    assert_int_equal(port->n_gids, 3);
    assert_int_equal(port->gids[0].index, 0);
    assert_int_equal(port->gids[0].type, VERBS_GID_ROCE_V2);
    assert_int_equal(port->gids[1].index, 1);
    assert_int_equal(port->gids[1].type, VERBS_GID_ROCE_V1);
    assert_int_equal(port->gids[2].index, 3);
    assert_int_equal(port->gids[2].type, VERBS_GID_ROCE_V2);
    assert_memory_equal(port->gids[2].raw, fake->gids[3].raw, 16);
}

static void without_a_gid_table_sysfs_tells_their_types(void **state)
{
    (void)state;
    write_fact("gid_attrs/types/0", "IB/RoCE v1\n");
    write_fact("gid_attrs/types/1", "RoCE v2\n");
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ((struct verbs_ib_world *)(void *)world)->api.query_gid_table = NULL;
        const struct verbs_port *port = the_port();
        assert_int_equal(port->n_gids, 3);
        assert_int_equal(port->gids[0].type, VERBS_GID_ROCE_V1);
        assert_int_equal(port->gids[1].type, VERBS_GID_ROCE_V2);
        assert_int_equal(port->gids[2].index, 3);
        assert_int_equal(port->gids[2].type, VERBS_GID_ROCE_V1); /* no file */
    }
    fake->port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    assert_int_equal(the_port()->gids[0].type, VERBS_GID_IB);
}

static void a_gid_table_that_fails_is_read_one_by_one(void **state)
{
    (void)state;
    write_fact("gid_attrs/types/0", "RoCE v2\n");
    fake_fail("_ibv_query_gid_table", EOPNOTSUPP, FAKE_NEGATIVE);
    assert_int_equal(the_port()->n_gids, 3);
    assert_int_equal(the_port()->gids[0].type, VERBS_GID_ROCE_V2);
}

static void speed_is_a_lane_times_the_lanes(void **state)
{
    (void)state;
    static const struct {
        uint8_t speed, width;
        double gbps;
    } cases[] = { { 1, 1, 2.5 },   { 4, 2, 40 },    { 16, 2, 56 },   { 32, 2, 100 }, { 64, 2, 200 },
                  { 128, 2, 400 }, { 128, 4, 800 }, { 64, 16, 100 }, { 0, 2, 0 },    { 64, 0, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake->port.active_speed = cases[i].speed;
        fake->port.active_width = cases[i].width;
        assert_true(the_port()->gbps == cases[i].gbps);
    }
}

static void the_kernels_own_rate_knows_newer_speeds(void **state)
{
    (void)state;
    fake->port.active_speed = 128;
    fake->port.active_width = 2;
    write_fact("rate", "800 Gb/sec (4X XDR)\n");
    assert_true(the_port()->gbps == 800);
    write_fact("rate", "2.5 Gb/sec (1X SDR)\n");
    assert_true(the_port()->gbps == 2.5);
    write_fact("rate", "fast\n");
    assert_true(the_port()->gbps == 400);
}

static void a_port_that_is_not_active_says_so(void **state)
{
    (void)state;
    fake->port.state = IBV_PORT_DOWN;
    assert_false(the_port()->active);
    assert_string_equal(the_port()->state, "DOWN");
    fake->port.state = (enum ibv_port_state)77;
    assert_string_equal(the_port()->state, "unknown");
}

static void limits_that_do_not_fit_are_cut(void **state)
{
    (void)state;
    fake->attr.max_qp_rd_atom = 1000;
    fake->attr.max_qp_init_rd_atom = -1;
    fake->attr.max_sge_rd = 0; /* not said */
    const struct verbs_port *port = the_port();
    assert_int_equal(port->reads_in, 255);
    assert_int_equal(port->reads_out, 0);
    assert_int_equal(port->sges_max, 30);
}

static void old_contexts_are_asked_in_the_old_way(void **state)
{
    (void)state;
    fake->old_contexts = true;
    assert_int_equal(the_port()->mtu, 5);
    assert_true(the_port()->ethernet);
}

static void two_devices_with_two_ports_are_four(void **state)
{
    (void)state;
    fake->n_devices = 3;
    fake->iwarp = true; /* the third, which cannot speak the protocol's handshake */
    fake->attr.phys_port_cnt = 2;
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_int_equal(ports.n, 4);
    assert_string_equal(ports.at[2].device, "fake1");
    assert_int_equal(ports.at[3].port, 2);
    assert_int_equal(ports.at[3].n_gids, 3);
}

static void a_device_that_cannot_be_opened_is_left_out_and_named(void **state)
{
    (void)state;
    fake->n_devices = 2;
    fake_fail("ibv_open_device", EACCES, 0);
    fake->fail_device = "fake0";
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_int_equal(ports.n, 1);
    assert_string_equal(ports.at[0].device, "fake1");
    assert_int_equal(error.code, 0);
    assert_words("fake0: ibv_open_device");
}

static void a_device_that_libibverbs_does_not_list_is_named(void **state)
{
    (void)state;
    struct verbs_ib_places *places = &((struct verbs_ib_world *)(void *)world)->places;
    write_fact("rate", "800 Gb/sec (4X XDR)\n"); /* the kernel has fake0 */
    places->sysfs = sysfs;
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_string_equal(error.message, "");
    verbs_ports_fini(&ports);

    fake->n_devices = 0;
    places->nodes = "/nowhere";
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_int_equal(ports.n, 0);
    assert_string_equal(error.message,
                        "fake0: there is no /nowhere/uverbs* (in a container: --device=/dev/infiniband)");

    char nodes[256];
    snprintf(nodes, sizeof nodes, "%s/fake0/ports/1", sysfs);
    write_fact("uverbs0", "");
    places->nodes = nodes;
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_string_equal(error.message, "fake0: libibverbs has no driver for it (apt install ibverbs-providers)");
    places->nodes = "/nowhere";
}

static void what_cannot_be_looked_at_is_not_said_to_be_missing(void **state)
{
    (void)state;
    struct verbs_ib_places *places = &((struct verbs_ib_world *)(void *)world)->places;
    write_fact("rate", "800 Gb/sec (4X XDR)\n");
    fake->n_devices = 0;
    places->sysfs = sysfs;
    places->nodes = "/dev/null";
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_string_equal(error.message, "fake0: /dev/null: Not a directory");
    assert_int_equal(error.code, 0);

    places->sysfs = "/dev/null";
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_string_equal(error.message, "/dev/null: Not a directory");
    assert_int_equal(error.code, 0);
    places->nodes = "/nowhere";
    places->sysfs = "/nowhere";
}

static void when_none_can_be_opened_that_is_an_error(void **state)
{
    (void)state;
    static const char *const calls[] = { "ibv_open_device", "ibv_query_device", "ibv_query_port",
                                         "ibv_get_device_list" };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_fail(calls[i], EIO, FAKE_MINUS_ONE);
        assert_int_equal(verbs_ports(world, &ports, &error), PENSTOCK_ESYS);
        assert_words(calls[i]);
        assert_int_equal(ports.n, 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_world_setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_port_is_what_its_device_says),
        TEST(only_gids_in_use_are_there_with_index_and_type),
        TEST(without_a_gid_table_sysfs_tells_their_types),
        TEST(a_gid_table_that_fails_is_read_one_by_one),
        TEST(speed_is_a_lane_times_the_lanes),
        TEST(the_kernels_own_rate_knows_newer_speeds),
        TEST(a_port_that_is_not_active_says_so),
        TEST(limits_that_do_not_fit_are_cut),
        TEST(old_contexts_are_asked_in_the_old_way),
        TEST(two_devices_with_two_ports_are_four),
        TEST(a_device_that_cannot_be_opened_is_left_out_and_named),
        TEST(a_device_that_libibverbs_does_not_list_is_named),
        TEST(what_cannot_be_looked_at_is_not_said_to_be_missing),
        TEST(when_none_can_be_opened_that_is_an_error),
    };
    if (!mkdtemp(sysfs))
        return 2;
    int failed = fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", sysfs);
    return system(command) == 0 ? failed : 2;
}
