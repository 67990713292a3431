/* Into a slot: F32, F16 and BF16 to BF16, B's rows apart, zeros in between (protocol 1.5, "LoRA landing"). */
#ifndef PENSTOCK_MODEL_LORA_LAND_H
#define PENSTOCK_MODEL_LORA_LAND_H

#include <stdint.h>

#include "model/lora/layout.h"

/* An entry's tensors as they came; NULL where its rank is 0. */
struct model_lora_bytes {
    const uint8_t *a, *b;
};

/* Fills all of slot_bytes at slot; layout->slot_bytes is no more. There is one of bytes for each entry. */
void model_lora_land(const struct model_lora_layout *layout, const struct model_lora_bytes *bytes, uint8_t *slot,
                     uint64_t slot_bytes);

#endif
