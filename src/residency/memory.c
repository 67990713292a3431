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

/* With nothing where there are too few. The kernel promises huge pages, but not which node's: one that has too few of
 * them ends whoever touches what is missing. So they are taken at once. */
static int map_huge(const struct residency_cache_options *options, struct residency_memory *memory,
                    struct penstock_error *error)
{
    if (!map(memory, HUGE_BYTES, MAP_HUGETLB | 21 << MAP_HUGE_SHIFT)) {
        memory->base = NULL;
        return 0;
    }
    int code = bind_to_node(memory, options->numa_node, error);
    if (code == 0 && (options->numa_node < 0 || madvise(memory->base, mapped_bytes(memory), MADV_POPULATE_WRITE) == 0))
        return 0;
    munmap(memory->base, mapped_bytes(memory));
    memory->base = NULL;
    return code;
}

static int map_small(const struct residency_cache_options *options, struct residency_memory *memory, bool huge,
                     struct penstock_error *error)
{
    if (!map(memory, PAGE_BYTES, options->unbacked ? MAP_NORESERVE : 0)) {
        int sys_errno = errno;
        return base_error_sys(error, sys_errno, "map an arena of %llu bytes", (unsigned long long)memory->len_bytes);
    }
    if (huge && madvise(memory->base, mapped_bytes(memory), MADV_HUGEPAGE) != 0)
        base_log_debug("no transparent huge pages for an arena of %llu bytes", (unsigned long long)memory->len_bytes);
    int code = bind_to_node(memory, options->numa_node, error);
    if (code != 0)
        residency_memory_unmap(memory);
    return code;
}

int residency_memory_map(const struct residency_cache_options *options, uint64_t len_bytes,
                         struct residency_memory *out, struct penstock_error *error)
{
    struct residency_memory memory = { .len_bytes = len_bytes };
    bool huge = !options->no_huge_pages && !options->unbacked && len_bytes >= HUGE_BYTES;
    int code = huge ? map_huge(options, &memory, error) : 0;
    if (code == 0 && !memory.base)
        code = map_small(options, &memory, huge, error);
    if (code == 0)
        *out = memory;
    return code;
}

void residency_memory_unmap(struct residency_memory *memory)
{
    if (memory->base)
        munmap(memory->base, mapped_bytes(memory));
    *memory = (struct residency_memory){ 0 };
}
