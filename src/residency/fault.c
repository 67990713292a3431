#include "arena.h"

#include <stdlib.h>

static void fault_done(struct residency_swap_io *io, int code);

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

struct residency_fault *residency_fault_start(struct residency_arena *arena, uint32_t index, bool wait,
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
                                            .done = fault_done };
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

static void fault_free(struct residency_fault *fault)
{
    pthread_cond_destroy(&fault->changed);
    free(fault);
}

/* To be touched no more by the caller: whoever waits frees it. */
static void finish(struct residency_fault *fault, enum residency_fault_result result)
{
    struct residency_arena *arena = fault->arena;
    arena->faults.at[fault->number] = NULL;
    arena->spare_faults.at[arena->spare_faults.n++] = fault->number;
    arena->n_faults--;
    fault->result = result;
    fault->done = true;
    if (fault->waiters > 0)
        pthread_cond_broadcast(&fault->changed);
    else
        fault_free(fault);
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
    arena->hopeful += fault->waiters == 0;
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
    if (fault->waiters++ > 0 || fault->slot == RESIDENCY_NONE)
        return;
    arena->hopeful--;
    residency_settle(arena, work);
}

enum residency_fault_result residency_fault_wait(struct residency_arena *arena, struct residency_fault *fault,
                                                 struct residency_work *work, uint32_t *slot)
{
    if (!fault->done) {
        pthread_mutex_unlock(&arena->lock);
        residency_work_do_and_read(arena, work, fault);
        pthread_mutex_lock(&arena->lock);
        residency_wait(arena, &fault->changed, &fault->done);
    }
    enum residency_fault_result result = fault->result;
    *slot = fault->slot;
    if (--fault->waiters == 0)
        fault_free(fault);
    return result;
}

/* The blob is there: in the entry's hands, or, if that is forgotten, in those of whoever waited. */
static void land(struct residency_fault *fault, struct residency_work *work)
{
    struct residency_arena *arena = fault->arena;
    struct residency_slot *slot = &arena->slots[fault->slot];
    slot->state = RESIDENCY_SLOT_RESIDENT;
    slot->pins = fault->waiters & RESIDENCY_PINS_MAX;
    arena->pinned += fault->waiters > 0;
    arena->counts.faults++;
    if (fault->entry == RESIDENCY_NONE) {
        residency_work_free(arena, work, &fault->io.key, fault->io.record);
        if (fault->waiters == 0)
            residency_slot_give(arena, fault->slot, work);
        return;
    }
    struct residency_entry *entry = residency_entry_at(arena, fault->entry);
    entry->where = RESIDENCY_RESIDENT;
    entry->node.value = fault->slot;
    arena->resident++;
    residency_slot_clean(arena, fault->slot);
    if (fault->waiters == 0)
        residency_slot_rest(arena, fault->slot, true);
}

/* A record that is not what was written is gone; one that could not be read may be tried again. */
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
    }
    residency_slot_give(arena, fault->slot, work);
}

static void fault_done(struct residency_swap_io *io, int code)
{
    struct residency_fault *fault = base_list_entry(io, struct residency_fault, io);
    struct residency_arena *arena = fault->arena;
    const struct residency_key key = fault->io.key;
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    bool forgotten = fault->entry == RESIDENCY_NONE;
    arena->hopeful -= fault->waiters == 0;
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
