/* How much memory warming may fill: the least of what the machine and our control groups have. */
#ifndef PENSTOCK_PEER_MEMORY_H
#define PENSTOCK_PEER_MEMORY_H

#include <stdint.h>

/* Bytes that could be had without swapping, cached pages counted as if they were free; UINT64_MAX: no limit is known.
 * Control groups are those of version 2: memory.max and memory.high of our own and of those above it. */
uint64_t peer_memory_available(void);

/* The same for one group's directory alone, and for those from root/path up to root. */
uint64_t peer_memory_of_group(const char *directory);
uint64_t peer_memory_of_groups(const char *root, const char *path);

/* Bytes of 2 MiB pages that nobody has or was promised, by the kernel's files in that directory. */
#define PEER_MEMORY_HUGE_PAGES "/sys/kernel/mm/hugepages/hugepages-2048kB"
uint64_t peer_memory_huge(const char *directory);

#endif
