#include "wire_fuzz.h"

/* A request, and behind it the answer to it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct penstock_rails_request request;
    struct penstock_rail_choice rails[PENSTOCK_RAILS_MAX];
    struct penstock_wire_fault fault = { 0 };
    uint8_t back[PENSTOCK_RAILS_REQUEST_BYTES_MAX];
    size_t consumed = 0;

    if (penstock_rails_request_decode(data, len, PENSTOCK_READ_WRITE, &request, &consumed, &fault) !=
            PENSTOCK_DECODE_OK ||
        !request.choosing)
        return 0;
    data += consumed;
    len -= consumed;
    if (fuzz_wire_ok(penstock_rails_answer_decode(data, len, &request, rails, &consumed, &fault), len, &consumed,
                     &fault)) {
        penstock_rails_answer_encode(rails, request.n_rails, back);
        fuzz_wire_same(back, request.n_rails * PENSTOCK_RAIL_CHOICE_BYTES, data, consumed);
        for (size_t i = 0; i < request.n_rails; i++)
            FUZZ_CHECK(rails[i].path_mtu <= request.rails[i].path_mtu &&
                       rails[i].rd_atomic <= request.rails[i].rd_atomic);
    }
    return 0;
}
