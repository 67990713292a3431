/* How work is spread over rails, and how full their queues are. */
#include "engine_rig.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

static struct rig rig;

static struct rail_stats stats_of(size_t slot)
{
    struct rail_stats stats;
    rail_engine_stats(rig.engine, slot, &stats);
    return stats;
}

static struct rig_options large(uint64_t bytes)
{
    return (struct rig_options){ .region_bytes = bytes,
                                 .memory_bytes = bytes,
                                 .unbacked = true,
                                 .fabric = { .no_copy = true },
                                 .port = { .gbps = 96 } };
}

/* n ranges of len bytes, none of which touch. */
static struct rail_range *scattered(size_t n, uint64_t len)
{
    struct rail_range *ranges = calloc(n, sizeof *ranges);
    assert_non_null(ranges);
    for (size_t i = 0; i < n; i++)
        ranges[i] = (struct rail_range){ .remote_offset = (n - 1 - i) * 2 * len,
                                         .local_offset = i * 2 * len,
                                         .len_bytes = len };
    return ranges;
}

static void pull(const struct rail_range *ranges, size_t n)
{
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, n);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
}

static void expect_even(size_t n_rails, double tolerance)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n_rails; i++)
        sum += stats_of(i).bytes;
    for (size_t i = 0; i < n_rails; i++) {
        double share = (double)stats_of(i).bytes * (double)n_rails / (double)sum;
        assert_true(share > 1 - tolerance && share < 1 + tolerance);
    }
}

static void even_rails_get_even_bytes(void **state)
{
    (void)state;
    static const uint64_t lens[] = { 2 * MIB, 16 * MIB, 64 * MIB, 999 * MIB };
    for (size_t n_rails = 2; n_rails <= 4; n_rails += 2)
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            struct rig_options options = large(1000 * MIB);
            options.n_rails = n_rails;
            rig_begin(&rig, &options);
            const struct rail_range range = { .len_bytes = n_rails * lens[i] / 2 };
            if (range.len_bytes <= options.region_bytes) {
                pull(&range, 1);
                expect_even(n_rails, 0.05);
            }
            rig_end(&rig);
        }
}

static void even_rails_get_even_bytes_of_scattered_ranges_and_with_jitter(void **state)
{
    (void)state;
    struct rig_options options = large(1000 * MIB);
    rig_begin(&rig, &options);
    for (size_t i = 0; i < 2; i++)
        sim_port_jitter(rig.ports[i], 100000, i + 1);
    struct rail_range *ranges = scattered(20000, 4096);
    pull(ranges, 20000);
    expect_even(2, 0.05);
    free(ranges);
    rig_end(&rig);
}

static void a_rail_at_half_speed_takes_its_part_and_both_finish_together(void **state)
{
    (void)state;
    struct rig_options options = large(2000 * MIB);
    rig_begin(&rig, &options);
    sim_port_rate(rig.ports[1], 48);
    const struct rail_range range = { .len_bytes = 2000 * MIB };
    pull(&range, 1);
    double ideal_ns = (double)range.len_bytes / 18, ns = (double)sim_now(rig.fabric);
    assert_true(ideal_ns / ns > 0.95);
    double ratio = (double)stats_of(0).bytes / (double)stats_of(1).bytes;
    assert_true(ratio > 1.9 && ratio < 2.1);
    rig_end(&rig);
}

static void the_slower_rail_does_not_finish_last_where_little_is_left(void **state)
{
    (void)state;
    struct rig_options options = large(1000 * MIB);
    rig_begin(&rig, &options);
    sim_port_rate(rig.ports[1], 24);
    const struct rail_range much = { .len_bytes = 1000 * MIB }, little = { .len_bytes = 45 * MIB };
    pull(&much, 1); /* what the rates are is known by now */
    int64_t begun = sim_now(rig.fabric);
    pull(&little, 1);
    double ideal_ns = (double)little.len_bytes / 15, ns = (double)(sim_now(rig.fabric) - begun);
    assert_true(ideal_ns / ns > 0.85);
    rig_end(&rig);
}

