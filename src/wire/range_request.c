#include "cursor.h"
#include "fault.h"

void penstock_range_request_encode(const struct penstock_range_request *request, uint8_t *out)
{
    out = wire_put_u32(out, request->file);
    out = wire_put_u64(out, request->offset);
    wire_put_u64(out, request->len);
}

enum penstock_decode penstock_range_request_decode(const uint8_t *buf, size_t len, struct penstock_range_request *out,
                                                   size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_range_request r = { 0 };
    r.file = wire_cursor_u32(&c, "range file");
    r.offset = wire_cursor_u64(&c, "range offset");
    r.len = wire_cursor_u64(&c, "range length");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_RANGE_REQUEST_BYTES);

    *out = r;
    *consumed = PENSTOCK_RANGE_REQUEST_BYTES;
    return PENSTOCK_DECODE_OK;
}
