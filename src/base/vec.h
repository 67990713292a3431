/* A growing array: struct { T *at; size_t n, cap; }, all zero at first. Growth is checked; a failed push changes
 * nothing. */
#ifndef PENSTOCK_BASE_VEC_H
#define PENSTOCK_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE_VEC(T)                                                                                                    \
    struct {                                                                                                           \
        T *at;                                                                                                         \
        size_t n, cap;                                                                                                 \
    }

/* Room for n elements in all. Returns false without memory. */
#define base_vec_reserve(v, want) base_vec_grow((void **)&(v)->at, &(v)->cap, (want), sizeof *(v)->at)

/* Appends value. Returns false without memory. */
#define base_vec_push(v, ...) (base_vec_reserve((v), (v)->n + 1) && ((v)->at[(v)->n++] = (__VA_ARGS__), true))

#define base_vec_free(v) (free((v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

#define base_vec_for_each(it, v) for (__typeof__((v)->at + 1) it = (v)->at; it != (v)->at + (v)->n; it++)

__attribute__((warn_unused_result)) bool base_vec_grow(void **at, size_t *cap, size_t want, size_t size);

/* A byte buffer, the same thing with its own calls. It remembers a failed allocation, so that a writer checks once. */
struct base_buf {
    uint8_t *at;
    size_t n, cap;
    bool failed;
};

void base_buf_append(struct base_buf *b, const void *bytes, size_t len);
/* Room for len more bytes at at + n, which the caller fills and counts; NULL without memory. */
uint8_t *base_buf_room(struct base_buf *b, size_t len);
__attribute__((format(printf, 2, 3))) void base_buf_printf(struct base_buf *b, const char *format, ...);
void base_buf_fini(struct base_buf *b);

#endif
