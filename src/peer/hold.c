#include "hold.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/mman.h>

#include "base/checked.h"
#include "base/error.h"
#include "memory.h"
#include "model/identity.h"
#include "parallel.h"
#include "served.h"

#define READ_THREADS 4
#define READ_BYTES (UINT64_C(8) << 20)
#define DIRECT_ALIGNMENT UINT64_C(4096) /* of offsets and lengths; the memory is aligned to pages anyway */

static const char *const names[] = {
    [PEER_HOLD_AUTO] = "auto", [PEER_HOLD_MAP] = "map", [PEER_HOLD_COPY] = "copy", [PEER_HOLD_HUGE] = "huge"
};

const char *peer_hold_name(enum peer_hold_how how)
{
    return names[how];
}

bool peer_hold_parse(const char *text, enum peer_hold_how *how)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *how = (enum peer_hold_how)i;
            return true;
        }
    return false;
}

uint64_t peer_hold_bytes(const struct peer_served *served, uint64_t page_bytes)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < served->n_regions; i++)
        bytes += base_round_up_u64(served->files[i].len_bytes, page_bytes);
    return bytes;
}

/* ---- memory for a copy ---- */

static uint64_t page_bytes(enum peer_hold_how how)
{
    return how == PEER_HOLD_HUGE ? PEER_HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Else whoever fills it dies of it. */
static int check_memory(enum peer_hold_how how, uint64_t bytes, struct penstock_error *error)
{
    bool huge = how == PEER_HOLD_HUGE;
    uint64_t available = huge ? peer_memory_huge(PEER_MEMORY_HUGE_PAGES) : peer_memory_available();
    if (bytes <= available)
        return 0;
    if (huge)
        return base_error_set(error, PENSTOCK_ENOMEM,
                              "there are not enough huge pages: a copy takes %" PRIu64 " of 2 MiB, and %" PRIu64
                              " are free; raise vm.nr_hugepages",
                              bytes / PEER_HUGE_PAGE_BYTES, available / PEER_HUGE_PAGE_BYTES);
    return base_error_set(error, PENSTOCK_ENOMEM,
                          "a copy in memory takes %.2f GB, and %.2f GB are available: more memory, fewer models, or "
                          "Linux 6.2 or later, which needs no copy (--hold map)",
                          (double)bytes / 1e9, (double)available / 1e9);
}

static int allocate(struct peer_region *region, enum peer_hold_how how, struct penstock_error *error)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (how == PEER_HOLD_HUGE ? MAP_HUGETLB | MAP_HUGE_2MB : 0);
    uint64_t bytes = base_round_up_u64(region->len_bytes, page_bytes(how));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    int cause = errno;
    if (at == MAP_FAILED)
        return base_error_sys(error, cause, "allocate %" PRIu64 " bytes%s", bytes,
                              how == PEER_HOLD_HUGE ? " of huge pages" : "");
    region->at = at;
    region->mapped_bytes = bytes;
    (void)madvise(at, bytes, MADV_DONTDUMP);
    return 0;
}

/* ---- reading it in ---- */

struct reading {
    struct peer_hold *hold;
    const struct peer_served *served;
};

