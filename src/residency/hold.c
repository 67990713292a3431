/* How a client comes by a slot, and how it gives it back. */
#include "client.h"

void residency_unlock_and_work(struct residency_arena *arena, struct residency_work *work)
{
    pthread_mutex_unlock(&arena->lock);
    residency_work_do(arena, work);
}

uint32_t residency_reserve_slot(struct residency_arena *arena, const struct residency_key *key)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    residency_table_prefetch(&arena->entries, key);
    uint32_t slot = residency_slot_take(arena, &work);
    if (slot != RESIDENCY_NONE) {
        arena->slots[slot].state = RESIDENCY_SLOT_RESERVED;
        arena->reserved++;
    }
    residency_unlock_and_work(arena, &work);
    return slot;
}

void residency_unreserve_slot(struct residency_arena *arena, uint32_t slot)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    arena->reserved--;
    residency_slot_give(arena, slot, &work);
    residency_unlock_and_work(arena, &work);
}

enum residency_status residency_publish_slot(struct residency_client *client, const struct residency_key *key,
                                             uint32_t slot)
{
    struct residency_arena *arena = client->arena;
    struct residency_work work = { 0 };
    if (client->own && !residency_owned_reserve(client))
        return RESIDENCY_ERR;
    pthread_mutex_lock(&arena->lock);
    uint32_t entry = residency_entry_publish(arena, key, slot, client->own, &work);
    if (entry != RESIDENCY_NONE && client->own)
        residency_owned_add(client, entry);
    residency_settle(arena, &work);
    residency_work_end(arena, &work, key);
    return entry == RESIDENCY_NONE ? RESIDENCY_ERR : RESIDENCY_OK;
}

/* Pins what key leads to; under the lock, which it may let go of meanwhile. False: that has changed, look again. */
static bool pin_entry(struct residency_arena *arena, uint32_t index, uint32_t *slot, struct residency_fault **reading,
                      enum residency_status *status, struct residency_work *work)
{
    struct residency_entry *entry = residency_entry_at(arena, index);
    struct residency_fault *fault = NULL;
    if (entry->where == RESIDENCY_RESIDENT) {
        *slot = entry->node.value;
        *status = arena->slots[*slot].pins == RESIDENCY_PINS_MAX ? RESIDENCY_ERR : RESIDENCY_OK;
        if (*status == RESIDENCY_OK)
            residency_slot_pin(arena, *slot, work);
        return true;
    }
    if (entry->where == RESIDENCY_ON_DISK) {
        fault = residency_fault_start(arena, index, true, reading != NULL, work);
    } else {
        fault = arena->faults.at[entry->node.value];
        residency_fault_join(fault, work);
    }
    enum residency_fault_result result = RESIDENCY_FAULT_FAILED;
    if (fault)
        result = residency_fault_wait(arena, fault, reading, work, slot);
    if (reading && result == RESIDENCY_FAULT_COMING)
        *reading = fault;
    *status = result == RESIDENCY_FAULT_LANDED || result == RESIDENCY_FAULT_COMING ? RESIDENCY_OK
              : result == RESIDENCY_FAULT_LOST                                     ? RESIDENCY_MISS
                                                                                   : RESIDENCY_ERR;
    return result != RESIDENCY_FAULT_AGAIN;
}

enum residency_status residency_pin_key(struct residency_arena *arena, const struct residency_key *key, uint32_t *slot,
                                        struct residency_fault **reading)
{
    struct residency_work work = { 0 };
    enum residency_status status = RESIDENCY_MISS;
    pthread_mutex_lock(&arena->lock);
    for (;;) {
        uint32_t entry = residency_entry_find(arena, key, &work);
        if (entry != RESIDENCY_NONE && !pin_entry(arena, entry, slot, reading, &status, &work))
            continue;
        if (entry == RESIDENCY_NONE)
            status = RESIDENCY_MISS;
        break;
    }
    arena->counts.hits += status == RESIDENCY_OK;
    arena->counts.misses += status == RESIDENCY_MISS;
    residency_unlock_and_work(arena, &work);
    return status;
}

void residency_unpin_slot(struct residency_arena *arena, uint32_t slot)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    residency_slot_unpin(arena, slot, &work);
    residency_unlock_and_work(arena, &work);
}
