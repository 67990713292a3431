#include "rail/gid.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xFF, [11] = 0xFF };

bool rail_gid_is_ipv4(const uint8_t gid[16])
{
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

static enum rail_gid_kind ipv4_kind(const uint8_t a[4])
{
    if (a[0] == 0 || a[0] == 127 || a[0] >= 224)
        return RAIL_GID_NONE;
    return a[0] == 169 && a[1] == 254 ? RAIL_GID_IPV4_LOCAL : RAIL_GID_IPV4;
}

enum rail_gid_kind rail_gid_kind(const uint8_t gid[16])
{
    static const uint8_t zeros[15];
    if (rail_gid_is_ipv4(gid))
        return ipv4_kind(gid + 12);
    if (gid[0] == 0xFF || (memcmp(gid, zeros, 15) == 0 && gid[15] <= 1)) /* ::, ::1 */
        return RAIL_GID_NONE;
    return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80 ? RAIL_GID_IPV6_LOCAL : RAIL_GID_IPV6;
}

const char *rail_gid_format(const uint8_t gid[16], char out[RAIL_GID_TEXT_MAX])
{
    return inet_ntop(AF_INET6, gid, out, RAIL_GID_TEXT_MAX);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rail_gid_parse_hex(const char *text, uint8_t gid[16])
{
    if (strlen(text) != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        gid[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool rail_gid_parse(const char *text, uint8_t gid[16])
{
    uint8_t ipv4[4];
    if (inet_pton(AF_INET, text, ipv4) == 1) {
        memcpy(gid, mapped, sizeof mapped);
        memcpy(gid + 12, ipv4, sizeof ipv4);
        return true;
    }
    return inet_pton(AF_INET6, text, gid) == 1 || rail_gid_parse_hex(text, gid);
}

unsigned rail_gid_common_bits(const uint8_t a[16], const uint8_t b[16])
{
    for (unsigned i = 0; i < 16; i++)
        if (a[i] != b[i])
            return 8 * i + (unsigned)__builtin_clz((unsigned)(a[i] ^ b[i])) - 24;
    return 128;
}
