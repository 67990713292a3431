#include "life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static void spill_done(struct residency_swap_io *io, int code);

struct residency_spill *residency_spill_new(struct residency_arena *arena, uint32_t slot)
{
    const struct residency_entry *entry = residency_entry_at(arena, arena->slots[slot].entry);
    struct residency_spill *spill = calloc(1, sizeof *spill);
    if (!spill)
        return NULL;
    spill->io = (struct residency_swap_io){ .file = arena->file,
                                            .key = entry->node.key,
                                            .generation = entry->generation,
                                            .blob = residency_slot_blob(arena, slot),
                                            .record = RESIDENCY_NONE,
                                            .owned = entry->owned,
                                            .done = spill_done };
    spill->arena = arena;
    spill->slot = slot;
    return spill;
}

/* ---- room under the caps; without any lock ---- */

/* The record of a blob that is resident as well: nothing is lost with it. */
static bool free_clean_copy(struct residency_arena *arena)
{
    if (!arena->any_clean)
        return false;
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    uint32_t slot = arena->clean.tail;
    if (slot != RESIDENCY_NONE) {
        struct residency_entry *entry = residency_entry_at(arena, arena->slots[slot].entry);
        residency_work_free(arena, &work, &entry->node.key, entry->record);
        entry->record = RESIDENCY_NONE;
        residency_slot_dirty(arena, slot);
    }
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, &work);
    return slot != RESIDENCY_NONE;
}

static bool drop_tail(struct residency_arena *arena)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    bool any = arena->disk.tail != RESIDENCY_NONE;
    if (any) {
        residency_entry_remove(arena, arena->disk.tail, &work);
        arena->counts.drops++;
    }
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, &work);
    return any;
}

static bool free_other_clean_copy(struct residency_arena *arena, bool any_kind)
{
    struct residency_cache *cache = arena->cache;
    for (uint32_t i = 0; i < cache->n_arenas; i++) {
        struct residency_arena *other = cache->arenas[i];
        if ((any_kind || other->kind == arena->kind) && free_clean_copy(other))
            return true;
    }
    return false;
}

static bool drop_coldest(struct residency_arena *arena, bool any_kind)
{
    struct residency_cache *cache = arena->cache;
    for (;;) {
        struct residency_arena *coldest = NULL;
        for (uint32_t i = 0; i < cache->n_arenas; i++) {
            struct residency_arena *other = cache->arenas[i];
            if ((any_kind || other->kind == arena->kind) && other->coldest != RESIDENCY_NONE &&
                (!coldest || other->coldest < coldest->coldest))
                coldest = other;
        }
        if (!coldest)
            return false;
        if (drop_tail(coldest))
            return true;
    }
}

/* Copies first, then what only the disk has, the coldest of all arenas that count towards the cap. For a full disk only
 * copies go: without a cap nothing committed is dropped. */
static bool make_room(struct residency_arena *arena, enum residency_swap_full full)
{
    if (free_clean_copy(arena))
        return true;
    if (full == RESIDENCY_SWAP_FULL_DISK)
        return false;
    bool any_kind = full == RESIDENCY_SWAP_FULL_SHARED;
    return free_other_clean_copy(arena, any_kind) || drop_coldest(arena, any_kind);
}

void residency_spill_start(struct residency_spill *spill)
{
    enum residency_swap_full full = RESIDENCY_SWAP_FULL_DISK;
    int code;
    do {
        code = residency_swap_alloc(spill->io.file, &spill->io.record, &full);
    } while (code == PENSTOCK_ELIMIT && make_room(spill->arena, full));
    if (code == 0) {
        residency_swap_write(&spill->io);
        return;
    }
    spill->io.record = RESIDENCY_NONE;
    spill->dropped = code == PENSTOCK_ELIMIT && full != RESIDENCY_SWAP_FULL_DISK;
    spill_done(&spill->io, code);
}

/* ---- the end of a spill; under the lock ---- */

