#include "wire_fuzz.h"

/* And what its text asks for. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uint8_t back[PENSTOCK_MODEL_REQUEST_BYTES_MAX];
    static char text[PENSTOCK_MODEL_REQUEST_MAX];
    struct penstock_model_request request;
    struct penstock_model_ask ask;
    struct penstock_wire_fault fault = { 0 };
    size_t consumed = 0;

    if (!fuzz_wire_ok(penstock_model_request_decode(data, len, &request, &consumed, &fault), len, &consumed, &fault))
        return 0;
    fuzz_wire_same(back, penstock_model_request_encode(&request, back, &fault), data, consumed);

    enum penstock_ask kind = penstock_model_ask_parse(&request, &ask, &fault);
    if (kind == PENSTOCK_ASK_UNKNOWN) {
        FUZZ_CHECK(fault.field && fault.reason);
        return 0;
    }
    size_t n = penstock_model_ask_format(kind, &ask, text, &fault);
    FUZZ_CHECK(n == request.len_bytes && memcmp(text, request.text, n) == 0);
    return 0;
}
