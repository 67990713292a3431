#include "cursor.h"
#include "fault.h"

static const struct text {
    const char *field, *reason;
    uint32_t max_bytes;
} texts[] = {
    [PENSTOCK_TEXT_EXPERT_MANIFEST] = { "expert manifest length", "implausible expert manifest length: {value}",
                                        PENSTOCK_EXPERT_MANIFEST_BYTES_MAX },
    [PENSTOCK_TEXT_WEIGHT_MANIFEST] = { "weight manifest length", "implausible weight manifest length: {value}",
                                        PENSTOCK_WEIGHT_MANIFEST_BYTES_MAX },
    [PENSTOCK_TEXT_MODELS_REPLY] = { "reply length", "implausible reply length: {value}",
                                     PENSTOCK_MODELS_REPLY_BYTES_MAX },
    [PENSTOCK_TEXT_CACHE_STATISTICS] = { "cache statistics length", "implausible cache statistics length: {value}",
                                         PENSTOCK_CACHE_STATISTICS_BYTES_MAX },
};

size_t penstock_text_head_encode(enum penstock_text text, size_t len_bytes, uint8_t *out,
                                 struct penstock_wire_fault *fault)
{
    const struct text *t = &texts[text];
    if (len_bytes == 0 || len_bytes > t->max_bytes)
        return wire_refuse_encode(fault, t->field, len_bytes, t->reason);
    wire_put_u32(out, (uint32_t)len_bytes);
    return PENSTOCK_TEXT_HEAD_BYTES;
}

enum penstock_decode penstock_text_head_decode(const uint8_t *buf, size_t len, enum penstock_text text,
                                               uint32_t *len_bytes, size_t *consumed, struct penstock_wire_fault *fault)
{
    const struct text *t = &texts[text];
    struct wire_cursor c = { .at = buf, .left = len };
    uint32_t n = wire_cursor_u32(&c, t->field);
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_TEXT_HEAD_BYTES);
    if (n == 0 || n > t->max_bytes)
        return wire_refuse(fault, t->field, n, 0, t->reason);
    *len_bytes = n;
    *consumed = PENSTOCK_TEXT_HEAD_BYTES;
    return PENSTOCK_DECODE_OK;
}
