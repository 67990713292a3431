#include "digest_format.h"

#include <string.h>
#include <xxhash.h>

#include "base/error.h"

static const char magic[16] = "penstockdigests1"; /* without its NUL */

enum { NUMBERS = 5, SUM_BYTES = 8 };

static const char *name_of(const struct model_staged *staged, size_t i)
{
    size_t shards = staged->manifest.shards.n;
    return i < shards ? staged->manifest.shards.at[i].name : staged->manifest.files.at[i - shards].name;
}

static void put(struct base_buf *out, uint64_t value, size_t len)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    base_buf_append(out, bytes, len);
}

static uint64_t get(const uint8_t *bytes, size_t len)
{
    uint64_t value = 0;
    while (len-- > 0)
        value = value << 8 | bytes[len];
    return value;
}

int model_digests_encode(const struct model_staged *staged, const struct model_digests *digests, struct base_buf *out,
                         struct penstock_error *error)
{
    base_buf_append(out, magic, sizeof magic);
    for (size_t i = 0; i < digests->n; i++) {
        const struct model_identity *id = &staged->opened.at[i].identity;
        uint64_t known = atomic_load_explicit(&digests->files[i].known, memory_order_acquire);
        size_t len = strlen(name_of(staged, i));
        put(out, len, 2);
        base_buf_append(out, name_of(staged, i), len);
        put(out, id->inode, 8);
        put(out, id->len_bytes, 8);
        put(out, (uint64_t)id->mtime_ns, 8);
        put(out, (uint64_t)id->ctime_ns, 8);
        put(out, known, 8);
        base_buf_append(out, digests->files[i].at, (size_t)known * PENSTOCK_DIGEST_BYTES);
    }
    if (!out->failed)
        put(out, XXH3_64bits(out->at, out->n), SUM_BYTES);
    return out->failed ? base_error_set(error, PENSTOCK_ENOMEM, "no memory for the digest cache") : 0;
}

struct record {
    const uint8_t *name, *digests;
    size_t name_len;
    uint64_t numbers[NUMBERS]; /* inode, length, mtime, ctime, known */
};

/* False: the bytes end inside it, or say what cannot be. */
static bool next_record(const uint8_t **at, const uint8_t *end, struct record *out)
{
    if (end - *at < 2)
        return false;
    out->name_len = (size_t)get(*at, 2);
    *at += 2;
    if ((size_t)(end - *at) < out->name_len + 8 * NUMBERS)
        return false;
    out->name = *at;
    *at += out->name_len;
    for (size_t i = 0; i < NUMBERS; i++, *at += 8)
        out->numbers[i] = get(*at, 8);
    uint64_t known = out->numbers[4];
    if (known > model_digest_chunks(out->numbers[1]) || known > (size_t)(end - *at) / PENSTOCK_DIGEST_BYTES)
        return false;
    out->digests = *at;
    *at += known * PENSTOCK_DIGEST_BYTES;
    return true;
}

static bool is_of(const struct record *r, const char *name, const struct model_identity *id)
{
    return strlen(name) == r->name_len && memcmp(name, r->name, r->name_len) == 0 && r->numbers[0] == id->inode &&
           r->numbers[1] == id->len_bytes && r->numbers[2] == (uint64_t)id->mtime_ns &&
           r->numbers[3] == (uint64_t)id->ctime_ns;
}

uint64_t model_digests_decode(const uint8_t *bytes, size_t len, const struct model_staged *staged,
                              struct model_digests *digests)
{
    if (len < sizeof magic + SUM_BYTES || memcmp(bytes, magic, sizeof magic) != 0 ||
        XXH3_64bits(bytes, len - SUM_BYTES) != get(bytes + len - SUM_BYTES, SUM_BYTES))
        return 0;
    const uint8_t *at = bytes + sizeof magic, *end = bytes + len - SUM_BYTES;
    uint64_t taken = 0;
    struct record r;
    /* Records are in the order of the files: one pass, unless files came or went. */
    for (size_t i = 0; at < end && next_record(&at, end, &r);) {
        for (size_t tried = 0; tried < digests->n; tried++, i = (i + 1) % digests->n) {
            struct model_file_digests *file = &digests->files[i];
            if (!is_of(&r, name_of(staged, i), &staged->opened.at[i].identity))
                continue;
            if (file->known == 0 && r.numbers[4] > 0) {
                memcpy(file->at, r.digests, (size_t)r.numbers[4] * PENSTOCK_DIGEST_BYTES);
                atomic_store_explicit(&file->known, r.numbers[4], memory_order_release);
                taken += r.numbers[4];
            }
            break;
        }
    }
    return taken;
}
