/* What lists of ranges become: each case on one rail, where the work requests come in the list's order. */
#include "engine_rig.h"

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)

static struct rig rig;

static const char *posted_of(const struct rail_range *ranges, size_t n, struct rig_options options)
{
    options.n_rails = 1;
    if (options.region_bytes == 0)
        options.region_bytes = options.memory_bytes = 8 * MIB;
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, n);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    if (!options.unbacked)
        rig_expect_landed(&rig, ranges, n);
    const char *posted = rig_posted(&rig);
    rig_end(&rig);
    return posted;
}

static void ranges_that_touch_on_both_sides_travel_as_one(void **state)
{
    (void)state;
    const struct rail_range ranges[] = { { 0, 0, 10, 0 }, { 10, 10, 0, 0 }, { 10, 10, 20, 0 }, { 30, 30, 4096, 0 } };
    assert_string_equal(posted_of(ranges, 4, (struct rig_options){ 0 }), "R0+0:4126");
}

static void ranges_that_touch_at_the_peer_alone_travel_as_one_with_several_pieces(void **state)
{
    (void)state;
    const struct rail_range ranges[] = { { 0, 0, 10, 0 }, { 10, 100, 20, 0 }, { 30, 120, 5, 0 }, { 35, 50, 5, 0 } };
    assert_string_equal(posted_of(ranges, 4, (struct rig_options){ 0 }), "R0+0:40{0:10,100:25,50:5}");
}

static void ranges_that_touch_here_alone_do_not(void **state)
{
    (void)state;
    const struct rail_range ranges[] = { { 0, 0, 10, 0 }, { 11, 10, 10, 0 }, { 0, 20, 10, 0 }, { 10, 30, 1, 1 } };
    assert_string_equal(posted_of(ranges, 4, (struct rig_options){ 0 }),
                        "R0+0:10 R0+11:10{10:10} R0+0:10{20:10} R1+10:1{30:1}");
}

static void a_region_ends_a_join(void **state)
{
    (void)state;
    const struct rail_range ranges[] = { { 0, 0, 10, 0 }, { 10, 10, 10, 1 }, { 20, 20, 10, 1 } };
    assert_string_equal(posted_of(ranges, 3, (struct rig_options){ 0 }), "R0+0:10 R1+10:20");
}

static void pieces_are_no_more_than_the_port_takes(void **state)
{
    (void)state;
    const struct rail_range ranges[] = {
        { 0, 0, 10, 0 }, { 10, 100, 10, 0 }, { 20, 200, 10, 0 }, { 30, 300, 10, 0 }, { 40, 400, 10, 0 },
    };
    struct rig_options two = { .port = { .sges_max = 2 } }, one = { .port = { .sges_max = 1 } };
    assert_string_equal(posted_of(ranges, 5, two), "R0+0:20{0:10,100:10} R0+20:20{200:10,300:10} R0+40:10{400:10}");
    assert_string_equal(posted_of(ranges, 2, one), "R0+0:10 R0+10:10{100:10}");
}

static void a_long_range_is_cut_by_the_rate(void **state)
{
    (void)state;
    const struct rail_range range = { .len_bytes = 5 * MIB };
    /* 1 Gb/s: 250 us are 31 KB, and 1 MiB is the least. 160 Gb/s: 5 MB, but half of it is left to the end. */
    struct rig_options slow = { .port = { .gbps = 1 } }, fast = { .port = { .gbps = 160 } };
    assert_string_equal(posted_of(&range, 1, slow),
                        "R0+0:1048576 R0+1048576:1048576 R0+2097152:1048576 R0+3145728:1048576 R0+4194304:1048576");
    assert_string_equal(posted_of(&range, 1, fast), "R0+0:2621440 R0+2621440:1310720 R0+3932160:1310720");
}

