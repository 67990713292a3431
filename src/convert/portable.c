#include <endian.h>
#include <string.h>

#include "kernels.h"

/* A block's rows and columns: a line of the cache on both sides. */
#define BLOCK 64

static uint16_t f32_to_bf16(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* quiet */
    /* Half of the last place, or just below it where the kept part is even; a carry goes into the exponent, and from
     * the largest one into infinity. */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Every F16 is an F32. */
static uint32_t f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0x1f)
        return sign | 0x7f800000 | mantissa << 13;
    if (exponent != 0)
        return sign | (exponent + 127 - 15) << 23 | mantissa << 13;
    if (mantissa == 0)
        return sign;
    /* mantissa * 2^-24: its highest set bit becomes the one that is not stored. */
    uint32_t highest = 31 - (uint32_t)__builtin_clz(mantissa);
    return sign | (highest + 127 - 24) << 23 | (mantissa << (23 - highest) & 0x7fffff);
}

static void put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof value);
}

static void portable_f32_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + 4 * i, sizeof bits);
        put_u16(dst + 2 * i, f32_to_bf16(le32toh(bits)));
    }
}

static void portable_f16_to_bf16(uint8_t *dst, const uint8_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, sizeof half);
        put_u16(dst + 2 * i, f32_to_bf16(f16_to_f32(le16toh(half))));
    }
}

static void transpose_block(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                            size_t cols)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < rows; r++)
            dst[c * dst_stride + r] = src[r * src_stride + c];
}

static void portable_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride,
                                     size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r += BLOCK)
        for (size_t c = 0; c < cols; c += BLOCK)
            transpose_block(dst + c * dst_stride + r, dst_stride, src + r * src_stride + c, src_stride,
                            rows - r < BLOCK ? rows - r : BLOCK, cols - c < BLOCK ? cols - c : BLOCK);
}

const struct convert_kernels convert_portable = {
    .name = "portable",
    .f32_to_bf16 = portable_f32_to_bf16,
    .f16_to_bf16 = portable_f16_to_bf16,
    .transpose_bytes = portable_transpose_bytes,
};
