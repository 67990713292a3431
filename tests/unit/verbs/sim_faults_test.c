#include "sim_pair.h"

#define RETRIES_EXCEEDED 12 /* ibv_wc_status */
#define MS 1000000

static void setup(struct pair *p)
{
    pair_init(p, NULL, NULL);
    pair_connect(p);
}

static void run(struct pair *p)
{
    while (sim_step(p->fabric))
        ;
}

static void assert_state(struct verbs_qp *qp, const char *state)
{
    struct verbs_qp_state is;
    struct penstock_error error;
    assert_int_equal(verbs_qp_query(qp, &is, &error), 0);
    assert_string_equal(is.state, state);
}

static void what_is_behind_a_failed_request_is_flushed_signaled_or_not(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    sim_fail_completion(p.client.host, 3, 10);
    for (uintptr_t i = 1; i <= 20; i++) /* more than are on the wire */
        pair_read(&p, i * 64, 64, false, i);
    run(&p);
    pair_expect(&p, 3, 10); /* unsignaled, and completes since it failed */
    for (uintptr_t i = 4; i <= 20; i++)
        pair_expect(&p, i, VERBS_STATUS_FLUSHED);
    pair_expect_nothing(&p);
    assert_state(p.client.qp, "ERR");
    assert_memory_equal(p.client.bytes + 128, p.peer.bytes + 128, 64);
    assert_int_equal(p.client.bytes[3 * 64 + 1], 0);
    pair_read(&p, 0, 64, false, 21); /* taken, and flushed, as devices do */
    pair_expect(&p, 21, VERBS_STATUS_FLUSHED);
    assert_int_equal(sim_port_counters(p.client.port).completed, 2);
    assert_int_equal(sim_port_counters(p.client.port).failed, 19);
    pair_fini(&p);
}

static void a_post_that_fails_in_a_chain_leaves_those_before_it_under_way(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    setup(&p);
    sim_fail_calls(p.client.host, SIM_POST, 3, 1, PENSTOCK_ENOMEM);
    struct verbs_sge sge = { p.client.mr->base, 16, p.client.mr->lkey };
    struct verbs_request requests[4];
    for (size_t i = 0; i < 4; i++)
        requests[i] = (struct verbs_request){ .opcode = VERBS_READ,
                                              .signaled = true,
                                              .remote = p.peer.mr->base,
                                              .rkey = p.peer.mr->rkey,
                                              .n_sges = 1,
                                              .sges = &sge,
                                              .context = (void *)i };
    size_t posted;
    assert_int_equal(verbs_post(p.client.qp, requests, 4, &posted, &error), PENSTOCK_ENOMEM);
    assert_int_equal(posted, 2);
    assert_int_equal(verbs_post(p.client.qp, requests, 1, &posted, &error), PENSTOCK_EINVAL);
    assert_int_equal(posted, 0);
    run(&p);
    pair_expect(&p, 0, 0);
    pair_expect(&p, 1, 0);
    pair_expect_nothing(&p);
    pair_fini(&p);
}

