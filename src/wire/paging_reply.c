#include "cursor.h"
#include "fault.h"

/* What follows ST_OK; NULL: nothing that is this codec's. */
static const char *value_field(uint8_t op)
{
    switch (op) {
    case PENSTOCK_OP_ALLOC:
    case PENSTOCK_OP_GET:
    case PENSTOCK_OP_MGET:
        return "arena offset";
    case PENSTOCK_OP_FEATURES:
        return "feature bits";
    default:
        return NULL;
    }
}

size_t penstock_paging_reply_size(uint8_t op, const struct penstock_paging_reply *reply)
{
    return reply->status == PENSTOCK_ST_OK && value_field(op) ? PENSTOCK_PAGING_REPLY_BYTES_MAX : 1;
}

void penstock_paging_reply_encode(uint8_t op, const struct penstock_paging_reply *reply, uint8_t *out)
{
    out = wire_put_u8(out, reply->status);
    if (reply->status == PENSTOCK_ST_OK && value_field(op))
        wire_put_u64(out, reply->value);
}

enum penstock_decode penstock_paging_reply_decode(const uint8_t *buf, size_t len, uint8_t op,
                                                  struct penstock_paging_reply *out, size_t *consumed,
                                                  struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_paging_reply r = { .status = wire_cursor_u8(&c, "paging status") };
    if (c.missing)
        return wire_more(fault, c.missing, 1);

    const char *field = value_field(op);
    if (r.status == PENSTOCK_ST_OK && field)
        r.value = wire_cursor_u64(&c, field);
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_PAGING_REPLY_BYTES_MAX);

    *out = r;
    *consumed = penstock_paging_reply_size(op, &r);
    return PENSTOCK_DECODE_OK;
}
