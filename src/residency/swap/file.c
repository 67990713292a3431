/* One file: found again or begun when it is opened, synced or removed when it is closed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "state.h"

#define SCAN_ENTRIES 16384u

static int open_fds(struct residency_swap_file *file, struct penstock_error *error)
{
    struct residency_swap *swap = file->swap;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    file->data_fd = openat(swap->directory_fd, file->data_name, flags | (swap->direct ? O_DIRECT : 0), 0600);
    if (file->data_fd < 0)
        return base_error_sys(error, errno, "open %s/%s", swap->directory, file->data_name);
    if (swap->options.keep) {
        file->index_fd = openat(swap->directory_fd, file->index_name, flags, 0600);
        if (file->index_fd < 0)
            return base_error_sys(error, errno, "open %s/%s", swap->directory, file->index_name);
    }
    if (file->pieces > 1) {
        file->sums_fd = openat(swap->directory_fd, file->sums_name, flags, 0600);
        if (file->sums_fd < 0)
            base_log_warning("swap file %s: it cannot be opened (%s): each blob is sent once all of it has been read",
                             file->sums_name, strerrorname_np(errno));
    }
    return 0;
}

static uint64_t size_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

/* All of it, or what there is. */
static size_t read_some(int fd, uint8_t *to, size_t len, uint64_t offset)
{
    size_t n = 0;
    while (n < len) {
        ssize_t got = pread(fd, to + n, len - n, (off_t)(offset + n));
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    return n;
}

/* Which entries of the index are to be believed. */
struct belief {
    bool any, only_this_boot, damaged;
};

static struct belief believe(const struct residency_swap_file *file)
{
    uint8_t bytes[SWAP_INDEX_HEADER_BYTES];
    struct swap_index_header header;
    if (size_of(file->index_fd) == 0)
        return (struct belief){ 0 };
    enum swap_index_verdict verdict = SWAP_INDEX_DAMAGED;
    if (read_some(file->index_fd, bytes, sizeof bytes, 0) == sizeof bytes)
        verdict = swap_index_header_decode(bytes, &file->geometry, &header);
    if (verdict == SWAP_INDEX_OTHER) {
        base_log_warning("swap file %s: it is of another version or size of blob; it starts empty", file->index_name);
        return (struct belief){ .damaged = true };
    }
    if (verdict != SWAP_INDEX_GOOD) {
        base_log_warning("swap file %s: its header is damaged; it is rebuilt from the entries written since this host "
                         "started",
                         file->index_name);
        return (struct belief){ .any = file->swap->boot != 0, .only_this_boot = true, .damaged = true };
    }
    /* What the last run wrote may never have reached the disk, and a removal that did not would bring its key back. */
    bool same = header.boot != 0 && header.boot == file->swap->boot;
    if (!header.clean && !same)
        base_log_warning("swap file %s: the host went down while it was in use; it starts empty", file->index_name);
    return (struct belief){ .any = header.clean || same };
}

struct finding {
    struct belief belief;
    uint64_t data_bytes;
    uint64_t damaged;
    BASE_VEC(struct residency_swap_found) records;
};

static bool consider(struct residency_swap_file *file, const uint8_t *bytes, uint32_t record, struct finding *f)
{
    struct swap_index_entry entry;
    enum swap_index_verdict verdict = swap_index_entry_decode(bytes, &file->geometry, record, &entry);
    if (verdict == SWAP_INDEX_FREE)
        return true;
    if (verdict != SWAP_INDEX_GOOD || (f->belief.only_this_boot && entry.boot != file->swap->boot)) {
        f->damaged++;
        static const uint8_t none[SWAP_INDEX_ENTRY_BYTES];
        return swap_pwrite(file->index_fd, none, sizeof none, (off_t)swap_index_entry_offset(record)) == 0;
    }
    uint64_t seal = swap_seal(&entry.key, entry.generation, entry.checksum);
    return swap_records_adopt(file, record, seal) &&
           base_vec_push(&f->records, (struct residency_swap_found){ .key = entry.key,
                                                                     .generation = entry.generation,
                                                                     .written_s = entry.written_s,
                                                                     .record = record });
}

static bool scan(struct residency_swap_file *file, struct finding *f)
{
    uint64_t size = size_of(file->index_fd);
    uint64_t n = size > SWAP_INDEX_ENTRIES_AT ? (size - SWAP_INDEX_ENTRIES_AT) / SWAP_INDEX_ENTRY_BYTES : 0;
    uint64_t most = base_min_u64(f->data_bytes / file->geometry.blob_bytes, SWAP_NONE - 1);
    if (n > most) {
        /* Entries past the end of the data, which somebody cut, are not to be met again when it has grown. */
        f->damaged++;
        n = most;
        if (ftruncate(file->index_fd, (off_t)swap_index_entry_offset((uint32_t)n)) != 0)
            return false;
    }
    uint8_t *bytes = malloc((size_t)SCAN_ENTRIES * SWAP_INDEX_ENTRY_BYTES);
    bool good = bytes != NULL;
    for (uint64_t first = 0; good && first < n; first += SCAN_ENTRIES) {
        size_t got = read_some(file->index_fd, bytes, (size_t)SCAN_ENTRIES * SWAP_INDEX_ENTRY_BYTES,
                               swap_index_entry_offset((uint32_t)first));
        if (got / SWAP_INDEX_ENTRY_BYTES < base_min_u64(SCAN_ENTRIES, n - first))
            f->damaged++;
        for (uint64_t i = 0; good && i < got / SWAP_INDEX_ENTRY_BYTES && first + i < n; i++)
            good = consider(file, bytes + i * SWAP_INDEX_ENTRY_BYTES, (uint32_t)(first + i), f);
    }
    free(bytes);
    return good;
}

/* Disk space that no record has is given back. */
static void trim(struct residency_swap_file *file)
{
    uint64_t len = file->extent_records * file->geometry.blob_bytes;
    base_vec_for_each (extent, &file->extents)
        if (!(*extent)->backed)
            (void)fallocate(file->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)((*extent)->number * len),
                            (off_t)len);
    if (ftruncate(file->data_fd, (off_t)(file->extents.n * len)) != 0)
        base_log_warning("swap file %s: it could not be cut to its length", file->data_name);
}

