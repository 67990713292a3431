#include "bounce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/error.h"

/* Cells enough for 128 READs, none longer than keeps a copy short, none shorter than a page. */
enum { CELLS = 128, CELL_BYTES_MIN = 4096, CELL_BYTES_MAX = 256 << 10 };

#define LEN_BYTES_MIN ((uint64_t)64 << 10)
#define LEN_BYTES_MAX ((uint64_t)CELLS * CELL_BYTES_MAX)

static void unregister(struct rail_bounce *bounce)
{
    for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++) {
        struct verbs_mr *mr = bounce->mrs[i];
        for (size_t j = i; j < PENSTOCK_RAILS_MAX; j++)
            if (bounce->mrs[j] == mr)
                bounce->mrs[j] = NULL;
        verbs_mr_free(mr);
    }
}

static int register_all(struct rail_bounce *bounce, struct verbs_pd *const *pds, size_t n, struct penstock_error *error)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i && !bounce->mrs[i]; j++)
            if (pds[j] == pds[i])
                bounce->mrs[i] = bounce->mrs[j];
        if (bounce->mrs[i])
            continue;
        int code = verbs_mr_new(pds[i], bounce->bytes, bounce->len_bytes, VERBS_LOCAL_WRITE, &bounce->mrs[i], error);
        if (code) {
            bounce->mrs[i] = NULL;
            unregister(bounce);
            return code;
        }
    }
    return 0;
}

static int make(struct rail_bounce *bounce, struct verbs_pd *const *pds, size_t n, uint64_t len_bytes,
                struct penstock_error *error)
{
    void *bytes = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return base_error_sys(error, errno, "mmap %llu bytes", (unsigned long long)len_bytes);
    uint64_t cell = CELL_BYTES_MIN;
    while (cell < CELL_BYTES_MAX && cell * 2 * CELLS <= len_bytes)
        cell *= 2;
    *bounce = (struct rail_bounce){
        .bytes = bytes, .len_bytes = len_bytes, .cell_bytes = (uint32_t)cell, .n_cells = (uint32_t)(len_bytes / cell)
    };
    int code = register_all(bounce, pds, n, error);
    if (code == 0) {
        bounce->free = malloc(bounce->n_cells * sizeof *bounce->free);
        if (!bounce->free)
            code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for %u cells", bounce->n_cells);
    }
    if (code)
        rail_bounce_fini(bounce);
    return code;
}

int rail_bounce_make(struct rail_bounce *bounce, struct verbs_pd *const *pds, size_t n, uint64_t len_bytes,
                     struct penstock_error *error)
{
    if (bounce->bytes)
        return 0;
    uint64_t len = len_bytes == 0 ? LEN_BYTES_MAX : base_min_u64(len_bytes, UINT64_C(1) << 40);
    len = base_round_up_u64(base_max_u64(len, LEN_BYTES_MIN), CELL_BYTES_MIN);
    struct penstock_error failed;
    int code = make(bounce, pds, n, len, &failed);
    /* A smaller one is slower, and still better than none. */
    while (code && len / 2 >= LEN_BYTES_MIN) {
        len = base_round_up_u64(len / 2, CELL_BYTES_MIN);
        code = make(bounce, pds, n, len, &failed);
    }
    if (code)
        return base_error_set(error, code, "memory cannot be registered, nor can a bounce ring instead of it: %s",
                              failed.message);
    for (uint32_t i = 0; i < bounce->n_cells; i++)
        rail_bounce_give(bounce, bounce->n_cells - 1 - i);
    return 0;
}

void rail_bounce_fini(struct rail_bounce *bounce)
{
    unregister(bounce);
    free(bounce->free);
    if (bounce->bytes)
        munmap(bounce->bytes, bounce->len_bytes);
    *bounce = (struct rail_bounce){ 0 };
}
