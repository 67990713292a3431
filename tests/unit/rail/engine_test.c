#include "engine_rig.h"

static struct rig rig;

#define MIB ((uint64_t)1 << 20)

static struct rig_options small(void)
{
    return (struct rig_options){ .region_bytes = 8 * MIB, .memory_bytes = 8 * MIB };
}

static void a_transfer_lands_and_nothing_else_is_touched(void **state)
{
    (void)state;
    struct rig_options options = small();
    rig_begin(&rig, &options);
    static const struct rail_range ranges[] = {
        { .remote_offset = 5, .local_offset = 100, .len_bytes = 3000 },
        { .remote_offset = 9000, .local_offset = 9, .len_bytes = 1, .region = 1 },
        { .remote_offset = 1, .local_offset = 70, .len_bytes = 0 },
        { .remote_offset = MIB, .local_offset = 4 * MIB, .len_bytes = 3 * MIB }
    };
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 4);
    rig_submit(&rig, &t);
    assert_int_equal(rig.n_posts, 0);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(t.landed_bytes, 3001 + 3 * MIB);
    assert_false(t.rerouted);
    rig_expect_landed(&rig, ranges, 4);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 1);
    rig_end(&rig);
}

static void a_transfer_of_nothing_is_done_in_the_next_poll(void **state)
{
    (void)state;
    struct rig_options options = small();
    rig_begin(&rig, &options);
    struct rail_range empty = { 0 };
    struct rail_transfer none = rig_transfer(&rig, 0, NULL, 0), one = rig_transfer(&rig, 1, &empty, 1);
    rig_submit(&rig, &none);
    rig_submit(&rig, &one);
    assert_int_equal(rig.n_done[0] + rig.n_done[1], 0);
    assert_int_equal(rail_engine_deadline_ns(rig.engine), 0);
    assert_true(rail_engine_poll(rig.engine, 0));
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.n_done[1], 1);
    assert_int_equal(rig.code[0] + rig.code[1], 0);
    assert_int_equal(rig.n_posts, 0);
    assert_true(rail_engine_deadline_ns(rig.engine) == BASE_NEVER);
    rig_end(&rig);
}

static void a_write_goes_the_other_way(void **state)
{
    (void)state;
    struct rig_options options = small();
    rig_begin(&rig, &options);
    struct rail_range range = { .remote_offset = 10, .local_offset = 20, .len_bytes = 2 * MIB };
    for (uint64_t i = 0; i < range.len_bytes; i++)
        rig.memory.address[range.local_offset + i] = (uint8_t)(i * 3 + i / 1000);
    struct rail_transfer t = rig_transfer(&rig, 0, &range, 1);
    t.opcode = VERBS_WRITE;
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_memory_equal(rig.region_bytes[0] + 10, rig.memory.address + 20, range.len_bytes);
    assert_int_equal(rig.region_bytes[0][9], rig_region_byte(0, 9));
    assert_int_equal(rig.region_bytes[0][10 + range.len_bytes], rig_region_byte(0, 10 + range.len_bytes));
    rig_end(&rig);
}

/* 8 pieces of 1 MiB, of which two rails with queues of 2 take 4 at once. */
static const struct rail_range long_range = { .len_bytes = 8 * MIB };

static struct rig_options shallow(void)
{
    struct rig_options options = small();
    options.engine.depth = 2;
    options.port.gbps = 8;
    return options;
}

static void a_transfer_is_canceled_at_once_where_nothing_of_it_is_outstanding(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    struct rail_transfer first = rig_transfer(&rig, 0, &long_range, 1), second = rig_transfer(&rig, 1, &long_range, 1);
    rig_submit(&rig, &first);
    rig_submit(&rig, &second);
    rail_engine_poll(rig.engine, 0);
    rail_engine_cancel(rig.engine, &second);
    assert_int_equal(rig.n_done[1], 1);
    assert_int_equal(rig.code[1], PENSTOCK_ECANCELED);
    assert_int_equal(rig.n_done[0], 0);
    rig_run(&rig, &first);
    assert_int_equal(rig.code[0], 0);
    rig_expect_landed(&rig, &long_range, 1);
    rig_end(&rig);
}

static void a_canceled_transfer_ends_once_what_is_outstanding_has_come(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, &long_range, 1);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    assert_int_equal(rig.n_posts, 4);
    rail_engine_cancel(rig.engine, &t);
    rail_engine_cancel(rig.engine, &t); /* twice is once */
    assert_int_equal(rig.n_done[0], 0);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.code[0], PENSTOCK_ECANCELED);
    assert_int_equal(rig.n_posts, 4);
    assert_int_equal(t.landed_bytes, 4 * MIB);
    rig_end(&rig);
}

static void a_canceled_transfer_does_not_wait_for_a_dead_rail_to_be_replaced(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    sim_port_drop(rig.ports[0], true);
    struct rail_transfer t = rig_transfer(&rig, 0, &long_range, 1);
    rig_submit(&rig, &t);
    rail_engine_poll(rig.engine, 0);
    rail_engine_cancel(rig.engine, &t);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.code[0], PENSTOCK_ECANCELED);
    assert_int_equal(rig.n_failed[0], 1);
    assert_int_equal(rig.n_posts, 4);
    assert_true(sim_now(rig.fabric) < RAIL_DEADLINE_NS + BASE_MS_NS);
    rig_end(&rig);
}

