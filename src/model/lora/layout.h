/* What an adapter's slot looks like (protocol 1.5, "LoRA landing"): a plan from the model's manifest and the adapter's
 * config, made and checked before a byte of a matrix is asked for. */
#ifndef PENSTOCK_MODEL_LORA_LAYOUT_H
#define PENSTOCK_MODEL_LORA_LAYOUT_H

#include <penstock/lora.h>

#include "base/pool.h"
#include "base/vec.h"
#include "model/lora/config.h"
#include "model/manifest.h"

#define MODEL_LORA_RANK_MAX UINT64_C(65536)

/* What the slots of a pool have. */
struct model_lora_slot {
    uint64_t max_rank;                        /* 1 to MODEL_LORA_RANK_MAX */
    const struct penstock_lora_place *places; /* NULL: what the adapter has */
    size_t n_places;
};

/* Where an entry's matrices come from: tensors of the manifest, whose lengths fit their shapes; NULL where its rank is
 * 0. */
struct model_lora_source {
    const struct penstock_tensor *a, *b;
};

struct model_lora_layout {
    BASE_VEC(struct penstock_lora_entry) entries; /* in the order of the slot, without a gap between their regions */
    BASE_VEC(struct model_lora_source) sources;   /* one for each */
    BASE_VEC(const char *) left_out;              /* names of the manifest's */
    uint64_t slot_bytes, max_rank;
    struct base_pool pool; /* modules' names */
};

/* The errors of penstock_lora_start; EINVAL: a slot that contradicts itself or that the adapter does not fit. The
 * manifest has to outlive the layout. On failure *out is empty. */
PENSTOCK_CHECKED int model_lora_layout_make(const struct model_manifest *manifest,
                                            const struct model_lora_config *config, const struct model_lora_slot *slot,
                                            struct model_lora_layout *out, struct penstock_error *error);
void model_lora_layout_fini(struct model_lora_layout *layout);

#endif
