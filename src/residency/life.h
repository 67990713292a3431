/* Inside the cache: how an arena begins, gets memory, and loses it again. */
#ifndef PENSTOCK_RESIDENCY_LIFE_H
#define PENSTOCK_RESIDENCY_LIFE_H

#include "arena.h"

const char *residency_kind_name(enum residency_kind kind);

/* Without memory and file. blob_bytes 0: raw. */
PENSTOCK_CHECKED int residency_arena_new(struct residency_cache *cache, enum residency_kind kind, uint64_t blob_bytes,
                                         struct residency_arena **out, struct penstock_error *error);
/* Waits for I/O in flight. */
void residency_arena_free(struct residency_arena *arena);

/* Charges, maps. Under the cache's lock. */
PENSTOCK_CHECKED int residency_arena_map(struct residency_arena *arena, uint64_t arena_bytes,
                                         struct penstock_error *error);
/* Gives both back, and the registration first. Nothing is in it, or nobody asks any more. */
void residency_arena_unmap(struct residency_arena *arena);

/* A client has gone; a raw arena goes with it. Takes the cache's lock. */
void residency_arena_leave(struct residency_arena *arena);

void residency_arena_expire(struct residency_arena *arena);
void residency_arena_unmap_if_idle(struct residency_arena *arena);
void residency_arena_stats(struct residency_arena *arena, struct residency_arena_stats *out);

#endif
