#include "verbs_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- failures ---- */

static void a_rail_that_fails_is_taken_out_and_built_anew(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    read_shard1(s, region);
    assert_int_equal(atomic_load(&p.shaken), 1);
    sim_fail_completion(p.client, 1, 12);
    read_shard1(s, region);
    size_t failed = rail(s, 0).failures ? 0 : 1;
    assert_int_equal(rail(s, failed).failures, 1);
    assert_int_equal(rail(s, !failed).failures, 0);
    assert_false(rail(s, failed).up);
    assert_non_null(strstr(rail(s, failed).failure, "status 12"));
    for (int i = 0; i < 50 && !rail(s, failed).up; i++)
        read_shard1(s, region);
    assert_true(rail(s, failed).up);
    assert_int_equal(atomic_load(&p.shaken), 2);
    assert_int_equal(atomic_load(&p.rails_granted), 1); /* only what had failed */
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_rail_that_cannot_be_connected_costs_no_other(void **state)
{
    (void)state;
    static const enum sim_call calls[] = { SIM_CQ_NEW, SIM_QP_NEW, SIM_QP_CONNECT };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct verbs_peer p = { 0 };
        const struct penstock_options options = rdma();
        verbs_peer_begin(&p, 2);
        sim_fail_calls(p.client, calls[i], 1, 1, PENSTOCK_ESYS);
        struct penstock_session *s = verbs_open(&p, &options);
        uint32_t region = region_of(s, memory, sizeof memory);
        assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
        assert_false(rail(s, 0).up);
        assert_non_null(rail(s, 0).failure);
        assert_true(rail(s, 1).up);
        for (int n = 0; n < 50 && !rail(s, 0).up; n++)
            read_shard1(s, region);
        assert_true(rail(s, 0).up);
        penstock_session_free(s);
        verbs_peer_end(&p);
    }
}

