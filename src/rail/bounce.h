/* Registered memory of the engine's own, in cells: where bytes land that the caller's memory cannot be registered for.
 * They are copied once they have come. Made when it is first needed, as large as the memlock limit lets it be. */
#ifndef PENSTOCK_RAIL_BOUNCE_H
#define PENSTOCK_RAIL_BOUNCE_H

#include <stdbool.h>

#include <penstock/wire.h>

#include "rail/ports.h"

#define RAIL_BOUNCE_NONE UINT32_MAX

struct rail_bounce {
    uint8_t *bytes; /* NULL: not made yet */
    uint64_t len_bytes;
    uint32_t cell_bytes, n_cells;
    uint32_t *free; /* a stack of those that are */
    uint32_t n_free;
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX]; /* for each of devices; those that share a PD share it */
};

/* At most len_bytes; 0: 32 MiB. Once it is made this does nothing. */
PENSTOCK_CHECKED int rail_bounce_make(struct rail_bounce *bounce, struct verbs_pd *const *pds, size_t n,
                                      uint64_t len_bytes, struct penstock_error *error);
void rail_bounce_fini(struct rail_bounce *bounce);

static inline uint32_t rail_bounce_take(struct rail_bounce *bounce)
{
    return bounce->n_free > 0 ? bounce->free[--bounce->n_free] : RAIL_BOUNCE_NONE;
}

static inline void rail_bounce_give(struct rail_bounce *bounce, uint32_t cell)
{
    bounce->free[bounce->n_free++] = cell;
}

static inline uint64_t rail_bounce_offset(const struct rail_bounce *bounce, uint32_t cell)
{
    return (uint64_t)cell * bounce->cell_bytes;
}

#endif
