#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "kernels.h"

/* The rest of the library runs on processors without it. */
#define AVX2 __attribute__((target("avx2")))

/* As in sse2.c. */
#define STREAM_BYTES ((size_t)4 << 20)

AVX2 static inline __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

AVX2 static inline void store(uint8_t *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)at, value);
}

static size_t values_to_align(const uint8_t *dst, size_t n)
{
    uintptr_t at = (uintptr_t)dst;
    return n < STREAM_BYTES / 2 || at % 2 != 0 ? 0 : (size_t)(-at % 32) / 2;
}

/* ---- F32 ---- */

AVX2 static inline __m256i round_f32(__m256i bits)
{
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

/* The pack takes the halves of 128 bits in turn: the permutation puts them in order. */
AVX2 static inline __m256i sixteen_f32(const uint8_t *src)
{
    __m256i packed = _mm256_packus_epi32(round_f32(load(src)), round_f32(load(src + 32)));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

AVX2 static void avx2_f32_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = values_to_align(dst, n);
    convert_portable.f32_to_bf16(dst, src, i);
    if (n >= STREAM_BYTES / 2 && (uintptr_t)(dst + 2 * i) % 32 == 0) {
        for (; n - i >= 16; i += 16)
            _mm256_stream_si256((__m256i *)(void *)(dst + 2 * i), sixteen_f32(src + 4 * i));
        _mm_sfence();
    }
    for (; n - i >= 16; i += 16)
        store(dst + 2 * i, sixteen_f32(src + 4 * i));
    convert_portable.f32_to_bf16(dst + 2 * i, src + 4 * i, n - i);
}

/* ---- F16: as in sse2.c ---- */

AVX2 static inline __m256i eight_subnormals(__m256i m)
{
    return round_f32(_mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(m), _mm256_set1_ps(0x1p-24F))));
}

/* Unpack and pack keep to halves of 128 bits in the same way: together they change no order. */
AVX2 static __m256i sixteen_subnormals(__m256i m)
{
    __m256i zero = _mm256_setzero_si256();
    return _mm256_packus_epi32(eight_subnormals(_mm256_unpacklo_epi16(m, zero)),
                               eight_subnormals(_mm256_unpackhi_epi16(m, zero)));
}

AVX2 static inline __m256i convert_f16(__m256i halves)
{
    __m256i sign = _mm256_and_si256(halves, _mm256_set1_epi16((short)0x8000));
    __m256i magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    __m256i cut = _mm256_srli_epi16(magnitude, 3);
    __m256i odd = _mm256_and_si256(cut, _mm256_set1_epi16(1));
    __m256i rounded = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(magnitude, _mm256_set1_epi16(3)), odd), 3);
    __m256i out = _mm256_add_epi16(rounded, _mm256_set1_epi16(112 << 7));

    __m256i special = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7bff));
    __m256i quiet = _mm256_and_si256(_mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00)), _mm256_set1_epi16(0x40));
    __m256i infinite = _mm256_or_si256(_mm256_add_epi16(cut, _mm256_set1_epi16(224 << 7)), quiet);
    out = _mm256_blendv_epi8(out, infinite, special);

    __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x400), magnitude);
    out = _mm256_andnot_si256(small, out);
    __m256i zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
    __m256i subnormal = _mm256_andnot_si256(zero, small);
    if (!_mm256_testz_si256(subnormal, subnormal))
        out = _mm256_blendv_epi8(out, sixteen_subnormals(magnitude), subnormal);
    return _mm256_or_si256(out, sign);
}

AVX2 static void avx2_f16_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = values_to_align(dst, n);
    convert_portable.f16_to_bf16(dst, src, i);
    if (n >= STREAM_BYTES / 2 && (uintptr_t)(dst + 2 * i) % 32 == 0) {
        for (; n - i >= 16; i += 16)
            _mm256_stream_si256((__m256i *)(void *)(dst + 2 * i), convert_f16(load(src + 2 * i)));
        _mm_sfence();
    }
    for (; n - i >= 16; i += 16)
        store(dst + 2 * i, convert_f16(load(src + 2 * i)));
    convert_portable.f16_to_bf16(dst + 2 * i, src + 2 * i, n - i);
}

/* ---- transposition ---- */

/* Two blocks of 16 rows by 16 columns at once, one above the other, each in a half of the registers: sse2.c's rounds
 * leave 32 rows of a column in one. */
AVX2 static inline void transpose_32(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride)
{
    __m256i row[16], next[16];
    for (size_t i = 0; i < 16; i++) {
        __m128i upper = _mm_loadu_si128((const __m128i *)(const void *)(src + i * src_stride));
        __m128i lower = _mm_loadu_si128((const __m128i *)(const void *)(src + (i + 16) * src_stride));
        row[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(upper), lower, 1);
    }
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            next[2 * i] = _mm256_unpacklo_epi8(row[i], row[i + 8]);
            next[2 * i + 1] = _mm256_unpackhi_epi8(row[i], row[i + 8]);
        }
        memcpy(row, next, sizeof next);
    }
    for (size_t i = 0; i < 16; i++)
        store(dst + i * dst_stride, row[i]);
}

AVX2 static void avx2_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride,
                                      size_t rows, size_t cols)
{
    size_t whole_rows = rows & ~(size_t)31, whole_cols = cols & ~(size_t)15;
    for (size_t r = 0; r < whole_rows; r += 64)
        for (size_t c = 0; c < whole_cols; c += 16)
            for (size_t part = r; part < whole_rows && part < r + 64; part += 32)
                transpose_32(dst + c * dst_stride + part, dst_stride, src + part * src_stride + c, src_stride);
    convert_sse2.transpose_bytes(dst + whole_cols * dst_stride, dst_stride, src + whole_cols, src_stride, rows,
                                 cols - whole_cols);
    convert_sse2.transpose_bytes(dst + whole_rows, dst_stride, src + whole_rows * src_stride, src_stride,
                                 rows - whole_rows, whole_cols);
}

const struct convert_kernels convert_avx2 = {
    .name = "avx2",
    .f32_to_bf16 = avx2_f32_to_bf16,
    .f16_to_bf16 = avx2_f16_to_bf16,
    .transpose_bytes = avx2_transpose_bytes,
};

#endif
