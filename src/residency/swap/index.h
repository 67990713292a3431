/* What the index of a kept swap file looks like: a header, and an entry for each record. Bytes in, structs out.
 *
 * Every entry carries a checksum of its own, taken over its place and the file's geometry as well, so that nothing but
 * the entry itself is needed to believe it: a header or a neighbour that is damaged costs it nothing. An entry lies in
 * one sector of the disk, and so is written whole or not at all. */
#ifndef PENSTOCK_RESIDENCY_SWAP_INDEX_H
#define PENSTOCK_RESIDENCY_SWAP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "residency/key.h"

#define SWAP_INDEX_HEADER_BYTES 64
#define SWAP_INDEX_ENTRIES_AT 4096 /* the first entry's offset in the file */
#define SWAP_INDEX_ENTRY_BYTES 64

struct swap_geometry {
    enum residency_kind kind;
    uint64_t blob_bytes;
};

struct swap_index_header {
    struct swap_geometry geometry;
    uint64_t boot; /* the host's run that it was last written in; 0: not known */
    bool clean;    /* closed and synced: true to the disk whatever happened to the host since */
};

struct swap_index_entry {
    struct residency_key key;
    uint64_t generation;
    uint64_t checksum;  /* of the blob */
    uint64_t written_s; /* seconds since 1970 */
    uint64_t boot;
};

enum swap_index_verdict {
    SWAP_INDEX_GOOD,
    SWAP_INDEX_FREE,    /* an entry: all zeros, no record */
    SWAP_INDEX_OTHER,   /* a header: of another version or geometry */
    SWAP_INDEX_DAMAGED, /* its checksum is not its own */
};

void swap_index_header_encode(const struct swap_index_header *header, uint8_t out[SWAP_INDEX_HEADER_BYTES]);
/* *out is set on GOOD only. */
enum swap_index_verdict swap_index_header_decode(const uint8_t in[SWAP_INDEX_HEADER_BYTES],
                                                 const struct swap_geometry *expected, struct swap_index_header *out);

void swap_index_entry_encode(const struct swap_index_entry *entry, const struct swap_geometry *geometry,
                             uint32_t record, uint8_t out[SWAP_INDEX_ENTRY_BYTES]);
/* *out is set on GOOD only. */
enum swap_index_verdict swap_index_entry_decode(const uint8_t in[SWAP_INDEX_ENTRY_BYTES],
                                                const struct swap_geometry *geometry, uint32_t record,
                                                struct swap_index_entry *out);

static inline uint64_t swap_index_entry_offset(uint32_t record)
{
    return SWAP_INDEX_ENTRIES_AT + (uint64_t)record * SWAP_INDEX_ENTRY_BYTES;
}

/* The names of a file of this geometry: "kv-65536.swap", "kv-65536.index" and "kv-65536.sums". */
#define SWAP_NAME_MAX 40
void swap_index_name(const struct swap_geometry *geometry, const char *suffix, char out[SWAP_NAME_MAX]);
/* Whether name is one that swap_index_name gives for this suffix. */
bool swap_index_name_parse(const char *name, const char *suffix, struct swap_geometry *out);

#endif
