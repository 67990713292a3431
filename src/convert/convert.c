#include "convert.h"

#include <stdatomic.h>

#include "kernels.h"

static _Atomic(const struct convert_kernels *) chosen;

const struct convert_kernels *convert_kernels_at(size_t index)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && index-- == 0)
        return &convert_avx2;
    if (index-- == 0)
        return &convert_sse2; /* part of x86-64 */
#endif
    return index == 0 ? &convert_portable : NULL;
}

void convert_kernels_use(const struct convert_kernels *kernels)
{
    atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
}

/* Threads that come here first at once all choose the same. */
static const struct convert_kernels *best(void)
{
    const struct convert_kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!kernels) {
        kernels = convert_kernels_at(0);
        convert_kernels_use(kernels);
    }
    return kernels;
}

void convert_f32_to_bf16(void *dst, const void *src, size_t n)
{
    best()->f32_to_bf16(dst, src, n);
}

void convert_f16_to_bf16(void *dst, const void *src, size_t n)
{
    best()->f16_to_bf16(dst, src, n);
}

void convert_transpose_bytes(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, size_t rows,
                             size_t cols)
{
    best()->transpose_bytes(dst, dst_stride, src, src_stride, rows, cols);
}
