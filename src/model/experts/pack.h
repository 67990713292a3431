/* Packing an expert: from a checkpoint's tensors to a record of a store (protocol 1.4). No thread is started here;
 * each thread that packs has a packer of its own. */
#ifndef PENSTOCK_MODEL_EXPERTS_PACK_H
#define PENSTOCK_MODEL_EXPERTS_PACK_H

#include "model/experts/checkpoint.h"

struct model_packer {
    const struct model_checkpoint *checkpoint;
    uint8_t *record; /* record_stride bytes: the one built last */
    uint8_t *source; /* the longest part, as the checkpoint has it */
    uint8_t *stored; /* a record that was read back; made when the first is */
};

/* Memory that a packer takes, at most. */
uint64_t model_packer_bytes(const struct model_expert_geometry *geometry);

PENSTOCK_CHECKED int model_packer_init(struct model_packer *packer, const struct model_checkpoint *checkpoint,
                                       struct penstock_error *error);
void model_packer_fini(struct model_packer *packer);

/* Asks the kernel to read an expert's tensors ahead. */
void model_packer_expect(const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert);

/* Builds the record. ECORRUPT names file, layer, expert and tensor: a scale that is zero or not finite, a file that was
 * cut. */
PENSTOCK_CHECKED int model_packer_build(struct model_packer *packer, uint32_t layer, uint32_t expert,
                                        struct penstock_error *error);
/* Builds it and writes it where it belongs in the layer's file. */
PENSTOCK_CHECKED int model_packer_write(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                                        struct penstock_error *error);
/* Builds it anew and compares it with what the file has. *differs: that is the file's fault, and not the checkpoint's;
 * ECORRUPT then names layer, expert and part. */
PENSTOCK_CHECKED int model_packer_verify(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                                         bool *differs, struct penstock_error *error);

#endif
