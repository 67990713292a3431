/* Memory that RDMA clients reach: a protection domain on every device that has rails, and in it a memory region for
 * each piece. */
#ifndef PENSTOCK_PEER_REGIONS_H
#define PENSTOCK_PEER_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "rail/set.h"

/* One piece, which clients are told of as a layer. */
struct peer_region {
    uint8_t *at;
    uint64_t len_bytes;
    uint64_t mapped_bytes; /* its holder's to unmap; 0: none of it */
    const char *name;      /* for words */
    int cold_fd;           /* a file that it maps, to be read ahead when it is registered; negative: none */
};

/* One device, whatever the number of its rails. */
struct peer_registered {
    struct verbs_device *device;
    struct verbs_pd *pd;            /* these regions' own: clients of others cannot reach through it */
    struct verbs_mr **mrs;          /* of each region */
    struct penstock_layer *regions; /* the same as clients are told */
};

struct peer_regions {
    size_t n; /* on each device */
    struct peer_registered devices[PENSTOCK_RAILS_MAX];
    size_t n_devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];     /* by rail, as struct rail_set_config wants them */
    struct rail_table tables[PENSTOCK_RAILS_MAX]; /* the same */
};

/* Registers n pieces with those access flags on the devices of all rails, by several threads. probe: one page first, to
 * see whether the kernel registers such memory at all, before a cold file is read in for nothing. ECANCELED: *stop was
 * set. After a failure peer_regions_fini takes back what was made. */
PENSTOCK_CHECKED int peer_regions_make(struct peer_regions *regions, const struct rail_devices *rails,
                                       const struct peer_region *pieces, size_t n, unsigned access, bool probe,
                                       const _Atomic bool *stop, struct penstock_error *error);

/* Before the memory goes. Zeroed ones do no harm. */
void peer_regions_fini(struct peer_regions *regions);

#endif
