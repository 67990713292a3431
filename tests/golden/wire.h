/* Frozen bytes (protocol 1.2). They are the fleet's: a test that fails here has found a bug in the code. */
#ifndef PENSTOCK_GOLDEN_WIRE_H
#define PENSTOCK_GOLDEN_WIRE_H

#include <stdint.h>

#define GOLDEN_QPN 0x04030201u
#define GOLDEN_PSN 0x08070605u

/* Sixteen bytes counting up from first. */
#define GOLDEN_GID(first)                                                                                              \
    (first), (first) + 1, (first) + 2, (first) + 3, (first) + 4, (first) + 5, (first) + 6, (first) + 7, (first) + 8,   \
        (first) + 9, (first) + 10, (first) + 11, (first) + 12, (first) + 13, (first) + 14, (first) + 15

/* qpn, psn, gid 10..1F */
static const uint8_t golden_verbs_client_params[] = { 1, 2, 3, 4, 5, 6, 7, 8, GOLDEN_GID(0x10) };

/* qpn, psn, gid 20..2F, (0x1122334455667788, 0x99AABBCC), (0xDEADBEEF0BADF00D, 0x01020304) */
static const uint8_t golden_verbs_server_params[] = {
    1,    2,    3,    4,    5,    6,    7,    8,    GOLDEN_GID(0x20),
    2,    0,    0,    0, /* layers */
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xCC,
    0xBB, 0xAA, 0x99, 0x0D, 0xF0, 0xAD, 0x0B, 0xEF, 0xBE,
    0xAD, 0xDE, 0x04, 0x03, 0x02, 0x01,
};

/* qpn, psn, gid 50..5F, base 0x1122334455667788, rkey 0x99AABBCC */
static const uint8_t golden_cache_server_params[] = {
    1, 2, 3, 4, 5, 6, 7, 8, GOLDEN_GID(0x50), 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xCC, 0xBB, 0xAA, 0x99,
};

/* layer 0x01020304, expert 0x05060708 */
static const uint8_t golden_expert_request[] = { 4, 3, 2, 1, 8, 7, 6, 5 };

/* Of an expert's record (protocol 1.4): layer 0x01020304, expert 0x05060708, inter 512, hidden 2048, group_size 16,
 * scale2 1, -0.5, 3, input_scale 2, none, 0.25. */
static const uint8_t golden_record_header[256] = {
    'T', 'R', 'P', 'X', 1, 0, 0,    0,    4, 3, 2, 1,    8, 7, 6,    5,    0, 2, 0, 0,    0, 8, 0, 0, 16, 0, 0,    0,
    5,   0,   0,   0,   0, 0, 0x80, 0x3F, 0, 0, 0, 0xBF, 0, 0, 0x40, 0x40, 0, 0, 0, 0x40, 0, 0, 0, 0, 0,  0, 0x80, 0x3E,
};

/* "m7" */
static const uint8_t golden_model_request[] = { 2, 0, 0, 0, 'm', '7' };

/* KV, arena 0x2000, blob 0x80 */
static const uint8_t golden_paging_header[] = {
    2, 0, 0, 0, 'E', 'G', 'A', 'P', 1, 0x00, 0x20, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0,
};

/* KV, arena 16 GiB, blob 0 */
static const uint8_t golden_paging_header_raw[] = {
    2, 0, 0, 0, 'E', 'G', 'A', 'P', 1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
};

#endif
