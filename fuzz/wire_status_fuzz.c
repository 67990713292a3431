#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_wire_fault fault = { 0 };
    uint8_t byte = 0xFF;
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_ack_decode(data, len, &consumed, &fault), len, &consumed, &fault))
        FUZZ_CHECK(consumed == 1 && data[0] == PENSTOCK_STATUS_OK);
    if (fuzz_wire_ok(penstock_mode_decode(data, len, &byte, &consumed, &fault), len, &consumed, &fault))
        FUZZ_CHECK(consumed == 1 && byte == data[0] && byte <= PENSTOCK_MODE_VERBS);
    if (fuzz_wire_ok(penstock_status_decode(data, len, &byte, &consumed, &fault), len, &consumed, &fault))
        FUZZ_CHECK(consumed == 1 && byte == data[0]);
    return 0;
}
