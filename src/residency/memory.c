#include "memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define PAGE_BYTES 4096
#define HUGE_BYTES (UINT64_C(2) << 20)

static uint64_t mapped_bytes(const struct residency_memory *memory)
{
    return base_round_up_u64(memory->len_bytes, memory->page_bytes);
}

/* Before any page is there: the node is asked when one is first touched, or pinned. */
static int bind_to_node(const struct residency_memory *memory, int node, struct penstock_error *error)
{
    unsigned long mask[16] = { 0 };
    if (node < 0)
        return 0;
    if ((size_t)node >= sizeof mask * 8)
        return base_error_set(error, PENSTOCK_EINVAL, "there is no NUMA node %d", node);
    mask[(size_t)node / (8 * sizeof *mask)] |= 1ul << ((size_t)node % (8 * sizeof *mask));
    if (syscall(SYS_mbind, memory->base, mapped_bytes(memory), MPOL_BIND, mask, sizeof mask * 8 + 1, 0) != 0)
        return base_error_sys(error, errno, "bind an arena to NUMA node %d", node);
    return 0;
}

static bool map(struct residency_memory *memory, uint64_t page_bytes, int flags)
{
    memory->page_bytes = page_bytes;
    memory->base = mmap(NULL, mapped_bytes(memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return memory->base != MAP_FAILED;
}

int residency_memory_map(const struct residency_cache_options *options, uint64_t len_bytes,
                         struct residency_memory *out, struct penstock_error *error)
{
    struct residency_memory memory = { .len_bytes = len_bytes };
    bool huge = !options->no_huge_pages && !options->unbacked && len_bytes >= HUGE_BYTES;
    bool mapped = huge && map(&memory, HUGE_BYTES, MAP_HUGETLB | 21 << MAP_HUGE_SHIFT);
    if (!mapped && !map(&memory, PAGE_BYTES, options->unbacked ? MAP_NORESERVE : 0)) {
        int sys_errno = errno;
        return base_error_sys(error, sys_errno, "map an arena of %llu bytes", (unsigned long long)len_bytes);
    }
    if (huge && !mapped && madvise(memory.base, mapped_bytes(&memory), MADV_HUGEPAGE) != 0)
        base_log_debug("no transparent huge pages for an arena of %llu bytes", (unsigned long long)len_bytes);
    int code = bind_to_node(&memory, options->numa_node, error);
    if (code == 0)
        *out = memory;
    else
        residency_memory_unmap(&memory);
    return code;
}

void residency_memory_unmap(struct residency_memory *memory)
{
    if (memory->base)
        munmap(memory->base, mapped_bytes(memory));
    *memory = (struct residency_memory){ 0 };
}
