/* residency PAIRS OPERATIONS KEYS...
 *
 * Nanoseconds an operation of the cache of src/residency, with so many keys, beside a bare hash table with an LRU list
 * of as much memory a key, which knows nothing of locks, pins, reservations, disks or hostile keys. Three operations: a
 * hit, which makes its key the hottest; a miss; a put of a new key, which drops the coldest. One JSON object for each
 * pair, operation and number of keys, and one with the bytes a key. Blobs' memory is reserved and never touched. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"
#include "residency/cache.h"
#include "residency/swap/state.h"

#define BLOB 4096
#define SIZES_MAX 8
#define NONE (UINT64_MAX >> 1)

enum operation { HIT, MISS, PUT, OPERATIONS };
static const char *const names[] = { "hit", "miss", "put" };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* Keys as clients make them: hashes. */
static uint64_t key_of(uint64_t number)
{
    uint64_t z = number * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return z ^ (z >> 27);
}

/* 0, but not before result is there: operations come one after the other, as from a connection. Else the rival's,
 * which have no lock between them, overlap. */
static uint64_t nothing_of(uint64_t result)
{
    __asm__ volatile("" : "+r"(result));
    return result >> 63;
}

/* ---- the rival: what of ours is two structures, entry and slot, is one here ---- */

struct node {
    uint64_t low, high;
    uint32_t chain, hotter, colder; /* number plus 1 */
    uint32_t place;
    uint32_t unused[8]; /* as large as an entry and a slot of ours */
};

struct rival {
    struct node *nodes; /* from 1 on */
    uint32_t *buckets;
    uint64_t mask;
    uint32_t n, used, hottest, coldest;
};

/* In huge pages, like ours. */
static void *zeroed(size_t n, size_t size)
{
    const uintptr_t huge = (uintptr_t)2 << 20;
    uint8_t *memory = calloc(n, size);
    if (!memory)
        bench_die("no memory for %zu keys", n);
    uintptr_t from = ((uintptr_t)memory + huge - 1) & ~(huge - 1), to = (uintptr_t)(memory + n * size) & ~(huge - 1);
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    return memory;
}

static void rival_init(struct rival *r, uint64_t keys)
{
    *r = (struct rival){ .n = (uint32_t)keys, .nodes = zeroed(keys + 1, sizeof *r->nodes), .mask = 1 };
    while (r->mask < keys * 4 / 3)
        r->mask <<= 1;
    r->buckets = zeroed(r->mask--, sizeof *r->buckets);
}

static uint32_t *rival_bucket(const struct rival *r, uint64_t low)
{
    return &r->buckets[(low * UINT64_C(0xD6E8FEB86659FD93)) >> 32 & r->mask];
}

static void rival_unlink(struct rival *r, uint32_t number)
{
    const struct node *node = &r->nodes[number];
    *(node->hotter ? &r->nodes[node->hotter].colder : &r->hottest) = node->colder;
    *(node->colder ? &r->nodes[node->colder].hotter : &r->coldest) = node->hotter;
}

static void rival_heat(struct rival *r, uint32_t number)
{
    r->nodes[number].hotter = 0;
    r->nodes[number].colder = r->hottest;
    *(r->hottest ? &r->nodes[r->hottest].hotter : &r->coldest) = number;
    r->hottest = number;
}

/* The same, and the compiler does not know it: of a number that was compared with 0 it would take the 0 for granted,
 * and the processor then not wait for it. */
static uint32_t copy_of(uint32_t number)
{
    __asm__("" : "+r"(number));
    return number;
}

/* *nothing is nothing_of the last number that was read. */
static uint32_t rival_find(const struct rival *r, uint64_t low, uint64_t *nothing)
{
    uint32_t read = *rival_bucket(r, low), at = copy_of(read);
    while (at && (r->nodes[at].low != low || r->nodes[at].high != 0)) {
        read = r->nodes[at].chain;
        at = copy_of(read);
    }
    *nothing = nothing_of(read);
    return at;
}

/* The key's place; NONE. */
static uint64_t rival_get(struct rival *r, uint64_t low)
{
    uint64_t nothing;
    uint32_t at = rival_find(r, low, &nothing);
    if (!at)
        return NONE + nothing;
    rival_unlink(r, at);
    rival_heat(r, at);
    return r->nodes[at].place;
}

/* A new key: in the place of the coldest, once all are used. Returns the place. */
static uint64_t rival_put(struct rival *r, uint64_t low)
{
    uint64_t nothing;
    uint32_t number = rival_find(r, low, &nothing);
    if (number)
        bench_die("a new key was there");
    if (r->used < r->n) {
        number = ++r->used;
    } else {
        number = r->coldest;
        rival_unlink(r, number);
        uint32_t *at = rival_bucket(r, r->nodes[number].low);
        while (*at != number)
            at = &r->nodes[*at].chain;
        *at = r->nodes[number].chain;
    }
    uint32_t *bucket = rival_bucket(r, low);
    r->nodes[number].low = low;
    r->nodes[number].place = number - 1;
    r->nodes[number].chain = *bucket;
    *bucket = number;
    rival_heat(r, number);
    return r->nodes[number].place + nothing;
}

/* ---- both, with a list of which key is where ---- */

