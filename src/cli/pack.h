/* Packing a checkpoint on all processors, with progress, until it is done or a signal comes. */
#ifndef PENSTOCK_CLI_PACK_H
#define PENSTOCK_CLI_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/error.h>

struct pack_options {
    const char *checkpoint, *store;
    uint32_t layers; /* 0: all */
    uint64_t verify; /* records, spread over the store; UINT64_MAX: all */
    unsigned threads;
    bool quiet, follow_all_links;
};

struct pack_result {
    uint32_t layers, kept_layers, experts;
    uint64_t bytes, verified;
    double seconds;
};

/* EINVAL: a store inside the checkpoint would change what it is made from; whoever removes one around it removes both.
 */
PENSTOCK_CHECKED int pack_check_place(const struct pack_options *options, struct penstock_error *error);

/* ECANCELED: a signal came; what is finished stays, and the same call goes on from there. */
PENSTOCK_CHECKED int pack_run(const struct pack_options *options, struct pack_result *result,
                              struct penstock_error *error);

#endif
