/* Arithmetic on lengths that came from outside: true when the result is right, false when it would not fit. */
#ifndef PENSTOCK_BASE_CHECKED_H
#define PENSTOCK_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE_CHECKED __attribute__((warn_unused_result))

BASE_CHECKED static inline bool base_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

BASE_CHECKED static inline bool base_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

BASE_CHECKED static inline bool base_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

BASE_CHECKED static inline bool base_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Whether [offset, offset + len) lies inside [0, total). */
static inline bool base_range_inside(uint64_t offset, uint64_t len, uint64_t total)
{
    return offset <= total && len <= total - offset;
}

static inline uint64_t base_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t base_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Up to the next multiple of to, a power of two. The caller knows that it does not wrap. */
static inline uint64_t base_round_up_u64(uint64_t n, uint64_t to)
{
    return (n + to - 1) & ~(to - 1);
}

#endif