static void spilled(struct residency_spill *spill, struct residency_work *work)
{
    struct residency_arena *arena = spill->arena;
    struct residency_slot *slot = &arena->slots[spill->slot];
    residency_entry_at(arena, slot->entry)->record = spill->io.record;
    arena->counts.spills++;
    arena->failed_at = 0;
    if (slot->pins > 0) {
        residency_slot_clean(arena, spill->slot);
        return;
    }
    residency_entry_to_disk(arena, slot->entry);
    arena->resident--;
    residency_slot_give(arena, spill->slot, work);
}

static void failed(struct residency_spill *spill, int code, struct residency_work *work)
{
    struct residency_arena *arena = spill->arena;
    arena->counts.errors++;
    if (arena->failed_at == 0)
        base_log_error("a %s blob of %llu bytes could not be spilled: %s; it stays in memory, and clients that need "
                       "its place are refused",
                       residency_kind_name(arena->kind), (unsigned long long)arena->blob_bytes,
                       spill->io.sys_errno != 0  ? strerror(spill->io.sys_errno)
                       : code == PENSTOCK_ELIMIT ? strerror(ENOSPC)
                                                 : penstock_error_name(code));
    arena->failed_at = residency_moment(arena->cache);
    arena->failures++;
    if (arena->slots[spill->slot].pins == 0)
        residency_slot_rest(arena, spill->slot, false);
    residency_want_fail_first(arena, work);
}

static void end(struct residency_spill *spill, int code, struct residency_work *work)
{
    struct residency_arena *arena = spill->arena;
    struct residency_slot *slot = &arena->slots[spill->slot];
    slot->state = RESIDENCY_SLOT_RESIDENT;
    arena->spilling--;
    arena->hopeful -= slot->pins == 0;
    if ((code != 0 || slot->entry == RESIDENCY_NONE) && spill->io.record != RESIDENCY_NONE)
        residency_work_free(arena, work, &spill->io.key, spill->io.record);
    if (slot->entry == RESIDENCY_NONE) {
        if (slot->pins == 0)
            residency_slot_give(arena, spill->slot, work);
    } else if (code == 0) {
        spilled(spill, work);
    } else if (!spill->dropped) {
        failed(spill, code, work);
    } else if (slot->pins == 0) {
        residency_slot_rest(arena, spill->slot, false);
        residency_entry_remove(arena, slot->entry, work);
        arena->counts.drops++;
    }
}

static void spill_done(struct residency_swap_io *io, int code)
{
    struct residency_spill *spill = base_list_entry(io, struct residency_spill, io);
    struct residency_arena *arena = spill->arena;
    const struct residency_key key = spill->io.key;
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    bool forgotten = arena->slots[spill->slot].entry == RESIDENCY_NONE;
    end(spill, code, &work);
    residency_settle(arena, &work);
    pthread_mutex_unlock(&arena->lock);
    free(spill);
    residency_work_do(arena, &work);
    residency_landed(arena, forgotten ? &key : NULL);
}

/* A place of the disk that fails costs its try, and not all that is to be spilled behind it: the next one is another
 * place. After so many it is the disk. */
#define FAILURES_MAX 16

bool residency_spill_arena(struct residency_arena *arena, bool only_while_idle)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    uint64_t failures_max = arena->failures + FAILURES_MAX;
    while (!(only_while_idle && arena->clients > 0)) {
        bool any = false;
        for (int i = 0; i < 32 && arena->failures < failures_max && residency_evict(arena, &work); i++)
            any = true;
        if (!any && arena->in_flight == 0)
            break;
        pthread_mutex_unlock(&arena->lock);
        residency_work_do(arena, &work);
        pthread_mutex_lock(&arena->lock);
        if (arena->spilling >= 32 || (!any && arena->in_flight > 0))
            residency_wait_for_landing(arena);
    }
    bool all = arena->resident == 0 && arena->in_flight == 0;
    pthread_mutex_unlock(&arena->lock);
    return all;
}
