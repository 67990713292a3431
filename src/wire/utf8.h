/* Well-formed UTF-8, as Unicode's table 3-7 has it. */
#ifndef PENSTOCK_WIRE_UTF8_H
#define PENSTOCK_WIRE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes from the start that are whole, well-formed characters: n where all are. */
static inline size_t wire_utf8_prefix(const uint8_t *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint8_t lead = s[at];
        size_t more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || n - at <= more)
            break;

        /* The second byte keeps out long forms, surrogates and what lies above U+10FFFF. */
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        for (size_t i = 1; i <= more; i++, low = 0x80, high = 0xBF)
            if (s[at + i] < low || s[at + i] > high)
                return at;
        at += 1 + more;
    }
    return at;
}

#endif
