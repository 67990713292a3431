#include "engine_rig.h"

#include "rail/chunks.h"

static struct rig rig;
static struct rail_chunks *chunks;

enum { CHUNK = 16384, DEPTH = 3, ALL = 64 * CHUNK };

static void begin(void)
{
    const struct rig_options options = { .region_bytes = ALL, .memory_bytes = ALL, .port.gbps = 8 };
    rig_begin(&rig, &options);
    chunks = rail_chunks_new(rig.engine, 2, CHUNK, DEPTH);
    assert_non_null(chunks);
}

static void end(void)
{
    rig_drain(&rig);
    rig_end(&rig);
    rail_chunks_free(chunks);
}

static void submit(struct rail_transfer *t)
{
    struct penstock_error error = { 0 };
    assert_int_equal(rail_chunks_submit(chunks, t, &error), 0);
}

static uint32_t outstanding_max(size_t slot)
{
    struct rail_stats stats;
    rail_engine_stats(rig.engine, slot, &stats);
    return stats.outstanding_max;
}

static void chunks_go_to_the_rails_in_turn(void **state)
{
    (void)state;
    static const struct rail_range ranges[] = {
        { .remote_offset = 10, .local_offset = 100, .len_bytes = 2 * CHUNK + 7 },
        { .remote_offset = ALL / 2, .local_offset = ALL, .len_bytes = 0 },
        { .remote_offset = ALL / 4, .local_offset = ALL / 2, .len_bytes = CHUNK, .region = 1 }
    };
    begin();
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 3);
    submit(&t);
    assert_int_equal(rig.n_done[0] + rig.n_posts, 0);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(t.landed_bytes, 3 * CHUNK + 7);
    rig_expect_landed(&rig, ranges, 3);
    assert_int_equal(rig.n_posts, 4);
    const struct {
        uint64_t region, remote, len;
    } wanted[] = { { 0, 10, CHUNK }, { 0, 10 + CHUNK, CHUNK }, { 0, 10 + 2 * CHUNK, 7 }, { 1, ALL / 4, CHUNK } };
    struct verbs_qp *of[4] = { NULL };
    for (size_t i = 0; i < 4; i++)
        for (size_t p = 0; p < 4; p++)
            if (rig.posts[p].remote == (uintptr_t)rig.region_bytes[wanted[i].region] + wanted[i].remote &&
                rig.posts[p].len_bytes == wanted[i].len)
                of[i] = rig.posts[p].qp;
    assert_true(of[0] && of[1] && of[0] != of[1]);
    assert_ptr_equal(of[2], of[0]);
    assert_ptr_equal(of[3], of[1]);
    end();
}

static void no_more_than_depth_are_under_way_on_a_rail(void **state)
{
    (void)state;
    static const struct rail_range first = { .len_bytes = ALL / 2 };
    static const struct rail_range second = { .remote_offset = ALL / 2, .local_offset = ALL / 2, .len_bytes = ALL / 4 };
    begin();
    struct rail_transfer one = rig_transfer(&rig, 0, &first, 1), two = rig_transfer(&rig, 1, &second, 1);
    submit(&one);
    submit(&two);
    rig_run(&rig, &one);
    rig_run(&rig, &two);
    assert_int_equal(rig.code[0] + rig.code[1], 0);
    const struct rail_range all = { .len_bytes = ALL * 3 / 4 };
    rig_expect_landed(&rig, &all, 1);
    assert_int_equal(rig.n_posts, ALL * 3 / 4 / CHUNK);
    for (size_t slot = 0; slot < 2; slot++)
        assert_int_equal(outstanding_max(slot), DEPTH);
    end();
}

