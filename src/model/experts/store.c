#include "store.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"

const char *model_layer_name(uint32_t layer, char out[MODEL_LAYER_NAME_BYTES])
{
    snprintf(out, MODEL_LAYER_NAME_BYTES, "experts_%05" PRIu32 ".xpr", layer);
    return out;
}

int model_store_open(const char *directory, const struct model_stage_options *options, struct model_store *out,
                     struct penstock_error *error)
{
    (void)options;
    *out = (struct model_store){ .manifest_file.fd = -1 };
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "open store %s: not yet", directory);
}

void model_store_close(struct model_store *store)
{
    (void)store;
}

enum model_change model_store_changed(const struct model_store *store)
{
    (void)store;
    return MODEL_SAME;
}

int model_store_header(const struct model_store *store, uint32_t layer, uint32_t expert,
                       struct penstock_record_header *header, struct penstock_error *error)
{
    (void)store, (void)layer, (void)expert, (void)header;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

int model_store_record(const struct model_store *store, uint32_t layer, uint32_t expert, uint8_t *record,
                       struct penstock_record_header *header, struct penstock_error *error)
{
    (void)store, (void)layer, (void)expert, (void)record, (void)header;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED, "not yet");
}

bool model_store_likely(const char *directory)
{
    (void)directory;
    return false;
}
