/* Messages of one byte. */
#include "cursor.h"
#include "fault.h"

enum penstock_decode penstock_ack_decode(const uint8_t *buf, size_t len, size_t *consumed,
                                         struct penstock_wire_fault *fault)
{
    if (len < 1)
        return wire_more(fault, "ack", 1);
    if (buf[0] != PENSTOCK_STATUS_OK)
        return wire_refuse(fault, "ack", buf[0], PENSTOCK_STATUS_OK, "refused connection (ack {value})");
    *consumed = 1;
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_mode_decode(const uint8_t *buf, size_t len, uint8_t *mode, size_t *consumed,
                                          struct penstock_wire_fault *fault)
{
    if (len < 1)
        return wire_more(fault, "transport mode", 1);
    if (buf[0] > PENSTOCK_MODE_VERBS)
        return wire_refuse(fault, "transport mode", buf[0], 0, "unknown transport mode: {value}");
    *mode = buf[0];
    *consumed = 1;
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_status_decode(const uint8_t *buf, size_t len, uint8_t *status, size_t *consumed,
                                            struct penstock_wire_fault *fault)
{
    if (len < 1)
        return wire_more(fault, "reply status", 1);
    *status = buf[0];
    *consumed = 1;
    return PENSTOCK_DECODE_OK;
}
