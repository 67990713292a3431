/* adapter_config.json of a PEFT adapter (protocol 1.5): what of it says how A and B are meant. */
#ifndef PENSTOCK_MODEL_LORA_CONFIG_H
#define PENSTOCK_MODEL_LORA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "json/json.h"

#define MODEL_LORA_CONFIG_NAME "adapter_config.json"
#define MODEL_LORA_CONFIG_BYTES_MAX (UINT64_C(16) << 20)

struct model_lora_config {
    uint64_t rank;
    double alpha;
    bool rslora, fan_in_fan_out;
    const struct json_value *rank_pattern, *alpha_pattern; /* objects, or NULL; judged already */
    struct json_doc doc;
};

/* ECORRUPT names a field that is missing or of the wrong type; EUNSUPPORTED one that changes what the matrices mean in
 * a way that is not known here. Fields that only say how the adapter was trained are not looked at. On failure *out is
 * empty. */
PENSTOCK_CHECKED int model_lora_config_read(const char *text, size_t len, struct model_lora_config *out,
                                            struct penstock_error *error);
void model_lora_config_fini(struct model_lora_config *config);

/* What holds for one module, by its path in the base model ("model.layers.0.self_attn.q_proj"): the first pattern that
 * matches, else the general value. EUNSUPPORTED: a path that patterns can't be tried on. *effort, 0 at first, sums up
 * what an adapter's modules take; ELIMIT: more than any honest adapter's. */
PENSTOCK_CHECKED int model_lora_config_for(const struct model_lora_config *config, const char *path, size_t len,
                                           uint64_t *effort, uint64_t *rank, double *scale,
                                           struct penstock_error *error);

#endif
