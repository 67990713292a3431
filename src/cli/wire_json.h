/* The wire's records as JSON, both ways; 64-bit numbers are exact. */
#ifndef PENSTOCK_CLI_WIRE_JSON_H
#define PENSTOCK_CLI_WIRE_JSON_H

#include <penstock/wire.h>

#include "json/json.h"
#include "json/write.h"

struct wire_json_record {
    const char *name;
    bool rails; /* print wants to know how many */

    /* Decodes one record and writes it. rails: how many were negotiated. */
    enum penstock_decode (*print)(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w, size_t *consumed,
                                  struct penstock_wire_fault *fault);

    /* Appends the record that value describes. A field that is missing, of another type, out of range, not known or
     * there twice is EPROTO; what the codec refuses to write is EINVAL, with its message. */
    int (*parse)(const struct json_value *value, struct base_buf *out, struct penstock_error *error);
};

/* NULL: no such record. */
const struct wire_json_record *wire_json_find(const char *name);

/* By index, for lists; NULL: past the end. */
const struct wire_json_record *wire_json_at(size_t index);

#endif
