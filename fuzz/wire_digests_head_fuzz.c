#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_digests_head head;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_DIGESTS_HEAD_BYTES_MAX];
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_digests_head_decode(data, len, &head, &consumed, &fault), len, &consumed, &fault)) {
        FUZZ_CHECK(head.n <= PENSTOCK_DIGESTS_MAX);
        fuzz_wire_same(back, penstock_digests_head_encode(&head, back, &fault), data, consumed);
    }
    return 0;
}
