#include "wire_fuzz.h"

/* Padding, and an input_scale whose flag is clear, are not kept: what is written is read as itself from then on. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_record_header record, again;
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_RECORD_HEADER_BYTES], twice[PENSTOCK_RECORD_HEADER_BYTES];
    size_t consumed = 0;

    if (fuzz_wire_ok(penstock_record_header_decode(data, len, &record, &consumed, &fault), len, &consumed, &fault)) {
        penstock_record_header_encode(&record, back);
        fuzz_wire_same(back, 44, data, 44);
        FUZZ_CHECK(penstock_record_header_decode(back, sizeof back, &again, &consumed, &fault) == PENSTOCK_DECODE_OK);
        penstock_record_header_encode(&again, twice);
        fuzz_wire_same(twice, sizeof twice, back, consumed);
    }
    return 0;
}