struct subject {
    struct residency_client *ours; /* or */
    struct rival rival;
    uint64_t n, next; /* the next new key's number */
    uint64_t *where;  /* place -> number of the key there */
};

static uint64_t get(struct subject *s, uint64_t number)
{
    uint64_t offset;
    if (!s->ours)
        return rival_get(&s->rival, key_of(number));
    if (residency_get(s->ours, (struct residency_key){ .low = key_of(number) }, &offset) != RESIDENCY_OK)
        offset = NONE;
    residency_let_go(s->ours);
    return offset;
}

static uint64_t put(struct subject *s, uint64_t number)
{
    struct residency_key key = { .low = key_of(number) };
    uint64_t offset;
    if (!s->ours)
        return rival_put(&s->rival, key.low);
    if (residency_alloc(s->ours, key, &offset) != RESIDENCY_OK || residency_commit(s->ours, key) != RESIDENCY_OK)
        bench_die("a put failed");
    return offset / BLOB;
}

static double measure(struct subject *s, enum operation operation, uint64_t n)
{
    uint64_t *numbers = zeroed(n, sizeof *numbers), last = 0, hits = 0;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = operation == HIT ? s->where[random_below(s->n)] : (UINT64_C(1) << 40) + random_below(1u << 30);
    int64_t begun_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < n; i++) {
        if (operation == PUT)
            last = numbers[i] = put(s, s->next + i + nothing_of(last));
        else
            hits += (last = get(s, numbers[i] + nothing_of(last))) != NONE;
    }
    int64_t ended_ns = bench_cpu_ns();
    if (hits != (operation == HIT ? n : 0))
        bench_die("%llu of %llu were hits", (unsigned long long)hits, (unsigned long long)n);
    if (operation == PUT)
        for (uint64_t i = 0; i < n; i++)
            s->where[numbers[i]] = s->next++;
    free(numbers);
    return (double)(ended_ns - begun_ns) / (double)n;
}

/* Full. Returns what it took of memory. */
static uint64_t fill(struct subject *s, bool ours, uint64_t keys)
{
    const struct residency_cache_options options = { .ram_only = true, .numa_node = -1, .unbacked = true };
    struct residency_cache *cache;
    struct penstock_error error;
    *s = (struct subject){ .n = keys, .where = bench_memory(keys * sizeof *s->where) };
    uint64_t before = bench_resident_bytes();
    if (!ours)
        rival_init(&s->rival, keys);
    else if (residency_cache_new(&options, &cache, &error) != 0 ||
             residency_join(cache, RESIDENCY_KV, keys * BLOB, BLOB, &s->ours, &error) != 0)
        bench_die("%s", error.message);
    for (; s->next < keys; s->next++)
        s->where[put(s, s->next)] = s->next;
    return bench_resident_bytes() - before;
}

struct both {
    struct subject ours, rival;
};

static void one_pair(struct both *both, uint64_t pair, uint64_t n)
{
    static const enum operation operations[] = { HIT, MISS, PUT };
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct subject *order[3] = { &both->ours, &both->rival, &both->rival };
        double ns[3];
        if (pair % 2 == 1)
            order[0] = &both->rival, order[2] = &both->ours;
        for (size_t j = 0; j < 3; j++)
            ns[j] = measure(order[j], operations[i], n);
        printf("{\"operation\": \"%s\", \"keys\": %llu, \"pair\": %llu, \"ours\": %.1f, \"rival\": %.1f, \"rival "
               "again\": %.1f}\n",
               names[operations[i]], (unsigned long long)both->ours.n, (unsigned long long)pair,
               ns[pair % 2 == 1 ? 2 : 0], ns[1], ns[pair % 2 == 1 ? 0 : 2]);
        fflush(stdout);
    }
}

/* A key takes entry, bucket and slot while its blob is in memory, entry, bucket and record while it is on disk, and all
 * of them while it is in both. */
static void print_bytes(uint64_t keys, uint64_t ours, uint64_t rival)
{
    double resident = (double)ours / (double)keys, record = sizeof(union swap_record) + 1.0 / 8;
    printf("{\"bytes\": \"a key\", \"keys\": %llu, \"resident\": %.1f, \"resident_and_on_disk\": %.1f, \"rival\": "
           "%.1f}\n",
           (unsigned long long)keys, resident, resident + record, (double)rival / (double)keys);
}

int main(int argc, char **argv)
{
    static struct both sizes[SIZES_MAX];
    if (argc < 4 || argc > 3 + SIZES_MAX)
        bench_die("usage: residency PAIRS OPERATIONS KEYS...");
    uint64_t pairs = bench_number(argv[1], "PAIRS"), n = bench_number(argv[2], "OPERATIONS");
    for (int i = 3; i < argc; i++) {
        uint64_t keys = bench_number(argv[i], "KEYS");
        uint64_t ours = fill(&sizes[i - 3].ours, true, keys), rival = fill(&sizes[i - 3].rival, false, keys);
        print_bytes(keys, ours, rival);
    }
    for (uint64_t pair = 0; pair < pairs; pair++)
        for (int i = 3; i < argc; i++)
            one_pair(&sizes[i - 3], pair, n);
    return 0;
}
