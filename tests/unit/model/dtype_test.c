#include "../test.h"

#include "model/dtype.h"

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    { "BOOL", 8 },        { "U8", 8 },          { "I8", 8 },    { "F8_E5M2", 8 }, { "F8_E4M3", 8 }, { "F8_E8M0", 8 },
    { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "F4", 4 },    { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "I16", 16 },
    { "U16", 16 },        { "F16", 16 },        { "BF16", 16 }, { "I32", 32 },    { "U32", 32 },    { "F32", 32 },
    { "I64", 64 },        { "U64", 64 },        { "F64", 64 },  { "C64", 64 },
};

static void every_dtype_has_its_bits_and_one_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        size_t len = strlen(dtypes[i].name);
        assert_int_equal(model_dtype_bits(dtypes[i].name, len), dtypes[i].bits);
        assert_string_equal(model_dtype_name(dtypes[i].name, len), dtypes[i].name);
    }
}

static void what_is_no_dtype_has_neither(void **state)
{
    (void)state;
    static const char *const unknown[] = { "", "F", "F3", "F322", "bf16", "BF16 ", "F8", "Q4_K" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(model_dtype_bits(unknown[i], strlen(unknown[i])), 0);
        assert_null(model_dtype_name(unknown[i], strlen(unknown[i])));
    }
    assert_int_equal(model_dtype_bits("F32 and more", 3), 32); /* as long as it is said to be */
}

static void assert_bytes(unsigned bits, uint64_t rows, uint64_t columns, uint64_t want)
{
    const uint64_t shape[] = { rows, columns };
    uint64_t bytes = 0;
    assert_true(model_dtype_bytes(bits, shape, 2, &bytes));
    assert_true(bytes == want);
}

static void elements_below_a_byte_have_to_fill_whole_ones(void **state)
{
    (void)state;
    const uint64_t odd[] = { 3, 5 }, two[] = { 2 };
    uint64_t bytes;
    assert_bytes(4, 3, 2, 3);
    assert_bytes(6, 2, 2, 3);
    assert_false(model_dtype_bytes(4, odd, 2, &bytes));
    assert_false(model_dtype_bytes(6, two, 1, &bytes));
}

static void a_scalar_is_one_element_and_an_empty_shape_none(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_true(model_dtype_bytes(32, NULL, 0, &bytes));
    assert_int_equal(bytes, 4);
    assert_bytes(32, UINT64_MAX, 0, 0);
    assert_bytes(32, 0, UINT64_MAX, 0);
}

static void what_64_bits_cannot_say_is_refused(void **state)
{
    (void)state;
    const uint64_t shapes[][2] = { { UINT64_MAX, 2 },
                                   { UINT64_C(1) << 32, UINT64_C(1) << 32 },
                                   { UINT64_C(1) << 61, 1 } };
    uint64_t bytes;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_false(model_dtype_bytes(64, shapes[i], 2, &bytes));
    assert_bytes(64, UINT64_C(1) << 60, 1, UINT64_C(1) << 63);
    assert_bytes(8, UINT64_MAX, 1, UINT64_MAX);
    assert_bytes(4, UINT64_C(1) << 63, 1, UINT64_C(1) << 62);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_has_its_bits_and_one_name),
        cmocka_unit_test(what_is_no_dtype_has_neither),
        cmocka_unit_test(elements_below_a_byte_have_to_fill_whole_ones),
        cmocka_unit_test(a_scalar_is_one_element_and_an_empty_shape_none),
        cmocka_unit_test(what_64_bits_cannot_say_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
