#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_verbs_client_params record;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_VERBS_CLIENT_PARAMS_BYTES];
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_verbs_client_params_decode(data, len, &record, &consumed, &fault), len, &consumed,
                     &fault)) {
        penstock_verbs_client_params_encode(&record, back);
        fuzz_wire_same(back, sizeof back, data, consumed);
    }
    return 0;
}
