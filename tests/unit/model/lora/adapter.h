/* Manifests of made adapters. */
#ifndef PENSTOCK_TEST_ADAPTER_H
#define PENSTOCK_TEST_ADAPTER_H

#include "../../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/dtype.h"
#include "model/lora/layout.h"

/* Tensors lie one after another in shard 0. */
struct adapter {
    struct model_manifest manifest;
    struct model_lora_config config;
    uint64_t end;
};

static inline struct penstock_tensor *adapter_add(struct adapter *a, const char *name, const char *dtype, uint64_t rows,
                                                  uint64_t columns)
{
    struct base_pool *pool = &a->manifest.pool;
    uint64_t *shape = base_pool_alloc(pool, 2 * sizeof *shape);
    shape[0] = rows;
    shape[1] = columns;
    struct penstock_tensor t = { .name = base_pool_string(pool, name, strlen(name)),
                                 .dtype = base_pool_string(pool, dtype, strlen(dtype)),
                                 .shape = shape,
                                 .rank = 2,
                                 .offset_bytes = a->end };
    assert_true(model_dtype_bytes(model_dtype_bits(dtype, strlen(dtype)), shape, 2, &t.len_bytes));
    a->end += t.len_bytes;
    assert_true(base_vec_push(&a->manifest.tensors, t));
    return &a->manifest.tensors.at[a->manifest.tensors.n - 1];
}

/* B first: the order of the file is not the slot's. */
static inline void adapter_add_pair(struct adapter *a, const char *dtype, unsigned layer, const char *module,
                                    uint64_t in, uint64_t out, uint64_t rank)
{
    char name[200];
    snprintf(name, sizeof name, "base_model.model.model.layers.%u.%s.lora_B.weight", layer, module);
    adapter_add(a, name, dtype, out, rank);
    snprintf(name, sizeof name, "base_model.model.model.layers.%u.%s.lora_A.weight", layer, module);
    adapter_add(a, name, dtype, rank, in);
}

static inline struct adapter adapter_new(uint64_t rank)
{
    struct adapter a = { 0 };
    char text[200];
    struct penstock_error error;
    snprintf(text, sizeof text, "{\"peft_type\":\"LORA\",\"r\":%u,\"lora_alpha\":6,\"rank_pattern\":{\"odd_proj\":5}}",
             (unsigned)rank);
    assert_int_equal(model_lora_config_read(text, strlen(text), &a.config, &error), 0);
    return a;
}

static inline void adapter_fini(struct adapter *a)
{
    model_manifest_fini(&a->manifest);
    model_lora_config_fini(&a->config);
}

#endif
