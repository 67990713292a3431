#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "residency/swap/index.h"

/* What is good encodes to the very bytes it was read from, but for those that are not used. */
static void entry(const uint8_t *bytes, const struct swap_geometry *geometry, uint32_t record)
{
    struct swap_index_entry e;
    uint8_t back[SWAP_INDEX_ENTRY_BYTES];
    if (swap_index_entry_decode(bytes, geometry, record, &e) != SWAP_INDEX_GOOD)
        return;
    swap_index_entry_encode(&e, geometry, record, back);
    FUZZ_CHECK(memcmp(back, bytes, 48) == 0);
}

static void header(const uint8_t *bytes, const struct swap_geometry *geometry)
{
    struct swap_index_header h;
    uint8_t back[SWAP_INDEX_HEADER_BYTES];
    if (swap_index_header_decode(bytes, geometry, &h) != SWAP_INDEX_GOOD)
        return;
    FUZZ_CHECK(h.geometry.kind == geometry->kind && h.geometry.blob_bytes == geometry->blob_bytes);
    swap_index_header_encode(&h, back);
    FUZZ_CHECK(memcmp(back, bytes, 40) == 0);
}

static void name(const uint8_t *bytes, size_t len)
{
    char text[SWAP_NAME_MAX + 8] = "", back[SWAP_NAME_MAX];
    struct swap_geometry g;
    memcpy(text, bytes, len < sizeof text - 1 ? len : sizeof text - 1);
    if (!swap_index_name_parse(text, "swap", &g))
        return;
    FUZZ_CHECK(g.kind < RESIDENCY_KINDS);
    swap_index_name(&g, "swap", back);
    FUZZ_CHECK(strcmp(text, back) == 0);
}

/* A byte that says for which record, then names, headers and entries, whatever they look like. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct swap_geometry geometry = { .kind = RESIDENCY_KV, .blob_bytes = 65536 };
    if (len < 1)
        return 0;
    uint8_t bytes[64];
    name(data + 1, len - 1);
    for (size_t at = 1; at + sizeof bytes <= len; at += sizeof bytes) {
        memcpy(bytes, data + at, sizeof bytes);
        header(bytes, &geometry);
        entry(bytes, &geometry, data[0]);
    }
    return 0;
}
