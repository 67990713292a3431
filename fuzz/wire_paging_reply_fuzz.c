#include "wire_fuzz.h"

/* The first byte is the op that is answered. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_paging_reply reply;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_PAGING_REPLY_BYTES_MAX];
    size_t consumed = 0;
    if (len == 0)
        return 0;

    const uint8_t op = data[0];
    if (fuzz_wire_ok(penstock_paging_reply_decode(data + 1, len - 1, op, &reply, &consumed, &fault), len - 1, &consumed,
                     &fault)) {
        penstock_paging_reply_encode(op, &reply, back);
        fuzz_wire_same(back, penstock_paging_reply_size(op, &reply), data + 1, consumed);
    }
    return 0;
}
