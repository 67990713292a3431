/* The geometry of an expert store (protocol 1.4): where in a record each sub-buffer lies, and what a layer takes. All
 * of it follows from seven numbers, which may come from a stranger: nothing is computed that could wrap. */
#ifndef PENSTOCK_MODEL_EXPERTS_GEOMETRY_H
#define PENSTOCK_MODEL_EXPERTS_GEOMETRY_H

#include <stdint.h>

#include <penstock/error.h>
#include <penstock/wire.h>

/* gate, up, down: as the header's scale2 and input_scale count them. */
enum { MODEL_EXPERT_PROJECTIONS = 3 };

/* The sub-buffers, in their order in a record: part 2 * p is projection p's packed, 2 * p + 1 its scale. */
enum model_expert_part {
    MODEL_EXPERT_GATE_PACKED,
    MODEL_EXPERT_GATE_SCALE,
    MODEL_EXPERT_UP_PACKED,
    MODEL_EXPERT_UP_SCALE,
    MODEL_EXPERT_DOWN_PACKED,
    MODEL_EXPERT_DOWN_SCALE,
    MODEL_EXPERT_PARTS
};

enum { MODEL_EXPERT_SUB_ALIGN = 256, MODEL_EXPERT_FS_BLOCK = 4096 }; /* what packing chooses */

struct model_expert_range {
    uint64_t offset_bytes; /* in the record */
    uint64_t len_bytes;
};

struct model_expert_geometry {
    /* Given. */
    uint32_t num_moe_layers; /* 1..PENSTOCK_LAYERS_MAX */
    uint32_t num_experts;    /* of each layer */
    uint32_t inter, hidden;  /* values; both multiples of group_size */
    uint32_t group_size;
    uint32_t sub_align;     /* bytes, a power of two */
    uint32_t fs_block_size; /* bytes */

    /* Computed. */
    struct model_expert_range parts[MODEL_EXPERT_PARTS];
    uint64_t payload_bytes;    /* of the six parts alone */
    uint64_t record_raw_bytes; /* to the end of the last part, rounded up to sub_align */
    uint64_t record_stride;    /* that rounded up to fs_block_size */
    uint64_t layer_bytes;      /* of a layer's file */
    uint64_t total_bytes;      /* of all layers' files */
};

/* From the seven given to the computed. EINVAL names the field: zero, not dividing, or sizes that no file can have. */
PENSTOCK_CHECKED int model_expert_geometry_compute(struct model_expert_geometry *geometry,
                                                   struct penstock_error *error);

/* The matrix behind a part's projection, N rows of K values: gate and up have N = inter, down has N = hidden. packed is
 * stored as [K / 2, N], scale as [K / group_size, N]. */
uint32_t model_expert_rows(const struct model_expert_geometry *geometry, enum model_expert_part part);
uint32_t model_expert_columns(const struct model_expert_geometry *geometry, enum model_expert_part part);

/* "gate.packed", static. */
const char *model_expert_part_name(enum model_expert_part part);

/* Where record (layer, expert) begins in its layer's file. */
static inline uint64_t model_expert_record_at(const struct model_expert_geometry *geometry, uint32_t expert)
{
    return expert * geometry->record_stride;
}

/* The header at the beginning of record, PENSTOCK_RECORD_HEADER_BYTES of it, has to be that of (layer, expert) in a
 * store of this geometry. ECORRUPT names layer, expert and field. out may be NULL. */
PENSTOCK_CHECKED int model_expert_header_check(const struct model_expert_geometry *geometry, uint32_t layer,
                                               uint32_t expert, const uint8_t *record,
                                               struct penstock_record_header *out, struct penstock_error *error);

#endif
