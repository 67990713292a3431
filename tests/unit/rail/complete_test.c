/* Rails that fail: by a completion, a call, a deadline, the owner's word. */
#include "engine_rig.h"

#define MIB ((uint64_t)1 << 20)
#define N_RANGES 300
#define RANGE_BYTES 5000

static struct rig rig;
static struct rail_range ranges[N_RANGES];

static struct rig_options scattered(void)
{
    for (size_t i = 0; i < N_RANGES; i++)
        ranges[i] = (struct rail_range){ .remote_offset = (N_RANGES - 1 - i) * 5100,
                                         .local_offset = i * 5050,
                                         .len_bytes = RANGE_BYTES,
                                         .region = i % 3 == 0 };
    return (struct rig_options){ .region_bytes = 2 * MIB, .memory_bytes = 2 * MIB };
}

static void expect_ended(const struct rail_transfer *t, int code)
{
    size_t i = rig_index(t);
    assert_int_equal(rig.n_done[i], 1);
    assert_int_equal(rig.code[i], code);
    assert_int_equal(rig.error[i].code, code);
}

/* Whatever comes later: nothing lands any more. */
static void expect_still(void)
{
    memset(rig.memory.address, 0x5A, rig.memory.len_bytes);
    sim_advance(rig.fabric, 60 * BASE_SECOND_NS);
    rig_expect_landed(&rig, NULL, 0);
}

static void a_rail_that_fails_at_any_completion_costs_the_transfer_nothing(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    for (uint64_t nth = 1; nth <= N_RANGES; nth += nth < 40 ? 1 : 13) {
        rig_begin(&rig, &options);
        sim_fail_completion(rig.client, nth, 12);
        struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
        rig_submit(&rig, &t);
        rig_run(&rig, &t);
        expect_ended(&t, 0);
        rig_expect_landed(&rig, ranges, N_RANGES);
        assert_true(t.rerouted);
        assert_int_equal(t.landed_bytes, N_RANGES * RANGE_BYTES);
        assert_int_equal(rig.n_failed[0] + rig.n_failed[1], 1);
        size_t dead = rig.n_failed[0] ? 0 : 1;
        assert_int_equal(rig.failure[dead].wc_status, 12);
        assert_int_equal(rig.failure[dead].code, PENSTOCK_ETIMEOUT);
        char begin[32];
        snprintf(begin, sizeof begin, "rail %zu: sim%zu port 1: READ failed: ", dead, dead);
        assert_memory_equal(rig.failure[dead].message, begin, strlen(begin));
        assert_null(rail_engine_rail(rig.engine, dead));
        assert_int_equal(rail_engine_alive(rig.engine), 1);
        assert_int_equal(sim_host_objects(rig.client).qps, 1);
        assert_int_equal(sim_host_objects(rig.client).cqs, 1);
        rig_end(&rig);
    }
}

static void a_rail_that_fails_at_any_post_or_poll_costs_the_transfer_nothing(void **state)
{
    (void)state;
    static const enum sim_call calls[] = { SIM_POST, SIM_CQ_POLL };
    struct rig_options options = scattered();
    for (size_t c = 0; c < 2; c++)
        for (uint64_t nth = 1; nth < 40; nth++) {
            rig_begin(&rig, &options);
            sim_fail_calls(rig.client, calls[c], nth, 1, PENSTOCK_ECLOSED);
            struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
            rig_submit(&rig, &t);
            rig_run(&rig, &t);
            expect_ended(&t, 0);
            rig_expect_landed(&rig, ranges, N_RANGES);
            assert_true(rig.n_failed[0] + rig.n_failed[1] <= 1);
            assert_int_equal(rig.n_failed[0] + rig.n_failed[1], sim_calls(rig.client, calls[c]) >= nth);
            rig_end(&rig);
        }
}

