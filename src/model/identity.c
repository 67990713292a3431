#include "identity.h"

#include <errno.h>
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

/* Renaming another file over one changes the old inode's ctime, though not its bytes: where the name has another inode
 * by now, only size and mtime tell. */
enum model_change model_file_changed(int directory, const struct model_opened *opened, const char *name)
{
    struct stat open_one, named;
    if (fstat(opened->fd, &open_one) != 0)
        return MODEL_REWRITTEN;
    struct model_identity now = model_identity_of(&open_one);
    int cause = directory < 0 ? ENOENT : fstatat(directory, name, &named, 0) == 0 ? 0 : errno;
    bool gone = cause == 0 ? named.st_ino != opened->identity.inode || named.st_dev != opened->identity.device
                           : cause == ENOENT || cause == ENOTDIR || cause == ELOOP || cause == EACCES;
    if (gone)
        now.ctime_ns = opened->identity.ctime_ns;
    if (!model_identity_same(&now, &opened->identity))
        return MODEL_REWRITTEN;
    return gone ? MODEL_REPLACED : MODEL_SAME;
}

int model_version_begin(struct model_version_hash *hash, struct penstock_error *error)
{
    hash->state = XXH3_createState();
    if (hash->state && XXH3_128bits_reset(hash->state) == XXH_OK)
        return 0;
    XXH3_freeState(hash->state);
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory to hash");
}

void model_version_add(struct model_version_hash *hash, const char *name, const struct model_identity *identity)
{
    uint64_t numbers[] = { identity->inode, identity->len_bytes, (uint64_t)identity->mtime_ns,
                           (uint64_t)identity->ctime_ns };
    XXH3_128bits_update(hash->state, name, strlen(name) + 1);
    XXH3_128bits_update(hash->state, numbers, sizeof numbers);
}

void model_version_end(struct model_version_hash *hash, char *out)
{
    static const char hex[] = "0123456789abcdef";
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(hash->state));
    XXH3_freeState(hash->state);
    for (size_t i = 0; i < sizeof digest.digest; i++) {
        out[2 * i] = hex[digest.digest[i] >> 4];
        out[2 * i + 1] = hex[digest.digest[i] & 15];
    }
    out[MODEL_VERSION_BYTES - 1] = 0;
}

int model_version_make(const struct model_staged *staged, char *out, struct penstock_error *error)
{
    struct model_version_hash hash;
    const struct model_manifest *manifest = &staged->manifest;
    int status = model_version_begin(&hash, error);
    if (status != 0)
        return status;
    for (size_t i = 0; i < staged->opened.n; i++)
        model_version_add(&hash,
                          i < manifest->shards.n ? manifest->shards.at[i].name
                                                 : manifest->files.at[i - manifest->shards.n].name,
                          &staged->opened.at[i].identity);
    model_version_end(&hash, out);
    return 0;
}
