#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checked.h"

enum { CHUNK_BYTES = 4096, CHUNK_BYTES_MAX = 4 << 20, ALIGNMENT = 8, HUGE_PAGE = 2 << 20 };

struct base_pool_chunk {
    struct base_pool_chunk *older;
    size_t size;
    max_align_t bytes[];
};

/* Chunks of several megabytes come on huge pages: filling them is bound by page faults otherwise. */
static struct base_pool_chunk *chunk_new(size_t size)
{
    if (size < 2 * HUGE_PAGE)
        return malloc(size);
    struct base_pool_chunk *chunk = aligned_alloc(HUGE_PAGE, size & ~(size_t)(HUGE_PAGE - 1));
    if (chunk)
        madvise(chunk, size & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
    return chunk;
}

bool base_pool_reserve(struct base_pool *pool, size_t len)
{
    if ((size_t)(pool->end - pool->at) >= len)
        return true;
    size_t want;
    if (!base_add_size(len, sizeof(struct base_pool_chunk), &want) || want > PTRDIFF_MAX - HUGE_PAGE)
        return false;
    if (want >= 2 * HUGE_PAGE)
        want = (want + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    /* Each chunk is twice the last one: a logarithm of allocations, and at most half of the memory unused. */
    size_t usual = pool->newest ? pool->newest->size * 2 : CHUNK_BYTES;
    usual = usual > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : usual;
    size_t size = want > usual ? want : usual;
    struct base_pool_chunk *chunk = chunk_new(size);
    if (!chunk)
        return false;
    chunk->older = pool->newest;
    chunk->size = size;
    pool->newest = chunk;
    pool->at = (char *)chunk->bytes;
    pool->end = (char *)chunk + size;
    return true;
}

void *base_pool_alloc(struct base_pool *pool, size_t len)
{
    size_t skip = (size_t)(-(uintptr_t)pool->at % ALIGNMENT);
    size_t want;
    if (!base_add_size(len > 0 ? len : 1, skip, &want) || !base_pool_reserve(pool, want))
        return NULL;
    skip = (size_t)(-(uintptr_t)pool->at % ALIGNMENT); /* a new chunk begins aligned */
    char *at = pool->at + skip;
    pool->at = at + len;
    return at;
}

char *base_pool_string(struct base_pool *pool, const char *at, size_t len)
{
    size_t want;
    if (!base_add_size(len, 1, &want) || !base_pool_reserve(pool, want))
        return NULL;
    char *copy = pool->at;
    if (len > 0)
        memcpy(copy, at, len);
    copy[len] = 0;
    pool->at += want;
    return copy;
}

void base_pool_fini(struct base_pool *pool)
{
    for (struct base_pool_chunk *chunk = pool->newest, *older; chunk; chunk = older) {
        older = chunk->older;
        free(chunk);
    }
    *pool = (struct base_pool){ 0 };
}
