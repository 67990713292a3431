/* A swap store in a directory of its own, driven one transfer at a time or many at once. */
#ifndef PENSTOCK_TESTS_SWAP_RIG_H
#define PENSTOCK_TESTS_SWAP_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "residency/swap/index.h"
#include "residency/swap/swap.h"

struct swap_rig {
    char directory[64];
    struct residency_swap_options options;
    struct residency_swap *swap;
    struct residency_swap_file *file; /* of KV blobs of blob_bytes */
    uint64_t blob_bytes;
    struct residency_swap_found found[4096]; /* when file was opened */
    uint32_t n_found;
};

/* A transfer that can be waited for. To be set: io.owned, io.progress, here. */
struct swap_rig_io {
    bool here; /* a read, by the caller */
    struct residency_swap_io io;
    int code;
    bool landed;
};

/* An engine that the kernel does not allow skips the test. Asserts that everything else succeeds. */
void swap_rig_start(struct swap_rig *rig, uint64_t blob_bytes, const struct residency_swap_options *options);
void swap_rig_open(struct swap_rig *rig); /* again, in the same directory */
void swap_rig_close(struct swap_rig *rig);
void swap_rig_remove(struct swap_rig *rig); /* closes, and removes the directory */
void swap_rig_path(const struct swap_rig *rig, const char *suffix, char out[128]);

void *swap_rig_blob(const struct swap_rig *rig); /* aligned; free() */
void swap_rig_fill(const struct swap_rig *rig, void *blob, uint64_t key, uint64_t generation);
bool swap_rig_is(const struct swap_rig *rig, const void *blob, uint64_t key, uint64_t generation);

/* Sets all of *io else. */
void swap_rig_submit(struct swap_rig *rig, struct swap_rig_io *io, bool write, uint32_t record, uint64_t key,
                     uint64_t generation, void *blob);
int swap_rig_wait(struct swap_rig_io *io);
/* Submits and waits; the blob is made for the write, and looked at after the read. */
int swap_rig_write(struct swap_rig *rig, uint32_t record, uint64_t key, uint64_t generation);
int swap_rig_read(struct swap_rig *rig, uint32_t record, uint64_t key, uint64_t generation);
/* alloc, and a write that succeeds. */
uint32_t swap_rig_put(struct swap_rig *rig, uint64_t key, uint64_t generation);
/* What was found for the key at the last open; NULL: nothing. */
const struct residency_swap_found *swap_rig_found(const struct swap_rig *rig, uint64_t key);

#endif
