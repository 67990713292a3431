/* The cache beside the reference of its unit tests; the bytes are what clients, disks and fate choose. */
#include "cache_model.h"
#include "fuzz.h"

struct bytes {
    const uint8_t *at, *end;
};

static uint64_t next_byte(void *user, uint64_t below, bool *over)
{
    struct bytes *bytes = user;
    *over = bytes->at == bytes->end;
    return *over ? 0 : *bytes->at++ % below;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct bytes bytes = { data, data + len };
    cache_model_run(next_byte, &bytes, UINT64_MAX);
    return 0;
}
