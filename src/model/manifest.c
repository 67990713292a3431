#include "manifest.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/rng.h"

/* At most half full: a lookup meets few others. */
static size_t slots_for(size_t tensors)
{
    size_t slots = 16;
    while (slots < 2 * tensors)
        slots *= 2;
    return slots;
}

static size_t hash(const struct model_manifest *manifest, const char *name)
{
    return (size_t)XXH3_64bits_withSeed(name, strlen(name), manifest->index_seed);
}

int model_manifest_index(struct model_manifest *manifest, struct penstock_error *error)
{
    size_t n = manifest->tensors.n;
    if (n >= UINT32_MAX)
        return base_error_set(error, PENSTOCK_ELIMIT, "%zu tensors are too many", n);
    int code = base_random(&manifest->index_seed, sizeof manifest->index_seed);
    if (code)
        return base_error_set(error, code, "no random numbers from the kernel");
    size_t slots = slots_for(n);
    uint32_t *index = calloc(slots, sizeof *index);
    if (!index)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to index %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        const char *name = manifest->tensors.at[i].name;
        size_t at = hash(manifest, name) & (slots - 1);
        for (; index[at] != 0; at = (at + 1) & (slots - 1))
            if (strcmp(manifest->tensors.at[index[at] - 1].name, name) == 0) {
                free(index);
                return base_error_set(error, PENSTOCK_ECORRUPT, "tensor \"%.200s\": there twice", name);
            }
        index[at] = (uint32_t)i + 1;
    }
    free(manifest->index);
    manifest->index = index;
    manifest->index_mask = slots - 1;
    return 0;
}

const struct penstock_tensor *model_manifest_find(const struct model_manifest *manifest, const char *name)
{
    if (!manifest->index)
        return NULL;
    size_t at = hash(manifest, name) & manifest->index_mask;
    for (; manifest->index[at] != 0; at = (at + 1) & manifest->index_mask) {
        const struct penstock_tensor *tensor = &manifest->tensors.at[manifest->index[at] - 1];
        if (strcmp(tensor->name, name) == 0)
            return tensor;
    }
    return NULL;
}

void model_manifest_fini(struct model_manifest *manifest)
{
    base_vec_free(&manifest->shards);
    base_vec_free(&manifest->files);
    base_vec_free(&manifest->tensors);
    base_pool_fini(&manifest->pool);
    free(manifest->index);
    *manifest = (struct model_manifest){ 0 };
}
