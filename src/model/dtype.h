/* The safetensors dtypes (protocol 1.5). */
#ifndef PENSTOCK_MODEL_DTYPE_H
#define PENSTOCK_MODEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits per element; 0: not known. */
unsigned model_dtype_bits(const char *dtype, size_t len);
/* The name of a known dtype, static; NULL: not known. */
const char *model_dtype_name(const char *dtype, size_t len);

/* Bytes of a tensor. False: more than 64 bits can say, or no whole number of bytes. */
__attribute__((warn_unused_result)) bool model_dtype_bytes(unsigned bits, const uint64_t *shape, uint64_t rank,
                                                           uint64_t *out);

#endif