static void a_write_is_cut_as_a_read_is(void **state)
{
    (void)state;
    static const struct rail_range range = { .remote_offset = 3, .local_offset = 5, .len_bytes = ALL / 2 };
    begin();
    for (uint64_t i = 0; i < ALL / 2; i++)
        rig.memory.address[5 + i] = (uint8_t)(i * 7 + i / 1000);
    struct rail_transfer t = rig_transfer(&rig, 0, &range, 1);
    t.opcode = VERBS_WRITE;
    submit(&t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_memory_equal(rig.region_bytes[0] + 3, rig.memory.address + 5, ALL / 2);
    assert_int_equal(rig.n_posts, ALL / 2 / CHUNK);
    end();
}

static void what_a_failed_rail_had_goes_to_the_others(void **state)
{
    (void)state;
    static const struct rail_range range = { .len_bytes = ALL };
    begin();
    sim_port_drop(rig.ports[0], true);
    struct rail_transfer t = rig_transfer(&rig, 0, &range, 1);
    submit(&t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(rig.n_failed[0], 1);
    rig_expect_landed(&rig, &range, 1);
    end();
}

static void without_rails_everything_ends_and_nothing_begins(void **state)
{
    (void)state;
    static const struct rail_range range = { .len_bytes = ALL / 2 };
    begin();
    struct penstock_error error = { 0 };
    struct rail_transfer t[3] = { rig_transfer(&rig, 0, &range, 1), rig_transfer(&rig, 1, &range, 1),
                                  rig_transfer(&rig, 2, &range, 1) };
    submit(&t[0]);
    submit(&t[1]);
    sim_port_drop(rig.ports[0], true);
    sim_port_drop(rig.ports[1], true);
    rig_drain(&rig);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rig.n_done[i], 1);
        assert_int_not_equal(rig.code[i], 0);
    }
    assert_int_equal(rail_chunks_submit(chunks, &t[2], &error), PENSTOCK_ECLOSED);
    assert_int_equal(error.code, PENSTOCK_ECLOSED);
    assert_int_equal(rig.n_done[2], 0);
    end();
}

static void one_is_canceled_and_the_others_go_on(void **state)
{
    (void)state;
    static const struct rail_range first = { .len_bytes = ALL / 2 };
    static const struct rail_range second = { .remote_offset = ALL / 2, .local_offset = ALL / 2, .len_bytes = ALL / 2 };
    for (size_t under_way = 0; under_way < 2; under_way++) {
        begin();
        struct rail_transfer t[2] = { rig_transfer(&rig, 0, &first, 1), rig_transfer(&rig, 1, &second, 1) };
        struct rail_transfer *gone = &t[!under_way], *stays = &t[under_way];
        submit(&t[0]);
        submit(&t[1]);
        rail_engine_poll(rig.engine, 0);
        rail_chunks_cancel(chunks, gone);
        assert_int_equal(rig.n_done[!under_way], under_way ? 0 : 1);
        rig_run(&rig, stays);
        assert_int_equal(rig.code[under_way], 0);
        assert_int_equal(rig.n_done[!under_way], 1);
        assert_int_equal(rig.code[!under_way], PENSTOCK_ECANCELED);
        assert_int_equal(gone->landed_bytes, under_way ? 2 * DEPTH * CHUNK : 0);
        assert_int_equal(rig.n_posts, ALL / 2 / CHUNK + (under_way ? 2 * DEPTH : 0));
        end();
    }
}

static void transfers_end_with_their_engine_and_no_others_begin(void **state)
{
    (void)state;
    static const struct rail_range range = { .len_bytes = ALL / 2 };
    begin();
    struct rail_transfer t[2] = { rig_transfer(&rig, 0, &range, 1), rig_transfer(&rig, 1, &range, 1) };
    submit(&t[0]);
    submit(&t[1]);
    rail_engine_poll(rig.engine, 0);
    rail_engine_free(rig.engine);
    rig.engine = NULL;
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.n_done[1], 1);
    assert_int_equal(rig.code[0], PENSTOCK_ECANCELED);
    assert_int_not_equal(rig.code[1], 0);
    assert_int_equal(rig.n_posts, 2 * DEPTH);
    rig_end(&rig);
    rail_chunks_free(chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_go_to_the_rails_in_turn),
        cmocka_unit_test(no_more_than_depth_are_under_way_on_a_rail),
        cmocka_unit_test(a_write_is_cut_as_a_read_is),
        cmocka_unit_test(what_a_failed_rail_had_goes_to_the_others),
        cmocka_unit_test(without_rails_everything_ends_and_nothing_begins),
        cmocka_unit_test(one_is_canceled_and_the_others_go_on),
        cmocka_unit_test(transfers_end_with_their_engine_and_no_others_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