static void a_cq_that_cannot_be_armed_costs_its_rail(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rail_engine_arm(rig.engine); /* nothing is outstanding */
    assert_int_equal(sim_calls(rig.client, SIM_CQ_ARM), 0);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    rail_engine_arm(rig.engine);
    rail_engine_arm(rig.engine); /* armed already */
    assert_int_equal(sim_calls(rig.client, SIM_CQ_ARM), 2);
    rig_run(&rig, &t);
    assert_int_equal(rig.n_failed[0] + rig.n_failed[1], 0);

    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, sim_now(rig.fabric));
    sim_fail_calls(rig.client, SIM_CQ_ARM, 2, 1, PENSTOCK_ESYS);
    rail_engine_arm(rig.engine);
    assert_int_equal(rail_engine_deadline_ns(rig.engine), 0);
    rig_run(&rig, &t);
    assert_int_equal(rig.n_failed[0], 0);
    assert_int_equal(rig.n_failed[1], 1);
    assert_int_equal(rig.code[0], 0);
    rig_expect_landed(&rig, ranges, N_RANGES);
    rig_end(&rig);
}

/* Nor is an event that comes late, when its completion was polled already, left to wake again. */
static void what_woke_is_taken_even_where_nothing_is_outstanding(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    rail_engine_woken(rig.engine);
    rail_engine_arm(rig.engine);
    assert_int_equal(sim_calls(rig.client, SIM_CQ_ARM), 2);
    rail_engine_arm(rig.engine);
    assert_int_equal(sim_calls(rig.client, SIM_CQ_ARM), 2);

    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    rail_engine_woken(rig.engine); /* armed, and told of nothing that is there */
    rail_engine_arm(rig.engine);
    assert_int_equal(sim_calls(rig.client, SIM_CQ_ARM), 4);
    rig_run(&rig, &t);
    rig_expect_landed(&rig, ranges, N_RANGES);
    rig_end(&rig);
}

static void a_dead_link_is_noticed_by_its_deadline(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rig_submit(&rig, &t);
    sim_port_drop(rig.ports[1], true);
    rig_run(&rig, &t);
    expect_ended(&t, 0);
    rig_expect_landed(&rig, ranges, N_RANGES);
    assert_int_equal(rig.n_failed[1], 1);
    assert_int_equal(rig.failure[1].code, PENSTOCK_ETIMEOUT);
    assert_string_equal(rig.failure[1].message, "rail 1: sim1 port 1: no completion for 5.0 s with 150 work requests "
                                                "outstanding: is the link up?");
    assert_true(sim_now(rig.fabric) >= RAIL_DEADLINE_NS && sim_now(rig.fabric) < RAIL_DEADLINE_NS + BASE_MS_NS);
    rig_end(&rig);
}

static void a_slow_rail_that_completes_now_and_then_has_no_deadline(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    options.engine.deadline_ns = BASE_SECOND_NS;
    options.engine.depth = 1;
    options.n_rails = 1;
    rig_begin(&rig, &options);
    sim_port_delay(rig.ports[0], 900 * BASE_MS_NS);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    expect_ended(&t, 0);
    assert_true(sim_now(rig.fabric) >= 4 * BASE_SECOND_NS);
    /* Idle for longer than the deadline, and then busy again. */
    sim_advance(rig.fabric, 10 * BASE_SECOND_NS);
    assert_false(rail_engine_poll(rig.engine, sim_now(rig.fabric)));
    assert_true(rail_engine_deadline_ns(rig.engine) == BASE_NEVER);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(rig.n_failed[0], 0);
    rig_end(&rig);
}

static void an_owner_who_did_not_poll_for_long_loses_no_rail(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    sim_advance(rig.fabric, 60 * BASE_SECOND_NS);
    rig_run(&rig, &t);
    expect_ended(&t, 0);
    assert_int_equal(rig.n_failed[0] + rig.n_failed[1], 0);
    rig_end(&rig);
}

