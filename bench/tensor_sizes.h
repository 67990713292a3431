/* The tensors of a real kind of model, by size alone, in file order: 124,306 of them in 21.73 GB. */
#ifndef PENSTOCK_BENCH_TENSOR_SIZES_H
#define PENSTOCK_BENCH_TENSOR_SIZES_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_TENSORS 124306
#define BENCH_TENSOR_BYTES UINT64_C(21730000000) /* of all */

/* BENCH_TENSORS of them; the caller frees. */
uint64_t *bench_tensor_sizes(void);

#endif
