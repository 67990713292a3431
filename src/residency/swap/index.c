#include "index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC UINT64_C(0x0050415753534e50) /* "PNSSWAP" */
#define VERSION 3                          /* until 2 larger pieces were summed: of 1 MiB all of it */
#define CHECKED_BYTES 56                   /* of header and entry: what lies before their checksum */

static const char *const kind_names[RESIDENCY_KINDS] = { [RESIDENCY_SSM] = "ssm", [RESIDENCY_KV] = "kv" };

static void put(uint8_t *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *in)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | in[i];
    return v;
}

void swap_index_header_encode(const struct swap_index_header *header, uint8_t out[SWAP_INDEX_HEADER_BYTES])
{
    memset(out, 0, SWAP_INDEX_HEADER_BYTES);
    put(out, MAGIC);
    put(out + 8, VERSION);
    put(out + 16, header->geometry.kind);
    put(out + 24, header->geometry.blob_bytes);
    put(out + 32, header->boot);
    put(out + 40, header->clean);
    put(out + CHECKED_BYTES, XXH3_64bits(out, CHECKED_BYTES));
}

enum swap_index_verdict swap_index_header_decode(const uint8_t in[SWAP_INDEX_HEADER_BYTES],
                                                 const struct swap_geometry *expected, struct swap_index_header *out)
{
    if (get(in) != MAGIC || get(in + CHECKED_BYTES) != XXH3_64bits(in, CHECKED_BYTES))
        return SWAP_INDEX_DAMAGED;
    if (get(in + 8) != VERSION || get(in + 16) != expected->kind || get(in + 24) != expected->blob_bytes)
        return SWAP_INDEX_OTHER;
    *out = (struct swap_index_header){ .geometry = *expected, .boot = get(in + 32), .clean = get(in + 40) == 1 };
    return SWAP_INDEX_GOOD;
}

static uint64_t entry_check(const uint8_t *entry, const struct swap_geometry *geometry, uint32_t record)
{
    uint8_t all[CHECKED_BYTES + 32];
    memcpy(all, entry, CHECKED_BYTES);
    put(all + CHECKED_BYTES, VERSION);
    put(all + CHECKED_BYTES + 8, geometry->kind);
    put(all + CHECKED_BYTES + 16, geometry->blob_bytes);
    put(all + CHECKED_BYTES + 24, record);
    return XXH3_64bits(all, sizeof all);
}

void swap_index_entry_encode(const struct swap_index_entry *entry, const struct swap_geometry *geometry,
                             uint32_t record, uint8_t out[SWAP_INDEX_ENTRY_BYTES])
{
    memset(out, 0, SWAP_INDEX_ENTRY_BYTES);
    put(out, entry->key.low);
    put(out + 8, entry->key.high);
    put(out + 16, entry->generation);
    put(out + 24, entry->checksum);
    put(out + 32, entry->written_s);
    put(out + 40, entry->boot);
    put(out + CHECKED_BYTES, entry_check(out, geometry, record));
}

enum swap_index_verdict swap_index_entry_decode(const uint8_t in[SWAP_INDEX_ENTRY_BYTES],
                                                const struct swap_geometry *geometry, uint32_t record,
                                                struct swap_index_entry *out)
{
    static const uint8_t none[SWAP_INDEX_ENTRY_BYTES];
    if (memcmp(in, none, sizeof none) == 0)
        return SWAP_INDEX_FREE;
    if (get(in + CHECKED_BYTES) != entry_check(in, geometry, record))
        return SWAP_INDEX_DAMAGED;
    *out = (struct swap_index_entry){ .key = { .low = get(in), .high = get(in + 8) },
                                      .generation = get(in + 16),
                                      .checksum = get(in + 24),
                                      .written_s = get(in + 32),
                                      .boot = get(in + 40) };
    return SWAP_INDEX_GOOD;
}

void swap_index_name(const struct swap_geometry *geometry, const char *suffix, char out[SWAP_NAME_MAX])
{
    snprintf(out, SWAP_NAME_MAX, "%s-%" PRIu64 ".%s", kind_names[geometry->kind], geometry->blob_bytes, suffix);
}

bool swap_index_name_parse(const char *name, const char *suffix, struct swap_geometry *out)
{
    const char *dash = strchr(name, '-');
    if (!dash)
        return false;
    for (int kind = 0; kind < RESIDENCY_KINDS; kind++) {
        struct swap_geometry g = { .kind = (enum residency_kind)kind, .blob_bytes = strtoull(dash + 1, NULL, 10) };
        char back[SWAP_NAME_MAX];
        swap_index_name(&g, suffix, back);
        if (strcmp(name, back) == 0) {
            *out = g;
            return true;
        }
    }
    return false;
}
