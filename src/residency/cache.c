#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "adopt.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "client.h"
#include "life.h"

/* Some milliseconds coarse, and cheap enough for every operation. */
static int64_t coarse_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec * BASE_SECOND_NS + t.tv_nsec;
}

struct kept {
    enum residency_kind kind;
    uint64_t blob_bytes;
};
struct kept_list {
    BASE_VEC(struct kept) files;
};

static int note_kept(void *user, enum residency_kind kind, uint64_t blob_bytes)
{
    struct kept_list *list = user;
    return base_vec_push(&list->files, (struct kept){ kind, blob_bytes }) ? 0 : PENSTOCK_ENOMEM;
}

/* An arena without memory for each file: its keys are found by whoever joins, and count towards the caps at once. */
static int take_over_kept(struct residency_cache *cache, struct penstock_error *error)
{
    struct kept_list list = { 0 };
    int code = residency_swap_kept(cache->options.swap, note_kept, &list);
    if (code != 0)
        code = code == PENSTOCK_ESYS ? base_error_sys(error, errno, "list what the swap directory has kept")
                                     : base_error_set(error, code, "no memory for what the swap directory has kept");
    for (size_t i = 0; code == 0 && i < list.files.n; i++) {
        struct residency_arena *arena;
        if (cache->n_arenas == RESIDENCY_ARENAS_MAX) {
            base_log_warning("more than %d kinds and sizes of blobs were kept: the others stay unused",
                             RESIDENCY_ARENAS_MAX);
            break;
        }
        code = residency_arena_new(cache, list.files.at[i].kind, list.files.at[i].blob_bytes, &arena, error);
        if (code == 0 && (code = residency_adopt(arena, error)) != 0)
            residency_arena_free(arena);
        if (code == 0)
            cache->arenas[cache->n_arenas++] = arena;
    }
    base_vec_free(&list.files);
    return code;
}

int residency_cache_new(const struct residency_cache_options *options, struct residency_cache **out,
                        struct penstock_error *error)
{
    struct residency_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the cache");
    cache->options = *options;
    if (!cache->options.now_ns)
        cache->options.now_ns = coarse_now_ns;
    cache->start_ns = cache->options.now_ns();
    pthread_mutex_init(&cache->lock, NULL);
    int code = base_random(cache->seed, sizeof cache->seed);
    if (code != 0)
        code = base_error_set(error, code, "the kernel gives no random numbers");
    if (code == 0 && options->swap && options->keep)
        code = take_over_kept(cache, error);
    if (code != 0) {
        residency_cache_free(cache);
        return code;
    }
    *out = cache;
    return 0;
}

void residency_cache_free(struct residency_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t i = 0; i < cache->n_arenas; i++)
        residency_arena_free(cache->arenas[i]);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* ---- joining ---- */

static int check_sizes(const struct residency_cache_options *options, enum residency_kind kind, uint64_t arena_bytes,
                       uint64_t blob_bytes, struct penstock_error *error)
{
    if ((unsigned)kind >= RESIDENCY_KINDS)
        return base_error_set(error, PENSTOCK_EINVAL, "unknown arena kind %u", (unsigned)kind);
    if (arena_bytes == 0 || arena_bytes > RESIDENCY_ARENA_MAX_BYTES)
        return base_error_set(error, PENSTOCK_EINVAL, "an arena of %llu bytes: it must have 1 to 2^42",
                              (unsigned long long)arena_bytes);
    if (blob_bytes == 0)
        return 0;
    if (!options->swap && !options->ram_only)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "paging needs a swap directory (--swap-dir), or --no-swap for a cache in memory alone");
    if (blob_bytes % RESIDENCY_BLOB_ALIGN != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "blobs of %llu bytes: paging needs a multiple of %d",
                              (unsigned long long)blob_bytes, RESIDENCY_BLOB_ALIGN);
    if (arena_bytes % blob_bytes != 0)
        return base_error_set(error, PENSTOCK_EINVAL, "an arena of %llu bytes does not hold whole blobs of %llu",
                              (unsigned long long)arena_bytes, (unsigned long long)blob_bytes);
    return 0;
}

