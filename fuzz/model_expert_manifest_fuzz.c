#include <string.h>

#include "fuzz.h"
#include "model/experts/manifest.h"

/* The parts of a record lie behind each other, inside it, and records inside the file. */
static void check_geometry(const struct model_expert_geometry *g)
{
    uint64_t at = PENSTOCK_RECORD_HEADER_BYTES, payload = 0;
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        const struct model_expert_range *range = &g->parts[part];
        FUZZ_CHECK(range->offset_bytes >= at && range->offset_bytes % g->sub_align == 0 && range->len_bytes > 0);
        at = range->offset_bytes + range->len_bytes;
        payload += range->len_bytes;
    }
    FUZZ_CHECK(at <= g->record_raw_bytes && g->record_raw_bytes <= g->record_stride && payload == g->payload_bytes);
    FUZZ_CHECK(g->record_stride % g->fs_block_size == 0 && g->record_stride <= g->layer_bytes);
    FUZZ_CHECK(g->layer_bytes == g->num_experts * g->record_stride && g->total_bytes <= INT64_MAX);
    FUZZ_CHECK(model_expert_record_at(g, g->num_experts - 1) + g->record_stride == g->layer_bytes);
}

/* A manifest that reads holds together, and reads again in both the forms that it is written in. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct model_expert_manifest m, again;
    struct penstock_error error = { 0 };
    int status = model_expert_manifest_read((const char *)data, len, &m, &error);
    if (status != 0) {
        FUZZ_CHECK(error.code == status && !m.model_layers);
        return 0;
    }
    check_geometry(&m.geometry);
    for (int pretty = 0; pretty < 2; pretty++) {
        struct base_buf out = { 0 };
        FUZZ_CHECK(model_expert_manifest_write(&m, pretty, &out, NULL) == 0);
        FUZZ_CHECK(model_expert_manifest_read((const char *)out.at, out.n, &again, NULL) == 0);
        FUZZ_CHECK(model_expert_manifest_same(&m, &again) && strcmp(m.model_version, again.model_version) == 0);
        model_expert_manifest_fini(&again);
        base_buf_fini(&out);
    }
    model_expert_manifest_fini(&m);
    return 0;
}
