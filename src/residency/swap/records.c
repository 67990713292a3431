/* Which records are taken. Extents with something free wait in lists, so that taking and giving back are O(1). */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "state.h"

static struct swap_extent *front(struct base_list *list)
{
    return base_list_empty(list) ? NULL : base_list_entry(list->next, struct swap_extent, node);
}

/* Before the others: what was freed last is taken first. */
static void prepend(struct base_list *list, struct swap_extent *extent)
{
    base_list_remove(&extent->node);
    base_list_append(list->next, &extent->node);
}

void swap_records_init(struct residency_swap_file *file)
{
    uint64_t n = SWAP_EXTENT_BYTES / file->geometry.blob_bytes;
    file->extent_records = n == 0 ? 1 : n > SWAP_EXTENT_RECORDS_MAX ? SWAP_EXTENT_RECORDS_MAX : (uint32_t)n;
    base_list_init(&file->partial);
    base_list_init(&file->spare);
    base_list_init(&file->bare);
    base_list_init(&file->to_punch);
    file->n_spare = 0;
    file->first_to_punch = SWAP_NONE;
}

static void forget_records(struct swap_extent *extent)
{
    free(extent->records);
    free(extent->indexed);
    extent->records = NULL;
    extent->indexed = NULL;
}

void swap_records_fini(struct residency_swap_file *file)
{
    base_vec_for_each (extent, &file->extents) {
        forget_records(*extent);
        free(*extent);
    }
    base_vec_free(&file->extents);
}

/* ---- what is counted ---- */

void swap_backed(struct residency_swap *swap, int64_t bytes)
{
    pthread_mutex_lock(&swap->lock);
    swap->backed_bytes += (uint64_t)bytes;
    pthread_mutex_unlock(&swap->lock);
}

uint32_t swap_extent_backed_records(const struct residency_swap_file *file, const struct swap_extent *extent)
{
    return extent->backed ? file->extent_records - extent->holes : 0;
}

static bool fits(uint64_t used, uint64_t more, uint64_t cap)
{
    return cap == 0 || (used <= cap && more <= cap - used);
}

static int charge(struct residency_swap_file *file, enum residency_swap_full *full)
{
    struct residency_swap *swap = file->swap;
    enum residency_kind kind = file->geometry.kind;
    uint64_t bytes = file->geometry.blob_bytes;
    int code = PENSTOCK_ELIMIT;
    pthread_mutex_lock(&swap->lock);
    if (!fits(swap->used_kind_bytes[kind], bytes, swap->options.cap_kind_bytes[kind])) {
        *full = RESIDENCY_SWAP_FULL_KIND;
    } else if (!fits(swap->used_bytes, bytes, swap->options.cap_bytes)) {
        *full = RESIDENCY_SWAP_FULL_SHARED;
    } else {
        swap->used_bytes += bytes;
        swap->used_kind_bytes[kind] += bytes;
        code = 0;
    }
    pthread_mutex_unlock(&swap->lock);
    return code;
}

static void uncharge(struct residency_swap_file *file, uint64_t records)
{
    struct residency_swap *swap = file->swap;
    uint64_t bytes = records * file->geometry.blob_bytes;
    pthread_mutex_lock(&swap->lock);
    swap->used_bytes -= bytes;
    swap->used_kind_bytes[file->geometry.kind] -= bytes;
    pthread_mutex_unlock(&swap->lock);
}

static bool disk_is_full(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->lock);
    bool full = swap->full_until_ns != 0 && base_now_ns() < swap->full_until_ns;
    pthread_mutex_unlock(&swap->lock);
    return full;
}

/* More is on the disk than the caps allow to be taken: what is freed now goes back to it. */
static bool over_cap(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->lock);
    bool over = swap->options.cap_bytes != 0 && swap->backed_bytes > swap->options.cap_bytes;
    pthread_mutex_unlock(&swap->lock);
    return over;
}

/* ---- extents ---- */

struct swap_extent *swap_extent_of(struct residency_swap_file *file, uint32_t record)
{
    return file->extents.at[record / file->extent_records];
}

static bool has_free(const struct residency_swap_file *file, const struct swap_extent *extent)
{
    return extent->first_free != SWAP_NONE || extent->fresh < file->extent_records;
}