/* The arena of (kind, blob_bytes), with memory. Under the cache's lock. */
static int find_arena(struct residency_cache *cache, enum residency_kind kind, uint64_t arena_bytes,
                      uint64_t blob_bytes, struct residency_arena **out, struct penstock_error *error)
{
    struct residency_arena *arena = NULL;
    for (uint32_t i = 0; i < cache->n_arenas && !arena; i++)
        if (cache->arenas[i]->kind == kind && cache->arenas[i]->blob_bytes == blob_bytes)
            arena = cache->arenas[i];
    if (arena)
        return *out = arena, arena->memory.base ? 0 : residency_arena_map(arena, arena_bytes, error);
    if (cache->n_arenas == RESIDENCY_ARENAS_MAX)
        return base_error_set(error, PENSTOCK_ELIMIT, "there are %d arenas already, each of another kind or blob size",
                              RESIDENCY_ARENAS_MAX);
    int code = residency_arena_new(cache, kind, blob_bytes, &arena, error);
    if (code != 0)
        return code;
    code = residency_arena_map(arena, arena_bytes, error);
    if (code == 0 && cache->options.swap) /* last: a file is opened only once */
        code = residency_adopt(arena, error);
    if (code != 0) {
        residency_arena_free(arena);
        return code;
    }
    cache->arenas[cache->n_arenas] = *out = arena;
    cache->n_arenas++; /* visible to those without the lock from here on */
    return 0;
}

static int find_raw(struct residency_cache *cache, enum residency_kind kind, uint64_t arena_bytes,
                    struct residency_arena **out, struct penstock_error *error)
{
    struct residency_arena *arena;
    int code = residency_arena_new(cache, kind, 0, &arena, error);
    if (code != 0)
        return code;
    code = residency_arena_map(arena, arena_bytes, error);
    if (code == 0)
        *out = arena;
    else
        residency_arena_free(arena);
    return code;
}

int residency_join(struct residency_cache *cache, enum residency_kind kind, uint64_t arena_bytes, uint64_t blob_bytes,
                   struct residency_client **out, struct penstock_error *error)
{
    struct residency_arena *arena = NULL;
    int code = check_sizes(&cache->options, kind, arena_bytes, blob_bytes, error);
    if (code != 0)
        return code;
    pthread_mutex_lock(&cache->lock);
    code = blob_bytes == 0 ? find_raw(cache, kind, arena_bytes, &arena, error)
                           : find_arena(cache, kind, arena_bytes, blob_bytes, &arena, error);
    if (code == 0)
        arena->clients++;
    pthread_mutex_unlock(&cache->lock);
    if (code != 0)
        return code;
    struct residency_client *client = residency_client_new(arena);
    if (!client) {
        residency_arena_leave(arena);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more client of the cache");
    }
    *out = client;
    return 0;
}

void residency_client_free(struct residency_client *client)
{
    if (!client)
        return;
    struct residency_arena *arena = client->arena;
    residency_client_end(client);
    residency_arena_leave(arena);
}

struct residency_memory residency_memory(const struct residency_client *client)
{
    return client->arena->memory;
}

int residency_registration(struct residency_client *client,
                           int (*make)(void *context, const struct residency_memory *memory, void **registration,
                                       struct penstock_error *error),
                           void *context, void **registration, struct penstock_error *error)
{
    struct residency_arena *arena = client->arena;
    int code = 0;
    pthread_mutex_lock(&arena->registration_lock);
    if (!arena->registration)
        code = make(context, &arena->memory, &arena->registration, error);
    if (code == 0)
        *registration = arena->registration;
    else
        arena->registration = NULL;
    pthread_mutex_unlock(&arena->registration_lock);
    return code;
}

/* ---- all arenas ---- */

void residency_sweep(struct residency_cache *cache)
{
    for (uint32_t i = 0; i < cache->n_arenas; i++) {
        residency_arena_expire(cache->arenas[i]);
        residency_arena_unmap_if_idle(cache->arenas[i]);
    }
}

void residency_spill_all(struct residency_cache *cache)
{
    for (uint32_t i = 0; i < cache->n_arenas; i++)
        if (cache->arenas[i]->file && !residency_spill_arena(cache->arenas[i], false))
            base_log_warning("not every %s blob of %llu bytes could be spilled before the end",
                             residency_kind_name(cache->arenas[i]->kind),
                             (unsigned long long)cache->arenas[i]->blob_bytes);
}

size_t residency_stats(struct residency_cache *cache, struct residency_arena_stats *out, size_t max)
{
    uint32_t n = cache->n_arenas;
    for (uint32_t i = 0; i < n && i < max; i++)
        residency_arena_stats(cache->arenas[i], &out[i]);
    return n;
}
