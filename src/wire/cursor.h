/* A bounded reader over a byte buffer. It goes bad once and stays bad, so that a decoder reads all its fields and looks
 * once. And its opposite, without bounds: whoever encodes has made room. */
#ifndef PENSTOCK_WIRE_CURSOR_H
#define PENSTOCK_WIRE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire_cursor {
    const uint8_t *at;
    size_t left;
    const char *missing; /* the first field that was not all there; NULL while good */
};

static inline bool wire_cursor_take(struct wire_cursor *c, size_t n, const char *field, const uint8_t **bytes)
{
    if (c->missing || c->left < n) {
        if (!c->missing)
            c->missing = field;
        return false;
    }
    *bytes = c->at;
    c->at += n;
    c->left -= n;
    return true;
}

static inline uint64_t wire_cursor_le(struct wire_cursor *c, size_t n, const char *field)
{
    const uint8_t *b;
    uint64_t v = 0;
    if (wire_cursor_take(c, n, field, &b))
        for (size_t i = n; i-- > 0;)
            v = v << 8 | b[i];
    return v;
}

static inline uint8_t wire_cursor_u8(struct wire_cursor *c, const char *field)
{
    return (uint8_t)wire_cursor_le(c, 1, field);
}

static inline uint32_t wire_cursor_u32(struct wire_cursor *c, const char *field)
{
    return (uint32_t)wire_cursor_le(c, 4, field);
}

static inline uint64_t wire_cursor_u64(struct wire_cursor *c, const char *field)
{
    return wire_cursor_le(c, 8, field);
}

static inline uint8_t *wire_put_le(uint8_t *out, size_t n, uint64_t v)
{
    for (size_t i = 0; i < n; i++)
        *out++ = (uint8_t)(v >> 8 * i);
    return out;
}

static inline uint8_t *wire_put_u8(uint8_t *out, uint8_t v)
{
    return wire_put_le(out, 1, v);
}

static inline uint8_t *wire_put_u32(uint8_t *out, uint32_t v)
{
    return wire_put_le(out, 4, v);
}

static inline uint8_t *wire_put_u64(uint8_t *out, uint64_t v)
{
    return wire_put_le(out, 8, v);
}

#endif
