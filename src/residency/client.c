#include "client.h"

#include <stdlib.h>

#include "base/checked.h"

struct residency_client *residency_client_new(struct residency_arena *arena)
{
    struct residency_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->arena = arena;
    client->got = client->spare_pin = RESIDENCY_NONE;
    residency_table_init(&client->reserved, arena->cache->seed, sizeof(struct residency_node), false);
    residency_table_init(&client->pinned, arena->cache->seed, sizeof(struct residency_pinned), false);
    return client;
}

/* What a client may have of pins, and of reservations. */
static uint32_t quarter(const struct residency_arena *arena)
{
    return arena->n_slots < 8 ? 1 : arena->n_slots / 4;
}

void residency_let_go(struct residency_client *client)
{
    if (client->got == RESIDENCY_NONE)
        return;
    residency_unpin_slot(client->arena, client->got);
    client->got = RESIDENCY_NONE;
}

void residency_own(struct residency_client *client, bool own)
{
    client->own = own;
}

bool residency_client_holds(const struct residency_client *client)
{
    return client->got != RESIDENCY_NONE || client->n_pins > 0 || client->reserved.used > 0;
}

/* ---- reservations ---- */

enum residency_status residency_alloc(struct residency_client *client, struct residency_key key, uint64_t *offset)
{
    struct residency_arena *arena = client->arena;
    residency_let_go(client);
    uint32_t mine = residency_table_find(&client->reserved, &key);
    if (mine == RESIDENCY_NONE) {
        if (client->reserved.used >= quarter(arena))
            return RESIDENCY_ERR;
        uint32_t slot = residency_reserve_slot(arena, &key);
        if (slot == RESIDENCY_NONE)
            return RESIDENCY_ERR;
        mine = residency_table_insert(&client->reserved, &key);
        if (mine == RESIDENCY_NONE) {
            residency_unreserve_slot(arena, slot);
            return RESIDENCY_ERR;
        }
        ((struct residency_node *)residency_table_node(&client->reserved, mine))->value = slot;
    }
    *offset = ((struct residency_node *)residency_table_node(&client->reserved, mine))->value * arena->blob_bytes;
    return RESIDENCY_OK;
}

/* Without a reservation: is it there? */
static enum residency_status commit_nothing(struct residency_arena *arena, const struct residency_key *key)
{
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    uint32_t entry = residency_entry_find(arena, key, &work);
    bool resident = entry != RESIDENCY_NONE && residency_entry_at(arena, entry)->where == RESIDENCY_RESIDENT;
    residency_unlock_and_work(arena, &work);
    return resident ? RESIDENCY_OK : RESIDENCY_ERR;
}

enum residency_status residency_commit(struct residency_client *client, struct residency_key key)
{
    residency_let_go(client);
    uint32_t mine = residency_table_find(&client->reserved, &key);
    if (mine == RESIDENCY_NONE)
        return commit_nothing(client->arena, &key);
    struct residency_node *node = residency_table_node(&client->reserved, mine);
    enum residency_status status = residency_publish_slot(client, &key, node->value);
    if (status == RESIDENCY_OK)
        residency_table_remove(&client->reserved, mine);
    return status;
}

enum residency_status residency_remove(struct residency_client *client, struct residency_key key)
{
    struct residency_arena *arena = client->arena;
    struct residency_work work = { 0 };
    residency_let_go(client);
    uint32_t mine = residency_table_find(&client->reserved, &key);
    if (mine != RESIDENCY_NONE) {
        residency_unreserve_slot(arena,
                                 ((struct residency_node *)residency_table_node(&client->reserved, mine))->value);
        residency_table_remove(&client->reserved, mine);
    }
    pthread_mutex_lock(&arena->lock);
    uint32_t entry = residency_table_find(&arena->entries, &key);
    if (entry != RESIDENCY_NONE) {
        residency_entry_remove(arena, entry, &work);
        residency_settle(arena, &work);
    }
    residency_work_end(arena, &work, &key);
    return RESIDENCY_OK;
}

enum residency_status residency_exists(struct residency_client *client, struct residency_key key)
{
    struct residency_arena *arena = client->arena;
    struct residency_work work = { 0 };
    pthread_mutex_lock(&arena->lock);
    uint32_t entry = residency_entry_find(arena, &key, &work);
    residency_unlock_and_work(arena, &work);
    return entry == RESIDENCY_NONE ? RESIDENCY_MISS : RESIDENCY_OK;
}