static void freeing_ends_all_with_no_rail_left(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    struct rail_transfer t[2];
    for (size_t i = 0; i < 2; i++) {
        t[i] = rig_transfer(&rig, i, &long_range, 1);
        rig_submit(&rig, &t[i]);
    }
    rail_engine_poll(rig.engine, 0);
    rail_engine_free(rig.engine);
    rig.engine = NULL;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rig.n_done[i], 1);
        assert_int_equal(rig.code[i], PENSTOCK_ECANCELED);
    }
    assert_int_equal(rig.n_failed[0] + rig.n_failed[1], 0);
    assert_int_equal(sim_host_objects(rig.client).qps, 0);
    sim_advance(rig.fabric, BASE_SECOND_NS);
    rig_expect_landed(&rig, NULL, 0);
    rig_end(&rig);
}

/* ---- callbacks that call ---- */

static struct rail_transfer *other;

static void submit_again(struct rig *r, struct rail_transfer *transfer)
{
    if (r->n_done[0] < 5)
        rig_submit(r, transfer);
}

static void done_may_submit(void **state)
{
    (void)state;
    struct rig_options options = small();
    rig_begin(&rig, &options);
    rig.on_done = submit_again;
    struct rail_transfer t = rig_transfer(&rig, 0, &long_range, 1);
    rig_submit(&rig, &t);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 5);
    rig_expect_landed(&rig, &long_range, 1);
    rig_end(&rig);
}

static void cancel_other(struct rig *r, struct rail_transfer *transfer)
{
    if (rig_index(transfer) == 0)
        rail_engine_cancel(r->engine, other);
}

static void done_may_cancel(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    rig.on_done = cancel_other;
    struct rail_range short_range = { .len_bytes = 10 };
    struct rail_transfer t = rig_transfer(&rig, 0, &short_range, 1), second = rig_transfer(&rig, 1, &long_range, 1);
    other = &second;
    rig_submit(&rig, &t);
    rig_submit(&rig, &second);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(rig.n_done[1], 1);
    assert_int_equal(rig.code[1], PENSTOCK_ECANCELED);
    rig_end(&rig);
}

static void free_engine(struct rig *r, struct rail_transfer *transfer)
{
    (void)transfer;
    struct rail_engine *engine = r->engine;
    r->engine = NULL;
    rail_engine_free(engine);
}

static void done_may_free_the_engine(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    rig.on_done = free_engine;
    struct rail_range short_range = { .len_bytes = 10 };
    struct rail_transfer t[3];
    for (size_t i = 0; i < 3; i++) {
        t[i] = rig_transfer(&rig, i, i == 0 ? &short_range : &long_range, 1);
        rig_submit(&rig, &t[i]);
    }
    while (rig.engine) {
        rail_engine_poll(rig.engine, sim_now(rig.fabric));
        sim_step(rig.fabric);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rig.n_done[i], 1);
        assert_int_equal(rig.code[i], i == 0 ? 0 : PENSTOCK_ECANCELED);
    }
    rig_end(&rig);
}

static void fail_engine(struct rig *r, struct rail_transfer *transfer)
{
    struct penstock_error error = { .code = PENSTOCK_ECLOSED, .message = "enough" };
    if (rig_index(transfer) == 0)
        rail_engine_fail(r->engine, &error);
    assert_int_equal(rail_engine_submit(r->engine, transfer, &error), PENSTOCK_ECLOSED);
}

static void done_may_end_all(void **state)
{
    (void)state;
    struct rig_options options = shallow();
    rig_begin(&rig, &options);
    rig.on_done = fail_engine;
    struct rail_range short_range = { .len_bytes = 10 };
    struct rail_transfer t = rig_transfer(&rig, 0, &short_range, 1), second = rig_transfer(&rig, 1, &long_range, 1);
    rig_submit(&rig, &t);
    rig_submit(&rig, &second);
    rig_drain(&rig);
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.n_done[1], 1);
    assert_int_equal(rig.code[1], PENSTOCK_ECLOSED);
    assert_string_equal(rig.error[1].message, "enough");
    rig_end(&rig);
}

static void an_engine_has_no_more_rails_than_there_are_ports(void **state)
{
    (void)state;
    struct rail_devices devices = { .n = 2 };
    struct rail_engine_config config = { .devices = &devices };
    struct rail_engine *engine;
    struct penstock_error error;
    static const size_t wrong[] = { 0, 3, PENSTOCK_RAILS_MAX + 1 };
    for (size_t i = 0; i < 3; i++) {
        config.n_rails = wrong[i];
        assert_int_equal(rail_engine_new(&config, &engine, &error), PENSTOCK_EINVAL);
    }
    config.n_rails = 2;
    assert_int_equal(rail_engine_new(&config, &engine, &error), 0);
    assert_int_equal(rail_engine_alive(engine), 0);
    assert_false(rail_engine_poll(engine, 0));
    assert_null(rail_engine_rail(engine, 0));
    rail_engine_free(engine);
    rail_engine_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_lands_and_nothing_else_is_touched),
        cmocka_unit_test(a_transfer_of_nothing_is_done_in_the_next_poll),
        cmocka_unit_test(a_write_goes_the_other_way),
        cmocka_unit_test(a_transfer_is_canceled_at_once_where_nothing_of_it_is_outstanding),
        cmocka_unit_test(a_canceled_transfer_ends_once_what_is_outstanding_has_come),
        cmocka_unit_test(a_canceled_transfer_does_not_wait_for_a_dead_rail_to_be_replaced),
        cmocka_unit_test(freeing_ends_all_with_no_rail_left),
        cmocka_unit_test(done_may_submit),
        cmocka_unit_test(done_may_cancel),
        cmocka_unit_test(done_may_free_the_engine),
        cmocka_unit_test(done_may_end_all),
        cmocka_unit_test(an_engine_has_no_more_rails_than_there_are_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
