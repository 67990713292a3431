/* What every unit test begins with. */
#ifndef PENSTOCK_TEST_H
#define PENSTOCK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define TEST_GUARDED_MAX (1u << 20)

/* The n bytes at src, placed so that reading one byte past them faults. Valid until the next call. */
static inline uint8_t *test_against_a_guard_page(const void *src, size_t n)
{
    static uint8_t *pages;
    if (!pages) {
        pages = mmap(NULL, TEST_GUARDED_MAX + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(pages, MAP_FAILED);
        assert_int_equal(mprotect(pages + TEST_GUARDED_MAX, 4096, PROT_NONE), 0);
    }
    assert_true(n <= TEST_GUARDED_MAX);
    return n == 0 ? pages + TEST_GUARDED_MAX : memcpy(pages + TEST_GUARDED_MAX - n, src, n);
}

/* A small generator of its own, so that a failing case is the same one on every machine. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

#endif
