#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_TEXT_HEAD_BYTES];

    for (int text = PENSTOCK_TEXT_EXPERT_MANIFEST; text <= PENSTOCK_TEXT_CACHE_STATISTICS; text++) {
        enum penstock_text t = (enum penstock_text)text;
        uint32_t n = 0;
        size_t consumed = 0;
        if (fuzz_wire_ok(penstock_text_head_decode(data, len, t, &n, &consumed, &fault), len, &consumed, &fault)) {
            FUZZ_CHECK(n >= 1 && n <= PENSTOCK_WEIGHT_MANIFEST_BYTES_MAX);
            fuzz_wire_same(back, penstock_text_head_encode(t, n, back, &fault), data, consumed);
        }
    }
    return 0;
}
