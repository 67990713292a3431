#include "sim_pair.h"

static void a_host_has_the_ports_that_it_was_given(void **state)
{
    (void)state;
    struct sim_fabric *fabric = sim_new(NULL);
    struct verbs_world *host = sim_host(fabric), *other = sim_host(fabric);
    struct penstock_error error;
    struct verbs_ports ports;
    assert_int_equal(verbs_ports(host, &ports, &error), 0);
    assert_int_equal(ports.n, 0);
    verbs_ports_fini(&ports);

    const uint8_t raw[16] = { 0xfe, 0x80, [15] = 1 };
    struct sim_port *port = sim_port(host, "sim0", NULL);
    sim_port_gid(port, 3, VERBS_GID_ROCE_V1, raw);
    sim_port(host, "sim0", &(struct sim_port_options){ .gbps = 96, .mtu = 3, .down = true });
    sim_port(host, "sim1",
             &(struct sim_port_options){ .no_gid = true, .infiniband = true, .reads_out = 1, .reads_in = 128 });
    sim_port(other, "sim0", NULL);
    assert_int_equal(verbs_ports(host, &ports, &error), 0);
    assert_int_equal(ports.n, 3);

    const struct verbs_port *first = &ports.at[0], *second = &ports.at[1], *third = &ports.at[2];
    assert_string_equal(first->device, "sim0");
    assert_int_equal(first->port, 1);
    assert_true(first->active && first->ethernet);
    assert_string_equal(first->state, "ACTIVE");
    assert_int_equal(first->mtu, 5);
    assert_int_equal(first->reads_out, 16);
    assert_int_equal(first->n_gids, 2);
    const uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [14] = 0, [15] = 1 };
    assert_memory_equal(first->gids[0].raw, mapped, 16);
    assert_int_equal(first->gids[0].type, VERBS_GID_ROCE_V2);
    assert_int_equal(first->gids[1].index, 3);
    assert_int_equal(first->gids[1].type, VERBS_GID_ROCE_V1);

    assert_int_equal(second->port, 2);
    assert_string_equal(second->state, "DOWN");
    assert_int_equal(second->mtu, 3);
    assert_true(second->gbps == 96);
    assert_int_equal(second->gids[0].raw[14], 1);
    assert_string_equal(third->device, "sim1");
    assert_int_equal(third->n_gids, 0);
    assert_false(third->ethernet);
    assert_int_equal(third->reads_in, 128);
    verbs_ports_fini(&ports);

    assert_int_equal(verbs_ports(other, &ports, &error), 0);
    assert_int_equal(ports.n, 1);
    assert_int_equal(ports.at[0].gids[0].raw[15], 2);
    verbs_ports_fini(&ports);
    sim_free(fabric);
}

static void a_device_is_opened_by_its_name_as_often_as_one_likes(void **state)
{
    (void)state;
    struct sim_fabric *fabric = sim_new(NULL);
    struct verbs_world *host = sim_host(fabric);
    struct sim_port *port = sim_port(host, "sim0", NULL);
    struct verbs_device *a, *b;
    struct penstock_error error;
    assert_int_equal(verbs_device_open(host, "sim1", &a, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "sim1"));
    assert_int_equal(verbs_device_open(host, "sim0", &a, &error), 0);
    assert_int_equal(verbs_device_open(host, "sim0", &b, &error), 0);
    assert_ptr_not_equal(a, b);
    assert_int_equal(sim_host_objects(host).devices, 2);
    assert_int_equal(a->event_fd, -1);
    sim_port_down(port); /* each hears of it */
    uint8_t number;
    assert_int_equal(verbs_device_event(a, &number), VERBS_EVENT_PORT_DOWN);
    assert_int_equal(verbs_device_event(b, &number), VERBS_EVENT_PORT_DOWN);
    verbs_device_close(a);
    verbs_device_close(b);
    verbs_world_free(host); /* the fabric's */
    sim_free(fabric);
}

static void qps_are_held_to_what_the_port_can_do(void **state)
{
    (void)state;
    static const struct verbs_qp_options bad[] = {
        { .port = 2, .depth = 1, .sges_max = 1 },
        { .port = 1, .depth = 0, .sges_max = 1 },
        { .port = 1, .depth = 65, .sges_max = 1 },
        { .port = 1, .depth = 64, .sges_max = 5 },
    };
    struct pair p;
    struct penstock_error error;
    struct verbs_qp *qp;
    pair_init(&p, NULL, &(struct sim_port_options){ .work_requests_max = 64, .sges_max = 4, .mtu = 3 });
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(verbs_qp_new(p.client.pd, p.client.cq, &bad[i], &qp, &error), PENSTOCK_EINVAL);

    struct verbs_qp_link link = p.client_link;
    assert_int_equal(verbs_qp_connect(p.client.qp, &link, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "MTU"));
    link.mtu = 3;
    link.reads_in = 17;
    assert_int_equal(verbs_qp_connect(p.client.qp, &link, &error), PENSTOCK_EINVAL);
    link.reads_in = 16;
    link.reads_out = 17;
    assert_int_equal(verbs_qp_connect(p.client.qp, &link, &error), PENSTOCK_EINVAL);
    link.reads_out = 5;
    assert_int_equal(verbs_qp_connect(p.client.qp, &link, &error), 0);
    struct verbs_qp_state is;
    assert_int_equal(verbs_qp_query(p.client.qp, &is, &error), 0);
    assert_string_equal(is.state, "RTS");
    assert_int_equal(is.mtu, 3);
    assert_int_equal(is.reads_out, 5);
    assert_int_equal(is.reads_in, 16);
    assert_int_equal(verbs_qp_query(p.peer.qp, &is, &error), 0);
    assert_string_equal(is.state, "INIT");

    struct verbs_qp_options no_gid = { .port = 1, .gid_index = 9, .depth = 1, .sges_max = 1 };
    assert_int_equal(verbs_qp_new(p.client.pd, p.client.cq, &no_gid, &qp, &error), 0);
    assert_int_equal(verbs_qp_connect(qp, &link, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "GID 9"));
    verbs_qp_free(qp);
    pair_fini(&p);
}

static void too_many_sges_and_too_long_a_request_fail(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    size_t posted;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    struct verbs_sge sges[5] = { 0 };
    struct verbs_request request = { .opcode = VERBS_READ, .n_sges = 2, .sges = sges };
    sges[0].len_bytes = sges[1].len_bytes = (UINT32_C(1) << 30) + 1;
    assert_int_equal(verbs_post(p.client.qp, &request, 1, &posted, &error), 0);
    assert_true(sim_step(p.fabric));
    pair_expect(&p, 0, 1);
    request.n_sges = 5;
    assert_int_equal(verbs_post(p.client.qp, &request, 1, &posted, &error), PENSTOCK_EINVAL);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_has_the_ports_that_it_was_given),
        cmocka_unit_test(a_device_is_opened_by_its_name_as_often_as_one_likes),
        cmocka_unit_test(qps_are_held_to_what_the_port_can_do),
        cmocka_unit_test(too_many_sges_and_too_long_a_request_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
