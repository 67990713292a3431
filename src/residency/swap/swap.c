/* The directory: its lock, its leftovers, how it is read and written; the start and the end of it all. */
#include "swap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/log.h"
#include "state.h"

#define LOCK_NAME "penstock.lock"

/* ---- the lock ---- */

static int refuse(struct residency_swap *swap, struct penstock_error *error)
{
    char owner[160];
    ssize_t n = pread(swap->lock_fd, owner, sizeof owner - 1, 0);
    owner[n > 0 ? n : 0] = 0;
    owner[strcspn(owner, "\n")] = 0;
    return base_error_set(error, PENSTOCK_ELIMIT,
                          "swap directory %s is in use by %s; give each peer a directory of its own", swap->directory,
                          *owner ? owner : "another process");
}

/* Of the open file, so that a second swap of this very process is refused as well; gone with the process. */
static int lock_directory(struct residency_swap *swap, struct penstock_error *error)
{
    swap->lock_fd = openat(swap->directory_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (swap->lock_fd < 0)
        return base_error_sys(error, errno, "open %s/%s", swap->directory, LOCK_NAME);
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fcntl(swap->lock_fd, F_OFD_SETLK, &whole) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            return refuse(swap, error);
        return base_error_sys(error, errno, "lock %s/%s", swap->directory, LOCK_NAME);
    }
    char host[65] = "", owner[128];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(owner, sizeof owner, "process %ld on host %s\n", (long)getpid(), host);
    if (ftruncate(swap->lock_fd, 0) != 0 || swap_pwrite(swap->lock_fd, owner, (size_t)n, 0) != 0)
        return base_error_sys(error, errno, "write %s/%s", swap->directory, LOCK_NAME);
    return 0;
}

/* ---- what is in it ---- */

static bool is_ours(const char *name, const char *suffix, struct swap_geometry *geometry)
{
    return swap_index_name_parse(name, suffix, geometry) && geometry->blob_bytes > 0 &&
           geometry->blob_bytes % RESIDENCY_SWAP_ALIGN == 0;
}

