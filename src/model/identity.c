#include "identity.h"

#include <string.h>
#include <xxhash.h>

#include "base/error.h"

static int64_t nanoseconds(struct timespec at)
{
    return (int64_t)((uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec);
}

struct model_identity model_identity_of(const struct stat *st)
{
    return (struct model_identity){
        .device = st->st_dev,
        .inode = st->st_ino,
        .len_bytes = (uint64_t)st->st_size,
        .mtime_ns = nanoseconds(st->st_mtim),
        .ctime_ns = nanoseconds(st->st_ctim),
    };
}

bool model_identity_same(const struct model_identity *a, const struct model_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->len_bytes == b->len_bytes &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

int model_version_make(const struct model_staged *staged, char *out, struct penstock_error *error)
{
    static const char hex[] = "0123456789abcdef";
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_128bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to hash");
    }
    const struct model_manifest *manifest = &staged->manifest;
    for (size_t i = 0; i < staged->opened.n; i++) {
        const struct model_identity *id = &staged->opened.at[i].identity;
        uint64_t numbers[] = { id->inode, id->len_bytes, (uint64_t)id->mtime_ns, (uint64_t)id->ctime_ns };
        const char *name =
            i < manifest->shards.n ? manifest->shards.at[i].name : manifest->files.at[i - manifest->shards.n].name;
        XXH3_128bits_update(state, name, strlen(name) + 1);
        XXH3_128bits_update(state, numbers, sizeof numbers);
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    for (size_t i = 0; i < sizeof digest.digest; i++) {
        out[2 * i] = hex[digest.digest[i] >> 4];
        out[2 * i + 1] = hex[digest.digest[i] & 15];
    }
    out[MODEL_VERSION_BYTES - 1] = 0;
    return 0;
}
