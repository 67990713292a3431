#include "cursor.h"
#include "fault.h"

size_t penstock_client_rails_size(size_t n_rails)
{
    return 1 + n_rails * PENSTOCK_VERBS_CLIENT_PARAMS_BYTES;
}

size_t penstock_client_rails_encode(const struct penstock_verbs_client_params *rails, size_t n_rails, uint8_t *out,
                                    struct penstock_wire_fault *fault)
{
    if (n_rails == 0 || n_rails > UINT8_MAX)
        return wire_refuse_encode(fault, "client rail count", n_rails, "implausible client rail count: {value}");

    wire_put_u8(out, (uint8_t)n_rails);
    for (size_t i = 0; i < n_rails; i++)
        penstock_verbs_client_params_encode(&rails[i], out + penstock_client_rails_size(i));
    return penstock_client_rails_size(n_rails);
}

enum penstock_decode penstock_client_rails_decode(const uint8_t *buf, size_t len, size_t want,
                                                  struct penstock_verbs_client_params *rails, size_t *consumed,
                                                  struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    uint8_t n = wire_cursor_u8(&c, "client rail count");
    if (c.missing)
        return wire_more(fault, c.missing, 1);
    if (n == 0)
        return wire_refuse(fault, "client rail count", n, want, "implausible client rail count: {value}");
    if (n != want)
        return wire_refuse(fault, "client rail count", n, want, "client framed {value} rails but negotiated {want}");

    const size_t all = penstock_client_rails_size(n);
    for (size_t i = 0, at = 1; i < n; i++) {
        size_t rail = 0;
        enum penstock_decode d = penstock_verbs_client_params_decode(buf + at, len - at, &rails[i], &rail, fault);
        if (d != PENSTOCK_DECODE_OK) /* records of one size: it is known where the last one ends */
            return wire_more(fault, fault->field, all);
        at += rail;
    }
    *consumed = all;
    return PENSTOCK_DECODE_OK;
}
