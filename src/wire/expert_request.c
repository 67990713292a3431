#include "cursor.h"
#include "fault.h"

bool penstock_expert_request_is_shutdown(const struct penstock_expert_request *request)
{
    return request->layer == PENSTOCK_SHUTDOWN_MARKER && request->expert == PENSTOCK_SHUTDOWN_MARKER;
}

void penstock_expert_request_encode(const struct penstock_expert_request *request, uint8_t *out)
{
    wire_put_u32(wire_put_u32(out, request->layer), request->expert);
}

enum penstock_decode penstock_expert_request_decode(const uint8_t *buf, size_t len, struct penstock_expert_request *out,
                                                    size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_expert_request r = { 0 };
    r.layer = wire_cursor_u32(&c, "expert request layer");
    r.expert = wire_cursor_u32(&c, "expert request expert");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_EXPERT_REQUEST_BYTES);

    *out = r;
    *consumed = PENSTOCK_EXPERT_REQUEST_BYTES;
    return PENSTOCK_DECODE_OK;
}
