#include "cache_rig.h"

#include <stdlib.h>

static int64_t now_ns;

static int64_t rig_now_ns(void)
{
    return now_ns;
}

static void land_or_abort(void *user)
{
    struct rig *rig = user;
    if (!fake_swap_land(rig->swap))
        abort();
}

void rig_init(struct rig *rig)
{
    *rig = (struct rig){ .swap = fake_swap_new() };
    now_ns = INT64_C(1000000000000);
    residency_ledger_init(&rig->ledger, UINT64_C(1) << 30);
    rig->options = (struct residency_cache_options){ .swap = rig->swap,
                                                     .ledger = &rig->ledger,
                                                     .numa_node = -1,
                                                     .no_huge_pages = true,
                                                     .now_ns = rig_now_ns,
                                                     .while_waiting = land_or_abort,
                                                     .user = rig };
}

void rig_start(struct rig *rig)
{
    if (residency_cache_new(&rig->options, &rig->cache, NULL) != 0)
        abort();
}

void rig_stop(struct rig *rig)
{
    residency_cache_free(rig->cache);
    if (residency_used(&rig->ledger) != 0)
        abort();
    residency_ledger_fini(&rig->ledger);
    fake_swap_free(rig->swap);
}

void rig_restart(struct rig *rig, struct residency_swap *killed)
{
    residency_cache_free(rig->cache);
    fake_swap_free(rig->swap);
    rig->swap = killed;
    rig->options.swap = killed;
    rig_start(rig);
}

struct residency_client *rig_join(struct rig *rig, uint32_t slots)
{
    struct residency_client *client;
    if (residency_join(rig->cache, RESIDENCY_KV, (uint64_t)slots * RIG_BLOB, RIG_BLOB, &client, NULL) != 0)
        abort();
    return client;
}

void rig_land_all(struct rig *rig)
{
    while (fake_swap_land(rig->swap))
        ;
}

void rig_pass_s(int64_t seconds)
{
    now_ns += seconds * INT64_C(1000000000);
}

struct residency_arena_stats rig_stats(struct rig *rig)
{
    struct residency_arena_stats stats = { 0 };
    (void)residency_stats(rig->cache, &stats, 1);
    return stats;
}
