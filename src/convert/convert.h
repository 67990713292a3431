/* Kernels over whole tensors: to BF16, and transposed. Each has a portable version and vector ones; the best that the
 * machine can run is chosen at the first call (kernels.h). All are safe from any thread. Source and destination do not
 * overlap, and need no alignment. */
#ifndef PENSTOCK_CONVERT_H
#define PENSTOCK_CONVERT_H

#include <stddef.h>
#include <stdint.h>

/* n values of little-endian F32 or F16 at src become n of BF16 at dst (protocol 1.5): to nearest, ties to even. A NaN
 * becomes quiet, and keeps its sign and the upper bits of its payload; a value too large for BF16 becomes infinite. */
void convert_f32_to_bf16(void *dst, const void *src, size_t n);
void convert_f16_to_bf16(void *dst, const void *src, size_t n);

/* dst[c][r] = src[r][c] for bytes: src has rows of cols bytes, src_stride apart; dst has cols of rows bytes, dst_stride
 * apart. Bytes between rows are neither read nor written. */
void convert_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                             size_t cols);

#endif
