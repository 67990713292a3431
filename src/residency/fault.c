#include "arena.h"

#include <stdlib.h>

static void fault_done(struct residency_swap_io *io, int code);
static void fault_progress(struct residency_swap_io *io, uint64_t bytes);

/* A number by which the entry names the fault; and room to give it back without an allocation. */
static bool take_number(struct residency_arena *arena, struct residency_fault *fault)
{
    if (arena->spare_faults.n > 0) {
        fault->number = arena->spare_faults.at[--arena->spare_faults.n];
        arena->faults.at[fault->number] = fault;
        return true;
    }
    fault->number = (uint32_t)arena->faults.n;
    return base_vec_reserve(&arena->spare_faults, arena->faults.n + 1) && base_vec_push(&arena->faults, fault);
}

struct residency_fault *residency_fault_start(struct residency_arena *arena, uint32_t index, bool wait, bool partly,
                                              struct residency_work *work)
{
    struct residency_entry *entry = residency_entry_at(arena, index);
    struct residency_fault *fault = calloc(1, sizeof *fault);
    if (!fault || !take_number(arena, fault)) {
        free(fault);
        return NULL;
    }
    fault->io = (struct residency_swap_io){ .file = arena->file,
                                            .key = entry->node.key,
                                            .generation = entry->generation,
                                            .record = entry->record,
                                            .done = fault_done,
                                            .progress = partly && !entry->broken_off ? fault_progress : NULL };
    fault->arena = arena;
    fault->entry = index;
    fault->slot = RESIDENCY_NONE;
    fault->waiters = wait;
    fault->want.fault = fault;
    pthread_cond_init(&fault->changed, NULL);
    arena->n_faults++;
    residency_entry_from_disk(arena, index);
    entry->where = RESIDENCY_FAULTING;
    entry->node.value = fault->number;
    residency_want_enqueue(arena, &fault->want);
    residency_settle(arena, work);
    return fault;
}

/* Nobody has its slot, nor will when it ends. */
static bool is_idle(const struct residency_fault *fault)
{
    return fault->waiters == 0 && fault->readers == 0;
}

static void free_if_over(struct residency_fault *fault)
{
    if (!fault->done || !is_idle(fault))
        return;
    pthread_cond_destroy(&fault->changed);
    free(fault);
}

/* To be touched no more by the caller: whoever waits or reads frees it. */
static void finish(struct residency_fault *fault, enum residency_fault_result result)
{
    struct residency_arena *arena = fault->arena;
    arena->faults.at[fault->number] = NULL;
    arena->spare_faults.at[arena->spare_faults.n++] = fault->number;
    arena->n_faults--;
    fault->result = result;
    fault->done = true;
    pthread_cond_broadcast(&fault->changed);
    free_if_over(fault);
}

void residency_fault_slot(struct residency_fault *fault, uint32_t slot, struct residency_work *work)
{
    struct residency_arena *arena = fault->arena;
    if (slot == RESIDENCY_NONE) {
        residency_entry_to_disk(arena, fault->entry);
        finish(fault, RESIDENCY_FAULT_FAILED);
        return;
    }
    fault->slot = slot;
    fault->io.blob = residency_slot_blob(arena, slot);
    arena->slots[slot].state = RESIDENCY_SLOT_READING;
    arena->slots[slot].entry = fault->entry;
    arena->hopeful += is_idle(fault);
    arena->in_flight++;
    fault->next = work->faults;
    work->faults = fault;
}

void residency_fault_forget(struct residency_fault *fault, struct residency_work *work)
{
    fault->entry = RESIDENCY_NONE;
    if (fault->slot != RESIDENCY_NONE) {
        fault->arena->slots[fault->slot].entry = RESIDENCY_NONE;
        residency_leaves(fault->arena, &fault->io.key);
        return;
    }
    residency_want_withdraw(fault->arena, &fault->want);
    residency_work_free(fault->arena, work, &fault->io.key, fault->io.record);
    finish(fault, RESIDENCY_FAULT_AGAIN);
}

void residency_fault_join(struct residency_fault *fault, struct residency_work *work)
{
    struct residency_arena *arena = fault->arena;
    bool was_idle = is_idle(fault);
    fault->waiters++;
    if (!was_idle || fault->slot == RESIDENCY_NONE)
        return;
    arena->hopeful--;
    residency_settle(arena, work);
}

