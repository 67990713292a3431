#include "cursor.h"
#include "fault.h"

void penstock_paging_header_encode(const struct penstock_paging_header *header, uint8_t *out)
{
    out = wire_put_u64(out, PENSTOCK_PAGING_MAGIC_V2);
    out = wire_put_u8(out, header->kind);
    out = wire_put_u64(out, header->arena_bytes);
    wire_put_u64(out, header->blob_bytes);
}

/* Every bound that the protocol sets: whoever holds a decoded header need not check again. */
static enum penstock_decode judge(const struct penstock_paging_header *h, struct penstock_wire_fault *fault)
{
    if (h->kind == PENSTOCK_ARENA_STATISTICS && h->arena_bytes == 0 && h->blob_bytes == 0)
        return PENSTOCK_DECODE_OK;
    if (h->kind > PENSTOCK_ARENA_KV)
        return wire_refuse(fault, "paging kind", h->kind, 0, "unknown paging kind: {value}");
    if (h->arena_bytes == 0 || h->arena_bytes > PENSTOCK_ARENA_BYTES_MAX)
        return wire_refuse(fault, "arena bytes", h->arena_bytes, 0, "implausible arena size: {value}");
    if (h->blob_bytes != 0 && h->arena_bytes % h->blob_bytes != 0)
        return wire_refuse(fault, "arena bytes", h->arena_bytes, h->blob_bytes,
                           "arena size {value} is not a multiple of the blob size {want}");
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_paging_header_decode(const uint8_t *buf, size_t len, struct penstock_paging_header *out,
                                                   size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_paging_header h = { 0 };

    /* The magic is judged before the rest is waited for: a stranger who sends 8 bytes and waits gets an answer. */
    uint64_t magic = wire_cursor_u64(&c, "paging magic");
    if (c.missing)
        return wire_more(fault, c.missing, 8);
    if (magic == PENSTOCK_PAGING_MAGIC_V1)
        return wire_refuse(fault, "paging magic", magic, PENSTOCK_PAGING_MAGIC_V2,
                           "paging magic {hex}: version 1 is retired");
    if (magic != PENSTOCK_PAGING_MAGIC_V2)
        return wire_refuse(fault, "paging magic", magic, PENSTOCK_PAGING_MAGIC_V2,
                           "paging magic {hex}: not a paging client");

    h.kind = wire_cursor_u8(&c, "paging kind");
    h.arena_bytes = wire_cursor_u64(&c, "arena bytes");
    h.blob_bytes = wire_cursor_u64(&c, "blob bytes");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_PAGING_HEADER_BYTES);

    enum penstock_decode d = judge(&h, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    *out = h;
    *consumed = PENSTOCK_PAGING_HEADER_BYTES;
    return PENSTOCK_DECODE_OK;
}
