#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_range_request record;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_RANGE_REQUEST_BYTES];
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_range_request_decode(data, len, &record, &consumed, &fault), len, &consumed, &fault)) {
        penstock_range_request_encode(&record, back);
        fuzz_wire_same(back, sizeof back, data, consumed);
    }
    return 0;
}
