#include "cursor.h"
#include "fault.h"

static uint8_t *put_f32(uint8_t *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return wire_put_u32(out, bits);
}

static float cursor_f32(struct wire_cursor *c, const char *field)
{
    uint32_t bits = wire_cursor_u32(c, field);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void penstock_record_header_encode(const struct penstock_record_header *header, uint8_t *out)
{
    uint8_t *at = wire_put_u32(out, PENSTOCK_RECORD_MAGIC);
    at = wire_put_u32(at, PENSTOCK_RECORD_VERSION);
    at = wire_put_u32(at, header->layer);
    at = wire_put_u32(at, header->expert);
    at = wire_put_u32(at, header->inter);
    at = wire_put_u32(at, header->hidden);
    at = wire_put_u32(at, header->group_size);
    at = wire_put_u32(at, header->input_scale_flags);
    for (int i = 0; i < 3; i++)
        at = put_f32(at, header->scale2[i]);
    for (int i = 0; i < 3; i++)
        at = put_f32(at, header->input_scale_flags >> i & 1 ? header->input_scale[i] : 0.0f);
    memset(at, 0, (size_t)(out + PENSTOCK_RECORD_HEADER_BYTES - at));
}

enum penstock_decode penstock_record_header_decode(const uint8_t *buf, size_t len, struct penstock_record_header *out,
                                                   size_t *consumed, struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_record_header h = { 0 };
    const uint8_t *rest;

    uint32_t magic = wire_cursor_u32(&c, "record magic");
    if (!c.missing && magic != PENSTOCK_RECORD_MAGIC)
        return wire_refuse(fault, "record magic", magic, PENSTOCK_RECORD_MAGIC,
                           "record magic {hex}: not an expert's record");
    uint32_t version = wire_cursor_u32(&c, "record version");
    if (!c.missing && version != PENSTOCK_RECORD_VERSION)
        return wire_refuse(fault, "record version", version, PENSTOCK_RECORD_VERSION,
                           "record version {value}, and this side knows {want}");
    h.layer = wire_cursor_u32(&c, "record layer");
    h.expert = wire_cursor_u32(&c, "record expert");
    h.inter = wire_cursor_u32(&c, "record inter");
    h.hidden = wire_cursor_u32(&c, "record hidden");
    h.group_size = wire_cursor_u32(&c, "record group_size");
    h.input_scale_flags = wire_cursor_u32(&c, "record input_scale_flags");
    for (int i = 0; i < 3; i++)
        h.scale2[i] = cursor_f32(&c, "record scale2");
    for (int i = 0; i < 3; i++)
        h.input_scale[i] = cursor_f32(&c, "record input_scale");
    (void)wire_cursor_take(&c, PENSTOCK_RECORD_HEADER_BYTES - 56, "record padding", &rest);
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_RECORD_HEADER_BYTES);

    *out = h;
    *consumed = PENSTOCK_RECORD_HEADER_BYTES;
    return PENSTOCK_DECODE_OK;
}