static int empty(struct residency_swap_file *file, struct penstock_error *error)
{
    if (ftruncate(file->data_fd, 0) != 0)
        return base_error_sys(error, errno, "truncate %s/%s", file->swap->directory, file->data_name);
    if (file->index_fd >= 0 && ftruncate(file->index_fd, 0) != 0)
        return base_error_sys(error, errno, "truncate %s/%s", file->swap->directory, file->index_name);
    if (file->sums_fd >= 0)
        (void)!ftruncate(file->sums_fd, 0); /* what it says of others is not believed */
    return 0;
}

static int begin(struct residency_swap_file *file, struct finding *f, struct penstock_error *error)
{
    int code = open_fds(file, error);
    if (code != 0)
        return code;
    if (file->index_fd >= 0)
        f->belief = believe(file);
    f->data_bytes = size_of(file->data_fd);
    if (!f->belief.any) {
        code = empty(file, error);
    } else if (!scan(file, f)) {
        code = base_error_set(error, PENSTOCK_ENOMEM, "%s/%s: no memory, or no writing, to find its records again",
                              file->swap->directory, file->index_name);
    } else {
        swap_records_adopted(file);
        trim(file);
        base_log_info("swap file %s: %" PRIu64 " records found again", file->data_name, file->n_taken);
        if (f->damaged > 0)
            base_log_error("swap file %s: %" PRIu64 " damaged entries, whose records are dropped", file->index_name,
                           f->damaged);
    }
    file->swap->corrupt_records += f->damaged + f->belief.damaged;
    if (code == 0 && file->index_fd >= 0)
        code = swap_header_write(file, false, error);
    return code;
}

static void file_free(struct residency_swap_file *file)
{
    if (file->data_fd >= 0)
        close(file->data_fd);
    if (file->index_fd >= 0)
        close(file->index_fd);
    if (file->sums_fd >= 0)
        close(file->sums_fd);
    swap_records_fini(file);
    pthread_mutex_destroy(&file->space);
    pthread_mutex_destroy(&file->lock);
    free(file);
}