static void no_stub_is_cut_off(void **state)
{
    (void)state;
    struct rig_options slow = { .port = { .gbps = 1 } };
    const struct rail_range longer = { .len_bytes = 2 * MIB + 1 }, nearly = { .len_bytes = 2 * MIB - 1 };
    assert_string_equal(posted_of(&longer, 1, slow), "R0+0:1048576 R0+1048576:1048577");
    assert_string_equal(posted_of(&nearly, 1, slow), "R0+0:2097151");
}

static void joined_ranges_end_where_a_range_does_unless_it_is_long(void **state)
{
    (void)state;
    struct rig_options slow = { .port = { .gbps = 1 } };
    const struct rail_range ranges[] = { { 0, 0, 700 * KIB, 0 },
                                         { 700 * KIB, 700 * KIB, 700 * KIB, 0 },
                                         { 1400 * KIB, 1400 * KIB, 300 * KIB, 0 },
                                         { 1700 * KIB, 1700 * KIB, 2 * MIB, 0 } };
    /* 700 + 700 KiB as they are; 300 KiB with 724 of the long one; what is left of that is more than 1 MiB. */
    assert_string_equal(posted_of(ranges, 4, slow), "R0+0:1433600 R0+1433600:1048576 R0+2482176:1355776");
}

static void no_work_request_is_longer_than_16_mib_however_long_the_range(void **state)
{
    (void)state;
    struct rig_options options = { .n_rails = 2,
                                   .region_bytes = UINT64_C(9) << 30,
                                   .memory_bytes = UINT64_C(9) << 30,
                                   .unbacked = true,
                                   .fabric = { .no_copy = true },
                                   .port = { .gbps = 1600 } };
    rig_begin(&rig, &options);
    const struct rail_range ranges[] = { { 0, 0, (UINT64_C(9) << 30) - 1, 1 } };
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 1);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(t.landed_bytes, ranges[0].len_bytes);
    uint64_t most = 0, least = UINT64_MAX, sum = 0;
    for (size_t i = 0; i < rig.n_posts; i++) {
        most = rig.posts[i].len_bytes > most ? rig.posts[i].len_bytes : most;
        least = rig.posts[i].len_bytes < least ? rig.posts[i].len_bytes : least;
        sum += rig.posts[i].len_bytes;
    }
    assert_int_equal(most, 16 * MIB);
    assert_true(least >= MIB);
    assert_int_equal(sum, ranges[0].len_bytes);
    rig_end(&rig);
}

static void no_work_request_is_longer_than_a_port_takes(void **state)
{
    (void)state;
    struct rig_options small = { .port = { .message_bytes_max = 64 * KIB } };
    struct rig_options large = { .port = { .gbps = 1600, .message_bytes_max = 3 * MIB } };
    const struct rail_range ranges[] = { { 0, 0, 40 * KIB, 0 }, { 40 * KIB, 40 * KIB, 100 * KIB, 0 } };
    const struct rail_range longer = { .len_bytes = 5 * MIB };
    assert_string_equal(posted_of(ranges, 2, small), "R0+0:65536 R0+65536:65536 R0+131072:12288");
    assert_string_equal(posted_of(&longer, 1, large), "R0+0:2621440 R0+2621440:1310720 R0+3932160:1310720");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_touch_on_both_sides_travel_as_one),
        cmocka_unit_test(ranges_that_touch_at_the_peer_alone_travel_as_one_with_several_pieces),
        cmocka_unit_test(ranges_that_touch_here_alone_do_not),
        cmocka_unit_test(a_region_ends_a_join),
        cmocka_unit_test(pieces_are_no_more_than_the_port_takes),
        cmocka_unit_test(a_long_range_is_cut_by_the_rate),
        cmocka_unit_test(no_stub_is_cut_off),
        cmocka_unit_test(joined_ranges_end_where_a_range_does_unless_it_is_long),
        cmocka_unit_test(no_work_request_is_longer_than_16_mib_however_long_the_range),
        cmocka_unit_test(no_work_request_is_longer_than_a_port_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
