#include "../test.h"

#include <stdio.h>

#include "rail/ports.h"
#include "verbs/sim/sim.h"

static struct sim_fabric *fabric;
static struct verbs_world *host;

static void begin(void)
{
    fabric = sim_new(NULL);
    host = sim_host(fabric);
    sim_port(host, "sim0", NULL);
    sim_port(host, "sim0", NULL);
    sim_port(host, "sim1", &(struct sim_port_options){ .down = true });
    sim_port(host, "sim2", NULL);
}

static int open(const char *wished, struct rail_devices *out, struct penstock_error *error)
{
    struct rail_wishes wishes = { 0 };
    assert_int_equal(rail_wishes_add(&wishes, wished, true, NULL), 0);
    return rail_devices_open(host, &wishes, out, error);
}

static void each_device_is_opened_once(void **state)
{
    (void)state;
    struct rail_devices devices;
    begin();
    assert_int_equal(open("auto", &devices, NULL), 0);
    assert_int_equal(devices.n, 3);
    assert_ptr_equal(devices.devices[0], devices.devices[1]);
    assert_string_equal(devices.devices[2]->name, "sim2");
    assert_int_equal(devices.ports[1].port, 2);
    assert_int_equal(sim_host_objects(host).devices, 2);
    assert_non_null(strstr(devices.left_out, "sim1 port 1 is DOWN"));
    assert_ptr_equal(devices.world, host);
    rail_devices_close(&devices);
    assert_int_equal(devices.n, 0);
    rail_devices_close(&devices); /* twice does no harm */
    sim_free(fabric);
}

static void every_failure_leaves_nothing_open(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) {
        struct rail_devices devices;
        struct penstock_error error = { 0 };
        begin();
        if (nth == 1)
            sim_fail_calls(host, SIM_PORTS, 1, 1, PENSTOCK_ESYS);
        else
            sim_fail_calls(host, SIM_DEVICE_OPEN, nth - 1, 1, PENSTOCK_ESYS);
        assert_int_equal(open("auto", &devices, &error), PENSTOCK_ESYS);
        assert_int_equal(error.code, PENSTOCK_ESYS);
        assert_true(*error.message);
        assert_int_equal(devices.n, 0);
        assert_int_equal(sim_host_objects(host).devices, 0);
        rail_devices_close(&devices);
        sim_free(fabric);
    }
}

static void without_rails_nothing_is_opened(void **state)
{
    (void)state;
    struct rail_devices devices;
    struct penstock_error error = { 0 };
    begin();
    assert_int_equal(open("none", &devices, &error), PENSTOCK_EUNSUPPORTED);
    assert_string_equal(error.message, "RDMA is turned off (rails: none)");
    assert_int_equal(open("sim1", &devices, &error), PENSTOCK_ENOTFOUND);
    assert_int_equal(sim_calls(host, SIM_DEVICE_OPEN), 0);
    sim_free(fabric);
}

/* A world whose table says that one device could not be asked. */
static int some_ports(struct verbs_world *world, struct verbs_ports *ports, struct penstock_error *error)
{
    (void)world;
    *ports = (struct verbs_ports){ 0 };
    snprintf(error->message, sizeof error->message, "mlx5_9: ibv_open_device: Permission denied");
    return 0;
}

static void a_device_that_cannot_be_asked_is_named(void **state)
{
    (void)state;
    static const struct verbs_ops ops = { .ports = some_ports };
    struct verbs_world world = { .ops = &ops };
    struct rail_wishes wishes = { 0 };
    struct rail_devices devices;
    struct penstock_error error = { 0 };
    assert_int_equal(rail_devices_open(&world, &wishes, &devices, &error), PENSTOCK_ENOTFOUND);
    assert_string_equal(error.message, "mlx5_9: ibv_open_device: Permission denied: no RDMA port can be used: there is "
                                       "no RDMA device (rdma link shows them)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_device_is_opened_once),
        cmocka_unit_test(every_failure_leaves_nothing_open),
        cmocka_unit_test(without_rails_nothing_is_opened),
        cmocka_unit_test(a_device_that_cannot_be_asked_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
