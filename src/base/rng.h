/* Random numbers from the kernel's generator. */
#ifndef PENSTOCK_BASE_RNG_H
#define PENSTOCK_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Fills len bytes. Returns 0 or a negative PENSTOCK_E*: a kernel without a generator. */
__attribute__((warn_unused_result)) int base_random(void *out, size_t len);

#endif