/* NULL: errno says why. */
static DIR *list(const struct residency_swap *swap)
{
    int fd = openat(swap->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* Whether it is of no use: without keep all of them; with it, records without an index that says what they are. */
static bool is_leftover(struct residency_swap *swap, const char *name)
{
    struct swap_geometry geometry;
    if (is_ours(name, "index", &geometry))
        return !swap->options.keep;
    bool sums = is_ours(name, "sums", &geometry);
    if (!sums && !is_ours(name, "swap", &geometry))
        return false;
    char index[SWAP_NAME_MAX];
    swap_index_name(&geometry, "index", index);
    if (!swap->options.keep)
        return true;
    if (faccessat(swap->directory_fd, index, F_OK, 0) == 0 || errno != ENOENT)
        return false;
    if (sums)
        return true;
    base_log_error("swap file %s/%s: its index is gone, and with it all of its records", swap->directory, name);
    swap->corrupt_records++;
    return true;
}

/* What a swap without keep left when it was killed, and what one with keep had: the operator does not want it now. */
static int remove_leftovers(struct residency_swap *swap, struct penstock_error *error)
{
    DIR *dir = list(swap);
    if (!dir)
        return base_error_sys(error, errno, "list %s", swap->directory);
    uint32_t n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (is_leftover(swap, entry->d_name))
            n += unlinkat(swap->directory_fd, entry->d_name, 0) == 0;
    closedir(dir);
    if (n > 0)
        base_log_info("swap directory %s: removed %u files of an earlier run", swap->directory, n);
    return 0;
}

int residency_swap_kept(struct residency_swap *swap,
                        int (*each)(void *user, enum residency_kind kind, uint64_t blob_bytes), void *user)
{
    if (!swap->options.keep)
        return 0;
    DIR *dir = list(swap);
    if (!dir)
        return PENSTOCK_ESYS;
    int code = 0;
    for (struct dirent *entry; code == 0 && (entry = readdir(dir)) != NULL;) {
        struct swap_geometry geometry;
        if (is_ours(entry->d_name, "index", &geometry))
            code = each(user, geometry.kind, geometry.blob_bytes);
    }
    closedir(dir);
    return code;
}

/* ---- how it is read and written ---- */

/* Some file systems take O_DIRECT when a file is opened and refuse it when it is written: one page is tried.
 * 0 or the errno that stands against it. */
static int try_direct(const struct residency_swap *swap)
{
    int fd = openat(swap->directory_fd, ".", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        fd = openat(swap->directory_fd, "probe", O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
        (void)unlinkat(swap->directory_fd, "probe", 0);
    }
    if (fd < 0)
        return errno;
    int code = 0;
    void *page = mmap(NULL, RESIDENCY_SWAP_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        code = errno;
    } else {
        errno = EIO;
        if (pwrite(fd, page, RESIDENCY_SWAP_ALIGN, 0) != RESIDENCY_SWAP_ALIGN ||
            pread(fd, page, RESIDENCY_SWAP_ALIGN, 0) != RESIDENCY_SWAP_ALIGN)
            code = errno;
        munmap(page, RESIDENCY_SWAP_ALIGN);
    }
    close(fd);
    return code;
}

static int start_engine(struct residency_swap *swap, struct penstock_error *error)
{
    char why[128] = "", not_direct[160] = "", words[128];
    int no_direct = try_direct(swap), code = 0;
    swap->direct = no_direct == 0;
    if (no_direct != 0)
        snprintf(not_direct, sizeof not_direct, "through the page cache (O_DIRECT: %s)",
                 strerror_r(no_direct, words, sizeof words));
    if (swap->options.engine != RESIDENCY_SWAP_POOL) {
        code = swap_uring_start(swap);
        if (code != 0 && swap->options.engine == RESIDENCY_SWAP_URING)
            return base_error_sys(error, -code, "io_uring");
        if (code != 0)
            snprintf(why, sizeof why, " (io_uring: %s)", strerror_r(-code, words, sizeof words));
    }
    if (!swap->uring && (code = swap_pool_start(swap)) != 0)
        return base_error_sys(error, -code, "start the threads that read and write swap files");
    base_log_info("swap directory %s: %s%s, %s", swap->directory,
                  swap->uring ? "io_uring" : "a pool of threads in pread and pwrite", why,
                  swap->direct ? "O_DIRECT" : not_direct);
    return 0;
}

/* 0 where it is not told: then no file that was not closed is believed. */
static uint64_t boot_of_host(void)
{
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, sizeof id);
    if (fd >= 0)
        close(fd);
    return n > 0 ? XXH3_64bits(id, (size_t)n) : 0;
}

/* ---- start and end ---- */

static int start(struct residency_swap *swap, struct penstock_error *error)
{
    swap->directory_fd = open(swap->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (swap->directory_fd < 0)
        return base_error_sys(error, errno, "swap directory %s", swap->directory);
    int code = lock_directory(swap, error);
    if (code == 0)
        code = remove_leftovers(swap, error);
    return code != 0 ? code : start_engine(swap, error);
}

int residency_swap_open(const char *directory, const struct residency_swap_options *options,
                        struct residency_swap **out, struct penstock_error *error)
{
    struct residency_swap *swap = calloc(1, sizeof *swap);
    if (!swap || !(swap->directory = strdup(directory))) {
        free(swap);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the swap store");
    }
    swap->options = *options;
    swap->directory_fd = swap->lock_fd = -1;
    swap->boot = boot_of_host();
    base_list_init(&swap->files);
    swap->queue_tail = &swap->queue_head;
    pthread_mutex_init(&swap->lock, NULL);
    pthread_mutex_init(&swap->queue_lock, NULL);
    pthread_cond_init(&swap->queue_filled, NULL);
    pthread_cond_init(&swap->drained, NULL);
    int code = start(swap, error);
    if (code != 0)
        residency_swap_close(swap);
    else
        *out = swap;
    return code;
}

void residency_swap_close(struct residency_swap *swap)
{
    if (!swap)
        return;
    pthread_mutex_lock(&swap->queue_lock);
    while (swap->in_flight > 0)
        pthread_cond_wait(&swap->drained, &swap->queue_lock);
    pthread_mutex_unlock(&swap->queue_lock);
    swap_threads_stop(swap);
    swap_uring_free(swap);
    base_list_for_each (node, &swap->files)
        swap_file_close(base_list_entry(node, struct residency_swap_file, node));
    /* The lock goes last, and its file stays: removing it would let two have it. */
    if (swap->lock_fd >= 0)
        close(swap->lock_fd);
    if (swap->directory_fd >= 0)
        close(swap->directory_fd);
    pthread_cond_destroy(&swap->drained);
    pthread_cond_destroy(&swap->queue_filled);
    pthread_mutex_destroy(&swap->queue_lock);
    pthread_mutex_destroy(&swap->lock);
    free(swap->directory);
    free(swap);
}

void residency_swap_stats(struct residency_swap *swap, struct residency_swap_stats *out)
{
    *out = (struct residency_swap_stats){ .cap_bytes = swap->options.cap_bytes,
                                          .corrupt_records = swap->corrupt_records,
                                          .uring = swap->uring,
                                          .direct = swap->direct };
    memcpy(out->cap_kind_bytes, swap->options.cap_kind_bytes, sizeof out->cap_kind_bytes);
    pthread_mutex_lock(&swap->lock);
    out->used_bytes = swap->used_bytes;
    memcpy(out->used_kind_bytes, swap->used_kind_bytes, sizeof out->used_kind_bytes);
    pthread_mutex_unlock(&swap->lock);
}
