/* What names a blob: the kind of its arena, and a key. */
#ifndef PENSTOCK_RESIDENCY_KEY_H
#define PENSTOCK_RESIDENCY_KEY_H

#include <stdint.h>

/* As in the paging header (protocol 1.1). */
enum residency_kind { RESIDENCY_SSM, RESIDENCY_KV, RESIDENCY_KINDS };

/* 128 bits wide; one that came as 64 bits has high 0 (protocol 2.3). */
struct residency_key {
    uint64_t low, high;
};

#endif
