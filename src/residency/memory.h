/* An arena's pages: zeroed, on huge pages where there are any, on one NUMA node where that is asked for. */
#ifndef PENSTOCK_RESIDENCY_MEMORY_H
#define PENSTOCK_RESIDENCY_MEMORY_H

#include "cache.h"

/* ENOMEM, ESYS: nothing is mapped. */
PENSTOCK_CHECKED int residency_memory_map(const struct residency_cache_options *options, uint64_t len_bytes,
                                          struct residency_memory *out, struct penstock_error *error);
/* Zeroed: none. */
void residency_memory_unmap(struct residency_memory *memory);

#endif