/* The same inode once more: -1 where there is no O_DIRECT. */
static int open_direct(int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

/* What went through the page cache is dropped there: one copy is enough. */
static ssize_t read_cached(struct peer_hold *hold, int fd, uint8_t *to, uint64_t len, uint64_t from)
{
    ssize_t n = pread(fd, to, len, (off_t)from);
    atomic_store(&hold->through_cache, true);
    if (n > 0)
        (void)posix_fadvise(fd, (off_t)from, n, POSIX_FADV_DONTNEED);
    return n;
}

/* *direct becomes -1 where it turns out to be of no use. The memory ends at a whole page behind the file's end: a
 * direct read, whose length is a multiple of the alignment, has room. */
static int read_range(struct peer_hold *hold, const struct peer_file *file, uint8_t *at, uint64_t from, uint64_t end,
                      int direct, struct penstock_error *error)
{
    while (from < end) {
        bool aligned = direct >= 0 && from % DIRECT_ALIGNMENT == 0;
        ssize_t n = aligned ? pread(direct, at + from, base_round_up_u64(end - from, DIRECT_ALIGNMENT), (off_t)from)
                            : read_cached(hold, file->fd, at + from, end - from, from);
        int cause = errno;
        if (n > 0)
            from += (uint64_t)n;
        else if (n == 0)
            return base_error_set(error, PENSTOCK_ESTALE, "%s was cut short while it was read in", file->name);
        else if (aligned && cause == EINVAL)
            direct = -1;
        else if (cause != EINTR)
            return base_error_sys(error, cause, "read %s", file->name);
    }
    return 0;
}

static size_t n_pieces(const struct peer_region *region)
{
    return (size_t)((region->len_bytes + READ_BYTES - 1) / READ_BYTES);
}

static int read_piece(void *context, size_t piece, struct penstock_error *error)
{
    const struct reading *r = context;
    size_t i = 0;
    for (; piece >= n_pieces(&r->hold->regions[i]); i++)
        piece -= n_pieces(&r->hold->regions[i]);
    const struct peer_region *region = &r->hold->regions[i];
    const struct peer_file *file = &r->served->files[i];
    uint64_t from = piece * READ_BYTES, end = base_min_u64(from + READ_BYTES, region->len_bytes);
    int direct = open_direct(file->fd);
    int code = read_range(r->hold, file, region->at, from, end, direct, error);
    if (direct >= 0)
        close(direct);
    return code;
}

/* What was read has to be what the version stands for. */
static int check_unchanged(const struct peer_served *served, struct penstock_error *error)
{
    for (size_t i = 0; i < served->n_regions; i++) {
        struct stat st;
        if (fstat(served->files[i].fd, &st) != 0)
            return base_error_sys(error, errno, "look at %s", served->files[i].name);
        struct model_identity now = model_identity_of(&st);
        if (!model_identity_same(&now, &served->files[i].identity))
            return base_error_set(error, PENSTOCK_ESTALE, "%s was changed while it was read in", served->files[i].name);
    }
    return 0;
}

static int read_all(struct peer_hold *hold, const struct peer_served *served, const _Atomic bool *stop,
                    struct penstock_error *error)
{
    struct reading reading = { hold, served };
    struct peer_pieces pieces = { .run = read_piece, .context = &reading, .stop = stop };
    for (size_t i = 0; i < hold->n; i++)
        pieces.n += n_pieces(&hold->regions[i]);
    int code = peer_parallel(&pieces, READ_THREADS, error);
    return code ? code : check_unchanged(served, error);
}

/* ---- the whole ---- */

static int copy(struct peer_hold *hold, const struct peer_served *served, struct residency_ledger *ledger,
                const _Atomic bool *stop, struct penstock_error *error)
{
    char what[RESIDENCY_WHAT_MAX];
    uint64_t bytes = peer_hold_bytes(served, page_bytes(hold->how));
    snprintf(what, sizeof what, "the copy of %s for RDMA", served->id);
    int code = residency_reserve(ledger, &hold->reservation, bytes, what, error);
    if (code == 0)
        code = check_memory(hold->how, bytes, error);
    for (size_t i = 0; code == 0 && i < hold->n; i++)
        code = allocate(&hold->regions[i], hold->how, error);
    return code ? code : read_all(hold, served, stop, error);
}

int peer_hold_make(struct peer_hold *hold, const struct peer_served *served, enum peer_hold_how how,
                   struct residency_ledger *ledger, const _Atomic bool *stop, struct penstock_error *error)
{
    *hold = (struct peer_hold){ .how = how };
    hold->regions = calloc(served->n_regions + 1, sizeof *hold->regions);
    if (!hold->regions)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu files", served->n_regions);
    hold->n = served->n_regions;
    for (size_t i = 0; i < hold->n; i++) {
        const struct peer_file *file = &served->files[i];
        bool map = how == PEER_HOLD_MAP;
        hold->regions[i] = (struct peer_region){ .at = map ? (uint8_t *)(uintptr_t)file->mapping : NULL,
                                                 .len_bytes = file->len_bytes,
                                                 .name = file->name,
                                                 .cold_fd = map ? file->fd : -1 };
    }
    int code = how == PEER_HOLD_MAP ? 0 : copy(hold, served, ledger, stop, error);
    if (code)
        peer_hold_fini(hold);
    return code;
}

int peer_hold_seal(struct peer_hold *hold, struct penstock_error *error)
{
    for (size_t i = 0; i < hold->n; i++) {
        struct peer_region *region = &hold->regions[i];
        if (region->mapped_bytes && mprotect(region->at, region->mapped_bytes, PROT_READ) != 0)
            return base_error_sys(error, errno, "make a copy read-only");
    }
    return 0;
}

void peer_hold_fini(struct peer_hold *hold)
{
    for (size_t i = 0; i < hold->n; i++)
        if (hold->regions[i].mapped_bytes)
            munmap(hold->regions[i].at, hold->regions[i].mapped_bytes);
    free(hold->regions);
    residency_release(&hold->reservation);
    *hold = (struct peer_hold){ 0 };
}
