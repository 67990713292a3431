/* A hash table from 128-bit keys to nodes that are named by number. It grows one bucket at a time (linear hashing, in
 * segments that never move), so no insertion stops for long, and a node's address stays. The hash is seeded: whoever
 * chooses keys cannot choose collisions. Not thread-safe: its owner has the lock. */
#ifndef PENSTOCK_RESIDENCY_TABLE_H
#define PENSTOCK_RESIDENCY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "key.h"

#define RESIDENCY_NONE UINT32_MAX /* no node, slot or record */

/* What a node begins with. */
struct residency_node {
    struct residency_key key;
    uint32_t chain; /* the table's: the next node of the bucket, or of the free ones, plus 1 */
    uint32_t value; /* the owner's, like all that follows */
};

struct residency_table {
    uint64_t seed[2];
    uint32_t node_bytes;
    uint32_t node_shift, bucket_shift; /* 2^shift a segment */
    uint32_t used;                     /* nodes in buckets */
    uint32_t fresh;                    /* nodes that were ever used: all below it have memory */
    uint32_t spare;                    /* the first free one, plus 1 */
    uint32_t mask, split; /* mask + 1 + split buckets; those below split, and their partners, use one bit more */
    BASE_VEC(uint8_t *) nodes;
    BASE_VEC(uint32_t *) buckets; /* node plus 1; 0: empty */
};

/* node_bytes is a multiple of 8 and at least a residency_node's. Nothing is allocated yet. large: segments of
 * megabytes; of the first only what is used takes memory, the others are huge pages. Else of a kilobyte or two. */
void residency_table_init(struct residency_table *table, const uint64_t seed[2], uint32_t node_bytes, bool large);
void residency_table_fini(struct residency_table *table);

static inline void *residency_table_node(const struct residency_table *table, uint32_t index)
{
    return table->nodes.at[index >> table->node_shift] +
           (size_t)(index & ((1u << table->node_shift) - 1)) * table->node_bytes;
}

/* RESIDENCY_NONE: no such key. */
uint32_t residency_table_find(const struct residency_table *table, const struct residency_key *key);

/* Key will be looked up soon: what lies between is not waited for twice. */
void residency_table_prefetch(const struct residency_table *table, const struct residency_key *key);

/* A node for a key that is not there; what follows the key in it is undefined. RESIDENCY_NONE: no memory. */
uint32_t residency_table_insert(struct residency_table *table, const struct residency_key *key);

/* The node's memory stays readable: only chain is written. */
void residency_table_remove(struct residency_table *table, uint32_t index);

/* Some node, RESIDENCY_NONE when there is none; *cursor is 0 at first. To be removed before the next call. */
uint32_t residency_table_any(const struct residency_table *table, uint32_t *cursor);

#endif
