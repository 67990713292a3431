/* Blobs that say what they are, and the shortest ways to put and get them. */
#ifndef PENSTOCK_TEST_BLOBS_H
#define PENSTOCK_TEST_BLOBS_H

#include "residency/cache.h"

#define RIG_BLOB 4096

static inline struct residency_key rig_key(uint64_t low)
{
    return (struct residency_key){ .low = low };
}

/* It says what at both ends and between. */
void rig_fill(void *blob, uint64_t what);
/* What it says; 0 where it is torn. */
uint64_t rig_read(const void *blob);
/* Whether its first bytes, a multiple of 512, say what. */
bool rig_begins(const void *blob, uint64_t bytes, uint64_t what);
void *rig_blob(struct residency_client *client, uint64_t offset);

/* alloc, fill, commit. */
enum residency_status rig_put(struct residency_client *client, uint64_t key, uint64_t what);
/* What a get finds, 0: a miss, UINT64_MAX: an error; the pin is dropped. */
uint64_t rig_get(struct residency_client *client, uint64_t key);

#endif
