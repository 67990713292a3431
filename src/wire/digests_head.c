#include "cursor.h"
#include "fault.h"

static const char implausible[] = "implausible digest count: {value}";

size_t penstock_digests_head_size(const struct penstock_digests_head *head)
{
    return head->status == PENSTOCK_STATUS_OK ? PENSTOCK_DIGESTS_HEAD_BYTES_MAX : 1;
}

size_t penstock_digests_head_encode(const struct penstock_digests_head *head, uint8_t *out,
                                    struct penstock_wire_fault *fault)
{
    if (head->status == PENSTOCK_STATUS_OK && head->n > PENSTOCK_DIGESTS_MAX)
        return wire_refuse_encode(fault, "digest count", head->n, implausible);
    out = wire_put_u8(out, head->status);
    if (head->status == PENSTOCK_STATUS_OK)
        wire_put_u32(out, head->n);
    return penstock_digests_head_size(head);
}

enum penstock_decode penstock_digests_head_decode(const uint8_t *buf, size_t len, struct penstock_digests_head *out,
                                                  size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_digests_head h = { .status = wire_cursor_u8(&c, "digests status") };
    if (c.missing)
        return wire_more(fault, c.missing, 1);
    if (h.status == PENSTOCK_STATUS_OK)
        h.n = wire_cursor_u32(&c, "digest count");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_DIGESTS_HEAD_BYTES_MAX);
    if (h.n > PENSTOCK_DIGESTS_MAX)
        return wire_refuse(fault, "digest count", h.n, 0, implausible);

    *out = h;
    *consumed = penstock_digests_head_size(&h);
    return PENSTOCK_DECODE_OK;
}
