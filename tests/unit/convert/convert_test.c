#include "../test.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "convert/convert.h"
#include "convert/kernels.h"

/* Memory that faults one byte past its end and is written to. */
static uint8_t *guarded(size_t n)
{
    static uint8_t *pages;
    if (!pages) {
        pages = mmap(NULL, TEST_GUARDED_MAX + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(pages, MAP_FAILED);
        assert_int_equal(mprotect(pages + TEST_GUARDED_MAX, 4096, PROT_NONE), 0);
    }
    assert_true(n <= TEST_GUARDED_MAX);
    return pages + TEST_GUARDED_MAX - n;
}

/* ---- references, by arithmetic on values and not on bits ---- */

static float from_f32_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double from_bf16(uint16_t bits)
{
    return (double)from_f32_bits((uint32_t)bits << 16);
}

static double from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                      : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* Whether got is the BF16 nearest to value, even where two are; infinity counts as what would come after the largest.
 */
static bool is_nearest(double value, uint16_t got)
{
    uint16_t magnitude = got & 0x7fff;
    if ((got & 0x8000) != (signbit(value) ? 0x8000 : 0) || magnitude > 0x7f80)
        return false;
    if (isinf(value))
        return magnitude == 0x7f80;
    double size = fabs(value), at = magnitude == 0x7f80 ? 0x1p128 : from_bf16(magnitude);
    double below = magnitude ? from_bf16((uint16_t)(magnitude - 1)) : -1;
    double above =
        magnitude >= 0x7f7f ? magnitude == 0x7f7f ? 0x1p128 : INFINITY : from_bf16((uint16_t)(magnitude + 1));
    double down = fabs(size - at), other = fmin(fabs(size - below), fabs(above - size));
    return down < other || (down == other && magnitude % 2 == 0);
}

static void check_f32(uint32_t bits, uint16_t got)
{
    bool right = isnan(from_f32_bits(bits)) ? got == (uint16_t)(bits >> 16 | 0x40)
                                            : is_nearest((double)from_f32_bits(bits), got);
    if (!right)
        fail_msg("F32 %08x became %04x", bits, got);
}

static void check_f16(uint16_t bits, uint16_t got)
{
    uint16_t nan = (uint16_t)((bits & 0x8000) | 0x7fc0 | (bits >> 3 & 0x7f));
    if (!(isnan(from_f16(bits)) ? got == nan : is_nearest(from_f16(bits), got)))
        fail_msg("F16 %04x became %04x", bits, got);
}

static uint16_t at_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#define FOR_EACH_VARIANT(k)                                                                                            \
    for (size_t k##_i = 0; convert_kernels_at(k##_i); k##_i++)                                                         \
        for (const struct convert_kernels *k = convert_kernels_at(k##_i); k; k = NULL)

/* ---- BF16 ---- */

static void every_f16_is_rounded_to_the_nearest(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    uint16_t *src = malloc(N * sizeof *src);
    uint8_t *dst = malloc(N * 2);
    assert_non_null(src);
    assert_non_null(dst);
    FOR_EACH_VARIANT(k)
    {
        for (unsigned step = 1; step < 10; step += 2) { /* neighbours of other kinds: an odd step visits all */
            for (unsigned i = 0; i < N; i++)
                src[i] = (uint16_t)(i * step * 4099);
            k->f16_to_bf16(dst, (const uint8_t *)src, N);
            for (unsigned i = 0; i < N; i++)
                check_f16(src[i], at_u16(dst + 2 * i));
        }
    }
    free(src);
    free(dst);
}

/* Around every place where rounding changes: all upper halves, with the lower ones at, beside and far from a tie. */
static void f32_is_rounded_to_the_nearest(void **state)
{
    (void)state;
    static const uint16_t lower[] = { 0, 1, 2, 0x3fff, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0x8002, 0xc000, 0xfffe, 0xffff };
    enum { LOWER = sizeof lower / sizeof *lower, N = LOWER << 16 };
    uint32_t *src = malloc(N * sizeof *src);
    uint8_t *dst = malloc((size_t)N * 2);
    assert_non_null(src);
    assert_non_null(dst);
    for (uint32_t i = 0; i < N; i++)
        src[i] = i / LOWER << 16 | lower[i % LOWER];
    FOR_EACH_VARIANT(k)
    {
        k->f32_to_bf16(dst, (const uint8_t *)src, N);
        for (uint32_t i = 0; i < N; i++)
            check_f32(src[i], at_u16(dst + 2 * (size_t)i));
    }
    uint64_t random = 7;
    for (uint32_t i = 0; i < N; i++)
        src[i] = (uint32_t)test_random(&random);
    FOR_EACH_VARIANT(k)
    {
        k->f32_to_bf16(dst, (const uint8_t *)src, N);
        for (uint32_t i = 0; i < N; i++)
            check_f32(src[i], at_u16(dst + 2 * (size_t)i));
    }
    free(src);
    free(dst);
}

static void check_golden(void (*to_bf16)(void *, const void *, size_t), const uint32_t *wide, const uint16_t *halves,
                         const uint16_t *want, size_t n)
{
    uint16_t got[32];
    assert_true(n <= 32);
    to_bf16(got, wide ? (const void *)wide : halves, n);
    assert_memory_equal(got, want, n * sizeof *got);
}

static void known_values(void **state)
{
    (void)state;
    static const uint32_t wide[] = {
        0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x80000000, 0x00000001, 0x00008000,
        0x00018000, 0x7f7fffff, 0xff7f8000, 0x7f800000, 0x7f800001, 0xffbfffff, 0x7fc12345
    };
    static const uint16_t from_wide[] = { 0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x8000, 0x0000, 0x0000,
                                          0x0002, 0x7f80, 0xff80, 0x7f80, 0x7fc0, 0xffff, 0x7fc1 };
    static const uint16_t halves[] = { 0x3c00, 0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00,
                                       0xfc00, 0x7c01, 0xfdff, 0x3c04, 0x3c0c, 0x8101, 0x0203 };
    static const uint16_t from_halves[] = { 0x3f80, 0x0000, 0x8000, 0x3380, 0x3880, 0x3880, 0x4780, 0x7f80,
                                            0xff80, 0x7fc0, 0xffff, 0x3f80, 0x3f82, 0xb780, 0x3801 };
    FOR_EACH_VARIANT(k)
    {
        convert_kernels_use(k);
        check_golden(convert_f32_to_bf16, wide, NULL, from_wide, sizeof wide / sizeof *wide);
        check_golden(convert_f16_to_bf16, NULL, halves, from_halves, sizeof halves / sizeof *halves);
    }
    convert_kernels_use(NULL);
}

/* Random bytes in n values at every place of a line, against the portable version, up to guard pages at both ends. */
static void check_length(const struct convert_kernels *k, size_t n, uint64_t *random)
{
    static uint8_t bytes[4 * 300], want[2 * 300];
    assert_true(n <= 300);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)test_random(random);
    for (size_t back = 0; back < 36; back += 5) {
        convert_portable.f32_to_bf16(want, bytes, n);
        uint8_t *dst = guarded(2 * n + back);
        memset(dst - 1, 0x5a, 2 * n + back + 1);
        k->f32_to_bf16(dst, test_against_a_guard_page(bytes, 4 * n), n);
        assert_memory_equal(dst, want, 2 * n);
        assert_int_equal(dst[-1], 0x5a);
        for (size_t i = 0; i < back; i++)
            assert_int_equal(dst[2 * n + i], 0x5a);

        convert_portable.f16_to_bf16(want, bytes, n);
        memset(dst - 1, 0x5a, 2 * n + back + 1);
        k->f16_to_bf16(dst, test_against_a_guard_page(bytes, 2 * n), n);
        assert_memory_equal(dst, want, 2 * n);
        assert_int_equal(dst[-1], 0x5a);
        for (size_t i = 0; i < back; i++)
            assert_int_equal(dst[2 * n + i], 0x5a);
    }
}

static void every_length_and_place_is_as_in_portable_c(void **state)
{
    (void)state;
    uint64_t random = 1;
    FOR_EACH_VARIANT(k)
    {
        for (size_t n = 0; n <= 70; n++)
            check_length(k, n, &random);
        for (int i = 0; i < 50; i++)
            check_length(k, test_random(&random) % 301, &random);
    }
}

/* Long enough to go past the cache. */
static void long_ones_are_as_in_portable_c(void **state)
{
    (void)state;
    enum { N = (5 << 20) / 2, SLACK = 64 };
    uint64_t random = 3;
    uint8_t *src = malloc((size_t)N * 4 + 1), *want = malloc((size_t)N * 2), *dst = malloc((size_t)N * 2 + SLACK);
    assert_non_null(src);
    assert_non_null(want);
    assert_non_null(dst);
    for (size_t i = 0; i + 8 <= (size_t)N * 4; i += 8) {
        uint64_t word = test_random(&random);
        memcpy(src + i, &word, sizeof word);
    }
    FOR_EACH_VARIANT(k)
    {
        for (size_t at = 0; at < 40; at += 13) { /* even and odd */
            memset(dst, 0x5a, (size_t)N * 2 + SLACK);
            convert_portable.f32_to_bf16(want, src, N - at);
            k->f32_to_bf16(dst + at, src, N - at);
            assert_memory_equal(dst + at, want, 2 * (N - at));
            assert_int_equal(dst[at + 2 * (N - at)], 0x5a);
            convert_portable.f16_to_bf16(want, src, N - at);
            k->f16_to_bf16(dst + at, src, N - at);
            assert_memory_equal(dst + at, want, 2 * (N - at));
            assert_int_equal(dst[at + 2 * (N - at)], 0x5a);
        }
    }
    free(src);
    free(want);
    free(dst);
}

/* ---- transposition ---- */

static void check_transpose(const struct convert_kernels *k, size_t rows, size_t cols, size_t src_gap, size_t dst_gap,
                            uint64_t *random)
{
    static uint8_t bytes[TEST_GUARDED_MAX];
    size_t src_stride = cols + src_gap, dst_stride = rows + dst_gap;
    size_t src_len = rows && cols ? (rows - 1) * src_stride + cols : 0;
    size_t dst_len = rows && cols ? (cols - 1) * dst_stride + rows : 0;
    for (size_t i = 0; i < src_len; i++)
        bytes[i] = (uint8_t)test_random(random);
    const uint8_t *src = test_against_a_guard_page(bytes, src_len);
    uint8_t *dst = guarded(dst_len);
    memset(dst - 1, 0x5a, dst_len + 1);
    k->transpose_bytes(dst, dst_stride, src, src_stride, rows, cols);
    assert_int_equal(dst[-1], 0x5a);
    for (size_t at = 0; at < dst_len; at++) {
        size_t c = at / dst_stride, r = at % dst_stride;
        if (dst[at] != (r < rows ? src[r * src_stride + c] : 0x5a))
            fail_msg("%s: %zu rows, %zu columns: column %zu, row %zu", k->name, rows, cols, c, r);
    }
}

static void every_small_size_is_transposed(void **state)
{
    (void)state;
    uint64_t random = 11;
    FOR_EACH_VARIANT(k)
    {
        for (size_t rows = 0; rows <= 40; rows++)
            for (size_t cols = 0; cols <= 40; cols++)
                check_transpose(k, rows, cols, rows % 3, cols % 5, &random);
    }
}

static void blocks_and_what_is_left_of_them_are_transposed(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 15, 16, 31, 32, 33, 63, 64, 65, 96, 127, 129, 257 };
    enum { N = sizeof sizes / sizeof *sizes };
    uint64_t random = 13;
    FOR_EACH_VARIANT(k)
    {
        for (size_t i = 0; i < N * N; i++)
            for (size_t gap = 0; gap < 2; gap++)
                check_transpose(k, sizes[i / N], sizes[i % N], gap * 7, gap * 3, &random);
        check_transpose(k, 512, 1024, 0, 0, &random);
    }
}

static void the_last_variant_is_portable(void **state)
{
    (void)state;
    size_t n = 0;
    while (convert_kernels_at(n))
        n++;
    assert_true(n >= 1);
    assert_ptr_equal(convert_kernels_at(n - 1), &convert_portable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_is_rounded_to_the_nearest),
        cmocka_unit_test(f32_is_rounded_to_the_nearest),
        cmocka_unit_test(known_values),
        cmocka_unit_test(every_length_and_place_is_as_in_portable_c),
        cmocka_unit_test(long_ones_are_as_in_portable_c),
        cmocka_unit_test(every_small_size_is_transposed),
        cmocka_unit_test(blocks_and_what_is_left_of_them_are_transposed),
        cmocka_unit_test(the_last_variant_is_portable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