enum residency_fault_result residency_fault_wait(struct residency_arena *arena, struct residency_fault *fault,
                                                 bool partly, struct residency_work *work, uint32_t *slot)
{
    if (!fault->done) {
        pthread_mutex_unlock(&arena->lock);
        residency_work_do_and_read(arena, work, fault);
        pthread_mutex_lock(&arena->lock);
    }
    while (!fault->done && !(partly && fault->here_bytes > 0))
        residency_wait(arena, &fault->changed);
    enum residency_fault_result result = fault->result;
    *slot = fault->slot;
    fault->waiters--;
    if (!fault->done) {
        fault->readers++;
        residency_slot_read(arena, fault->slot);
        return RESIDENCY_FAULT_COMING;
    }
    free_if_over(fault);
    return result;
}

enum residency_fault_result residency_fault_more(struct residency_arena *arena, struct residency_fault *fault,
                                                 uint64_t *here_bytes)
{
    while (!fault->done && fault->here_bytes <= *here_bytes)
        residency_wait(arena, &fault->changed);
    *here_bytes = fault->here_bytes;
    if (!fault->done)
        return RESIDENCY_FAULT_COMING;
    enum residency_fault_result result = fault->result;
    fault->readers--;
    free_if_over(fault);
    return result;
}

void residency_fault_leave(struct residency_arena *arena, struct residency_fault *fault, struct residency_work *work)
{
    uint32_t slot = fault->slot;
    fault->readers--;
    arena->hopeful += !fault->done && is_idle(fault);
    free_if_over(fault);
    residency_slot_unpin(arena, slot, work);
}

/* The blob is there: in the entry's hands, or, if that is forgotten, in those of whoever waited. */
static void land(struct residency_fault *fault, struct residency_work *work)
{
    struct residency_arena *arena = fault->arena;
    struct residency_slot *slot = &arena->slots[fault->slot];
    slot->state = RESIDENCY_SLOT_RESIDENT;
    arena->pinned += slot->pins == 0 && fault->waiters > 0;
    slot->pins = (slot->pins + fault->waiters) & RESIDENCY_PINS_MAX;
    arena->counts.faults++;
    if (fault->entry == RESIDENCY_NONE) {
        residency_work_free(arena, work, &fault->io.key, fault->io.record);
        if (slot->pins == 0)
            residency_slot_give(arena, fault->slot, work);
        return;
    }
    struct residency_entry *entry = residency_entry_at(arena, fault->entry);
    entry->where = RESIDENCY_RESIDENT;
    entry->broken_off = false;
    entry->node.value = fault->slot;
    arena->resident++;
    residency_slot_clean(arena, fault->slot);
    if (slot->pins == 0)
        residency_slot_rest(arena, fault->slot, true);
}

/* A record that is not what was written is gone; one that could not be read may be tried again. Readers keep the slot
 * until they have let go of it: what they have been given stays what it is. */
static void crash(struct residency_fault *fault, int code, struct residency_work *work)
{
    struct residency_arena *arena = fault->arena;
    arena->counts.errors++;
    if (fault->entry == RESIDENCY_NONE) {
        residency_work_free(arena, work, &fault->io.key, fault->io.record);
    } else {
        residency_entry_to_disk(arena, fault->entry);
        if (code == PENSTOCK_ECORRUPT)
            residency_entry_remove(arena, fault->entry, work);
        else
            residency_entry_at(arena, fault->entry)->broken_off |= fault->here_bytes > 0;
    }
    struct residency_slot *slot = &arena->slots[fault->slot];
    slot->state = RESIDENCY_SLOT_RESIDENT;
    slot->entry = RESIDENCY_NONE;
    if (slot->pins == 0)
        residency_slot_give(arena, fault->slot, work);
}

static void fault_progress(struct residency_swap_io *io, uint64_t bytes)
{
    struct residency_fault *fault = base_list_entry(io, struct residency_fault, io);
    struct residency_arena *arena = fault->arena;
    pthread_mutex_lock(&arena->lock);
    if (bytes > fault->here_bytes) {
        fault->here_bytes = bytes;
        pthread_cond_broadcast(&fault->changed);
    }
    pthread_mutex_unlock(&arena->lock);
}

static void fault_done(struct residency_swap_io *io, int code)
{
    struct residency_fault *fault = base_list_entry(io, struct residency_fault, io);
    struct residency_arena *arena = fault->arena;
    const struct residency_key key = fault->io.key;
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    bool forgotten = fault->entry == RESIDENCY_NONE;
    arena->hopeful -= is_idle(fault);
    if (code == 0)
        land(fault, &work);
    else
        crash(fault, code, &work);
    finish(fault, code == 0                   ? RESIDENCY_FAULT_LANDED
                  : code == PENSTOCK_ECORRUPT ? RESIDENCY_FAULT_LOST
                                              : RESIDENCY_FAULT_FAILED);
    residency_settle(arena, &work);
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, &work);
    residency_landed(arena, forgotten ? &key : NULL);
}
