/* Inside the cache: a client. Its own tables belong to the thread that uses it; only what it does to the arena is under
 * the arena's lock. */
#ifndef PENSTOCK_RESIDENCY_CLIENT_H
#define PENSTOCK_RESIDENCY_CLIENT_H

#include "arena.h"

/* The mget pins of a key, oldest first. node.value is the oldest. */
struct residency_pinned {
    struct residency_node node;
    uint32_t newest, unused;
};
struct residency_pin {
    uint32_t slot;
    uint32_t next; /* the next younger of the same key, or the next free one */
};

/* A blob that was owned when it was committed; it still is while its entry has that generation. */
struct residency_owned {
    uint64_t generation;
    uint32_t entry;
};

struct residency_client {
    struct residency_arena *arena;
    bool own;
    uint32_t got; /* the slot of the last get, or NONE */

    struct residency_table reserved; /* plain nodes; value is the slot */
    struct residency_table pinned;
    BASE_VEC(struct residency_pin) pins;
    uint32_t spare_pin;
    uint32_t n_pins; /* without got */

    BASE_VEC(struct residency_owned) owned;
    size_t owned_cursor;
};

struct residency_client *residency_client_new(struct residency_arena *arena);
/* Gives back what it has of the arena, and itself. */
void residency_client_end(struct residency_client *client);

/* ---- hold.c ---- */

/* For a blob of key, which its commit will look for. NONE: there is none. */
uint32_t residency_reserve_slot(struct residency_arena *arena, const struct residency_key *key);
void residency_unreserve_slot(struct residency_arena *arena, uint32_t slot);
/* A reserved slot becomes key's blob. Does not answer before an older one has left a disk that is kept. */
enum residency_status residency_publish_slot(struct residency_client *client, const struct residency_key *key,
                                             uint32_t slot);
/* *slot has key's blob and stays what it is. reading: where only a part of it has come from the disk yet that is told,
 * *reading is its fault, and the caller one of that's readers. NULL: all of it is waited for. */
enum residency_status residency_pin_key(struct residency_arena *arena, const struct residency_key *key, uint32_t *slot,
                                        struct residency_fault **reading);
void residency_unpin_slot(struct residency_arena *arena, uint32_t slot);
void residency_unlock_and_work(struct residency_arena *arena, struct residency_work *work);

/* ---- owned.c ---- */

/* Room to remember one more. */
bool residency_owned_reserve(struct residency_client *client);
/* entry is the client's now; under the arena's lock. */
void residency_owned_add(struct residency_client *client, uint32_t entry);
/* Without it. */
void residency_owned_remove_all(struct residency_client *client);

#endif
