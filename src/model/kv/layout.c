#include "layout.h"

#include "base/checked.h"
#include "base/error.h"

/* Raw arenas are no larger (protocol 1.1). */
#define KV_BYTES_MAX (UINT64_C(1) << 42)

static int refuse(struct penstock_error *error, const char *field, uint64_t value)
{
    return base_error_set(error, PENSTOCK_EINVAL, "KV layout: %s is %llu: not a layout that an arena could hold", field,
                          (unsigned long long)value);
}

int model_kv_layout_compute(struct model_kv_layout *l, struct penstock_error *error)
{
    const struct {
        const char *name;
        uint64_t value;
    } given[] = { { "elem_bytes", l->elem_bytes },
                  { "block_size", l->block_size },
                  { "head_dim", l->head_dim },
                  { "layers", l->layers },
                  { "blocks", l->blocks },
                  { "kv_heads", l->kv_heads },
                  { "fs_block_bytes", l->fs_block_bytes } };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].value == 0 || given[i].value > KV_BYTES_MAX)
            return refuse(error, given[i].name, given[i].value);
    if (l->fs_block_bytes & (l->fs_block_bytes - 1))
        return base_error_set(error, PENSTOCK_EINVAL, "KV layout: fs_block_bytes is %llu: not a power of two",
                              (unsigned long long)l->fs_block_bytes);
    uint64_t tokens, blocks;
    if (!base_mul_u64(l->block_size, l->head_dim, &tokens) || !base_mul_u64(tokens, l->elem_bytes, &l->group_bytes) ||
        l->group_bytes > KV_BYTES_MAX)
        return refuse(error, "head_dim, with its elem_bytes and block_size,", l->head_dim);
    l->group_stride = (l->group_bytes + l->fs_block_bytes - 1) & ~(l->fs_block_bytes - 1);
    if (!base_mul_u64(2 * l->kv_heads, l->group_stride, &l->block_bytes) || l->block_bytes > KV_BYTES_MAX)
        return refuse(error, "kv_heads", l->kv_heads);
    if (!base_mul_u64(l->layers, l->blocks, &blocks) || !base_mul_u64(blocks, l->block_bytes, &l->total_bytes) ||
        l->total_bytes > KV_BYTES_MAX)
        return refuse(error, "layers times blocks", blocks);
    l->groups = blocks * 2 * l->kv_heads;
    return 0;
}

uint64_t model_kv_group(const struct model_kv_layout *l, const struct model_kv_stripe *s)
{
    return ((s->layer * l->blocks + s->block) * 2 + s->kv) * l->kv_heads + s->head;
}

uint64_t model_kv_stripe_at(const struct model_kv_layout *l, const struct model_kv_stripe *s)
{
    return (s->kv * l->kv_heads + s->head) * l->group_stride;
}

uint64_t model_fnv1a(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    return hash;
}

uint64_t model_mix64(uint64_t a, uint64_t b)
{
    uint64_t h = a ^ b * UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 30;
    h *= UINT64_C(0xBF58476D1CE4E5B9);
    h ^= h >> 27;
    h *= UINT64_C(0x94D049BB133111EB);
    return h ^ h >> 31;
}

uint64_t model_kv_namespace(const struct model_kv_layout *l, uint64_t fingerprint, uint64_t salt)
{
    enum { VERSION = 1 };
    const uint64_t fields[] = {
        VERSION,           fingerprint,     UINT64_C(0x4B56504147450001),
        l->elem_bytes,     l->block_size,   l->head_dim,
        l->layers,         l->blocks,       l->kv_heads,
        l->fs_block_bytes, l->group_stride, salt,
    };
    uint64_t hash = MODEL_FNV_BASIS;
    for (size_t tag = 0; tag < sizeof fields / sizeof *fields; tag++) {
        uint8_t record[9] = { (uint8_t)tag };
        for (unsigned i = 0; i < 8; i++)
            record[1 + i] = (uint8_t)(fields[tag] >> 8 * i);
        hash = model_fnv1a(hash, record, sizeof record);
    }
    return hash ? hash : MODEL_FNV_BASIS;
}

uint64_t model_kv_wire_key(uint64_t namespace_id, uint64_t group)
{
    return model_mix64(group, namespace_id);
}
