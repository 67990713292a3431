#include "cursor.h"
#include "fault.h"

enum { CHOOSING = 0x80, MTU_MAX = 5, RD_ATOMIC_MAX = 128 };

static const char implausible[] = "implausible client rail count: {value}";

static bool count_is_plausible(uint8_t n, bool choosing, enum penstock_dialect dialect)
{
    if (choosing || dialect == PENSTOCK_READ_ONLY)
        return n >= 1 && n <= PENSTOCK_RAILS_MAX;
    return n < CHOOSING;
}

static bool rails_are_plausible(const struct penstock_rail_choice *rails, size_t n, struct penstock_wire_fault *fault)
{
    for (size_t i = 0; i < n; i++) {
        if (rails[i].path_mtu < 1 || rails[i].path_mtu > MTU_MAX) {
            wire_refuse_encode(fault, "path mtu", rails[i].path_mtu, "implausible path mtu: {value}");
            return false;
        }
        if (rails[i].rd_atomic < 1 || rails[i].rd_atomic > RD_ATOMIC_MAX) {
            wire_refuse_encode(fault, "read depth", rails[i].rd_atomic, "implausible read depth: {value}");
            return false;
        }
        for (size_t j = 0; j < i; j++)
            if (rails[i].peer_rail == rails[j].peer_rail && rails[i].peer_rail != PENSTOCK_PEER_RAIL_ANY) {
                wire_refuse_encode(fault, "peer rail", rails[i].peer_rail, "peer rail {value} chosen twice");
                return false;
            }
    }
    return true;
}

static void read_rails(struct wire_cursor *c, struct penstock_rail_choice *rails, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rails[i].peer_rail = wire_cursor_u8(c, "peer rail");
        rails[i].path_mtu = wire_cursor_u8(c, "path mtu");
        rails[i].rd_atomic = wire_cursor_u8(c, "read depth");
    }
}

size_t penstock_rails_request_size(const struct penstock_rails_request *request)
{
    return request->choosing ? 1 + request->n_rails * PENSTOCK_RAIL_CHOICE_BYTES : 1;
}

size_t penstock_rails_request_encode(const struct penstock_rails_request *request, enum penstock_dialect dialect,
                                     uint8_t *out, struct penstock_wire_fault *fault)
{
    if (!count_is_plausible(request->n_rails, request->choosing, dialect))
        return wire_refuse_encode(fault, "client rail count", request->n_rails, implausible);
    if (!request->choosing) {
        wire_put_u8(out, request->n_rails);
        return 1;
    }
    if (!rails_are_plausible(request->rails, request->n_rails, fault))
        return 0;

    out = wire_put_u8(out, (uint8_t)(CHOOSING | request->n_rails));
    penstock_rails_answer_encode(request->rails, request->n_rails, out);
    return penstock_rails_request_size(request);
}

enum penstock_decode penstock_rails_request_decode(const uint8_t *buf, size_t len, enum penstock_dialect dialect,
                                                   struct penstock_rails_request *out, size_t *consumed,
                                                   struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_rails_request r = { 0 };

    uint8_t first = wire_cursor_u8(&c, "client rail count");
    if (c.missing)
        return wire_more(fault, c.missing, 1);
    r.choosing = first & CHOOSING;
    r.n_rails = first & (CHOOSING - 1);
    /* The value named is the byte as it came: to the frozen protocol it is a count, however large. */
    if (!count_is_plausible(r.n_rails, r.choosing, dialect))
        return wire_refuse(fault, "client rail count", first, 0, implausible);

    if (r.choosing) {
        read_rails(&c, r.rails, r.n_rails);
        if (c.missing)
            return wire_more(fault, c.missing, penstock_rails_request_size(&r));
        if (!rails_are_plausible(r.rails, r.n_rails, fault))
            return PENSTOCK_DECODE_MALFORMED;
    }
    *out = r;
    *consumed = penstock_rails_request_size(&r);
    return PENSTOCK_DECODE_OK;
}

void penstock_rails_answer_encode(const struct penstock_rail_choice *rails, size_t n_rails, uint8_t *out)
{
    for (size_t i = 0; i < n_rails; i++) {
        out = wire_put_u8(out, rails[i].peer_rail);
        out = wire_put_u8(out, rails[i].path_mtu);
        out = wire_put_u8(out, rails[i].rd_atomic);
    }
}

static enum penstock_decode judge_grant(const struct penstock_rail_choice *granted,
                                        const struct penstock_rail_choice *asked, struct penstock_wire_fault *fault)
{
    if (granted->peer_rail == PENSTOCK_PEER_RAIL_ANY)
        return wire_refuse(fault, "peer rail", granted->peer_rail, asked->peer_rail, "granted no peer rail");
    if (asked->peer_rail != PENSTOCK_PEER_RAIL_ANY && granted->peer_rail != asked->peer_rail)
        return wire_refuse(fault, "peer rail", granted->peer_rail, asked->peer_rail,
                           "granted peer rail {value}, wanted {want}");
    if (granted->path_mtu > asked->path_mtu)
        return wire_refuse(fault, "path mtu", granted->path_mtu, asked->path_mtu,
                           "granted path mtu {value}, wanted {want} at most");
    if (granted->rd_atomic > asked->rd_atomic)
        return wire_refuse(fault, "read depth", granted->rd_atomic, asked->rd_atomic,
                           "granted read depth {value}, wanted {want} at most");
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_rails_answer_decode(const uint8_t *buf, size_t len,
                                                  const struct penstock_rails_request *request,
                                                  struct penstock_rail_choice *rails, size_t *consumed,
                                                  struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_rail_choice granted[PENSTOCK_RAILS_MAX] = { { 0 } };
    const size_t n = request->n_rails < PENSTOCK_RAILS_MAX ? request->n_rails : PENSTOCK_RAILS_MAX;

    read_rails(&c, granted, n);
    if (c.missing)
        return wire_more(fault, c.missing, n * PENSTOCK_RAIL_CHOICE_BYTES);
    if (!rails_are_plausible(granted, n, fault))
        return PENSTOCK_DECODE_MALFORMED;
    for (size_t i = 0; i < n; i++) {
        enum penstock_decode d = judge_grant(&granted[i], &request->rails[i], fault);
        if (d != PENSTOCK_DECODE_OK)
            return d;
    }
    memcpy(rails, granted, n * sizeof *rails);
    *consumed = n * PENSTOCK_RAIL_CHOICE_BYTES;
    return PENSTOCK_DECODE_OK;
}
