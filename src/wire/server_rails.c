#include "cursor.h"
#include "fault.h"

static const char implausible[] = "implausible server rail count: {value}";

size_t penstock_server_rails_size(const struct penstock_verbs_server_params *rails, size_t n_rails)
{
    size_t size = 1;
    for (size_t i = 0; i < n_rails; i++)
        size += penstock_verbs_server_params_size(rails[i].n_layers);
    return size;
}

size_t penstock_server_rails_encode(const struct penstock_verbs_server_params *rails, size_t n_rails, uint8_t *out,
                                    struct penstock_wire_fault *fault)
{
    if (n_rails == 0 || n_rails > PENSTOCK_RAILS_MAX)
        return wire_refuse_encode(fault, "server rail count", n_rails, implausible);

    size_t at = 1;
    wire_put_u8(out, (uint8_t)n_rails);
    for (size_t i = 0; i < n_rails; i++) {
        penstock_verbs_server_params_encode(&rails[i], out + at);
        at += penstock_verbs_server_params_size(rails[i].n_layers);
    }
    return at;
}

enum penstock_decode penstock_server_rail_count_decode(const uint8_t *buf, size_t len, size_t want, size_t *consumed,
                                                       struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    uint8_t n = wire_cursor_u8(&c, "read server rail count");
    if (c.missing)
        return wire_more(fault, c.missing, 1);
    if (n == 0 || n > PENSTOCK_RAILS_MAX)
        return wire_refuse(fault, "server rail count", n, want, implausible);
    if (n != want)
        return wire_refuse(fault, "server rail count", n, want,
                           "server framed {value} rails but client negotiated {want}");
    *consumed = 1;
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_server_rails_decode(const uint8_t *buf, size_t len, size_t want,
                                                  struct penstock_layer *layers, size_t room,
                                                  struct penstock_verbs_server_params *rails, size_t *consumed,
                                                  struct penstock_wire_fault *fault)
{
    size_t at = 0;
    enum penstock_decode d = penstock_server_rail_count_decode(buf, len, want, &at, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;

    for (size_t i = 0; i < want; i++) {
        size_t rail = 0;
        d = penstock_verbs_server_params_decode(buf + at, len - at, layers, room, &rails[i], &rail, fault);
        if (d != PENSTOCK_DECODE_OK)
            return wire_within(fault, at, d);
        layers += rails[i].n_layers;
        room -= rails[i].n_layers;
        at += rail;
    }
    *consumed = at;
    return PENSTOCK_DECODE_OK;
}