static void queues_are_never_deeper_than_agreed_nor_shallower_than_the_wire(void **state)
{
    (void)state;
    static const struct {
        uint8_t reads;
        uint32_t config_depth, qp_depth, most;
    } cases[] = { { 16, 0, 0, 256 }, { 128, 0, 0, 256 }, { 16, 24, 0, 24 },
                  { 16, 0, 32, 32 }, { 1, 1, 0, 1 },     { 16, 1000, 300, 300 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig_options options = large(64 * MIB);
        options.port.reads_out = options.port.reads_in = cases[i].reads;
        options.port.gbps = 100;
        options.engine.depth = cases[i].config_depth;
        options.depth = cases[i].qp_depth;
        rig_begin(&rig, &options);
        for (size_t p = 0; p < 2; p++)
            sim_port_delay(rig.ports[p], 3000000);
        struct rail_range *ranges = scattered(4000, 4096);
        struct rail_transfer t = rig_transfer(&rig, 0, ranges, 4000);
        rig_submit(&rig, &t);
        while (rig.n_done[0] == 0) {
            rail_engine_poll(rig.engine, sim_now(rig.fabric));
            for (size_t p = 0; p < 2 && t.left_bytes > 0; p++) {
                struct sim_counters counters = sim_port_counters(rig.ports[p]);
                uint64_t posted = counters.work_requests - counters.completed;
                assert_in_range(posted, cases[i].reads, cases[i].most);
            }
            sim_step(rig.fabric);
        }
        for (size_t p = 0; p < 2; p++) {
            assert_int_equal(stats_of(p).outstanding_max, cases[i].most);
            assert_int_equal(sim_port_counters(rig.ports[p]).wire_max, cases[i].reads);
        }
        free(ranges);
        rig_end(&rig);
    }
}

static void doorbells_and_completions_are_few_for_short_ranges(void **state)
{
    (void)state;
    struct rig_options options = large(64 * MIB);
    rig_begin(&rig, &options);
    struct rail_range *ranges = scattered(8000, 1024);
    pull(ranges, 8000);
    for (size_t p = 0; p < 2; p++) {
        struct rail_stats stats = stats_of(p);
        struct sim_counters counters = sim_port_counters(rig.ports[p]);
        assert_int_equal(stats.work_requests, counters.work_requests);
        assert_int_equal(stats.doorbells, counters.doorbells);
        assert_int_equal(stats.completions, counters.signaled);
        assert_int_equal(stats.bytes, counters.bytes);
        assert_true(stats.work_requests >= 30 * stats.doorbells);
        assert_true(stats.work_requests >= 12 * stats.completions);
        assert_true(stats.outstanding_sum >= 100 * stats.doorbells);
    }
    free(ranges);
    rig_end(&rig);
}

static void one_outstanding_is_one_in_all(void **state)
{
    (void)state;
    struct rig_options options = large(64 * MIB);
    options.engine.outstanding_max = 1;
    rig_begin(&rig, &options);
    struct rail_range *ranges = scattered(100, 1024);
    pull(ranges, 100);
    assert_int_equal(stats_of(0).outstanding_max, 1);
    assert_int_equal(stats_of(0).work_requests + stats_of(1).work_requests, 100);
    assert_true(sim_now(rig.fabric) >= 100 * 5000); /* a round trip each */
    expect_even(2, 0.05);
    free(ranges);
    rig_end(&rig);
}

static void transfers_overlap_in_the_order_submitted(void **state)
{
    (void)state;
    struct rig_options options = large(1000 * MIB);
    rig_begin(&rig, &options);
    struct rail_transfer t[3];
    struct rail_range ranges[3];
    for (size_t i = 0; i < 3; i++) {
        ranges[i] = (struct rail_range){ i * 300 * MIB, i * 300 * MIB, 300 * MIB, 0 };
        t[i] = rig_transfer(&rig, i, &ranges[i], 1);
        rig_submit(&rig, &t[i]);
    }
    bool overlapped = false;
    while (rig.n_done[2] == 0) {
        rail_engine_poll(rig.engine, sim_now(rig.fabric));
        for (size_t i = 0; i < 2; i++) {
            assert_true(rig.n_done[i] >= rig.n_done[i + 1]);
            assert_true(t[i].left_bytes == 0 || t[i + 1].left_bytes == 300 * MIB);
            overlapped = overlapped || (rig.n_done[i] == 0 && t[i + 1].outstanding > 0);
        }
        sim_step(rig.fabric);
    }
    assert_true(overlapped);
    /* No gap between them: 12 bytes a ns on either rail. */
    assert_true(900.0 * (double)MIB / 24 / (double)sim_now(rig.fabric) > 0.99);
    rig_end(&rig);
}

/* ---- bound to a rail ---- */

static struct rail_transfer bound(size_t index, const struct rail_range *range, size_t slot)
{
    struct rail_transfer t = rig_transfer(&rig, index, range, 1);
    t.rail = (uint8_t)(slot + 1);
    return t;
}

static void what_is_bound_to_a_rail_goes_there_in_one_piece(void **state)
{
    (void)state;
    struct rig_options options = large(256 * MIB);
    const struct rail_range range = { .len_bytes = 40 * MIB }, long_one = { .len_bytes = 200 * MIB };
    rig_begin(&rig, &options);
    struct rail_transfer t = bound(0, &range, 1);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(stats_of(0).work_requests, 0);
    assert_int_equal(stats_of(1).work_requests, 1);
    assert_int_equal(stats_of(1).bytes, 40 * MIB);
    t = bound(0, &long_one, 1);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(stats_of(0).work_requests, 0);
    assert_int_equal(stats_of(1).work_requests, 1 + 4); /* of 64 MiB at most */
    rig_end(&rig);
}

static void one_that_waits_for_its_own_rail_lets_others_pass(void **state)
{
    (void)state;
    enum { FULL = 7 };
    struct rig_options options = large(256 * MIB);
    const struct rail_range range = { .len_bytes = 16 * MIB };
    struct rail_transfer t[FULL + 1];
    options.depth = options.engine.depth = 4;
    rig_begin(&rig, &options);
    for (size_t i = 0; i <= FULL; i++) {
        t[i] = bound(i, &range, i == FULL);
        rig_submit(&rig, &t[i]);
    }
    rig_run(&rig, &t[FULL]);
    assert_int_equal(rig.n_done[FULL], 1);
    assert_int_equal(rig.n_done[FULL - 1], 0); /* still behind the others of its rail */
    assert_int_equal(stats_of(1).work_requests, 1);
    rig_run(&rig, &t[FULL - 1]);
    assert_int_equal(stats_of(0).work_requests, FULL);
    rig_end(&rig);
}

static void any_rail_takes_what_is_bound_to_one_that_is_down(void **state)
{
    (void)state;
    struct rig_options options = large(256 * MIB);
    const struct rail_range range = { .len_bytes = 16 * MIB };
    struct penstock_error error;
    rig_begin(&rig, &options);
    struct rail_transfer first = bound(0, &range, 1), second = bound(1, &range, 1);
    rig_submit(&rig, &first);
    (void)rail_engine_poll(rig.engine, sim_now(rig.fabric)); /* it is under way */
    (void)base_error_set(&error, PENSTOCK_ECLOSED, "gone");
    rail_engine_detach(rig.engine, 1, &error);
    assert_false(rail_engine_takes_work(rig.engine, 1));
    assert_true(rail_engine_takes_work(rig.engine, 0));
    rig_submit(&rig, &second);
    rig_run(&rig, &first);
    rig_run(&rig, &second);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(rig.code[1], 0);
    assert_int_equal(stats_of(0).bytes, 32 * MIB);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_rails_get_even_bytes),
        cmocka_unit_test(even_rails_get_even_bytes_of_scattered_ranges_and_with_jitter),
        cmocka_unit_test(a_rail_at_half_speed_takes_its_part_and_both_finish_together),
        cmocka_unit_test(the_slower_rail_does_not_finish_last_where_little_is_left),
        cmocka_unit_test(queues_are_never_deeper_than_agreed_nor_shallower_than_the_wire),
        cmocka_unit_test(doorbells_and_completions_are_few_for_short_ranges),
        cmocka_unit_test(one_outstanding_is_one_in_all),
        cmocka_unit_test(transfers_overlap_in_the_order_submitted),
        cmocka_unit_test(what_is_bound_to_a_rail_goes_there_in_one_piece),
        cmocka_unit_test(one_that_waits_for_its_own_rail_lets_others_pass),
        cmocka_unit_test(any_rail_takes_what_is_bound_to_one_that_is_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
