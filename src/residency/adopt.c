#include "adopt.h"

#include <stdlib.h>
#include <time.h>

#include "base/error.h"

struct finds {
    BASE_VEC(struct residency_swap_found) at;
    bool failed; /* no memory */
};

static void found(void *user, const struct residency_swap_found *record)
{
    struct finds *finds = user;
    if (!base_vec_push(&finds->at, *record))
        finds->failed = true;
}

/* Coldest first; of one key's generations the older first, so that the newer replaces it. */
static int by_age(const void *a, const void *b)
{
    const struct residency_swap_found *x = a, *y = b;
    if (x->written_s != y->written_s)
        return x->written_s < y->written_s ? -1 : 1;
    return (x->generation > y->generation) - (x->generation < y->generation);
}

/* The moment at which it was written: moments before the start are there for it. */
static uint32_t moment_of(const struct residency_cache *cache, uint64_t written_s, uint64_t now_s)
{
    uint64_t age = now_s > written_s ? (now_s - written_s) * RESIDENCY_MOMENTS : 0, now = residency_moment(cache);
    return age < now ? (uint32_t)(now - age) : 0;
}

static bool adopt_one(struct residency_arena *arena, const struct residency_swap_found *record, uint64_t now_s)
{
    struct residency_work work = { 0 };
    uint32_t index = residency_table_find(&arena->entries, &record->key);
    if (index != RESIDENCY_NONE && residency_entry_at(arena, index)->generation > record->generation) {
        residency_swap_free(arena->file, record->record);
        return true;
    }
    if (index != RESIDENCY_NONE)
        residency_entry_forget(arena, index, &work);
    else
        index = residency_table_insert(&arena->entries, &record->key);
    residency_work_do(arena, &work);
    if (index == RESIDENCY_NONE)
        return false;
    struct residency_entry *entry = residency_entry_at(arena, index);
    entry->record = record->record;
    entry->owned = 0;
    entry->generation = record->generation & RESIDENCY_GENERATION_MAX;
    entry->touched = moment_of(arena->cache, record->written_s, now_s);
    if (record->generation > arena->generation)
        arena->generation = record->generation;
    residency_entry_to_disk(arena, index);
    return true;
}

int residency_adopt(struct residency_arena *arena, struct penstock_error *error)
{
    struct finds finds = { 0 };
    int code = residency_swap_file_open(arena->cache->options.swap, arena->kind, arena->blob_bytes, found, &finds,
                                        &arena->file, error);
    if (code == 0 && finds.at.n > 0) {
        uint64_t now_s = (uint64_t)time(NULL);
        qsort(finds.at.at, finds.at.n, sizeof *finds.at.at, by_age);
        for (size_t i = 0; i < finds.at.n && !finds.failed; i++)
            finds.failed = !adopt_one(arena, &finds.at.at[i], now_s);
    }
    if (code == 0 && finds.failed)
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for the keys that were kept on disk");
    base_vec_free(&finds.at);
    return code;
}
