#include "wire_fuzz.h"

/* The first byte is how many rails were negotiated. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct penstock_verbs_client_params rails[UINT8_MAX];
    static uint8_t back[1 + UINT8_MAX * PENSTOCK_VERBS_CLIENT_PARAMS_BYTES];
    struct penstock_wire_fault fault = { 0 };
    size_t consumed = 0;
    if (len == 0)
        return 0;

    if (fuzz_wire_ok(penstock_client_rails_decode(data + 1, len - 1, data[0], rails, &consumed, &fault), len - 1,
                     &consumed, &fault))
        fuzz_wire_same(back, penstock_client_rails_encode(rails, data[0], back, &fault), data + 1, consumed);
    return 0;
}
