/* Names of an adapter's tensors (protocol 1.5, "LoRA landing"): which matrix of which module of which layer. */
#ifndef PENSTOCK_MODEL_LORA_NAME_H
#define PENSTOCK_MODEL_LORA_NAME_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

enum model_lora_matrix { MODEL_LORA_A, MODEL_LORA_B, MODEL_LORA_NEITHER };

struct model_lora_name {
    enum model_lora_matrix matrix; /* NEITHER: it has no layer, and is left out; nothing else is set */
    uint64_t layer;                /* the first component that is all digits */
    const char *module;            /* in the name: from behind the layer to .lora_A or .lora_B */
    size_t module_len;
    const char *path; /* in the name: the module's path in the base model, which patterns are matched with */
    size_t path_len;
};

/* EUNSUPPORTED names a tensor of a layer that is no LoRA matrix, and a DoRA magnitude wherever it is. */
PENSTOCK_CHECKED int model_lora_name_read(const char *name, struct model_lora_name *out, struct penstock_error *error);

/* The order of modules within a layer: the eight that every client knows, then the others by their bytes. */
int model_lora_module_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
