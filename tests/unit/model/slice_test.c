#include "../test.h"

#include <stdlib.h>

#include "model/manifest.h"

static struct penstock_tensor tensor_of(const char *dtype, const uint64_t *shape, uint64_t rank, uint64_t len)
{
    return (struct penstock_tensor){
        .name = "t", .dtype = dtype, .shape = shape, .rank = rank, .len_bytes = len, .offset_bytes = 1000, .shard = 3
    };
}

static void a_slice_of_any_dimension_holds_the_right_bytes(void **state)
{
    (void)state;
    /* Each byte of a 3 x 4 x 5 tensor is its own index: what a slice copies is compared with what it should be. */
    static const uint64_t shape[] = { 3, 4, 5 };
    struct penstock_tensor t = tensor_of("U8", shape, 3, 60);
    for (size_t dim = 0; dim < 3; dim++)
        for (uint64_t start = 0; start <= shape[dim]; start++)
            for (uint64_t count = 0; start + count <= shape[dim]; count++) {
                struct penstock_range ranges[60];
                size_t needed, again;
                assert_int_equal(penstock_tensor_slice(&t, dim, start, count, 0, NULL, 0, &needed, NULL), 0);
                assert_true(needed <= 60);
                assert_int_equal(penstock_tensor_slice(&t, dim, start, count, 0, ranges, 60, &again, NULL), 0);
                assert_int_equal(needed, again);
                uint8_t got[60], want[60];
                size_t n = 0, m = 0;
                for (size_t i = 0; i < needed; i++)
                    for (uint64_t j = 0; j < ranges[i].len_bytes; j++) {
                        assert_int_equal(ranges[i].dst_bytes + j, n);
                        got[n++] = (uint8_t)(ranges[i].offset_bytes - 1000 + j);
                        assert_int_equal(ranges[i].file, 3);
                    }
                for (uint8_t i = 0; i < 60; i++) {
                    uint64_t at[] = { i / 20, i / 5 % 4, i % 5 };
                    if (at[dim] >= start && at[dim] < start + count)
                        want[m++] = i;
                }
                assert_int_equal(n, m);
                assert_memory_equal(got, want, n);
            }
}

static void whole_rows_are_one_range(void **state)
{
    (void)state;
    static const uint64_t shape[] = { 1 << 20, 64 };
    struct penstock_tensor t = tensor_of("BF16", shape, 2, 128 << 20);
    struct penstock_range range;
    size_t needed;
    assert_int_equal(penstock_tensor_slice(&t, 0, 1024, 2048, 7, &range, 1, &needed, NULL), 0);
    assert_int_equal(needed, 1);
    assert_int_equal(range.offset_bytes, 1000 + 1024 * 128);
    assert_int_equal(range.len_bytes, 2048 * 128);
    assert_int_equal(range.dst_bytes, 7);
    assert_int_equal(penstock_tensor_slice(&t, 1, 0, 64, 0, &range, 1, &needed, NULL), 0);
    assert_int_equal(needed, 1);
}

static void what_cannot_be_sliced_is_refused(void **state)
{
    (void)state;
    static const uint64_t shape[] = { 2, 4 }, half[] = { 3, 2 };
    struct penstock_tensor t = tensor_of("U8", shape, 2, 8), f4 = tensor_of("F4", shape, 2, 4);
    struct penstock_tensor wrong = tensor_of("U8", shape, 2, 9), unknown = tensor_of("Q3", shape, 2, 8);
    struct penstock_tensor rows = tensor_of("F4", half, 2, 3), scalar = tensor_of("F32", NULL, 0, 4);
    const struct {
        const struct penstock_tensor *tensor;
        size_t dim;
        uint64_t start, count;
        int code;
    } cases[] = {
        { &t, 2, 0, 1, PENSTOCK_EINVAL },
        { &t, 0, 1, 2, PENSTOCK_EINVAL },
        { &t, 0, UINT64_MAX, 2, PENSTOCK_EINVAL },
        { &f4, 1, 1, 2, PENSTOCK_EINVAL },
        { &f4, 1, 0, 1, PENSTOCK_EINVAL },
        { &f4, 1, 2, 2, 0 },
        { &wrong, 0, 0, 1, PENSTOCK_EINVAL },
        { &unknown, 0, 0, 1, PENSTOCK_EUNSUPPORTED },
        { &rows, 0, 1, 1, 0 },
        { &scalar, 0, 0, 1, PENSTOCK_EINVAL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct penstock_error error = { 0 };
        size_t needed;
        assert_int_equal(penstock_tensor_slice(cases[i].tensor, cases[i].dim, cases[i].start, cases[i].count, 0, NULL,
                                               0, &needed, &error),
                         cases[i].code);
        assert_int_equal(error.code, cases[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_of_any_dimension_holds_the_right_bytes),
        cmocka_unit_test(whole_rows_are_one_range),
        cmocka_unit_test(what_cannot_be_sliced_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
