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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_lands_and_nothing_else_is_touched),
        cmocka_unit_test(a_transfer_of_nothing_is_done_in_the_next_poll),
        cmocka_unit_test(a_write_goes_the_other_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
