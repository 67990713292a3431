/* How the codecs say no. */
#ifndef PENSTOCK_WIRE_FAULT_H
#define PENSTOCK_WIRE_FAULT_H

#include <penstock/wire.h>

/* The message goes on; it has need bytes at least. */
static inline enum penstock_decode wire_more(struct penstock_wire_fault *fault, const char *field, size_t need)
{
    *fault = (struct penstock_wire_fault){ .field = field, .need = need };
    return PENSTOCK_DECODE_MORE;
}

/* The same of a message that begins before bytes further up: what a decoder says that calls another. */
static inline enum penstock_decode wire_within(struct penstock_wire_fault *fault, size_t before,
                                               enum penstock_decode inner)
{
    if (inner == PENSTOCK_DECODE_MORE)
        fault->need += before;
    return inner;
}

static inline enum penstock_decode wire_refuse(struct penstock_wire_fault *fault, const char *field, uint64_t value,
                                               uint64_t want, const char *reason)
{
    *fault = (struct penstock_wire_fault){ .field = field, .reason = reason, .value = value, .want = want };
    return PENSTOCK_DECODE_MALFORMED;
}

/* An encoder's refusal: nothing written. */
static inline size_t wire_refuse_encode(struct penstock_wire_fault *fault, const char *field, uint64_t value,
                                        const char *reason)
{
    *fault = (struct penstock_wire_fault){ .field = field, .reason = reason, .value = value };
    return 0;
}

#endif
