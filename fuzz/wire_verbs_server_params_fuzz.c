#include "wire_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct penstock_layer layers[PENSTOCK_LAYERS_MAX];
    static uint8_t back[PENSTOCK_VERBS_SERVER_HEAD_BYTES + PENSTOCK_LAYERS_MAX * PENSTOCK_LAYER_BYTES];
    struct penstock_verbs_server_params record;
    struct penstock_wire_fault fault = { 0 };
    size_t consumed = 0;

    if (fuzz_wire_ok(
            penstock_verbs_server_params_decode(data, len, layers, PENSTOCK_LAYERS_MAX, &record, &consumed, &fault),
            len, &consumed, &fault)) {
        penstock_verbs_server_params_encode(&record, back);
        fuzz_wire_same(back, penstock_verbs_server_params_size(record.n_layers), data, consumed);
    }
    return 0;
}
