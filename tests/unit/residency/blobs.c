#include "blobs.h"

#include <string.h>

void rig_fill(void *blob, uint64_t what)
{
    for (size_t i = 0; i < RIG_BLOB; i += 512)
        memcpy((uint8_t *)blob + i, &what, sizeof what);
    memcpy((uint8_t *)blob + RIG_BLOB - sizeof what, &what, sizeof what);
}

uint64_t rig_read(const void *blob)
{
    uint64_t first, other;
    memcpy(&first, blob, sizeof first);
    for (size_t i = 0; i <= RIG_BLOB; i += 512) {
        memcpy(&other, (const uint8_t *)blob + (i < RIG_BLOB ? i : RIG_BLOB - sizeof other), sizeof other);
        if (other != first)
            return 0;
    }
    return first;
}

bool rig_begins(const void *blob, uint64_t bytes, uint64_t what)
{
    uint64_t other;
    for (uint64_t i = 0; i < bytes; i += 512) {
        memcpy(&other, (const uint8_t *)blob + i, sizeof other);
        if (other != what)
            return false;
    }
    return bytes < RIG_BLOB || rig_read(blob) == what;
}

void *rig_blob(struct residency_client *client, uint64_t offset)
{
    return (uint8_t *)residency_memory(client).base + offset;
}

enum residency_status rig_put(struct residency_client *client, uint64_t key, uint64_t what)
{
    uint64_t offset;
    enum residency_status status = residency_alloc(client, rig_key(key), &offset);
    if (status != RESIDENCY_OK)
        return status;
    rig_fill(rig_blob(client, offset), what);
    return residency_commit(client, rig_key(key));
}

uint64_t rig_get(struct residency_client *client, uint64_t key)
{
    uint64_t offset, what = 0;
    enum residency_status status = residency_get(client, rig_key(key), &offset);
    if (status == RESIDENCY_OK)
        what = rig_read(rig_blob(client, offset));
    residency_let_go(client);
    return status == RESIDENCY_OK ? what : status == RESIDENCY_MISS ? 0 : UINT64_MAX;
}
