#include "cursor.h"
#include "fault.h"
#include "utf8.h"

static const char implausible[] = "implausible model request length: {value}";
static const char not_utf8[] = "model request is not UTF-8 from byte {value} on";

size_t penstock_model_request_size(const struct penstock_model_request *request)
{
    return 4 + request->len_bytes;
}

size_t penstock_model_request_encode(const struct penstock_model_request *request, uint8_t *out,
                                     struct penstock_wire_fault *fault)
{
    const size_t n = request->len_bytes;
    if (n == 0 || n > PENSTOCK_MODEL_REQUEST_MAX)
        return wire_refuse_encode(fault, "model request length", n, implausible);
    size_t valid = wire_utf8_prefix((const uint8_t *)request->text, n);
    if (valid != n)
        return wire_refuse_encode(fault, "model request", valid, not_utf8);

    memcpy(wire_put_u32(out, (uint32_t)n), request->text, n);
    return 4 + n;
}

enum penstock_decode penstock_model_request_decode(const uint8_t *buf, size_t len, struct penstock_model_request *out,
                                                   size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    uint32_t n = wire_cursor_u32(&c, "model request length");
    if (c.missing)
        return wire_more(fault, c.missing, 4);
    if (n == 0 || n > PENSTOCK_MODEL_REQUEST_MAX)
        return wire_refuse(fault, "model request length", n, 0, implausible);

    const uint8_t *text;
    if (!wire_cursor_take(&c, n, "model request", &text))
        return wire_more(fault, c.missing, 4 + (size_t)n);
    size_t valid = wire_utf8_prefix(text, n);
    if (valid != n)
        return wire_refuse(fault, "model request", valid, 0, not_utf8);

    *out = (struct penstock_model_request){ .text = (const char *)text, .len_bytes = n };
    *consumed = 4 + (size_t)n;
    return PENSTOCK_DECODE_OK;
}
