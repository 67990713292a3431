/* The checksum of blobs, with the widest vectors that the processor has: where disks are fast, this is most of what a
 * read costs. */
#include <xxhash.h>

#include "state.h"

#ifdef SWAP_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>

/* The library leaves the upper halves of the vector registers as they are, and some processors run all SSE code of the
 * thread at a quarter of its speed until somebody clears them. */
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
    __builtin_ia32_vzeroupper();
}

uint64_t swap_sum(const void *bytes, size_t len, uint64_t seed)
{
    uint64_t sum = XXH3_64bits_withSeed(bytes, len, seed);
    if (__builtin_cpu_supports("avx"))
        clear_upper_halves();
    return sum;
}

#else

uint64_t swap_sum(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

#endif
