/* What is asked of the file system. On I/O threads, where it may take its time. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "state.h"

static int allocate(int fd, int mode, uint64_t offset, uint64_t len)
{
    int failed;
    do
        failed = fallocate(fd, mode, (off_t)offset, (off_t)len) == 0 ? 0 : errno;
    while (failed == EINTR);
    return -failed;
}

void swap_space_full(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->lock);
    bool first = swap->full_until_ns == 0;
    swap->full_until_ns = base_now_ns() + BASE_SECOND_NS;
    pthread_mutex_unlock(&swap->lock);
    if (first)
        base_log_error("swap directory %s: the disk is full; nothing more can be spilled until there is room. Set "
                       "--swap-cap to less than what the disk has",
                       swap->directory);
}

static int set_aside(struct residency_swap_file *file, uint32_t record, uint32_t n)
{
    uint64_t blob_bytes = file->geometry.blob_bytes;
    int code = swap_hook(file->swap, RESIDENCY_SWAP_GROW, record * blob_bytes, &(size_t){ n * blob_bytes });
    if (code != 0 || file->no_fallocate)
        return code;
    /* The index first: of a disk that cannot hold the data, some file systems give it all there is. */
    if (file->keep)
        code = allocate(file->index_fd, 0, swap_index_entry_offset(record), (uint64_t)n * SWAP_INDEX_ENTRY_BYTES);
    if (code == 0)
        code = allocate(file->data_fd, 0, record * blob_bytes, n * blob_bytes);
    if (code != -EOPNOTSUPP && code != -ENOSYS)
        return code;
    file->no_fallocate = true;
    base_log_info("swap file %s: no space can be set aside on this file system; a full disk is noticed late",
                  file->data_name);
    return 0;
}

int swap_space_ensure(struct residency_swap_file *file, uint32_t record)
{
    pthread_mutex_lock(&file->lock);
    struct swap_extent *extent = swap_extent_of(file, record);
    pthread_mutex_unlock(&file->lock);
    if (extent->backed)
        return 0;
    pthread_mutex_lock(&file->space);
    int code = extent->backed ? 0 : set_aside(file, extent->number * file->extent_records, file->extent_records);
    pthread_mutex_lock(&file->lock);
    if (code == 0 && !extent->backed) {
        extent->backed = true;
        swap_backed(file->swap, (int64_t)(swap_extent_backed_records(file, extent) * file->geometry.blob_bytes));
    } else if (code != 0 && !base_list_empty(&extent->node)) {
        /* Behind those that have their space. */
        base_list_remove(&extent->node);
        base_list_append(&file->partial, &extent->node);
    }
    pthread_mutex_unlock(&file->lock);
    bool whole = code == 0;
    /* What is left of the disk is used to the last record. */
    if (code == -ENOSPC || code == -EDQUOT) {
        extent->partly = true;
        code = set_aside(file, record, 1);
    }
    pthread_mutex_unlock(&file->space);
    if (whole) {
        pthread_mutex_lock(&file->swap->lock);
        file->swap->full_until_ns = 0;
        pthread_mutex_unlock(&file->swap->lock);
    }
    return code;
}

static bool punch(struct residency_swap_file *file, uint64_t offset, uint64_t len)
{
    int code = allocate(file->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, len);
    if (code == 0)
        return true;
    char words[128];
    if (!file->no_punch)
        base_log_warning("swap file %s: cannot give disk space back: %s; its freed records are used again, but it "
                         "does not shrink",
                         file->data_name, strerror_r(-code, words, sizeof words));
    file->no_punch = true;
    return false;
}

/* file->space and file->lock are held; the latter is let go over the system call. */
static void punch_extent(struct residency_swap_file *file, struct swap_extent *extent)
{
    uint64_t len = file->extent_records * file->geometry.blob_bytes;
    base_list_remove(&extent->node);
    pthread_mutex_unlock(&file->lock);
    bool punched = punch(file, extent->number * len, len);
    pthread_mutex_lock(&file->lock);
    if (punched) {
        swap_backed(file->swap, -(int64_t)(swap_extent_backed_records(file, extent) * file->geometry.blob_bytes));
        extent->backed = extent->partly = false;
    }
    swap_extent_file(file, extent);
}

static void punch_record(struct residency_swap_file *file, uint32_t record)
{
    struct swap_extent *extent = swap_extent_of(file, record);
    uint32_t local = record % file->extent_records;
    file->first_to_punch = extent->records[local].free.next;
    pthread_mutex_unlock(&file->lock);
    bool punched = punch(file, record * file->geometry.blob_bytes, file->geometry.blob_bytes);
    pthread_mutex_lock(&file->lock);
    if (punched) {
        extent->holes++;
        swap_backed(file->swap, -(int64_t)file->geometry.blob_bytes);
    }
    extent->records[local] = (union swap_record){ .free = { .next = extent->first_free, .hole = punched } };
    extent->first_free = local;
    extent->punching--;
    swap_extent_file(file, extent);
}

void swap_space_tidy(struct residency_swap_file *file)
{
    pthread_mutex_lock(&file->space);
    pthread_mutex_lock(&file->lock);
    for (;;) {
        if (file->first_to_punch != SWAP_NONE)
            punch_record(file, file->first_to_punch);
        else if (!base_list_empty(&file->to_punch))
            punch_extent(file, base_list_entry(file->to_punch.next, struct swap_extent, node));
        else
            break;
    }
    file->tidying = false;
    pthread_mutex_unlock(&file->lock);
    pthread_mutex_unlock(&file->space);
}

void swap_space_want_tidy(struct residency_swap_file *file)
{
    if (file->tidying)
        return;
    file->tidying = true;
    file->tidy = (struct residency_swap_io){ .file = file, .tidy = true, .request_bytes = file->geometry.blob_bytes };
    swap_queue_push(file->swap, &file->tidy);
}
