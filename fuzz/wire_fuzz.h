/* What every codec's target checks. */
#ifndef PENSTOCK_WIRE_FUZZ_H
#define PENSTOCK_WIRE_FUZZ_H

#include <string.h>

#include <penstock/wire.h>

#include "fuzz.h"

/* A verdict on len bytes that is in order; true: OK, and *consumed can be trusted (a pointer: it is set while arguments
 * are evaluated). What is not OK says why. */
static inline bool fuzz_wire_ok(enum penstock_decode d, size_t len, const size_t *consumed,
                                const struct penstock_wire_fault *fault)
{
    char message[200];
    if (d == PENSTOCK_DECODE_OK) {
        FUZZ_CHECK(*consumed <= len);
        return true;
    }
    FUZZ_CHECK(fault->field);
    if (d == PENSTOCK_DECODE_MORE)
        FUZZ_CHECK(!fault->reason && fault->need > len);
    else
        FUZZ_CHECK(d == PENSTOCK_DECODE_MALFORMED && fault->reason);
    FUZZ_CHECK(penstock_wire_fault_format(fault, message, sizeof message) < sizeof message);
    return false;
}

/* What was decoded, written again, is what was read. */
static inline void fuzz_wire_same(const uint8_t *back, size_t n, const uint8_t *data, size_t consumed)
{
    FUZZ_CHECK(n == consumed && memcmp(back, data, n) == 0);
}

#endif
