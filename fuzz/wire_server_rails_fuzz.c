#include "wire_fuzz.h"

/* The first byte is how many rails were negotiated. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    enum { ROOM = 6000 };
    static struct penstock_layer layers[ROOM];
    static uint8_t back[PENSTOCK_SERVER_RAILS_BYTES_MAX];
    struct penstock_verbs_server_params rails[PENSTOCK_RAILS_MAX];
    struct penstock_wire_fault fault = { 0 };
    size_t consumed = 0;
    if (len == 0)
        return 0;
    const size_t want = data[0] % 10;

    if (fuzz_wire_ok(penstock_server_rails_decode(data + 1, len - 1, want, layers, ROOM, rails, &consumed, &fault),
                     len - 1, &consumed, &fault)) {
        FUZZ_CHECK(penstock_server_rails_size(rails, want) == consumed);
        fuzz_wire_same(back, penstock_server_rails_encode(rails, want, back, &fault), data + 1, consumed);
    }
    return 0;
}