int residency_swap_file_open(struct residency_swap *swap, enum residency_kind kind, uint64_t blob_bytes,
                             void (*found)(void *user, const struct residency_swap_found *), void *user,
                             struct residency_swap_file **out, struct penstock_error *error)
{
    /* Above 2^48 no two records would fit in a file. */
    if (blob_bytes == 0 || blob_bytes % RESIDENCY_SWAP_ALIGN != 0 || blob_bytes > UINT64_C(1) << 48)
        return base_error_set(error, PENSTOCK_EINVAL, "swap blobs of %" PRIu64 " bytes: not a multiple of %d",
                              blob_bytes, RESIDENCY_SWAP_ALIGN);
    struct residency_swap_file *file = calloc(1, sizeof *file);
    if (!file)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a swap file");
    file->swap = swap;
    file->geometry = (struct swap_geometry){ .kind = kind, .blob_bytes = blob_bytes };
    file->data_fd = file->index_fd = file->sums_fd = -1;
    file->piece_bytes = blob_bytes < 2 * SWAP_PIECE_BYTES ? blob_bytes : SWAP_PIECE_BYTES;
    file->pieces = (uint32_t)((blob_bytes - 1) / file->piece_bytes + 1);
    file->keep = swap->options.keep;
    pthread_mutex_init(&file->space, NULL);
    pthread_mutex_init(&file->lock, NULL);
    swap_index_name(&file->geometry, "swap", file->data_name);
    swap_index_name(&file->geometry, "index", file->index_name);
    swap_index_name(&file->geometry, "sums", file->sums_name);
    swap_records_init(file);

    struct finding f = { 0 };
    int code = begin(file, &f, error);
    if (code != 0) {
        base_vec_free(&f.records);
        file_free(file);
        return code;
    }
    pthread_mutex_lock(&swap->lock);
    base_list_append(&swap->files, &file->node);
    pthread_mutex_unlock(&swap->lock);
    *out = file;
    base_vec_for_each (record, &f.records)
        found(user, record);
    base_vec_free(&f.records);
    return 0;
}

void residency_swap_clear(struct residency_swap_file *file)
{
    struct residency_swap *swap = file->swap;
    uint64_t backed = 0;
    struct penstock_error error;
    /* An I/O thread may be giving space back: it holds this while it does. */
    pthread_mutex_lock(&file->space);
    pthread_mutex_lock(&file->lock);
    base_vec_for_each (extent, &file->extents)
        backed += swap_extent_backed_records(file, *extent);
    uint64_t taken = file->n_taken;
    swap_records_fini(file);
    swap_records_init(file);
    file->n_taken = 0;
    pthread_mutex_unlock(&file->lock);
    if (empty(file, &error) != 0) {
        base_log_error("%s; its records will not be found after a restart", error.message);
        file->keep = false;
    } else if (file->keep && swap_header_write(file, false, &error) != 0) {
        base_log_error("%s", error.message);
        file->keep = false;
    }
    pthread_mutex_unlock(&file->space);
    swap_backed(swap, -(int64_t)(backed * file->geometry.blob_bytes));
    pthread_mutex_lock(&swap->lock);
    swap->used_bytes -= taken * file->geometry.blob_bytes;
    swap->used_kind_bytes[file->geometry.kind] -= taken * file->geometry.blob_bytes;
    pthread_mutex_unlock(&swap->lock);
}

void swap_file_close(struct residency_swap_file *file)
{
    struct residency_swap *swap = file->swap;
    struct penstock_error error;
    if (!file->keep) {
        (void)unlinkat(swap->directory_fd, file->data_name, 0);
        (void)unlinkat(swap->directory_fd, file->index_name, 0);
        (void)unlinkat(swap->directory_fd, file->sums_name, 0);
    } else if (fdatasync(file->data_fd) != 0 || fdatasync(file->index_fd) != 0) {
        base_log_error("swap file %s: it could not be synced, and will be found again only until this host restarts",
                       file->data_name);
    } else if (swap_header_write(file, true, &error) != 0) {
        base_log_error("%s", error.message);
    }
    base_list_remove(&file->node);
    file_free(file);
}
