#include "life.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "memory.h"

/* At most so many free slots are kept ahead of need, and at most a sixteenth of all. */
#define LOW_SLOTS_MAX 64

const char *residency_kind_name(enum residency_kind kind)
{
    return kind == RESIDENCY_KV ? "kv" : "ssm";
}

static const struct residency_queue empty = { RESIDENCY_NONE, RESIDENCY_NONE };

int residency_arena_new(struct residency_cache *cache, enum residency_kind kind, uint64_t blob_bytes,
                        struct residency_arena **out, struct penstock_error *error)
{
    struct residency_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an arena");
    arena->cache = cache;
    arena->kind = kind;
    arena->raw = blob_bytes == 0;
    arena->blob_bytes = blob_bytes;
    arena->idle_since = residency_moment(cache);
    arena->lru = arena->disk = arena->clean = empty;
    arena->coldest = arena->spare_slot = RESIDENCY_NONE;
    base_list_init(&arena->wants);
    pthread_mutex_init(&arena->registration_lock, NULL);
    pthread_mutex_init(&arena->lock, NULL);
    pthread_cond_init(&arena->landed, NULL);
    pthread_cond_init(&arena->left, NULL);
    residency_table_init(&arena->entries, cache->seed, sizeof(struct residency_entry), true);
    *out = arena;
    return 0;
}

void residency_arena_free(struct residency_arena *arena)
{
    pthread_mutex_lock(&arena->lock);
    while (arena->in_flight > 0)
        residency_wait_for_landing(arena);
    pthread_mutex_unlock(&arena->lock);
    residency_arena_unmap(arena);
    residency_table_fini(&arena->entries);
    base_vec_free(&arena->faults);
    base_vec_free(&arena->spare_faults);
    pthread_cond_destroy(&arena->left);
    pthread_cond_destroy(&arena->landed);
    pthread_mutex_destroy(&arena->lock);
    pthread_mutex_destroy(&arena->registration_lock);
    free(arena);
}

static int charge(struct residency_arena *arena, uint64_t arena_bytes, struct penstock_error *error)
{
    char what[RESIDENCY_WHAT_MAX];
    if (!arena->cache->options.ledger)
        return 0;
    if (arena->raw)
        snprintf(what, sizeof what, "a raw %s arena", residency_kind_name(arena->kind));
    else
        snprintf(what, sizeof what, "the %s arena of %" PRIu64 "-byte blobs", residency_kind_name(arena->kind),
                 arena->blob_bytes);
    return residency_reserve(arena->cache->options.ledger, &arena->charge, arena_bytes, what, error);
}

/* In huge pages, as far as they fit in: see table.c. */
static struct residency_slot *slots_new(uint32_t n)
{
    const uintptr_t huge = (uintptr_t)2 << 20;
    struct residency_slot *slots = calloc(n, sizeof *slots);
    if (!slots)
        return NULL;
    uintptr_t from = ((uintptr_t)slots + huge - 1) & ~(huge - 1), to = (uintptr_t)(slots + n) & ~(huge - 1);
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    return slots;
}

int residency_arena_map(struct residency_arena *arena, uint64_t arena_bytes, struct penstock_error *error)
{
    const struct residency_cache_options *options = &arena->cache->options;
    uint32_t n_slots = arena->raw ? 0 : (uint32_t)(arena_bytes / arena->blob_bytes);
    int code = charge(arena, arena_bytes, error);
    if (code != 0)
        return code;
    struct residency_memory memory = { 0 };
    code = residency_memory_map(options, arena_bytes, &memory, error);
    struct residency_slot *slots = code == 0 && n_slots > 0 ? slots_new(n_slots) : NULL;
    if (code == 0 && n_slots > 0 && !slots)
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for an arena of %" PRIu32 " slots", n_slots);
    if (code != 0) {
        residency_memory_unmap(&memory);
        residency_release(&arena->charge);
        return code;
    }
    pthread_mutex_lock(&arena->lock);
    arena->memory = memory;
    arena->slots = slots;
    arena->n_slots = arena->free_slots = n_slots;
    arena->fresh_slot = 0;
    arena->spare_slot = RESIDENCY_NONE;
    arena->low_slots = !options->swap ? 0 : n_slots / 16 < LOW_SLOTS_MAX ? n_slots / 16 : LOW_SLOTS_MAX;
    pthread_mutex_unlock(&arena->lock);
    return 0;
}

