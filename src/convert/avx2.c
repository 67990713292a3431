#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels.h"

/* The rest of the library runs on processors without it. */
#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

AVX2 static inline void store(uint8_t *at, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)at, value);
}

/* ---- F32 ---- */

/* BF16 in the lower half of each result. */
AVX2 static inline __m256i round_f32(__m256i bits)
{
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}

/* Where there may be NaNs. */
AVX2 static __m256i round_or_quiet(__m256i bits)
{
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    __m256i quiet = _mm256_srli_epi32(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), 16);
    return _mm256_blendv_epi8(round_f32(bits), quiet, nan);
}

/* The pack takes the halves of 128 bits in turn: the permutation puts them in order. */
AVX2 static inline __m256i sixteen_f32(const uint8_t *src)
{
    __m256i low = load(src), high = load(src + 32);
    if (__builtin_expect(
            _mm256_movemask_ps(_mm256_cmp_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _CMP_UNORD_Q)), 0))
        return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_or_quiet(low), round_or_quiet(high)), 0xd8);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_f32(low), round_f32(high)), 0xd8);
}

AVX2 static void avx2_f32_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16)
        store(dst + 2 * i, sixteen_f32(src + 4 * i));
    convert_portable.f32_to_bf16(dst + 2 * i, src + 4 * i, n - i);
}

/* ---- F16 ---- */

/* Eight subnormals, without their signs: m * 2^-24 is exact in F32, so that rounding it is rounding the value. */
AVX2 static inline __m256i eight_subnormals(__m256i m)
{
    return round_f32(_mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(m), _mm256_set1_ps(0x1p-24F))));
}

AVX2 static __m256i sixteen_subnormals(__m256i m)
{
    __m256i zero = _mm256_setzero_si256();
    return _mm256_packus_epi32(eight_subnormals(_mm256_unpacklo_epi16(m, zero)),
                               eight_subnormals(_mm256_unpackhi_epi16(m, zero)));
}

/* What is not normal: zeros and subnormals, infinities and NaNs. normal: the others' results. */
AVX2 static __m256i convert_unusual(__m256i halves, __m256i normal)
{
    __m256i sign = _mm256_and_si256(halves, _mm256_set1_epi16((short)0x8000));
    __m256i magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x400), magnitude);
    __m256i out = _mm256_blendv_epi8(normal, _mm256_or_si256(sixteen_subnormals(magnitude), sign), small);

    __m256i special = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7bff));
    __m256i quiet = _mm256_and_si256(_mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00)), _mm256_set1_epi16(0x40));
    __m256i infinite =
        _mm256_or_si256(_mm256_add_epi16(_mm256_srli_epi16(magnitude, 3), _mm256_set1_epi16(224 << 7)), quiet);
    return _mm256_blendv_epi8(out, _mm256_or_si256(infinite, sign), special);
}

/* In lanes of 16 bits: BF16 has three bits of mantissa less and an exponent that is 112 larger. The shift spreads the
 * sign over the bits that the mask takes out. */
AVX2 static inline __m256i sixteen_f16(const uint8_t *src)
{
    __m256i halves = load(src);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(halves, 3), _mm256_set1_epi16(1));
    __m256i rounded = _mm256_srai_epi16(_mm256_add_epi16(_mm256_add_epi16(halves, _mm256_set1_epi16(3)), odd), 3);
    __m256i normal =
        _mm256_add_epi16(_mm256_and_si256(rounded, _mm256_set1_epi16((short)0x8fff)), _mm256_set1_epi16(112 << 7));

    /* The magnitude is 0x400 to 0x7bff where it is normal: less 0x400 and half of the range, one signed comparison. */
    __m256i moved =
        _mm256_sub_epi16(_mm256_and_si256(halves, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16((short)0x8400));
    __m256i unusual = _mm256_cmpgt_epi16(moved, _mm256_set1_epi16(0x77ff - 0x8000));
    if (__builtin_expect(_mm256_movemask_epi8(unusual), 0))
        return convert_unusual(halves, normal);
    return normal;
}

AVX2 static void avx2_f16_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16)
        store(dst + 2 * i, sixteen_f16(src + 2 * i));
    convert_portable.f16_to_bf16(dst + 2 * i, src + 2 * i, n - i);
}

const struct convert_kernels convert_avx2 = {
    .name = "avx2",
    .f32_to_bf16 = avx2_f32_to_bf16,
    .f16_to_bf16 = avx2_f16_to_bf16,
    .transpose_bytes = convert_sse2_transpose_bytes, /* faster than one with 32 rows in a register */
};

#endif
