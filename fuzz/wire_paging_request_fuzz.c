#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct penstock_key keys[PENSTOCK_KEYS_MAX];
    static uint8_t back[PENSTOCK_PAGING_REQUEST_BYTES_MAX];
    struct penstock_paging_request request;
    struct penstock_wire_fault fault = { 0 };

    for (int i = 0; i < 4; i++) {
        const struct penstock_paging_framing framing = { .tcp = i & 1, .wide = i & 2 };
        size_t consumed = 0;
        if (!fuzz_wire_ok(penstock_paging_request_decode(data, len, &framing, keys, &request, &consumed, &fault), len,
                          &consumed, &fault))
            continue;
        size_t n = penstock_paging_request_encode(&request, &framing, back, &fault);
        FUZZ_CHECK(n == penstock_paging_request_size(&request, &framing));
        if (request.op == PENSTOCK_OP_BYE) /* written with a key, and complete without */
            FUZZ_CHECK(consumed == 1 && n > 1 && back[0] == data[0]);
        else
            fuzz_wire_same(back, n, data, consumed);
    }
    return 0;
}