static void any_call_can_be_made_to_fail(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    setup(&p);
    struct verbs_world *host = p.client.host;
    for (int call = 0; call < SIM_CALLS; call++)
        sim_fail_calls(host, (enum sim_call)call, 1, 1, PENSTOCK_ELIMIT);
    struct verbs_ports ports;
    struct verbs_device *device;
    struct verbs_pd *pd;
    struct verbs_mr *mr;
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    struct verbs_qp_options options = { .port = 1, .depth = 1, .sges_max = 1 };
    struct verbs_qp_state qp_state;
    struct verbs_completion completion;
    assert_int_equal(verbs_ports(host, &ports, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_device_open(host, "sim0", &device, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_pd_new(p.client.device, &pd, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_mr_new(p.client.pd, &options, 8, 0, &mr, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "ibv_reg_mr on sim0"));
    assert_int_equal(verbs_mr_dmabuf_new(p.client.pd, 0, 0, 8, 0, &mr, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_cq_new(p.client.device, 8, &cq, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_cq_arm(p.client.cq, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_cq_poll(p.client.cq, &completion, 1, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_qp_new(p.client.pd, p.client.cq, &options, &qp, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_qp_connect(p.client.qp, &p.client_link, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_qp_query(p.client.qp, &qp_state, &error), PENSTOCK_ELIMIT);
    assert_int_equal(pair_post(&p, VERBS_READ, 0, 8, true, NULL, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_qp_query(p.client.qp, &qp_state, &error), 0); /* once */
    assert_int_equal(sim_calls(host, SIM_QP_QUERY), 2);
    pair_fini(&p);
}

static void a_dead_link_says_nothing(void **state)
{
    (void)state;
    for (int far = 0; far < 2; far++) {
        struct pair p;
        setup(&p);
        struct sim_port *port = far ? p.peer.port : p.client.port;
        pair_read(&p, 0, 64, true, 1);
        sim_port_drop(port, true);
        pair_read(&p, 0, 64, true, 2);
        assert_int_equal(sim_next_event(p.fabric), SIM_NEVER);
        sim_advance(p.fabric, INT64_C(60000) * MS);
        pair_expect_nothing(&p);
        assert_state(p.client.qp, "RTS");
        uint8_t port_number;
        assert_int_equal(verbs_device_event(p.client.device, &port_number), VERBS_EVENT_NONE);
        sim_port_drop(port, false); /* what was lost stays lost, and is waited for */
        pair_read(&p, 0, 64, true, 3);
        assert_int_equal(sim_next_event(p.fabric), SIM_NEVER);
        pair_fini(&p);
    }
}

static void a_port_that_goes_down_is_an_event_and_ends_what_is_under_way(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    setup(&p);
    pair_read(&p, 0, 64, true, 1);
    sim_port_down(p.client.port);
    pair_read(&p, 0, 64, true, 2);
    uint8_t port = 0;
    assert_int_equal(verbs_device_event(p.client.device, &port), VERBS_EVENT_PORT_DOWN);
    assert_int_equal(port, 1);
    assert_int_equal(verbs_device_event(p.client.device, &port), VERBS_EVENT_NONE);
    assert_int_equal(verbs_device_event(p.peer.device, &port), VERBS_EVENT_NONE);
    assert_int_equal(sim_next_event(p.fabric), 500 * MS);
    run(&p);
    pair_expect(&p, 1, RETRIES_EXCEEDED);
    pair_expect(&p, 2, VERBS_STATUS_FLUSHED);
    struct verbs_ports ports;
    assert_int_equal(verbs_ports(p.client.host, &ports, &error), 0);
    assert_false(ports.at[0].active);
    assert_string_equal(ports.at[0].state, "DOWN");
    verbs_ports_fini(&ports);
    sim_port_up(p.client.port);
    assert_int_equal(verbs_ports(p.client.host, &ports, &error), 0);
    assert_true(ports.at[0].active);
    verbs_ports_fini(&ports);
    pair_fini(&p);

    setup(&p); /* both: an event, and then silence */
    pair_read(&p, 0, 64, true, 1);
    sim_port_drop(p.peer.port, true);
    sim_port_down(p.peer.port);
    assert_int_equal(verbs_device_event(p.peer.device, &port), VERBS_EVENT_PORT_DOWN);
    assert_int_equal(sim_next_event(p.fabric), SIM_NEVER);
    pair_fini(&p);
}

static void a_device_that_is_gone_flushes_and_takes_no_call(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    struct verbs_pd *pd;
    uint8_t port;
    setup(&p);
    pair_read(&p, 0, 64, true, 1);
    sim_device_gone(p.client.port);
    assert_int_equal(verbs_device_event(p.client.device, &port), VERBS_EVENT_DEVICE_GONE);
    pair_expect(&p, 1, VERBS_STATUS_FLUSHED);
    assert_int_equal(verbs_pd_new(p.client.device, &pd, &error), PENSTOCK_ESYS);
    assert_int_equal(pair_post(&p, VERBS_READ, 0, 64, true, NULL, &error), PENSTOCK_ESYS);
    struct verbs_ports ports;
    assert_int_equal(verbs_ports(p.client.host, &ports, &error), 0);
    assert_int_equal(ports.n, 0);
    verbs_ports_fini(&ports);
    pair_fini(&p);
}

static void a_host_that_dies_or_frees_its_qp_answers_no_more(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    pair_read(&p, 0, 64, true, 1);
    sim_host_kill(p.peer.host);
    sim_advance(p.fabric, MS);
    pair_expect_nothing(&p);
    run(&p);
    assert_int_equal(sim_now(p.fabric), 500 * MS);
    pair_expect(&p, 1, RETRIES_EXCEEDED);
    pair_fini(&p);

    setup(&p);
    pair_read(&p, 0, 64, true, 1);
    verbs_qp_free(p.peer.qp);
    p.peer.qp = NULL;
    run(&p);
    pair_expect(&p, 1, RETRIES_EXCEEDED);
    assert_int_equal(p.client.bytes[1], 0);
    pair_fini(&p);
}

static void ends_that_do_not_match_do_not_talk(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        struct pair p;
        pair_init(&p, NULL, NULL);
        int status = RETRIES_EXCEEDED;
        switch (what) {
        case 0:
            p.client_link.own_psn ^= 1;
            break;
        case 1:
            p.peer_link.own_psn ^= 0x800000;
            break;
        case 2:
            p.client_link.peer_gid[15] ^= 1;
            break;
        case 3:
            p.peer_link.peer_gid[15] ^= 1;
            break;
        case 4:
            p.peer_link.peer_qpn++;
            break;
        case 5:
            p.client_link.mtu = 3;
            status = 1; /* the answer's packets are not as long as they should be */
            break;
        case 6:
            p.peer_link.reads_in = 0;
            status = 9;
            break;
        default:
            p.client_link.own_psn |= 0x55000000; /* 24 bits count */
            status = 0;
        }
        pair_connect(&p);
        pair_read(&p, 0, 64, true, 1);
        run(&p);
        pair_expect(&p, 1, status);
        pair_fini(&p);
    }
}

static void more_reads_than_the_peer_takes_are_refused(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, NULL);
    p.peer_link.reads_in = 4;
    pair_connect(&p);
    for (uintptr_t i = 0; i < 6; i++)
        pair_read(&p, 0, 64, false, i);
    run(&p);
    pair_expect(&p, 4, 9);
    pair_expect(&p, 5, VERBS_STATUS_FLUSHED);
    pair_fini(&p);
}

static void a_freed_qp_touches_nothing_and_takes_its_completions_along(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    pair_read(&p, 0, 64, true, 1);
    run(&p);
    pair_read(&p, 64, 64, true, 2);
    verbs_qp_free(p.client.qp);
    p.client.qp = NULL;
    run(&p);
    pair_expect_nothing(&p);
    assert_false(sim_idle(p.client.host, SIM_NEVER));
    assert_int_equal(p.client.bytes[1], p.peer.bytes[1]);
    assert_int_equal(p.client.bytes[65], 0);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_behind_a_failed_request_is_flushed_signaled_or_not),
        cmocka_unit_test(a_post_that_fails_in_a_chain_leaves_those_before_it_under_way),
        cmocka_unit_test(any_call_can_be_made_to_fail),
        cmocka_unit_test(a_dead_link_says_nothing),
        cmocka_unit_test(a_port_that_goes_down_is_an_event_and_ends_what_is_under_way),
        cmocka_unit_test(a_device_that_is_gone_flushes_and_takes_no_call),
        cmocka_unit_test(a_host_that_dies_or_frees_its_qp_answers_no_more),
        cmocka_unit_test(ends_that_do_not_match_do_not_talk),
        cmocka_unit_test(more_reads_than_the_peer_takes_are_refused),
        cmocka_unit_test(a_freed_qp_touches_nothing_and_takes_its_completions_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
