#include "cursor.h"
#include "fault.h"
#include "qp_identity.h"

void penstock_cache_server_params_encode(const struct penstock_cache_server_params *params, uint8_t *out)
{
    out = wire_put_qp_identity(out, &params->qp);
    out = wire_put_u64(out, params->base_addr);
    wire_put_u32(out, params->rkey);
}

enum penstock_decode penstock_cache_server_params_decode(const uint8_t *buf, size_t len,
                                                         struct penstock_cache_server_params *out, size_t *consumed,
                                                         struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_cache_server_params p = { .qp = wire_qp_identity(&c, "kv qpn", "kv psn", "kv gid") };
    p.base_addr = wire_cursor_u64(&c, "kv base");
    p.rkey = wire_cursor_u32(&c, "kv rkey");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_CACHE_SERVER_PARAMS_BYTES);

    *out = p;
    *consumed = PENSTOCK_CACHE_SERVER_PARAMS_BYTES;
    return PENSTOCK_DECODE_OK;
}