void swap_extent_file(struct residency_swap_file *file, struct swap_extent *extent)
{
    base_list_remove(&extent->node);
    if (extent->taken > 0 || extent->punching > 0) {
        if (has_free(file, extent))
            prepend(&file->partial, extent);
        return;
    }
    if (((extent->backed && file->n_spare > 0) || extent->partly) && !file->no_punch) {
        base_list_append(&file->to_punch, &extent->node);
        swap_space_want_tidy(file);
    } else if (extent->backed) {
        file->n_spare++;
        prepend(&file->spare, extent);
    } else {
        forget_records(extent);
        prepend(&file->bare, extent);
    }
}

static bool grow_extents(struct residency_swap_file *file)
{
    uint64_t n = file->extents.n;
    if ((n + 1) * file->extent_records > SWAP_NONE)
        return false;
    struct swap_extent *extent = calloc(1, sizeof *extent);
    if (!extent || !base_vec_push(&file->extents, extent)) {
        free(extent);
        return false;
    }
    extent->number = (uint32_t)n;
    extent->first_free = SWAP_NONE;
    base_list_init(&extent->node);
    base_list_append(&file->bare, &extent->node);
    return true;
}

static bool give_records(const struct residency_swap_file *file, struct swap_extent *extent)
{
    if (extent->records)
        return true;
    extent->records = calloc(file->extent_records, sizeof *extent->records);
    extent->indexed = calloc(file->extent_records / 64 + 1, sizeof *extent->indexed);
    if (!extent->records || !extent->indexed) {
        forget_records(extent);
        return false;
    }
    extent->first_free = SWAP_NONE;
    extent->fresh = 0;
    extent->holes = 0;
    return true;
}

/* Whether the record that is taken next needs nothing of the disk. */
static bool next_has_space(const struct swap_extent *extent)
{
    return extent->first_free == SWAP_NONE ? extent->backed : !extent->records[extent->first_free].free.hole;
}

/* The extent to take from; NULL: no memory, or *full. */
static struct swap_extent *choose(struct residency_swap_file *file, bool disk_full, bool *full)
{
    struct swap_extent *extent = front(&file->partial);
    if (extent && (!disk_full || next_has_space(extent)))
        return extent;
    extent = front(&file->spare);
    if (extent) {
        file->n_spare--;
        return extent;
    }
    if (disk_full) {
        *full = true;
        return NULL;
    }
    if (base_list_empty(&file->bare) && !grow_extents(file))
        return NULL;
    extent = front(&file->bare);
    return give_records(file, extent) ? extent : NULL;
}

static uint32_t take(struct residency_swap_file *file, struct swap_extent *extent)
{
    uint32_t local = extent->first_free;
    if (local == SWAP_NONE) {
        local = extent->fresh++;
    } else {
        extent->first_free = extent->records[local].free.next;
        if (extent->records[local].free.hole) {
            extent->holes--;
            if (extent->backed)
                swap_backed(file->swap, (int64_t)file->geometry.blob_bytes);
        }
    }
    extent->records[local] = (union swap_record){ 0 };
    extent->taken++;
    file->n_taken++;
    if (!has_free(file, extent))
        base_list_remove(&extent->node);
    else if (extent != front(&file->partial))
        prepend(&file->partial, extent);
    return extent->number * file->extent_records + local;
}

int residency_swap_alloc(struct residency_swap_file *file, uint32_t *record, enum residency_swap_full *full)
{
    int code = charge(file, full);
    if (code != 0)
        return code;
    bool disk_full = disk_is_full(file->swap), no_room = false;
    pthread_mutex_lock(&file->lock);
    struct swap_extent *extent = choose(file, disk_full, &no_room);
    if (extent)
        *record = take(file, extent);
    pthread_mutex_unlock(&file->lock);
    if (extent)
        return 0;
    uncharge(file, 1);
    if (!no_room)
        return PENSTOCK_ENOMEM;
    *full = RESIDENCY_SWAP_FULL_DISK;
    return PENSTOCK_ELIMIT;
}