/* ---- pins ---- */

enum residency_status residency_get(struct residency_client *client, struct residency_key key, uint64_t *offset)
{
    struct residency_arena *arena = client->arena;
    uint32_t slot;
    residency_let_go(client);
    if (client->n_pins >= quarter(arena))
        return RESIDENCY_ERR;
    enum residency_status status = residency_pin_key(arena, &key, &slot, NULL);
    if (status == RESIDENCY_OK) {
        client->got = slot;
        *offset = slot * arena->blob_bytes;
    }
    return status;
}

/* A number for one more pin, NONE: no memory. */
static uint32_t pin_number(struct residency_client *client)
{
    uint32_t number = client->spare_pin;
    if (number != RESIDENCY_NONE) {
        client->spare_pin = client->pins.at[number].next;
        return number;
    }
    number = (uint32_t)client->pins.n;
    return base_vec_push(&client->pins, (struct residency_pin){ 0 }) ? number : RESIDENCY_NONE;
}

static void pin_number_give(struct residency_client *client, uint32_t number)
{
    client->pins.at[number].next = client->spare_pin;
    client->spare_pin = number;
}

static bool remember_pin(struct residency_client *client, const struct residency_key *key, uint32_t slot)
{
    uint32_t number = pin_number(client);
    if (number == RESIDENCY_NONE)
        return false;
    client->pins.at[number] = (struct residency_pin){ .slot = slot, .next = RESIDENCY_NONE };
    uint32_t index = residency_table_find(&client->pinned, key);
    if (index != RESIDENCY_NONE) {
        struct residency_pinned *pinned = residency_table_node(&client->pinned, index);
        client->pins.at[pinned->newest].next = number;
        pinned->newest = number;
    } else {
        index = residency_table_insert(&client->pinned, key);
        if (index == RESIDENCY_NONE) {
            pin_number_give(client, number);
            return false;
        }
        struct residency_pinned *pinned = residency_table_node(&client->pinned, index);
        pinned->node.value = pinned->newest = number;
    }
    client->n_pins++;
    return true;
}

enum residency_status residency_mget(struct residency_client *client, struct residency_key key, uint64_t *offset)
{
    struct residency_arena *arena = client->arena;
    uint32_t slot;
    if (client->n_pins + (client->got != RESIDENCY_NONE) >= quarter(arena))
        return RESIDENCY_ERR;
    enum residency_status status = residency_pin_key(arena, &key, &slot, NULL);
    if (status != RESIDENCY_OK)
        return status;
    if (!remember_pin(client, &key, slot)) {
        residency_unpin_slot(arena, slot);
        return RESIDENCY_ERR;
    }
    *offset = slot * arena->blob_bytes;
    return RESIDENCY_OK;
}

static void release_oldest(struct residency_client *client, uint32_t index)
{
    struct residency_pinned *pinned = residency_table_node(&client->pinned, index);
    uint32_t number = pinned->node.value;
    struct residency_pin oldest = client->pins.at[number];
    if (oldest.next == RESIDENCY_NONE)
        residency_table_remove(&client->pinned, index);
    else
        pinned->node.value = oldest.next;
    pin_number_give(client, number);
    client->n_pins--;
    residency_unpin_slot(client->arena, oldest.slot);
}

void residency_mget_release(struct residency_client *client, struct residency_key key)
{
    uint32_t index = residency_table_find(&client->pinned, &key);
    if (index != RESIDENCY_NONE)
        release_oldest(client, index);
}

/* ---- the end ---- */

void residency_client_end(struct residency_client *client)
{
    struct residency_arena *arena = client->arena;
    uint32_t cursor = 0, index;
    residency_let_go(client);
    while ((index = residency_table_any(&client->pinned, &cursor)) != RESIDENCY_NONE)
        release_oldest(client, index);
    cursor = 0;
    while ((index = residency_table_any(&client->reserved, &cursor)) != RESIDENCY_NONE) {
        residency_unreserve_slot(arena,
                                 ((struct residency_node *)residency_table_node(&client->reserved, index))->value);
        residency_table_remove(&client->reserved, index);
    }
    residency_owned_remove_all(client);
    residency_table_fini(&client->pinned);
    residency_table_fini(&client->reserved);
    base_vec_free(&client->pins);
    free(client);
}
