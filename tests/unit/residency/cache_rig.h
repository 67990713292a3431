/* A cache over the fake swap, one thread, and a clock that stands still until it is moved. Waiting lands I/O; where a
 * call would wait with none in flight it waits for another client, and the program aborts. */
#ifndef PENSTOCK_TEST_CACHE_RIG_H
#define PENSTOCK_TEST_CACHE_RIG_H

#include "blobs.h"
#include "fake_swap.h"

struct rig {
    struct residency_cache_options options;
    struct residency_swap *swap;
    struct residency_cache *cache;
    struct residency_ledger ledger;
};

/* To be changed before rig_start: options. */
void rig_init(struct rig *rig);
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
/* Killed and started again, over what the disk had of it. Its clients are to be freed before; killed holds what
 * fake_swap_after_kill said. */
void rig_restart(struct rig *rig, struct residency_swap *killed);

struct residency_client *rig_join(struct rig *rig, uint32_t slots);
void rig_land_all(struct rig *rig);
void rig_pass_s(int64_t seconds);
struct residency_arena_stats rig_stats(struct rig *rig);

#endif
