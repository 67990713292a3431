/* The manifest of an expert store (protocol 1.4, 2.4): as manifest.json in the store, and as a peer sends it. */
#ifndef PENSTOCK_MODEL_EXPERTS_MANIFEST_H
#define PENSTOCK_MODEL_EXPERTS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/wire.h>

#include "base/vec.h"
#include "model/experts/geometry.h"

struct model_expert_manifest {
    struct model_expert_geometry geometry;
    uint32_t *model_layers; /* moe_layer_to_model_layer, num_moe_layers of them; of malloc */
    char model_version[PENSTOCK_MODEL_VERSION_MAX + 1]; /* empty: none is known, and none is written */
};

/* Computes the geometry from its seven given fields and takes a copy of model_layers. On failure *out is empty. */
PENSTOCK_CHECKED int model_expert_manifest_init(struct model_expert_manifest *out,
                                                const struct model_expert_geometry *given, const uint32_t *model_layers,
                                                struct penstock_error *error);
void model_expert_manifest_fini(struct model_expert_manifest *manifest);

/* Appends the fields in the frozen order, then model_version where there is one. pretty: as in a store, a line a
 * field, with a newline behind it; else compact, as on the wire. */
PENSTOCK_CHECKED int model_expert_manifest_write(const struct model_expert_manifest *manifest, bool pretty,
                                                 struct base_buf *out, struct penstock_error *error);

/* Reads either form. EPROTO names the field: missing or there twice, another version or file_template, sizes that make
 * no geometry, a record_stride or record_raw_bytes that is not the one computed, another number of model layers than
 * num_moe_layers. Fields that are not known are ignored. On failure *out is empty. */
PENSTOCK_CHECKED int model_expert_manifest_read(const char *json, size_t len, struct model_expert_manifest *out,
                                                struct penstock_error *error);

/* Whether two stores have the same geometry and model layers; model_version is not looked at. */
bool model_expert_manifest_same(const struct model_expert_manifest *a, const struct model_expert_manifest *b);

#endif