void residency_swap_free(struct residency_swap_file *file, uint32_t record)
{
    uint32_t local = record % file->extent_records;
    uint64_t bit = UINT64_C(1) << local % 64;
    pthread_mutex_lock(&file->lock);
    struct swap_extent *extent = swap_extent_of(file, record);
    bool indexed = extent->indexed[local / 64] & bit;
    extent->indexed[local / 64] &= ~bit;
    pthread_mutex_unlock(&file->lock);

    /* Before anybody can take it, and write an entry of his own. */
    if (indexed)
        swap_entry_clear(file, record);
    bool punch = !file->no_punch && over_cap(file->swap);

    pthread_mutex_lock(&file->lock);
    file->n_taken--;
    union swap_record *freed = &extent->records[local];
    bool bad = freed->seal == SWAP_BAD;
    if (bad && file->n_bad < SWAP_BAD_MAX) { /* nobody gets it again */
        file->n_bad++;
        pthread_mutex_unlock(&file->lock);
        uncharge(file, 1);
        return;
    }
    extent->taken--;
    if (punch && extent->backed) {
        *freed = (union swap_record){ .free = { .next = file->first_to_punch } };
        file->first_to_punch = record;
        extent->punching++;
        swap_space_want_tidy(file);
    } else {
        /* What was not written may have found the disk full. */
        bool hole = !extent->backed && (bad || freed->seal == 0);
        extent->holes += hole;
        *freed = (union swap_record){ .free = { .next = extent->first_free, .hole = hole } };
        extent->first_free = local;
        swap_extent_file(file, extent);
    }
    pthread_mutex_unlock(&file->lock);
    uncharge(file, 1);
}

uint64_t residency_swap_records(struct residency_swap_file *file)
{
    pthread_mutex_lock(&file->lock);
    uint64_t n = file->n_taken;
    pthread_mutex_unlock(&file->lock);
    return n;
}

/* ---- what is in them ---- */

void swap_record_seal(struct residency_swap_file *file, uint32_t record, uint64_t seal, bool indexed)
{
    uint32_t local = record % file->extent_records;
    pthread_mutex_lock(&file->lock);
    struct swap_extent *extent = swap_extent_of(file, record);
    extent->records[local].seal = seal;
    if (indexed)
        extent->indexed[local / 64] |= UINT64_C(1) << local % 64;
    pthread_mutex_unlock(&file->lock);
}

uint64_t swap_record_seal_of(struct residency_swap_file *file, uint32_t record)
{
    pthread_mutex_lock(&file->lock);
    uint64_t seal = swap_extent_of(file, record)->records[record % file->extent_records].seal;
    pthread_mutex_unlock(&file->lock);
    return seal;
}

/* ---- a file found again, and one thrown away ---- */

bool swap_records_adopt(struct residency_swap_file *file, uint32_t record, uint64_t seal)
{
    uint32_t number = record / file->extent_records, local = record % file->extent_records;
    while (file->extents.n <= number)
        if (!grow_extents(file))
            return false;
    struct swap_extent *extent = file->extents.at[number];
    if (!give_records(file, extent))
        return false;
    /* What was passed over since the last one is free. */
    for (; extent->fresh < local; extent->fresh++) {
        extent->records[extent->fresh] = (union swap_record){ .free = { .next = extent->first_free } };
        extent->first_free = extent->fresh;
    }
    extent->fresh = local + 1;
    extent->taken++;
    file->n_taken++;
    swap_record_seal(file, record, seal, true);
    return true;
}

void swap_records_adopted(struct residency_swap_file *file)
{
    struct residency_swap *swap = file->swap;
    uint64_t bytes = file->n_taken * file->geometry.blob_bytes;
    pthread_mutex_lock(&swap->lock);
    swap->used_bytes += bytes;
    swap->used_kind_bytes[file->geometry.kind] += bytes;
    pthread_mutex_unlock(&swap->lock);
    pthread_mutex_lock(&file->lock);
    base_vec_for_each (at, &file->extents) {
        struct swap_extent *extent = *at;
        if (extent->taken > 0) {
            extent->backed = true;
            swap_backed(swap, (int64_t)(file->extent_records * file->geometry.blob_bytes));
        }
        swap_extent_file(file, extent);
    }
    pthread_mutex_unlock(&file->lock);
}
