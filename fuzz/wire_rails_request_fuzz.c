#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_rails_request request;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_RAILS_REQUEST_BYTES_MAX];

    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        size_t consumed = 0;
        enum penstock_dialect d = (enum penstock_dialect)dialect;
        if (fuzz_wire_ok(penstock_rails_request_decode(data, len, d, &request, &consumed, &fault), len, &consumed,
                         &fault))
            fuzz_wire_same(back, penstock_rails_request_encode(&request, d, back, &fault), data, consumed);
    }
    return 0;
}
