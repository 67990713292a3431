/* What the programs on the simulated fabric read. */
#ifndef PENSTOCK_BENCH_LISTS_H
#define PENSTOCK_BENCH_LISTS_H

#include "rail/engine.h"

struct bench_list {
    struct rail_range *at;
    size_t n;
    uint64_t bytes;
};

/* The tensors of tensor_sizes.h as they lie in their file, each to the same place in memory. */
struct bench_list bench_tensors(void);

/* Equal objects with as much again between them: no two touch. */
struct bench_list bench_objects(size_t n, uint64_t len_bytes);

/* In random order, the same one every time, and packed in that order: nothing touches on both sides. */
void bench_shuffle(struct bench_list *list);

#endif
