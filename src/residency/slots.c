#include "queue.h"

/* As many writes at once as keep a disk busy; more would only take slots from those who read them. */
#define SPILLS_MAX 32

static struct residency_link *link_of(const struct residency_arena *arena, uint32_t index)
{
    return &arena->slots[index].link;
}

void residency_slot_clean(struct residency_arena *arena, uint32_t slot)
{
    residency_queue_push_hot(arena, &arena->clean, link_of, slot);
    arena->any_clean = true;
}

void residency_slot_dirty(struct residency_arena *arena, uint32_t slot)
{
    residency_queue_remove(arena, &arena->clean, link_of, slot);
    arena->any_clean = arena->clean.tail != RESIDENCY_NONE;
}

/* ---- free slots, and who waits for one ---- */

static uint32_t take_free(struct residency_arena *arena)
{
    if (arena->free_slots == 0)
        return RESIDENCY_NONE;
    arena->free_slots--;
    uint32_t slot = arena->spare_slot;
    if (slot != RESIDENCY_NONE)
        arena->spare_slot = arena->slots[slot].link.next;
    else
        slot = arena->fresh_slot++;
    return slot;
}

void residency_want_withdraw(struct residency_arena *arena, struct residency_want *want)
{
    base_list_remove(&want->node);
    arena->n_wants--;
}

static void grant(struct residency_arena *arena, struct residency_want *want, uint32_t slot,
                  struct residency_work *work)
{
    residency_want_withdraw(arena, want);
    if (want->fault) {
        residency_fault_slot(want->fault, slot, work);
        return;
    }
    want->slot = slot;
    want->done = true;
    pthread_cond_signal(&want->changed);
}

void residency_want_enqueue(struct residency_arena *arena, struct residency_want *want)
{
    base_list_append(&arena->wants, &want->node);
    arena->n_wants++;
}

static struct residency_want *want_at(struct base_list *node)
{
    return base_list_entry(node, struct residency_want, node);
}

void residency_want_fail_first(struct residency_arena *arena, struct residency_work *work)
{
    if (arena->n_wants > 0)
        grant(arena, want_at(arena->wants.next), RESIDENCY_NONE, work);
}

void residency_slot_give(struct residency_arena *arena, uint32_t slot, struct residency_work *work)
{
    arena->slots[slot] = (struct residency_slot){ .state = RESIDENCY_SLOT_FREE, .entry = RESIDENCY_NONE };
    if (arena->n_wants > 0) {
        grant(arena, want_at(arena->wants.next), slot, work);
        return;
    }
    arena->slots[slot].link.next = arena->spare_slot;
    arena->spare_slot = slot;
    arena->free_slots++;
}

uint32_t residency_slot_take(struct residency_arena *arena, struct residency_work *work)
{
    uint32_t slot = take_free(arena);
    if (slot != RESIDENCY_NONE) {
        residency_settle(arena, work);
        return slot;
    }
    struct residency_want want = { .slot = RESIDENCY_NONE };
    pthread_cond_init(&want.changed, NULL);
    residency_want_enqueue(arena, &want);
    residency_settle(arena, work);
    if (!want.done) {
        pthread_mutex_unlock(&arena->lock);
        residency_work_do(arena, work);
        pthread_mutex_lock(&arena->lock);
        while (!want.done)
            residency_wait(arena, &want.changed);
    }
    pthread_cond_destroy(&want.changed);
    return want.slot;
}

/* ---- pins ---- */

void residency_slot_pin(struct residency_arena *arena, uint32_t number, struct residency_work *work)
{
    struct residency_slot *slot = &arena->slots[number];
    if (slot->pins == 0) {
        arena->pinned++;
        if (slot->state == RESIDENCY_SLOT_SPILLING) {
            arena->hopeful--;
            residency_settle(arena, work);
        } else {
            residency_slot_rouse(arena, number);
        }
    }
    slot->pins = (slot->pins + 1) & RESIDENCY_PINS_MAX;
}

