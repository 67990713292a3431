#include "sim_pair.h"

#define US 1000

/* 8 Gb/s: a nanosecond a byte. */
static const struct sim_port_options a_byte_a_ns = { .gbps = 8 };

static void a_read_takes_a_round_trip_and_its_bytes_at_line_rate(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    pair_connect(&p);
    pair_read(&p, 4096, 1000, true, 7);
    assert_int_equal(sim_next_event(p.fabric), 6 * US);
    sim_advance(p.fabric, 6 * US - 1);
    pair_expect_nothing(&p);
    assert_int_equal(p.client.bytes[4096], 0);
    sim_advance(p.fabric, 1);
    pair_expect(&p, 7, 0);
    assert_memory_equal(p.client.bytes + 4096, p.peer.bytes + 4096, 1000);
    assert_int_equal(p.client.bytes[5096], 0);
    assert_int_equal(sim_next_event(p.fabric), SIM_NEVER);
    pair_fini(&p);
}

static void a_write_goes_the_other_way(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    pair_connect(&p);
    struct penstock_error error;
    memset(p.client.bytes, 0xee, 100);
    assert_int_equal(pair_post(&p, VERBS_WRITE, 0, 100, true, NULL, &error), 0);
    assert_true(sim_step(p.fabric));
    assert_int_equal(sim_now(p.fabric), 5 * US + 100);
    pair_expect(&p, 0, 0);
    assert_memory_equal(p.peer.bytes, p.client.bytes, 100);
    pair_fini(&p);
}

static void reads_share_the_line_and_no_more_than_reads_out_are_on_it(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    p.client_link.reads_out = 4;
    pair_connect(&p);
    for (uintptr_t i = 0; i < 8; i++)
        pair_read(&p, i * 1000, 1000, true, i);
    assert_int_equal(sim_port_counters(p.client.port).wire_max, 4);
    /* Four at 6, 7, 8 and 9 us; the fifth leaves at 6 and is back at 12. */
    sim_advance(p.fabric, 9 * US);
    for (uintptr_t i = 0; i < 4; i++)
        pair_expect(&p, i, 0);
    pair_expect_nothing(&p);
    sim_advance(p.fabric, 3 * US);
    pair_expect(&p, 4, 0);
    pair_expect_nothing(&p);
    sim_advance(p.fabric, 3 * US);
    for (uintptr_t i = 5; i < 8; i++)
        pair_expect(&p, i, 0);
    assert_int_equal(sim_port_counters(p.client.port).wire_max, 4);
    assert_int_equal(sim_port_counters(p.client.port).bytes, 8000);
    pair_fini(&p);
}

static void the_slower_port_sets_the_pace(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    pair_connect(&p);
    sim_port_rate(p.client.port, 4);
    pair_read(&p, 0, 1000, true, 0);
    assert_int_equal(sim_next_event(p.fabric), 7 * US);
    sim_port_delay(p.peer.port, 3 * US); /* not for what is on the wire */
    assert_int_equal(sim_next_event(p.fabric), 7 * US);
    sim_advance(p.fabric, 7 * US);
    pair_read(&p, 0, 1000, true, 0);
    assert_int_equal(sim_next_event(p.fabric), 17 * US);
    pair_fini(&p);
}

static void a_line_that_slows_down_makes_what_is_on_it_later(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    pair_connect(&p);
    pair_read(&p, 0, 10000, true, 1);
    pair_read(&p, 10000, 10000, true, 2);
    sim_advance(p.fabric, 5 * US);
    sim_port_rate(p.client.port, 4);
    assert_int_equal(sim_next_event(p.fabric), 25 * US); /* 10 us of it were left */
    assert_true(sim_step(p.fabric));
    pair_expect(&p, 1, 0);
    assert_int_equal(sim_next_event(p.fabric), 45 * US);
    sim_port_rate(p.client.port, 8);
    assert_int_equal(sim_next_event(p.fabric), 35 * US);
    pair_fini(&p);
}

static void one_work_request_scatters_to_several_places(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    uint32_t lkey = p.client.mr->lkey;
    uint64_t base = p.client.mr->base;
    struct verbs_sge sges[] = { { base + 900, 100, lkey }, { base, 50, lkey }, { base + 100, 0, lkey } };
    struct verbs_request request = { .opcode = VERBS_READ,
                                     .signaled = true,
                                     .remote = p.peer.mr->base + 10,
                                     .rkey = p.peer.mr->rkey,
                                     .n_sges = 3,
                                     .sges = sges };
    struct penstock_error error;
    size_t posted;
    assert_int_equal(verbs_post(p.client.qp, &request, 1, &posted, &error), 0);
    memset(sges, 0, sizeof sges); /* the QP has a copy */
    assert_true(sim_step(p.fabric));
    pair_expect(&p, 0, 0);
    assert_memory_equal(p.client.bytes + 900, p.peer.bytes + 10, 100);
    assert_memory_equal(p.client.bytes, p.peer.bytes + 110, 50);
    pair_fini(&p);
}

