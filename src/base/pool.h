/* Memory that is given back all at once: strings and small arrays that live exactly as long as their owner. */
#ifndef PENSTOCK_BASE_POOL_H
#define PENSTOCK_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct base_pool_chunk;

struct base_pool {
    char *at, *end; /* what is left of the newest chunk */
    struct base_pool_chunk *newest;
};

/* Makes room for len bytes in one chunk, so that what comes next takes no further allocation. Pages that are never
 * written cost nothing. Returns false without memory. */
__attribute__((warn_unused_result)) bool base_pool_reserve(struct base_pool *pool, size_t len);

/* Aligned to 8; never NULL for a len of 0. NULL without memory. */
void *base_pool_alloc(struct base_pool *pool, size_t len);

/* A copy with a NUL behind it. NULL without memory. */
char *base_pool_string(struct base_pool *pool, const char *at, size_t len);

void base_pool_fini(struct base_pool *pool);

#endif
