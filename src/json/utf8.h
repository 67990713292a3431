/* Well-formed UTF-8, as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef PENSTOCK_JSON_UTF8_H
#define PENSTOCK_JSON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of the character that begins at at, 1..4; 0: none does. len > 0. */
static inline size_t json_utf8_len(const char *at, size_t len)
{
    const unsigned char *c = (const unsigned char *)at;
    if (c[0] < 0x80)
        return 1;
    size_t n = c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : c[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    unsigned char least = c[0] == 0xE0 ? 0xA0 : c[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char most = c[0] == 0xED ? 0x9F : c[0] == 0xF4 ? 0x8F : 0xBF;
    if (c[1] < least || c[1] > most)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

static inline bool json_utf8_valid(const char *at, size_t len)
{
    while (len > 0) {
        size_t n = json_utf8_len(at, len);
        if (n == 0)
            return false;
        at += n;
        len -= n;
    }
    return true;
}

#endif
