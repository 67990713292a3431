/* A checkpoint that an expert store is packed from (protocol 1.4): safetensors with the names of compressed-tensors'
 * NVFP4. All is found from names and shapes. Immutable while open, so that any number of threads may use one. */
#ifndef PENSTOCK_MODEL_EXPERTS_CHECKPOINT_H
#define PENSTOCK_MODEL_EXPERTS_CHECKPOINT_H

#include "model/experts/manifest.h"
#include "model/identity.h"
#include "model/stage.h"

/* One projection's tensors; they live as long as the checkpoint. */
enum model_checkpoint_kind {
    MODEL_CHECKPOINT_PACKED, /* U8 [N, K / 2] */
    MODEL_CHECKPOINT_SCALE,  /* F8_E4M3 [N, K / group_size] */
    MODEL_CHECKPOINT_GLOBAL, /* F32, one value */
    MODEL_CHECKPOINT_INPUT,  /* the same, and the only one that need not be there */
    MODEL_CHECKPOINT_KINDS
};

struct model_checkpoint_projection {
    const struct penstock_tensor *of[MODEL_CHECKPOINT_KINDS];
};

struct model_checkpoint {
    struct model_staged staged;
    struct model_expert_manifest manifest;
    struct model_checkpoint_projection *projections; /* by layer, expert, projection */
    char
        source[MODEL_VERSION_BYTES]; /* as model_version, but of the shards alone: what else lies there is not packed */
    char *prefix;                    /* what stands before ".layers." */
    size_t other_prefixes;           /* tensors of experts under another one, which has fewer */
};

/* Opens the checkpoint's shards and finds its experts. layers: how many MoE layers, from the first; 0: all. ENOTFOUND:
 * no experts in this naming; ECORRUPT names layer, expert, tensor and file: one missing, or there twice, or with
 * another dtype or shape than the first's. On failure *out is empty and nothing stays open. */
PENSTOCK_CHECKED int model_checkpoint_open(const char *directory, uint32_t layers,
                                           const struct model_stage_options *options, struct model_checkpoint *out,
                                           struct penstock_error *error);
void model_checkpoint_close(struct model_checkpoint *checkpoint);

/* ESTALE names a shard that was written to since it was opened: what was read of it may be of two states. */
PENSTOCK_CHECKED int model_checkpoint_unchanged(const struct model_checkpoint *checkpoint,
                                                struct penstock_error *error);

static inline const struct model_checkpoint_projection *model_checkpoint_expert(
    const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert)
{
    return checkpoint->projections +
           ((size_t)layer * checkpoint->manifest.geometry.num_experts + expert) * MODEL_EXPERT_PROJECTIONS;
}

/* Puts "FILE: layer L: expert E: TENSOR: " in front of the words, L as the model counts, and returns their code. */
int model_checkpoint_where(const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert,
                           const struct penstock_tensor *tensor, struct penstock_error *error);

#endif
