#include "digest.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "safetensors.h"

int model_digests_init(const struct model_staged *staged, struct model_digests *out, struct penstock_error *error)
{
    *out = (struct model_digests){ .files = calloc(staged->opened.n, sizeof *out->files) };
    if (!out->files)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for digests");
    for (; out->n < staged->opened.n; out->n++) {
        struct model_file_digests *file = &out->files[out->n];
        file->chunks = model_digest_chunks(staged->opened.at[out->n].identity.len_bytes);
        file->at = calloc(file->chunks > 0 ? file->chunks : 1, sizeof *file->at);
        if (!file->at) {
            model_digests_fini(out);
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory for digests");
        }
    }
    return 0;
}

void model_digests_fini(struct model_digests *digests)
{
    for (size_t i = 0; i < digests->n; i++)
        free(digests->files[i].at);
    free(digests->files);
    *digests = (struct model_digests){ 0 };
}

int model_digests_next(const struct model_staged *staged, struct model_digests *digests, size_t file, uint8_t *scratch,
                       size_t scratch_bytes, struct penstock_error *error)
{
    struct model_file_digests *of = &digests->files[file];
    const struct model_opened *opened = &staged->opened.at[file];
    uint64_t chunk = atomic_load_explicit(&of->known, memory_order_relaxed);
    if (chunk >= of->chunks || scratch_bytes == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "no such chunk");
    uint64_t at = chunk * PENSTOCK_DIGEST_CHUNK_BYTES;
    uint64_t left = base_min_u64(PENSTOCK_DIGEST_CHUNK_BYTES, opened->identity.len_bytes - at);
    XXH3_state_t *state = XXH3_createState();
    int status = 0;
    if (!state || XXH3_128bits_reset(state) != XXH_OK)
        status = base_error_set(error, PENSTOCK_ENOMEM, "no memory to hash");
    while (status == 0 && left > 0) {
        size_t n = (size_t)base_min_u64(left, scratch_bytes);
        status = model_pread(opened->fd, scratch, n, at, error);
        if (status == 0)
            XXH3_128bits_update(state, scratch, n);
        at += n;
        left -= n;
    }
    if (status == 0) {
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
        memcpy(of->at[chunk], digest.digest, PENSTOCK_DIGEST_BYTES);
        atomic_store_explicit(&of->known, chunk + 1, memory_order_release);
    }
    XXH3_freeState(state);
    return status;
}
