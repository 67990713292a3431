#if defined(__x86_64__)

#include <emmintrin.h>
#include <string.h>

#include "kernels.h"

/* How far ahead a transposition's source is asked for, in each row. */
#define PREFETCH_BYTES 128

static __m128i load(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

static void store(uint8_t *at, __m128i value)
{
    _mm_storeu_si128((__m128i *)(void *)at, value);
}

static __m128i choose(__m128i mask, __m128i yes, __m128i no)
{
    return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}

/* ---- F32 ---- */

/* The upper half of each result is BF16, its sign spread above: the pack saturates. */
static inline __m128i round_f32(__m128i bits)
{
    __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    return _mm_srai_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd), 16);
}

/* Where there may be NaNs. */
static __m128i round_or_quiet(__m128i bits)
{
    __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
    __m128i nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f800000));
    __m128i quiet = _mm_srai_epi32(_mm_or_si128(bits, _mm_set1_epi32(0x400000)), 16);
    return choose(nan, quiet, round_f32(bits));
}

static inline __m128i eight_f32(const uint8_t *src)
{
    __m128i low = load(src), high = load(src + 16);
    if (__builtin_expect(_mm_movemask_ps(_mm_cmpunord_ps(_mm_castsi128_ps(low), _mm_castsi128_ps(high))), 0))
        return _mm_packs_epi32(round_or_quiet(low), round_or_quiet(high));
    return _mm_packs_epi32(round_f32(low), round_f32(high));
}

static void sse2_f32_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8)
        store(dst + 2 * i, eight_f32(src + 4 * i));
    convert_portable.f32_to_bf16(dst + 2 * i, src + 4 * i, n - i);
}

/* ---- F16 ---- */

/* Four subnormals, without their signs: m * 2^-24 is exact in F32, so that rounding it is rounding the value. */
static inline __m128i four_subnormals(__m128i m)
{
    return round_f32(_mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(m), _mm_set1_ps(0x1p-24F))));
}

static __m128i eight_subnormals(__m128i m)
{
    __m128i zero = _mm_setzero_si128();
    return _mm_packs_epi32(four_subnormals(_mm_unpacklo_epi16(m, zero)), four_subnormals(_mm_unpackhi_epi16(m, zero)));
}

/* What is not normal: zeros and subnormals, infinities and NaNs. normal: the others' results. */
static __m128i convert_unusual(__m128i halves, __m128i normal)
{
    __m128i sign = _mm_and_si128(halves, _mm_set1_epi16((short)0x8000));
    __m128i magnitude = _mm_and_si128(halves, _mm_set1_epi16(0x7fff));
    __m128i small = _mm_cmpgt_epi16(_mm_set1_epi16(0x400), magnitude);
    __m128i out = choose(small, _mm_or_si128(eight_subnormals(magnitude), sign), normal);

    __m128i special = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7bff));
    __m128i quiet = _mm_and_si128(_mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7c00)), _mm_set1_epi16(0x40));
    __m128i infinite = _mm_or_si128(_mm_add_epi16(_mm_srli_epi16(magnitude, 3), _mm_set1_epi16(224 << 7)), quiet);
    return choose(special, _mm_or_si128(infinite, sign), out);
}

/* In lanes of 16 bits: BF16 has three bits of mantissa less and an exponent that is 112 larger. The shift spreads the
 * sign over the bits that the mask takes out. */
static inline __m128i eight_f16(const uint8_t *src)
{
    __m128i halves = load(src);
    __m128i odd = _mm_and_si128(_mm_srli_epi16(halves, 3), _mm_set1_epi16(1));
    __m128i rounded = _mm_srai_epi16(_mm_add_epi16(_mm_add_epi16(halves, _mm_set1_epi16(3)), odd), 3);
    __m128i normal = _mm_add_epi16(_mm_and_si128(rounded, _mm_set1_epi16((short)0x8fff)), _mm_set1_epi16(112 << 7));

    /* The magnitude is 0x400 to 0x7bff where it is normal: less 0x400 and half of the range, one signed comparison. */
    __m128i moved = _mm_sub_epi16(_mm_and_si128(halves, _mm_set1_epi16(0x7fff)), _mm_set1_epi16((short)0x8400));
    __m128i unusual = _mm_cmpgt_epi16(moved, _mm_set1_epi16(0x77ff - 0x8000));
    if (__builtin_expect(_mm_movemask_epi8(unusual), 0))
        return convert_unusual(halves, normal);
    return normal;
}

static void sse2_f16_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8)
        store(dst + 2 * i, eight_f16(src + 2 * i));
    convert_portable.f16_to_bf16(dst + 2 * i, src + 2 * i, n - i);
}

/* ---- transposition ---- */

/* 16 rows of 8 bytes become 8 columns. Each round interleaves the first half of the rows with the second: after four, a
 * byte is where its row's and column's numbers are exchanged. Eight registers at a time: they need no memory. */
static inline void transpose_16(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride)
{
    __m128i row[8], next[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        __m128i upper = _mm_loadl_epi64((const __m128i *)(const void *)(src + i * src_stride));
        __m128i lower = _mm_loadl_epi64((const __m128i *)(const void *)(src + (i + 8) * src_stride));
        row[i] = _mm_unpacklo_epi8(upper, lower);
    }
#pragma GCC unroll 3
    for (int round = 0; round < 3; round++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            next[2 * i] = _mm_unpacklo_epi8(row[i], row[i + 4]);
            next[2 * i + 1] = _mm_unpackhi_epi8(row[i], row[i + 4]);
        }
        memcpy(row, next, sizeof next);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        store(dst + i * dst_stride, row[i]);
}

/* 16 rows of a line of the cache each, at most; the source's next lines are asked for meanwhile. */
static void transpose_lines(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t cols)
{
    for (size_t i = 0; i < 16; i++)
        _mm_prefetch((const char *)(src + i * src_stride + PREFETCH_BYTES), _MM_HINT_T0);
    for (size_t c = 0; c < cols; c += 8)
        transpose_16(dst + c * dst_stride, dst_stride, src + c, src_stride);
}

void convert_sse2_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                                  size_t cols)
{
    size_t whole_rows = rows & ~(size_t)15, whole_cols = cols & ~(size_t)7;
    /* Four blocks of rows in turn, so that a column's line is written in whole before it leaves the cache. */
    for (size_t r = 0; r < whole_rows; r += 64)
        for (size_t c = 0; c < whole_cols; c += 64)
            for (size_t part = r; part < whole_rows && part < r + 64; part += 16)
                transpose_lines(dst + c * dst_stride + part, dst_stride, src + part * src_stride + c, src_stride,
                                whole_cols - c < 64 ? whole_cols - c : 64);
    convert_portable.transpose_bytes(dst + whole_cols * dst_stride, dst_stride, src + whole_cols, src_stride, rows,
                                     cols - whole_cols);
    convert_portable.transpose_bytes(dst + whole_rows, dst_stride, src + whole_rows * src_stride, src_stride,
                                     rows - whole_rows, whole_cols);
}

const struct convert_kernels convert_sse2 = {
    .name = "sse2",
    .f32_to_bf16 = sse2_f32_to_bf16,
    .f16_to_bf16 = sse2_f16_to_bf16,
    .transpose_bytes = convert_sse2_transpose_bytes,
};

#endif
