/* The TCP data plane: bytes are copied into slots and out of them, by whoever serves the connection. */
#include "client.h"

static enum residency_ahead look(struct residency_client *client, const struct residency_key *key, bool start)
{
    struct residency_arena *arena = client->arena;
    struct residency_work work = { 0 };
    enum residency_ahead ahead = RESIDENCY_AHEAD_NOW;
    pthread_mutex_lock(&arena->lock);
    uint32_t entry = residency_entry_find(arena, key, &work);
    if (entry != RESIDENCY_NONE && residency_entry_at(arena, entry)->where == RESIDENCY_FAULTING)
        ahead = RESIDENCY_AHEAD_COMING;
    else if (entry != RESIDENCY_NONE && residency_entry_at(arena, entry)->where == RESIDENCY_ON_DISK)
        ahead = start && arena->n_faults < (arena->n_slots + 1) / 2 &&
                        residency_fault_start(arena, entry, false, true, &work)
                    ? RESIDENCY_AHEAD_COMING
                    : RESIDENCY_AHEAD_LATER;
    residency_unlock_and_work(arena, &work);
    return ahead;
}

enum residency_ahead residency_prefetch(struct residency_client *client, struct residency_key key)
{
    return look(client, &key, true);
}

enum residency_ahead residency_look(struct residency_client *client, struct residency_key key)
{
    return look(client, &key, false);
}

enum residency_status residency_put_begin(struct residency_client *client, struct residency_key key,
                                          struct residency_copy *copy)
{
    struct residency_arena *arena = client->arena;
    *copy = (struct residency_copy){ .key = key, .slot = residency_reserve_slot(arena, &key) };
    if (copy->slot == RESIDENCY_NONE)
        return RESIDENCY_ERR;
    copy->blob = residency_slot_blob(arena, copy->slot);
    return RESIDENCY_OK;
}

enum residency_status residency_put_commit(struct residency_client *client, struct residency_copy *copy)
{
    enum residency_status status = residency_publish_slot(client, &copy->key, copy->slot);
    if (status != RESIDENCY_OK)
        residency_unreserve_slot(client->arena, copy->slot);
    copy->blob = NULL;
    return status;
}

void residency_put_abandon(struct residency_client *client, struct residency_copy *copy)
{
    if (copy->blob)
        residency_unreserve_slot(client->arena, copy->slot);
    copy->blob = NULL;
}

enum residency_status residency_fetch_begin(struct residency_client *client, struct residency_key key, bool partly,
                                            struct residency_copy *copy)
{
    struct residency_arena *arena = client->arena;
    *copy = (struct residency_copy){ .key = key };
    struct residency_fault **reading = partly && !client->own && client->owned.n == 0 ? &copy->reading : NULL;
    enum residency_status status = residency_pin_key(arena, &key, &copy->slot, reading);
    if (status != RESIDENCY_OK)
        return status;
    copy->blob = residency_slot_blob(arena, copy->slot);
    if (copy->reading)
        return residency_fetch_more(client, copy);
    copy->here_bytes = arena->blob_bytes;
    return RESIDENCY_OK;
}

enum residency_status residency_fetch_more(struct residency_client *client, struct residency_copy *copy)
{
    struct residency_arena *arena = client->arena;
    pthread_mutex_lock(&arena->lock);
    enum residency_fault_result result = residency_fault_more(arena, copy->reading, &copy->here_bytes);
    bool lost = result == RESIDENCY_FAULT_LOST, failed = result == RESIDENCY_FAULT_FAILED;
    arena->counts.hits -= lost || failed;
    arena->counts.misses += lost;
    pthread_mutex_unlock(&arena->lock);
    if (result == RESIDENCY_FAULT_COMING)
        return RESIDENCY_OK;
    copy->reading = NULL;
    if (result == RESIDENCY_FAULT_LANDED) {
        copy->here_bytes = arena->blob_bytes;
        return RESIDENCY_OK;
    }
    residency_fetch_end(client, copy);
    return lost ? RESIDENCY_MISS : RESIDENCY_ERR;
}

void residency_fetch_end(struct residency_client *client, struct residency_copy *copy)
{
    struct residency_arena *arena = client->arena;
    if (copy->blob && copy->reading) {
        struct residency_work work = { 0 };
        pthread_mutex_lock(&arena->lock);
        residency_fault_leave(arena, copy->reading, &work);
        residency_unlock_and_work(arena, &work);
    } else if (copy->blob) {
        residency_unpin_slot(arena, copy->slot);
    }
    copy->blob = NULL;
    copy->reading = NULL;
}