void residency_slot_read(struct residency_arena *arena, uint32_t number)
{
    struct residency_slot *slot = &arena->slots[number];
    arena->pinned += slot->pins == 0;
    slot->pins = (slot->pins + 1) & RESIDENCY_PINS_MAX;
}

void residency_slot_unpin(struct residency_arena *arena, uint32_t number, struct residency_work *work)
{
    struct residency_slot *slot = &arena->slots[number];
    slot->pins = (slot->pins - 1) & RESIDENCY_PINS_MAX;
    if (slot->pins > 0)
        return;
    arena->pinned--;
    if (slot->state == RESIDENCY_SLOT_SPILLING)
        arena->hopeful++;
    else if (slot->state == RESIDENCY_SLOT_RESIDENT && slot->entry == RESIDENCY_NONE)
        residency_slot_give(arena, number, work);
    else if (slot->state == RESIDENCY_SLOT_RESIDENT) /* else its fault has it, and knows who waits */
        residency_slot_rest(arena, number, true);
    residency_settle(arena, work);
}

/* ---- eviction ---- */

/* Whether a spill failed so lately that only those who need a slot now should try again. */
static bool disk_is_bad(const struct residency_arena *arena)
{
    return arena->failed_at != 0 && residency_moment(arena->cache) - arena->failed_at < RESIDENCY_MOMENTS;
}

/* The coldest; but while the disk takes nothing, one that it has already. */
static uint32_t choose(const struct residency_arena *arena)
{
    uint32_t clean = arena->clean.tail;
    if (clean != RESIDENCY_NONE && arena->slots[clean].pins == 0 && disk_is_bad(arena))
        return arena->slots[clean].entry;
    return arena->lru.tail;
}

static bool spill(struct residency_arena *arena, uint32_t slot, struct residency_work *work)
{
    struct residency_spill *spill = residency_spill_new(arena, slot);
    if (!spill)
        return false;
    residency_slot_rouse(arena, slot);
    arena->slots[slot].state = RESIDENCY_SLOT_SPILLING;
    arena->hopeful++;
    arena->spilling++;
    arena->in_flight++;
    spill->next = work->spills;
    work->spills = spill;
    return true;
}

bool residency_evict(struct residency_arena *arena, struct residency_work *work)
{
    uint32_t index = choose(arena);
    if (index == RESIDENCY_NONE)
        return false;
    struct residency_entry *entry = residency_entry_at(arena, index);
    uint32_t slot = entry->node.value;
    if (!arena->file) {
        residency_entry_remove(arena, index, work);
        arena->counts.drops++;
        return true;
    }
    if (entry->record == RESIDENCY_NONE)
        return spill(arena, slot, work);
    residency_slot_rouse(arena, slot);
    residency_slot_dirty(arena, slot);
    residency_entry_to_disk(arena, index);
    arena->resident--;
    residency_slot_give(arena, slot, work);
    return true;
}

/* A fault that nobody waits for yet, else who came last. */
static struct residency_want *want_too_many(const struct residency_arena *arena)
{
    for (struct base_list *node = arena->wants.prev; node != &arena->wants; node = node->prev)
        if (want_at(node)->fault && want_at(node)->fault->waiters == 0)
            return want_at(node);
    return want_at(arena->wants.prev);
}

void residency_settle(struct residency_arena *arena, struct residency_work *work)
{
    if (arena->n_wants == 0 && arena->free_slots + arena->hopeful >= arena->low_slots)
        return;
    while (arena->n_wants > 0 && arena->free_slots > 0)
        grant(arena, want_at(arena->wants.next), take_free(arena), work);
    while (arena->n_wants > arena->hopeful && residency_evict(arena, work))
        ;
    while (arena->n_wants > arena->hopeful)
        grant(arena, want_too_many(arena), RESIDENCY_NONE, work);
    while (arena->n_wants == 0 && arena->free_slots + arena->hopeful < arena->low_slots &&
           arena->spilling < SPILLS_MAX && !disk_is_bad(arena) && residency_evict(arena, work))
        ;
}
