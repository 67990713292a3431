/* A cache over the real swap store, in a directory of its own. Its clock stands still until it is moved; its disk fails
 * on demand, and counts. */
#ifndef PENSTOCK_TEST_DISK_RIG_H
#define PENSTOCK_TEST_DISK_RIG_H

#include <stdatomic.h>

#include "residency/cache.h"
#include "residency/swap/swap.h"

#include "blobs.h"

struct disk_rig {
    char directory[64];
    struct residency_swap_options swap_options;
    bool in_memory; /* without a swap */
    struct residency_cache_options options;
    struct residency_ledger ledger;
    struct residency_swap *swap;
    struct residency_cache *cache;
    struct residency_swap_hook hook;
    _Atomic int write_errno, read_errno; /* transfers fail so; 0: well */
    bool bad_sector;                     /* the first record of a file cannot be written */
    _Atomic uint64_t writes, reads;
};

/* To be changed before disk_rig_start: both options, and in_memory. */
void disk_rig_init(struct disk_rig *rig);
void disk_rig_start(struct disk_rig *rig);
/* The cache and then the swap: what a peer does at its end, but for residency_spill_all. */
void disk_rig_stop(struct disk_rig *rig);
/* And the directory goes. */
void disk_rig_remove(struct disk_rig *rig);

struct residency_client *disk_rig_join(struct disk_rig *rig, uint32_t slots);
void disk_rig_pass_s(int64_t seconds);
struct residency_arena_stats disk_rig_stats(struct disk_rig *rig);

#endif
