#include "cache_rig.h"

#include <stdlib.h>
#include <string.h>

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

void rig_fill(void *blob, uint64_t what)
{
    for (size_t i = 0; i < RIG_BLOB; i += 512)
        memcpy((uint8_t *)blob + i, &what, sizeof what);
    memcpy((uint8_t *)blob + RIG_BLOB - sizeof what, &what, sizeof what);
}

uint64_t rig_read(const void *blob)
{
    uint64_t first, other;
    memcpy(&first, blob, sizeof first);
    for (size_t i = 0; i <= RIG_BLOB; i += 512) {
        memcpy(&other, (const uint8_t *)blob + (i < RIG_BLOB ? i : RIG_BLOB - sizeof other), sizeof other);
        if (other != first)
            return 0;
    }
    return first;
}

void *rig_blob(struct residency_client *client, uint64_t offset)
{
    return (uint8_t *)residency_memory(client).base + offset;
}

enum residency_status rig_put(struct residency_client *client, uint64_t key, uint64_t what)
{
    uint64_t offset;
    enum residency_status status = residency_alloc(client, rig_key(key), &offset);
    if (status != RESIDENCY_OK)
        return status;
    rig_fill(rig_blob(client, offset), what);
    return residency_commit(client, rig_key(key));
}

uint64_t rig_get(struct residency_client *client, uint64_t key)
{
    uint64_t offset, what = 0;
    enum residency_status status = residency_get(client, rig_key(key), &offset);
    if (status == RESIDENCY_OK)
        what = rig_read(rig_blob(client, offset));
    residency_let_go(client);
    return status == RESIDENCY_OK ? what : status == RESIDENCY_MISS ? 0 : UINT64_MAX;
}