static void the_only_rail_that_cannot_be_connected_is_no_rdma(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    sim_fail_calls(p.client, SIM_QP_CONNECT, 1, 2, PENSTOCK_ESYS);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_ESYS);
    assert_non_null(strstr(error.message, "nic1"));
    sim_fail_calls(p.client, SIM_QP_CONNECT, 1, 2, PENSTOCK_ESYS);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(strstr(penstock_session_transport_why(s), "nic1"));
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void when_all_rails_fail_the_read_does_and_the_next_has_new_ones(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    penstock_op op = submit(s, region, &shard1, 1);
    sim_port_down(p.ports[0]);
    sim_port_down(p.ports[1]);
    int code = penstock_wait(s, op, NULL, &error);
    assert_int_equal(penstock_error_class(code), PENSTOCK_LOST_CONNECTION);
    assert_ptr_equal(strstr(error.message, "weight peer "), error.message);
    assert_null(strstr(error.message, "has gone"));
    sim_port_up(p.ports[0]);
    sim_port_up(p.ports[1]);
    for (int i = 0; i < 50 && !(rail(s, 0).up && rail(s, 1).up); i++)
        read_shard1(s, region);
    assert_true(rail(s, 0).up && rail(s, 1).up);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

/* A dead link, which gives no error: with automatic time, only the deadline ends it. */
static void a_read_that_cannot_wait_shortens_the_deadline_of_rails(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    struct penstock_options options = rdma();
    options.rail_deadline_ns = INT64_C(3600) * 1000000000;
    verbs_peer_begin(&p, 1);
    struct penstock_session *s = verbs_open(&p, &options);
    const struct penstock_read read = { .size = sizeof read,
                                        .ranges = &shard1,
                                        .count = 1,
                                        .region = region_of(s, memory, sizeof memory),
                                        .timeout_ns = 50000000 };
    sim_port_drop(p.ports[0], true);
    assert_int_equal(penstock_read_wait(s, &read, &error), PENSTOCK_ETIMEOUT);
    assert_int_equal(rail(s, 0).failures, 1);
    sim_port_drop(p.ports[0], false);
    read_shard1(s, read.region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_rail_that_stays_down_keeps_no_other_from_coming_back(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    penstock_op op = submit(s, region, &shard1, 1);
    sim_port_down(p.ports[0]);
    sim_port_down(p.ports[1]);
    assert_int_equal(penstock_error_class(penstock_wait(s, op, NULL, &error)), PENSTOCK_LOST_CONNECTION);
    sim_port_up(p.ports[1]);
    sim_fail_calls(p.client, SIM_QP_CONNECT, 1, 1, PENSTOCK_ESYS); /* as of a port that is down */
    read_shard1(s, region);
    assert_false(rail(s, 0).up);
    assert_true(rail(s, 1).up);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

/* Until the session keeps one control connection a rail, each for a rail that was built anew. */
static void a_rail_is_built_anew_while_all_control_connections_are_kept(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, PENSTOCK_RAILS_MAX);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++) {
        sim_port_down(p.ports[i]);
        read_shard1(s, region);
        sim_port_up(p.ports[i]);
        for (int n = 0; n < 50 && !rail(s, i).up; n++)
            read_shard1(s, region);
        assert_true(rail(s, i).up);
    }
    assert_int_equal(s->verbs->n_controls, PENSTOCK_RAILS_MAX);

    /* One rail fails with an event, and is built anew; the others in the same turn, so that the control connections
     * are kept for what they may say of the peer. */
    sim_port_down(p.ports[0]);
    sim_port_up(p.ports[0]);
    sim_fail_calls(p.client, SIM_POST, 1, PENSTOCK_RAILS_MAX - 1, PENSTOCK_ECLOSED);
    penstock_op op = submit(s, region, &shard1, 1);
    assert_int_not_equal(penstock_wait(s, op, NULL, &error), 0);
    assert_in_range(s->verbs->n_controls, 1, PENSTOCK_RAILS_MAX);
    read_shard1(s, region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void when_no_rail_comes_back_the_read_says_why(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    penstock_op op = submit(s, region, &shard1, 1);
    sim_port_down(p.ports[0]);
    sim_port_down(p.ports[1]);
    assert_int_equal(penstock_error_class(penstock_wait(s, op, NULL, &error)), PENSTOCK_LOST_CONNECTION);
    sim_fail_calls(p.client, SIM_QP_NEW, 1, 2, PENSTOCK_ELIMIT);
    op = submit(s, region, &shard1, 1);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ELIMIT);
    assert_ptr_equal(strstr(error.message, "weight peer "), error.message);
    sim_port_up(p.ports[0]);
    sim_port_up(p.ports[1]);
    read_shard1(s, region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void memory_that_nothing_can_be_registered_of_is_read_into_over_tcp(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    sim_host_memlock(p.client, 65536); /* of two rails */
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(strstr(penstock_session_transport_why(s), "memlock"));
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_peer_that_goes_is_no_bad_rail(void **state)
{
    (void)state;
    for (int idle = 0; idle < 2; idle++) {
        struct verbs_peer p = { 0 };
        struct penstock_error error = { 0 };
        verbs_peer_begin(&p, 2);
        struct penstock_session *s = verbs_open(&p, NULL);
        uint32_t region = region_of(s, memory, sizeof memory);
        if (idle) {
            size_t n;
            verbs_peer_die(&p);
            assert_int_equal(penstock_poll(s, NULL, 0, &n), PENSTOCK_ECLOSED);
            error = *penstock_op_error(s, 0);
        } else {
            penstock_op op = submit(s, region, &shard1, 1);
            verbs_peer_die(&p);
            assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ECLOSED);
        }
        assert_non_null(strstr(error.message, "has gone"));
        assert_int_equal(rail(s, 0).failures + rail(s, 1).failures, 0);
        assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
        penstock_session_free(s);
        verbs_peer_end(&p);
    }
}

/* Of a peer that dies the rails may say so first. */
static void rails_that_fail_just_before_the_peer_is_gone_are_no_bad_rails(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    penstock_op op = submit(s, region_of(s, memory, sizeof memory), &shard1, 1);
    sim_host_kill(p.host);
    while (s->verbs->judge_ns == 0) {
        size_t n;
        assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
    }
    verbs_peer_die(&p);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ECLOSED);
    assert_non_null(strstr(error.message, "has gone"));
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_peer_that_drains_gives_what_rails_give_and_no_more(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    const struct penstock_range file = { .len_bytes = 10, .file = 2 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    verbs_peer_stop_listening(&p);
    read_shard1(s, region);
    penstock_op op = submit(s, region, &file, 1);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_EUNREACHABLE);
    assert_non_null(strstr(error.message, "being stopped"));
    read_shard1(s, region); /* the session goes on */
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_child_does_nothing_to_its_parents_rails(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    read_shard1(s, region);
    const struct sim_objects before = sim_host_objects(p.client);
    const int control = s->verbs->controls[0].stream.fd;
    pid_t child = fork();
    if (child == 0) {
        penstock_session_free(s);
        const struct sim_objects after = sim_host_objects(p.client);
        bool closed = fcntl(control, F_GETFD) == -1; /* else the peer would not see the parent close it */
        _exit(memcmp(&before, &after, sizeof before) != 0 || !closed);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    read_shard1(s, region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

/* The fds of a simulated world tell of nothing: others stand in for them here. */
static void what_the_fds_tell_is_taken(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_session *s;
    penstock_op op;
    size_t n;
    verbs_peer_begin(&p, 1);
    assert_int_equal(client_session_in_world(p.client, p.name, &options, CLIENT_FOR_MANIFEST, "m", NULL, &s, &op, NULL),
                     0);
    int device = eventfd(0, EFD_NONBLOCK), cq = eventfd(0, EFD_NONBLOCK);
    s->verbs->devices.devices[0]->event_fd = device;
    assert_int_equal(penstock_wait(s, op, NULL, NULL), 0);

    struct pollfd poll_for = { .fd = penstock_fd(s), .events = POLLIN };
    assert_int_equal(poll(&poll_for, 1, 0), 0);
    assert_int_equal(eventfd_write(device, 1), 0);
    assert_int_equal(poll(&poll_for, 1, 0), 1);
    sim_port_down(p.ports[0]);
    assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
    assert_false(rail(s, 0).up);
    sim_port_up(p.ports[0]);
    eventfd_t told;
    assert_int_equal(eventfd_read(device, &told), 0);
    read_shard1(s, region_of(s, memory, sizeof memory));

    /* An event of a CQ that has nothing outstanding: taken by arming it, or the caller's loop would spin. */
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = CLIENT_WATCH_CQ };
    assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
    uint64_t armed = sim_calls(p.client, SIM_CQ_ARM);
    assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
    assert_int_equal(sim_calls(p.client, SIM_CQ_ARM), armed);
    assert_int_equal(epoll_ctl(s->epoll, EPOLL_CTL_ADD, cq, &event), 0);
    assert_int_equal(eventfd_write(cq, 1), 0);
    assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
    assert_int_equal(sim_calls(p.client, SIM_CQ_ARM), armed + 1);
    penstock_session_free(s);
    close(device);
    close(cq);
    verbs_peer_end(&p);
}

static void another_manifest_is_noticed_when_rails_are_built_anew(void **state)
{
    (void)state;
    struct verbs_peer p = { .frozen = true };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    penstock_op op = submit(s, region, &shard1, 1);
    sim_fail_completion(p.client, 1, 12);
    assert_int_equal(penstock_error_class(penstock_wait(s, op, NULL, &error)), PENSTOCK_LOST_CONNECTION);
    atomic_store(&p.changed, true);
    op = submit(s, region, &shard1, 1);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ESTALE);
    atomic_store(&p.changed, false);
    read_shard1(s, region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_that_fails_is_taken_out_and_built_anew),
        cmocka_unit_test(a_rail_that_cannot_be_connected_costs_no_other),
        cmocka_unit_test(the_only_rail_that_cannot_be_connected_is_no_rdma),
        cmocka_unit_test(when_all_rails_fail_the_read_does_and_the_next_has_new_ones),
        cmocka_unit_test(a_read_that_cannot_wait_shortens_the_deadline_of_rails),
        cmocka_unit_test(a_rail_that_stays_down_keeps_no_other_from_coming_back),
        cmocka_unit_test(a_rail_is_built_anew_while_all_control_connections_are_kept),
        cmocka_unit_test(when_no_rail_comes_back_the_read_says_why),
        cmocka_unit_test(memory_that_nothing_can_be_registered_of_is_read_into_over_tcp),
        cmocka_unit_test(a_peer_that_goes_is_no_bad_rail),
        cmocka_unit_test(what_the_fds_tell_is_taken),
        cmocka_unit_test(rails_that_fail_just_before_the_peer_is_gone_are_no_bad_rails),
        cmocka_unit_test(a_peer_that_drains_gives_what_rails_give_and_no_more),
        cmocka_unit_test(a_child_does_nothing_to_its_parents_rails),
        cmocka_unit_test(another_manifest_is_noticed_when_rails_are_built_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