void residency_arena_unmap(struct residency_arena *arena)
{
    if (arena->registration)
        arena->cache->options.unregister(arena->registration);
    arena->registration = NULL;
    pthread_mutex_lock(&arena->lock);
    struct residency_memory memory = arena->memory;
    arena->memory = (struct residency_memory){ 0 };
    free(arena->slots);
    arena->slots = NULL;
    arena->n_slots = arena->free_slots = arena->low_slots = 0;
    pthread_mutex_unlock(&arena->lock);
    residency_memory_unmap(&memory);
    residency_release(&arena->charge);
}

void residency_arena_leave(struct residency_arena *arena)
{
    pthread_mutex_lock(&arena->cache->lock);
    if (--arena->clients == 0)
        arena->idle_since = residency_moment(arena->cache);
    pthread_mutex_unlock(&arena->cache->lock);
    if (arena->raw)
        residency_arena_free(arena);
}

/* ---- what time takes ---- */

/* Some of what is past its time, coldest first; returns whether there may be more. */
static bool expire_some(struct residency_arena *arena)
{
    struct residency_work work = { 0 };
    bool more = true;
    pthread_mutex_lock(&arena->lock);
    for (int i = 0; more && i < RESIDENCY_WORK_FREES; i++) {
        uint32_t index = arena->disk.tail;
        if (index == RESIDENCY_NONE || !residency_entry_expired(arena, residency_entry_at(arena, index)))
            index = arena->lru.tail;
        more = index != RESIDENCY_NONE && residency_entry_expired(arena, residency_entry_at(arena, index));
        if (more) {
            residency_entry_remove(arena, index, &work);
            arena->counts.drops++;
        }
    }
    residency_settle(arena, &work);
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, &work);
    return more;
}

void residency_arena_expire(struct residency_arena *arena)
{
    if (arena->cache->options.ttl_s[arena->kind] > 0)
        while (expire_some(arena))
            ;
}

static bool is_idle(struct residency_arena *arena)
{
    uint32_t idle_s = arena->cache->options.arena_idle_s;
    return idle_s > 0 && arena->clients == 0 && arena->memory.base &&
           residency_moment(arena->cache) - arena->idle_since >= (uint64_t)idle_s * RESIDENCY_MOMENTS;
}

/* Spills without the cache's lock, so that a client may come meanwhile; then looks again under it. */
void residency_arena_unmap_if_idle(struct residency_arena *arena)
{
    struct residency_cache *cache = arena->cache;
    pthread_mutex_lock(&cache->lock);
    bool idle = is_idle(arena);
    pthread_mutex_unlock(&cache->lock);
    if (!idle || !residency_spill_arena(arena, true))
        return;
    pthread_mutex_lock(&cache->lock);
    if (is_idle(arena)) {
        base_log_info("the %s arena of %" PRIu64 "-byte blobs was idle: its %" PRIu64 " bytes are given back",
                      residency_kind_name(arena->kind), arena->blob_bytes, arena->memory.len_bytes);
        residency_arena_unmap(arena);
    }
    pthread_mutex_unlock(&cache->lock);
}

void residency_arena_stats(struct residency_arena *arena, struct residency_arena_stats *out)
{
    pthread_mutex_lock(&arena->lock);
    *out = (struct residency_arena_stats){
        .kind = arena->kind,
        .blob_bytes = arena->blob_bytes,
        .arena_bytes = arena->memory.len_bytes,
        .slots = arena->n_slots,
        .resident = arena->resident,
        .on_disk = arena->entries.used - arena->resident,
        .reserved = arena->reserved,
        .pinned = arena->pinned,
        .connections = arena->clients,
        .hits = arena->counts.hits,
        .misses = arena->counts.misses,
        .puts = arena->counts.puts,
        .spills = arena->counts.spills,
        .faults = arena->counts.faults,
        .drops = arena->counts.drops,
        .errors = arena->counts.errors,
    };
    pthread_mutex_unlock(&arena->lock);
}
