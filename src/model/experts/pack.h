/* Packing an expert: from a checkpoint's tensors to a record of a store (protocol 1.4). No thread is started here;
 * each thread that packs has a packer of its own. */
#ifndef PENSTOCK_MODEL_EXPERTS_PACK_H
#define PENSTOCK_MODEL_EXPERTS_PACK_H

#include "model/experts/checkpoint.h"

/* What a part is read, transposed and written in at a time: all of it, but for the largest experts'. */
#define MODEL_PACKER_PIECE_BYTES (UINT64_C(16) << 20)

struct model_packer {
    const struct model_checkpoint *checkpoint;
    uint64_t piece_bytes;
    uint8_t *source; /* a piece as the checkpoint has it, */
    uint8_t *piece;  /* as the store has it, */
    uint8_t *stored; /* and as it was read back; made when the first is */
};

/* Memory that a packer takes, at most. */
uint64_t model_packer_bytes(const struct model_expert_geometry *geometry, uint64_t piece_bytes);

/* piece_bytes: MODEL_PACKER_PIECE_BYTES; less in tests. One column of a part is the least. */
PENSTOCK_CHECKED int model_packer_init(struct model_packer *packer, const struct model_checkpoint *checkpoint,
                                       uint64_t piece_bytes, struct penstock_error *error);
void model_packer_fini(struct model_packer *packer);

/* Asks the kernel to read an expert's tensors ahead. */
void model_packer_expect(const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert);

/* Builds the record and writes it where it belongs in the layer's file. ECORRUPT names file, layer, expert and tensor:
 * a scale that is zero or not finite, a file that was cut. */
PENSTOCK_CHECKED int model_packer_write(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                                        struct penstock_error *error);
/* Builds it anew and compares it with what the file has. *differs: that is the file's fault, and not the checkpoint's;
 * ECORRUPT then names layer, expert and part. */
PENSTOCK_CHECKED int model_packer_verify(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                                         bool *differs, struct penstock_error *error);

#endif