/* 16 READs on each of two QPs, by turns, that end at random. Which QP each completion was on. */
static void jitter_run(uint8_t order[32])
{
    struct sim_fabric *fabric = sim_new(NULL);
    struct pair pairs[2];
    uintptr_t next[2] = { 0 };
    for (int n = 0; n < 2; n++) {
        pair_init_in(&pairs[n], fabric, NULL);
        pair_connect(&pairs[n]);
        sim_port_jitter(pairs[n].client.port, 50 * US, (uint64_t)n + 42);
    }
    for (uintptr_t i = 0; i < 32; i++)
        pair_read(&pairs[i % 2], i * 64, 64, true, i / 2);
    for (int i = 0; i < 32;) {
        assert_true(sim_step(fabric));
        for (int n = 0; n < 2; n++) {
            struct verbs_completion completion;
            struct penstock_error error;
            while (verbs_cq_poll(pairs[n].client.cq, &completion, 1, &error) == 1) {
                assert_int_equal((uintptr_t)completion.context, next[n]++);
                order[i++] = (uint8_t)n;
            }
        }
    }
    for (int n = 0; n < 2; n++) {
        pair_end_fini(&pairs[n].client);
        pair_end_fini(&pairs[n].peer);
    }
    sim_free(fabric);
}

static void jitter_reorders_across_qps_and_never_within_one(void **state)
{
    (void)state;
    uint8_t once[32], again[32];
    bool by_turns = true;
    jitter_run(once);
    jitter_run(again);
    assert_memory_equal(once, again, sizeof once); /* nothing is left to chance */
    for (int i = 0; i < 32; i++)
        by_turns = by_turns && once[i] == i % 2;
    assert_false(by_turns);
}

static void only_signaled_work_completes_and_frees_the_slots_before_it(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    struct penstock_error error;
    for (uintptr_t i = 0; i < PAIR_DEPTH - 1; i++)
        pair_read(&p, 0, 16, false, i);
    pair_read(&p, 0, 16, true, 100);
    while (sim_step(p.fabric))
        ;
    /* All of it has ended, and nothing of it was polled. */
    assert_int_equal(pair_post(&p, VERBS_READ, 0, 16, true, NULL, &error), PENSTOCK_ENOMEM);
    pair_expect(&p, 100, 0);
    pair_expect_nothing(&p);
    struct sim_counters counters = sim_port_counters(p.client.port);
    assert_int_equal(counters.work_requests, PAIR_DEPTH);
    assert_int_equal(counters.signaled, 1);
    assert_int_equal(counters.completed, PAIR_DEPTH);
    pair_fini(&p);

    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    for (int round = 0; round < 3; round++) {
        for (uintptr_t i = 0; i < PAIR_DEPTH; i++)
            pair_read(&p, 0, 16, i == PAIR_DEPTH - 1, i);
        while (sim_step(p.fabric))
            ;
        pair_expect(&p, PAIR_DEPTH - 1, 0);
    }
    pair_fini(&p);
}

static void the_cpu_of_a_host_costs_time(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, NULL, &a_byte_a_ns);
    pair_connect(&p);
    struct sim_costs costs = { .post_ns = 150, .completion_ns = 150, .wake_ns = 5500 };
    sim_host_costs(p.client.host, &costs);
    pair_read(&p, 0, 1000, false, 0);
    pair_read(&p, 0, 1000, true, 1);
    assert_int_equal(sim_now(p.fabric), 300);
    /* Idle until the second is there, at 150 + 7000, and not woken by the first. */
    assert_true(sim_idle(p.client.host, SIM_NEVER));
    assert_int_equal(sim_now(p.fabric), 150 + 7000 + 5500);
    pair_expect(&p, 1, 0);
    assert_int_equal(sim_now(p.fabric), 150 + 7000 + 5500 + 300);
    assert_false(sim_idle(p.client.host, SIM_NEVER));
    assert_true(sim_idle(p.client.host, 20 * US));
    assert_int_equal(sim_now(p.fabric), 20 * US + 5500);
    pair_fini(&p);
}

static void an_automatic_fabric_moves_when_it_is_polled(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, &(struct sim_options){ .automatic = true }, NULL);
    pair_connect(&p);
    pair_read(&p, 0, 1000, false, 0);
    pair_read(&p, 0, 1000, true, 1);
    pair_expect_nothing(&p); /* the first ended */
    pair_expect(&p, 1, 0);
    pair_fini(&p);
}

static void without_copies_no_byte_is_touched(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, &(struct sim_options){ .no_copy = true }, NULL);
    pair_connect(&p);
    pair_read(&p, 0, 1000, true, 0);
    assert_true(sim_step(p.fabric));
    pair_expect(&p, 0, 0);
    assert_int_equal(p.client.bytes[1], 0);
    assert_int_equal(sim_port_counters(p.client.port).bytes, 1000);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_takes_a_round_trip_and_its_bytes_at_line_rate),
        cmocka_unit_test(a_write_goes_the_other_way),
        cmocka_unit_test(reads_share_the_line_and_no_more_than_reads_out_are_on_it),
        cmocka_unit_test(the_slower_port_sets_the_pace),
        cmocka_unit_test(a_line_that_slows_down_makes_what_is_on_it_later),
        cmocka_unit_test(one_work_request_scatters_to_several_places),
        cmocka_unit_test(jitter_reorders_across_qps_and_never_within_one),
        cmocka_unit_test(only_signaled_work_completes_and_frees_the_slots_before_it),
        cmocka_unit_test(the_cpu_of_a_host_costs_time),
        cmocka_unit_test(an_automatic_fabric_moves_when_it_is_polled),
        cmocka_unit_test(without_copies_no_byte_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
