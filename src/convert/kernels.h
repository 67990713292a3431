/* The variants of the kernels, for the choice among them and for tests, which run each one. */
#ifndef PENSTOCK_CONVERT_KERNELS_H
#define PENSTOCK_CONVERT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

struct convert_kernels {
    const char *name;
    void (*f32_to_bf16)(uint8_t *dst, const uint8_t *src, size_t n);
    void (*f16_to_bf16)(uint8_t *dst, const uint8_t *src, size_t n);
    void (*transpose_bytes)(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                            size_t cols);
};

extern const struct convert_kernels convert_portable;
#if defined(__x86_64__)
extern const struct convert_kernels convert_sse2;
extern const struct convert_kernels convert_avx2;

/* Of both. */
void convert_sse2_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                                  size_t cols);
#endif

/* The variants that this machine runs, best first; NULL past the last, which is the portable one. */
const struct convert_kernels *convert_kernels_at(size_t index);

/* Makes convert.h use this variant from now on, NULL: the best. For tests and benchmarks, while no kernel runs. */
void convert_kernels_use(const struct convert_kernels *kernels);

#endif
