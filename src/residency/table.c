#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Segments are whole huge pages, where nodes have a multiple of 16 bytes. */
#define HUGE_BYTES ((size_t)2 << 20)
#define LARGE_NODE_SHIFT 17
#define LARGE_BUCKET_SHIFT 19
#define SMALL_SHIFT 6

void residency_table_init(struct residency_table *table, const uint64_t seed[2], uint32_t node_bytes, bool large)
{
    *table = (struct residency_table){ .seed = { seed[0], seed[1] },
                                       .node_bytes = node_bytes,
                                       .node_shift = large ? LARGE_NODE_SHIFT : SMALL_SHIFT,
                                       .bucket_shift = large ? LARGE_BUCKET_SHIFT : SMALL_SHIFT,
                                       .mask = (1u << SMALL_SHIFT) - 1 };
}

/* The first one grows page by page. With millions of keys every step is to another page, and what translates
 * addresses has no room for so many small ones. */
static void *segment_new(size_t bytes, bool first, bool zeroed)
{
    if (first || bytes % HUGE_BYTES != 0)
        return calloc(1, bytes);
    void *segment = aligned_alloc(HUGE_BYTES, bytes);
    if (!segment)
        return NULL;
    (void)madvise(segment, bytes, MADV_HUGEPAGE); /* or else small ones */
    return zeroed ? memset(segment, 0, bytes) : segment;
}

void residency_table_fini(struct residency_table *table)
{
    for (size_t i = 0; i < table->nodes.n; i++)
        free(table->nodes.at[i]);
    for (size_t i = 0; i < table->buckets.n; i++)
        free(table->buckets.at[i]);
    base_vec_free(&table->nodes);
    base_vec_free(&table->buckets);
    table->used = table->fresh = table->spare = 0;
}

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* SipHash-1-3 of the key's 16 bytes. */
static uint64_t hash(const struct residency_table *table, const struct residency_key *key)
{
    uint64_t a = table->seed[0] ^ UINT64_C(0x736f6d6570736575), b = table->seed[1] ^ UINT64_C(0x646f72616e646f6d);
    uint64_t c = table->seed[0] ^ UINT64_C(0x6c7967656e657261), d = table->seed[1] ^ UINT64_C(0x7465646279746573);
    const uint64_t words[3] = { key->low, key->high, UINT64_C(16) << 56 };
#define ROUND()                                                                                                        \
    (a += b, b = rotate(b, 13) ^ a, a = rotate(a, 32), c += d, d = rotate(d, 16) ^ c, a += d, d = rotate(d, 21) ^ a,   \
     c += b, b = rotate(b, 17) ^ c, c = rotate(c, 32))
    for (int i = 0; i < 3; i++) {
        d ^= words[i];
        ROUND();
        a ^= words[i];
    }
    c ^= 0xff;
    ROUND();
    ROUND();
    ROUND();
#undef ROUND
    return a ^ b ^ c ^ d;
}

static uint32_t *bucket_at(const struct residency_table *table, uint32_t index)
{
    return &table->buckets.at[index >> table->bucket_shift][index & ((1u << table->bucket_shift) - 1)];
}

static uint32_t *bucket_of(const struct residency_table *table, const struct residency_key *key)
{
    uint32_t h = (uint32_t)hash(table, key), index = h & table->mask;
    if (index < table->split)
        index = h & (table->mask << 1 | 1);
    return bucket_at(table, index);
}

uint32_t residency_table_find(const struct residency_table *table, const struct residency_key *key)
{
    if (table->used == 0)
        return RESIDENCY_NONE;
    for (uint32_t at = *bucket_of(table, key); at != 0;) {
        const struct residency_node *node = residency_table_node(table, at - 1);
        if (node->key.low == key->low && node->key.high == key->high)
            return at - 1;
        at = node->chain;
    }
    return RESIDENCY_NONE;
}

void residency_table_prefetch(const struct residency_table *table, const struct residency_key *key)
{
    if (table->used > 0)
        __builtin_prefetch(bucket_of(table, key));
}

static bool bucket_segment_add(struct residency_table *table)
{
    uint32_t *segment = segment_new(sizeof *segment << table->bucket_shift, table->buckets.n == 0, true);
    if (segment && base_vec_push(&table->buckets, segment))
        return true; // cppcheck-suppress memleak; the vector has it
    free(segment);
    return false;
}

/* One more bucket: it takes its share of the nodes of its partner. Without memory the chains get longer instead. */
static void split_one(struct residency_table *table)
{
    uint32_t buckets = table->mask + 1 + table->split;
    if (buckets == 1u << 31 || ((buckets >> table->bucket_shift) == table->buckets.n && !bucket_segment_add(table)))
        return;
    uint32_t *from = bucket_at(table, table->split), *to = bucket_at(table, buckets), at = *from;
    for (*from = 0; at != 0;) {
        struct residency_node *node = residency_table_node(table, at - 1);
        uint32_t next = node->chain;
        uint32_t *into = (uint32_t)hash(table, &node->key) & (table->mask + 1) ? to : from;
        node->chain = *into;
        *into = at;
        at = next;
    }
    if (++table->split > table->mask) {
        table->mask = table->mask << 1 | 1;
        table->split = 0;
    }
}

static uint32_t node_take(struct residency_table *table)
{
    if (table->spare != 0) {
        uint32_t index = table->spare - 1;
        table->spare = ((struct residency_node *)residency_table_node(table, index))->chain;
        return index;
    }
    if (table->fresh == RESIDENCY_NONE - 1)
        return RESIDENCY_NONE;
    if ((table->fresh >> table->node_shift) == table->nodes.n) {
        uint8_t *segment = segment_new((size_t)table->node_bytes << table->node_shift, table->nodes.n == 0, false);
        if (!segment || !base_vec_push(&table->nodes, segment)) {
            free(segment);
            return RESIDENCY_NONE;
        }
        // cppcheck-suppress memleak; the vector has it
    }
    return table->fresh++;
}

uint32_t residency_table_insert(struct residency_table *table, const struct residency_key *key)
{
    if (table->buckets.n == 0 && !bucket_segment_add(table))
        return RESIDENCY_NONE;
    uint32_t index = node_take(table);
    if (index == RESIDENCY_NONE)
        return index;
    if ((uint64_t)table->used * 4 >= ((uint64_t)table->mask + 1 + table->split) * 3)
        split_one(table);
    struct residency_node *node = residency_table_node(table, index);
    uint32_t *bucket = bucket_of(table, key);
    node->key = *key;
    node->chain = *bucket;
    *bucket = index + 1;
    table->used++;
    return index;
}

void residency_table_remove(struct residency_table *table, uint32_t index)
{
    struct residency_node *node = residency_table_node(table, index);
    uint32_t *at = bucket_of(table, &node->key);
    while (*at != index + 1)
        at = &((struct residency_node *)residency_table_node(table, *at - 1))->chain;
    *at = node->chain;
    node->chain = table->spare;
    table->spare = index + 1;
    table->used--;
}

uint32_t residency_table_any(const struct residency_table *table, uint32_t *cursor)
{
    if (table->used == 0)
        return RESIDENCY_NONE;
    while (*bucket_at(table, *cursor) == 0)
        ++*cursor;
    return *bucket_at(table, *cursor) - 1;
}
