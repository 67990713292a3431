#include "regions.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "parallel.h"

#define REGISTER_THREADS 4

struct making {
    struct peer_regions *regions;
    const struct peer_region *pieces;
    unsigned access;
};

static int open_device(struct peer_regions *r, struct verbs_device *device, struct penstock_error *error)
{
    struct peer_registered *on = &r->devices[r->n_devices++];
    *on = (struct peer_registered){ .device = device };
    on->mrs = calloc(r->n, sizeof *on->mrs);
    on->regions = calloc(r->n, sizeof *on->regions);
    if (!on->mrs || !on->regions)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu memory regions", r->n);
    return verbs_pd_new(device, &on->pd, error);
}

static int open_devices(struct peer_regions *r, const struct rail_devices *rails, struct penstock_error *error)
{
    for (size_t i = 0; i < rails->n; i++) {
        bool known = false;
        for (size_t d = 0; d < r->n_devices; d++)
            known = known || r->devices[d].device == rails->devices[i];
        int code = known ? 0 : open_device(r, rails->devices[i], error);
        if (code)
            return code;
    }
    return 0;
}

static int probe_page(const struct making *m, struct penstock_error *error)
{
    struct verbs_mr *mr;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int code = verbs_mr_new(m->regions->devices[0].pd, m->pieces[0].at, base_min_u64(m->pieces[0].len_bytes, page),
                            m->access, &mr, error);
    if (code == 0)
        verbs_mr_free(mr);
    return code;
}

/* One region on one device, region by region: what a device refuses shows at once. */
static int register_one(void *context, size_t piece, struct penstock_error *error)
{
    struct making *m = context;
    struct peer_registered *on = &m->regions->devices[piece % m->regions->n_devices];
    size_t i = piece / m->regions->n_devices;
    const struct peer_region *of = &m->pieces[i];
    if (of->cold_fd >= 0) /* faster than the faults of a cold file */
        (void)posix_fadvise(of->cold_fd, 0, (off_t)of->len_bytes, POSIX_FADV_WILLNEED);
    int code = verbs_mr_new(on->pd, of->at, of->len_bytes, m->access, &on->mrs[i], error);
    if (code) {
        base_error_in(error, "%s", of->name);
        return code;
    }
    on->regions[i] = (struct penstock_layer){ .base = on->mrs[i]->base, .rkey = on->mrs[i]->rkey };
    return 0;
}

/* The tables by rail, of what there is by device. */
static void lay_out(struct peer_regions *r, const struct rail_devices *rails)
{
    for (size_t i = 0; i < rails->n; i++)
        for (size_t d = 0; d < r->n_devices; d++)
            if (r->devices[d].device == rails->devices[i]) {
                r->pds[i] = r->devices[d].pd;
                r->tables[i] = (struct rail_table){ .regions = r->devices[d].regions, .n_regions = r->n };
            }
}

int peer_regions_make(struct peer_regions *regions, const struct rail_devices *rails, const struct peer_region *pieces,
                      size_t n, unsigned access, bool probe, const _Atomic bool *stop, struct penstock_error *error)
{
    *regions = (struct peer_regions){ .n = n };
    struct making making = { regions, pieces, access };
    int code = open_devices(regions, rails, error);
    if (code == 0 && probe)
        code = probe_page(&making, error);
    if (code)
        return code;
    const struct peer_pieces work = {
        .n = n * regions->n_devices, .run = register_one, .context = &making, .stop = stop
    };
    code = peer_parallel(&work, REGISTER_THREADS, error);
    if (code == 0)
        lay_out(regions, rails);
    return code;
}

/* Regions before the domain that they are of. */
void peer_regions_fini(struct peer_regions *regions)
{
    for (size_t d = 0; d < regions->n_devices; d++) {
        struct peer_registered *on = &regions->devices[d];
        for (size_t i = 0; on->mrs && i < regions->n; i++)
            verbs_mr_free(on->mrs[i]);
        verbs_pd_free(on->pd);
        free(on->mrs);
        free(on->regions);
    }
    *regions = (struct peer_regions){ 0 };
}