static void the_last_rail_takes_all_transfers_with_it_and_nothing_lands_after(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t[3];
    for (size_t i = 0; i < 3; i++) {
        t[i] = rig_transfer(&rig, i, ranges, N_RANGES);
        rig_submit(&rig, &t[i]);
    }
    rail_engine_poll(rig.engine, 0);
    sim_port_drop(rig.ports[0], true);
    sim_port_drop(rig.ports[1], true);
    rig_drain(&rig);
    for (size_t i = 0; i < 3; i++) {
        expect_ended(&t[i], PENSTOCK_ETIMEOUT);
        static const char begin[] = "no rail is left: rail 1: sim1 port 1: no completion for 5.0 s with ";
        assert_memory_equal(rig.error[i].message, begin, sizeof begin - 1);
    }
    assert_true(sim_now(rig.fabric) < RAIL_DEADLINE_NS + BASE_MS_NS);
    assert_int_equal(sim_host_objects(rig.client).qps, 0);
    sim_port_drop(rig.ports[0], false);
    sim_port_drop(rig.ports[1], false);
    expect_still();

    struct penstock_error error;
    assert_int_equal(rail_engine_submit(rig.engine, &t[0], &error), PENSTOCK_ECLOSED);
    rig_end(&rig);
}

static void a_request_that_two_rails_refuse_ends_its_transfer_and_not_the_others(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    options.n_rails = 4;
    rig_begin(&rig, &options);
    struct rail_range outside = { .remote_offset = 2 * MIB - 10, .local_offset = 2 * MIB - 100, .len_bytes = 20 };
    struct rail_transfer bad = rig_transfer(&rig, 0, &outside, 1), good = rig_transfer(&rig, 1, ranges, N_RANGES);
    rig_submit(&rig, &bad);
    rig_submit(&rig, &good);
    rig_run(&rig, &good);
    rig_drain(&rig);
    expect_ended(&bad, PENSTOCK_EDENIED);
    assert_int_equal(rig.error[0].wc_status, 10);
    expect_ended(&good, 0);
    assert_true(good.rerouted);
    assert_int_equal(rail_engine_alive(rig.engine), 2);
    rig_expect_landed(&rig, ranges, N_RANGES);
    rig_end(&rig);
}

static void a_peer_that_is_gone_ends_all_at_once(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    rig.peer_gone = true;
    sim_host_kill(rig.peer);
    rig_run(&rig, &t);
    expect_ended(&t, PENSTOCK_ECLOSED);
    assert_string_equal(rig.error[0].message, "the peer has gone");
    assert_int_equal(rig.n_failed[0] + rig.n_failed[1], 0);
    assert_int_equal(rail_engine_alive(rig.engine), 0);
    expect_still();
    rig_end(&rig);
}

static void the_owner_can_take_rails_out(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    struct penstock_error down = { .code = PENSTOCK_ECLOSED, .message = "the port went down" };
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    rail_engine_detach(rig.engine, 0, &down);
    rail_engine_detach(rig.engine, 0, &down);
    assert_int_equal(rig.n_failed[0], 1);
    assert_string_equal(rig.failure[0].message, "rail 0: sim0 port 1: the port went down");
    rig_run(&rig, &t);
    expect_ended(&t, 0);
    rig_expect_landed(&rig, ranges, N_RANGES);

    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, sim_now(rig.fabric));
    rail_engine_detach(rig.engine, 1, &down);
    assert_int_equal(rig.n_done[0], 2);
    assert_string_equal(rig.error[0].message, "no rail is left: rail 1: sim1 port 1: the port went down");
    expect_still();
    rig_end(&rig);
}

static void the_owner_can_end_all(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct rail_transfer t[2];
    struct penstock_error why = { .code = PENSTOCK_ECLOSED, .message = "the stream ended" };
    for (size_t i = 0; i < 2; i++) {
        t[i] = rig_transfer(&rig, i, ranges, N_RANGES);
        rig_submit(&rig, &t[i]);
    }
    rail_engine_poll(rig.engine, 0);
    rail_engine_fail(rig.engine, &why);
    for (size_t i = 0; i < 2; i++) {
        expect_ended(&t[i], PENSTOCK_ECLOSED);
        assert_string_equal(rig.error[i].message, "the stream ended");
    }
    expect_still();
    rig_end(&rig);
}

