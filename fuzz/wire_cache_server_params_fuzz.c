#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_cache_server_params record;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_CACHE_SERVER_PARAMS_BYTES];
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_cache_server_params_decode(data, len, &record, &consumed, &fault), len, &consumed,
                     &fault)) {
        penstock_cache_server_params_encode(&record, back);
        fuzz_wire_same(back, sizeof back, data, consumed);
    }
    return 0;
}
