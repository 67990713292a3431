/* GIDs as addresses: what kind each is, and its text. A GID is 16 raw bytes, in network order. */
#ifndef PENSTOCK_RAIL_GID_H
#define PENSTOCK_RAIL_GID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAIL_GID_TEXT_MAX 48

enum rail_gid_kind {
    RAIL_GID_NONE,       /* unspecified, multicast or loopback: nothing reaches it */
    RAIL_GID_IPV4,       /* IPv4-mapped, from elsewhere reachable too */
    RAIL_GID_IPV6,       /* global or unique local */
    RAIL_GID_IPV4_LOCAL, /* 169.254/16 */
    RAIL_GID_IPV6_LOCAL, /* fe80::/10 */
};

enum rail_gid_kind rail_gid_kind(const uint8_t gid[16]);
bool rail_gid_is_ipv4(const uint8_t gid[16]);

/* "::ffff:10.0.0.2", "fe80::1". Returns out. */
const char *rail_gid_format(const uint8_t gid[16], char out[RAIL_GID_TEXT_MAX]);

/* An IPv6 address, 32 hex digits, or an IPv4 address for its mapped form. Returns false for anything else. */
bool rail_gid_parse(const char *text, uint8_t gid[16]);
bool rail_gid_parse_hex(const char *text, uint8_t gid[16]); /* 32 hex digits, no more */

/* How many leading bits two have in common: 0..128. */
unsigned rail_gid_common_bits(const uint8_t a[16], const uint8_t b[16]);

#endif