static void a_rail_that_is_probed_takes_work_once_it_has_read_something(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    struct penstock_error down = { .code = PENSTOCK_ECLOSED, .message = "down" };
    rail_engine_detach(rig.engine, 1, &down);
    sim_port_delay(rig.ports[1], 50000);
    assert_int_equal(rig_attach(&rig, 1, true), 0);
    assert_int_equal(rail_engine_alive(rig.engine), 2);
    size_t registered = sim_host_objects(rig.client).mrs;
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    assert_int_equal(sim_port_counters(rig.ports[1]).work_requests, 1);
    rig_run(&rig, &t);
    expect_ended(&t, 0);
    rig_drain(&rig); /* the probe may come back after all else is done */
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_true(sim_port_counters(rig.ports[1]).work_requests > 100);
    rig_expect_landed(&rig, ranges, N_RANGES);
    assert_int_equal(sim_host_objects(rig.client).mrs, registered);
    rig_end(&rig);
}

static void a_probe_that_fails_costs_its_rail_alone(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    for (int dead = 0; dead < 2; dead++) {
        rig_begin(&rig, &options);
        struct penstock_error down = { .code = PENSTOCK_ECLOSED, .message = "down" };
        rail_engine_detach(rig.engine, 1, &down);
        if (dead)
            sim_port_drop(rig.ports[1], true);
        else
            sim_port_down(rig.peer_ports[1]);
        assert_int_equal(rig_attach(&rig, 1, true), 0);
        struct rail_transfer t = rig_transfer(&rig, 0, ranges, N_RANGES);
        rig_submit(&rig, &t);
        rig_run(&rig, &t);
        expect_ended(&t, 0);
        assert_false(t.rerouted);
        rig_drain(&rig);
        assert_int_equal(rig.n_failed[1], 2);
        assert_int_equal(rail_engine_alive(rig.engine), 1);
        assert_int_equal(rig.n_failed[0], 0);
        rig_end(&rig);
    }
}

static void a_rail_is_attached_to_an_empty_slot_alone(void **state)
{
    (void)state;
    struct rig_options options = scattered();
    rig_begin(&rig, &options);
    assert_int_equal(rig_attach(&rig, 0, false), PENSTOCK_EINVAL);
    struct rail none = { 0 };
    struct penstock_error down = { .code = PENSTOCK_ECLOSED, .message = "down" };
    rail_engine_detach(rig.engine, 0, &down);
    assert_int_equal(rail_engine_attach(rig.engine, 0, &none, false, NULL), PENSTOCK_EINVAL);
    sim_fail_calls(rig.client, SIM_MR_NEW, 1, 1, PENSTOCK_ELIMIT);
    assert_int_equal(rig_attach(&rig, 0, true), PENSTOCK_ELIMIT);
    assert_int_equal(rig_attach(&rig, 0, true), 0);
    assert_int_equal(rail_engine_alive(rig.engine), 2);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rail_that_fails_at_any_completion_costs_the_transfer_nothing),
        cmocka_unit_test(a_rail_that_fails_at_any_post_or_poll_costs_the_transfer_nothing),
        cmocka_unit_test(a_cq_that_cannot_be_armed_costs_its_rail),
        cmocka_unit_test(what_woke_is_taken_even_where_nothing_is_outstanding),
        cmocka_unit_test(a_dead_link_is_noticed_by_its_deadline),
        cmocka_unit_test(a_slow_rail_that_completes_now_and_then_has_no_deadline),
        cmocka_unit_test(an_owner_who_did_not_poll_for_long_loses_no_rail),
        cmocka_unit_test(the_last_rail_takes_all_transfers_with_it_and_nothing_lands_after),
        cmocka_unit_test(a_request_that_two_rails_refuse_ends_its_transfer_and_not_the_others),
        cmocka_unit_test(a_peer_that_is_gone_ends_all_at_once),
        cmocka_unit_test(the_owner_can_take_rails_out),
        cmocka_unit_test(the_owner_can_end_all),
        cmocka_unit_test(a_rail_that_is_probed_takes_work_once_it_has_read_something),
        cmocka_unit_test(a_probe_that_fails_costs_its_rail_alone),
        cmocka_unit_test(a_rail_is_attached_to_an_empty_slot_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
