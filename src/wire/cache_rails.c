#include "cursor.h"
#include "fault.h"

size_t penstock_cache_rails_size(size_t n_rails)
{
    return 1 + n_rails * PENSTOCK_CACHE_SERVER_PARAMS_BYTES;
}

size_t penstock_cache_rails_encode(const struct penstock_cache_server_params *rails, size_t n_rails, uint8_t *out,
                                   struct penstock_wire_fault *fault)
{
    if (n_rails > UINT8_MAX)
        return wire_refuse_encode(fault, "cache rail count", n_rails, "implausible cache rail count: {value}");

    wire_put_u8(out, (uint8_t)n_rails);
    for (size_t i = 0; i < n_rails; i++)
        penstock_cache_server_params_encode(&rails[i], out + penstock_cache_rails_size(i));
    return penstock_cache_rails_size(n_rails);
}

enum penstock_decode penstock_cache_rails_decode(const uint8_t *buf, size_t len, size_t want,
                                                 struct penstock_cache_server_params *rails, size_t *consumed,
                                                 struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    uint8_t n = wire_cursor_u8(&c, "cache rail count");
    if (c.missing)
        return wire_more(fault, c.missing, 1);
    if (n != want)
        return wire_refuse(fault, "cache rail count", n, want, "granted {value} rails, wanted {want}");

    const size_t all = penstock_cache_rails_size(n);
    for (size_t i = 0, at = 1; i < n; i++) {
        size_t rail = 0;
        enum penstock_decode d = penstock_cache_server_params_decode(buf + at, len - at, &rails[i], &rail, fault);
        if (d != PENSTOCK_DECODE_OK) /* records of one size: it is known where the last one ends */
            return wire_more(fault, fault->field, all);
        at += rail;
    }
    *consumed = all;
    return PENSTOCK_DECODE_OK;
}
