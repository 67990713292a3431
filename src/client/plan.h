/* From the ranges of a read to requests on the wire and the pieces of memory that their bytes land in; or to what rails
 * move. */
#ifndef PENSTOCK_CLIENT_PLAN_H
#define PENSTOCK_CLIENT_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <penstock/penstock.h>

#include "rail/engine.h"

/* Protocol 2.1 allows 64 MiB; what is asked for in smaller parts can be cancelled sooner. */
#define CLIENT_REQUEST_BYTES_MAX (UINT64_C(8) << 20)

struct client_request {
    uint64_t offset_bytes;
    uint32_t file;
    uint32_t len_bytes;
    size_t piece; /* the first of its pieces; together they are len_bytes long */
};

/* What holds: requests are in the order of file and offset, none is empty, each lies in its file, each piece in the
 * region. */
struct client_plan {
    struct client_request *requests;
    size_t n_requests;
    struct iovec *pieces;
    size_t n_pieces;
    uint64_t len_bytes; /* of all requests */
};

/* Checks the ranges against the catalogue and the region (EINVAL names the one that is wrong), sorts a copy where they
 * are not in order, and joins those that touch. */
PENSTOCK_CHECKED int client_plan_make(const struct penstock_catalogue *catalogue, const struct penstock_range *ranges,
                                      size_t n, uint8_t *region, uint64_t region_bytes, struct client_plan *plan,
                                      struct penstock_error *error);
void client_plan_fini(struct client_plan *plan);

/* The same for a session over RDMA: what lies in shards, in order and joined where it touches in file and memory; and
 * the rest, for TCP. */
struct client_split {
    struct rail_range *rails;
    size_t n_rails;
    struct penstock_range *files;
    size_t n_files;
};

PENSTOCK_CHECKED int client_split_make(const struct penstock_catalogue *catalogue, const struct penstock_range *ranges,
                                       size_t n, uint64_t region_bytes, struct client_split *split,
                                       struct penstock_error *error);
void client_split_fini(struct client_split *split);

#endif
