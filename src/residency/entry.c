#include "queue.h"

#include "base/clock.h"

static struct residency_link *link_of(const struct residency_arena *arena, uint32_t index)
{
    return &residency_entry_at(arena, index)->link;
}

uint32_t residency_moment(const struct residency_cache *cache)
{
    int64_t now_ns = cache->options.now_ns() - cache->start_ns;
    return RESIDENCY_FIRST_MOMENT + (uint32_t)(now_ns / (BASE_SECOND_NS / RESIDENCY_MOMENTS));
}

bool residency_entry_expired(const struct residency_arena *arena, const struct residency_entry *entry)
{
    uint32_t ttl_s = arena->cache->options.ttl_s[arena->kind];
    if (ttl_s == 0 || entry->where == RESIDENCY_FAULTING)
        return false;
    if (entry->where == RESIDENCY_RESIDENT &&
        (arena->slots[entry->node.value].pins > 0 || arena->slots[entry->node.value].state == RESIDENCY_SLOT_SPILLING))
        return false;
    return residency_moment(arena->cache) - entry->touched >= (uint64_t)ttl_s * RESIDENCY_MOMENTS;
}

uint32_t residency_entry_find(struct residency_arena *arena, const struct residency_key *key,
                              struct residency_work *work)
{
    uint32_t index = residency_table_find(&arena->entries, key);
    if (index == RESIDENCY_NONE || !residency_entry_expired(arena, residency_entry_at(arena, index)))
        return index;
    residency_entry_remove(arena, index, work);
    arena->counts.drops++;
    return RESIDENCY_NONE;
}

static void disk_changed(struct residency_arena *arena)
{
    uint32_t tail = arena->disk.tail;
    arena->coldest = tail == RESIDENCY_NONE ? RESIDENCY_NONE : residency_entry_at(arena, tail)->touched;
}

void residency_entry_to_disk(struct residency_arena *arena, uint32_t index)
{
    struct residency_entry *entry = residency_entry_at(arena, index);
    entry->where = RESIDENCY_ON_DISK;
    entry->node.value = RESIDENCY_NONE;
    residency_queue_push_hot(arena, &arena->disk, link_of, index);
    disk_changed(arena);
}

void residency_entry_from_disk(struct residency_arena *arena, uint32_t index)
{
    residency_queue_remove(arena, &arena->disk, link_of, index);
    disk_changed(arena);
}

void residency_slot_rest(struct residency_arena *arena, uint32_t slot, bool hottest)
{
    uint32_t index = arena->slots[slot].entry;
    if (!hottest) {
        residency_queue_push_cold(arena, &arena->lru, link_of, index);
        return;
    }
    residency_entry_at(arena, index)->touched = residency_moment(arena->cache);
    residency_queue_push_hot(arena, &arena->lru, link_of, index);
}

void residency_slot_rouse(struct residency_arena *arena, uint32_t slot)
{
    residency_queue_remove(arena, &arena->lru, link_of, arena->slots[slot].entry);
}

static void forget_resident(struct residency_arena *arena, uint32_t index, struct residency_work *work)
{
    struct residency_entry *entry = residency_entry_at(arena, index);
    uint32_t number = entry->node.value;
    struct residency_slot *slot = &arena->slots[number];
    arena->resident--;
    if (slot->state == RESIDENCY_SLOT_SPILLING) {
        slot->entry = RESIDENCY_NONE;
        residency_leaves(arena, &entry->node.key);
        return;
    }
    if (entry->record != RESIDENCY_NONE) {
        residency_slot_dirty(arena, number);
        residency_work_free(arena, work, &entry->node.key, entry->record);
    }
    if (slot->pins == 0) {
        residency_slot_rouse(arena, number);
        residency_slot_give(arena, number, work);
    } else {
        slot->entry = RESIDENCY_NONE;
    }
}

void residency_entry_forget(struct residency_arena *arena, uint32_t index, struct residency_work *work)
{
    struct residency_entry *entry = residency_entry_at(arena, index);
    if (entry->where == RESIDENCY_RESIDENT) {
        forget_resident(arena, index, work);
    } else if (entry->where == RESIDENCY_ON_DISK) {
        residency_entry_from_disk(arena, index);
        residency_work_free(arena, work, &entry->node.key, entry->record);
    } else {
        residency_fault_forget(arena->faults.at[entry->node.value], work);
    }
    entry->record = RESIDENCY_NONE;
    entry->generation = 0;
}

void residency_entry_remove(struct residency_arena *arena, uint32_t index, struct residency_work *work)
{
    residency_entry_forget(arena, index, work);
    residency_table_remove(&arena->entries, index);
}

uint32_t residency_entry_publish(struct residency_arena *arena, const struct residency_key *key, uint32_t slot,
                                 bool owned, struct residency_work *work)
{
    uint32_t index = residency_table_find(&arena->entries, key);
    if (index != RESIDENCY_NONE)
        residency_entry_forget(arena, index, work);
    else if ((index = residency_table_insert(&arena->entries, key)) == RESIDENCY_NONE)
        return index;
    struct residency_entry *entry = residency_entry_at(arena, index);
    entry->node.value = slot;
    entry->record = RESIDENCY_NONE;
    entry->where = RESIDENCY_RESIDENT;
    entry->owned = owned;
    entry->generation = ++arena->generation & RESIDENCY_GENERATION_MAX;
    arena->slots[slot].entry = index;
    arena->slots[slot].state = RESIDENCY_SLOT_RESIDENT;
    arena->reserved--;
    arena->resident++;
    arena->counts.puts++;
    residency_slot_rest(arena, slot, true);
    return index;
}
