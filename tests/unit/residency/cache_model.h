/* The cache and a trivial reference, side by side: clients come, die and do what clients do, disks fail, processes are
 * killed. What the cache answers must be what the reference allows; it aborts where it is not. */
#ifndef PENSTOCK_TEST_CACHE_MODEL_H
#define PENSTOCK_TEST_CACHE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* A choice below a bound; *over: there are no more choices. */
typedef uint64_t cache_model_choose(void *user, uint64_t below, bool *over);

/* Runs until there are no more choices, or so many operations are done. Returns how many were. */
uint64_t cache_model_run(cache_model_choose *choose, void *user, uint64_t operations);

#endif
