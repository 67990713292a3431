#if defined(__x86_64__)

#include <emmintrin.h>
#include <string.h>

#include "kernels.h"

/* From here on in one call results go past the cache: its lines would not be read again before others push them out. */
#define STREAM_BYTES ((size_t)4 << 20)

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

/* Values from here on until dst is aligned, for those which go past the cache; 0 where they do not, or never are. */
static size_t values_to_align(const uint8_t *dst, size_t n)
{
    uintptr_t at = (uintptr_t)dst;
    return n < STREAM_BYTES / 2 || at % 2 != 0 ? 0 : (size_t)(-at % 16) / 2;
}

/* ---- F32 ---- */

/* The upper half of each result is BF16, sign-extended below for the pack that saturates. */
static __m128i round_f32(__m128i bits)
{
    __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
    __m128i nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f800000));
    __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
    return _mm_srai_epi32(choose(nan, _mm_or_si128(bits, _mm_set1_epi32(0x400000)), rounded), 16);
}

static __m128i eight_f32(const uint8_t *src)
{
    return _mm_packs_epi32(round_f32(load(src)), round_f32(load(src + 16)));
}

static void sse2_f32_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = values_to_align(dst, n);
    convert_portable.f32_to_bf16(dst, src, i);
    if (n >= STREAM_BYTES / 2 && (uintptr_t)(dst + 2 * i) % 16 == 0) {
        for (; n - i >= 8; i += 8)
            _mm_stream_si128((__m128i *)(void *)(dst + 2 * i), eight_f32(src + 4 * i));
        _mm_sfence();
    }
    for (; n - i >= 8; i += 8)
        store(dst + 2 * i, eight_f32(src + 4 * i));
    convert_portable.f32_to_bf16(dst + 2 * i, src + 4 * i, n - i);
}

/* ---- F16 ---- */

/* Four subnormals, without their signs: m * 2^-24 is exact in F32, so that rounding it is rounding the value. */
static __m128i four_subnormals(__m128i m)
{
    __m128i bits = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(m), _mm_set1_ps(0x1p-24F)));
    return round_f32(bits);
}

static __m128i eight_subnormals(__m128i m)
{
    __m128i zero = _mm_setzero_si128();
    return _mm_packs_epi32(four_subnormals(_mm_unpacklo_epi16(m, zero)), four_subnormals(_mm_unpackhi_epi16(m, zero)));
}

/* In lanes of 16 bits: BF16 has three bits of mantissa less and an exponent that is 112 larger. */
static __m128i convert_f16(__m128i halves)
{
    __m128i sign = _mm_and_si128(halves, _mm_set1_epi16((short)0x8000));
    __m128i magnitude = _mm_andnot_si128(_mm_set1_epi16((short)0x8000), halves);
    __m128i cut = _mm_srli_epi16(magnitude, 3);
    __m128i odd = _mm_and_si128(cut, _mm_set1_epi16(1));
    __m128i rounded = _mm_srli_epi16(_mm_add_epi16(_mm_add_epi16(magnitude, _mm_set1_epi16(3)), odd), 3);
    __m128i out = _mm_add_epi16(rounded, _mm_set1_epi16(112 << 7));

    __m128i special = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7bff));
    __m128i quiet = _mm_and_si128(_mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7c00)), _mm_set1_epi16(0x40));
    __m128i infinite = _mm_or_si128(_mm_add_epi16(cut, _mm_set1_epi16(224 << 7)), quiet);
    out = choose(special, infinite, out);

    __m128i small = _mm_cmplt_epi16(magnitude, _mm_set1_epi16(0x400));
    out = _mm_andnot_si128(small, out); /* zeros are common, and right now */
    __m128i zero = _mm_cmpeq_epi16(magnitude, _mm_setzero_si128());
    __m128i subnormal = _mm_andnot_si128(zero, small);
    if (_mm_movemask_epi8(subnormal))
        out = choose(subnormal, eight_subnormals(magnitude), out);
    return _mm_or_si128(out, sign);
}

static void sse2_f16_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = values_to_align(dst, n);
    convert_portable.f16_to_bf16(dst, src, i);
    if (n >= STREAM_BYTES / 2 && (uintptr_t)(dst + 2 * i) % 16 == 0) {
        for (; n - i >= 8; i += 8)
            _mm_stream_si128((__m128i *)(void *)(dst + 2 * i), convert_f16(load(src + 2 * i)));
        _mm_sfence();
    }
    for (; n - i >= 8; i += 8)
        store(dst + 2 * i, convert_f16(load(src + 2 * i)));
    convert_portable.f16_to_bf16(dst + 2 * i, src + 2 * i, n - i);
}

/* ---- transposition ---- */

/* 16 rows of 16 bytes become 16 columns. Each round interleaves row i with row i + 8; after four, bytes have moved to
 * where their row's and column's numbers are exchanged. */
static void transpose_16(__m128i row[16])
{
    for (int round = 0; round < 4; round++) {
        __m128i next[16];
        for (int i = 0; i < 8; i++) {
            next[2 * i] = _mm_unpacklo_epi8(row[i], row[i + 8]);
            next[2 * i + 1] = _mm_unpackhi_epi8(row[i], row[i + 8]);
        }
        memcpy(row, next, sizeof next);
    }
}

/* A strip of 16 columns of 64 rows, so that each column's part is a whole line of the cache. */
static void transpose_strip(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows)
{
    for (size_t r = 0; r < rows; r += 16) {
        __m128i row[16];
        for (size_t i = 0; i < 16; i++)
            row[i] = load(src + (r + i) * src_stride);
        transpose_16(row);
        for (size_t i = 0; i < 16; i++)
            store(dst + i * dst_stride + r, row[i]);
    }
}

static void sse2_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                                 size_t cols)
{
    size_t whole_rows = rows & ~(size_t)15, whole_cols = cols & ~(size_t)15;
    for (size_t r = 0; r < whole_rows; r += 64)
        for (size_t c = 0; c < whole_cols; c += 16)
            transpose_strip(dst + c * dst_stride + r, dst_stride, src + r * src_stride + c, src_stride,
                            whole_rows - r < 64 ? whole_rows - r : 64);
    convert_portable.transpose_bytes(dst + whole_cols * dst_stride, dst_stride, src + whole_cols, src_stride, rows,
                                     cols - whole_cols);
    convert_portable.transpose_bytes(dst + whole_rows, dst_stride, src + whole_rows * src_stride, src_stride,
                                     rows - whole_rows, whole_cols);
}

const struct convert_kernels convert_sse2 = {
    .name = "sse2",
    .f32_to_bf16 = sse2_f32_to_bf16,
    .f16_to_bf16 = sse2_f16_to_bf16,
    .transpose_bytes = sse2_transpose_bytes,
};

#endif
