#include "cursor.h"
#include "fault.h"
#include "qp_identity.h"

size_t penstock_verbs_server_params_size(uint32_t n_layers)
{
    return PENSTOCK_VERBS_SERVER_HEAD_BYTES + n_layers * PENSTOCK_LAYER_BYTES;
}

void penstock_verbs_server_params_encode(const struct penstock_verbs_server_params *params, uint8_t *out)
{
    out = wire_put_qp_identity(out, &params->qp);
    out = wire_put_u32(out, params->n_layers);
    for (uint32_t i = 0; i < params->n_layers; i++) {
        out = wire_put_u64(out, params->layers[i].base);
        out = wire_put_u32(out, params->layers[i].rkey);
    }
}

enum penstock_decode penstock_verbs_server_head_decode(const uint8_t *buf, size_t len,
                                                       struct penstock_verbs_server_params *out, size_t *consumed,
                                                       struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_verbs_server_params p = { .qp = wire_qp_identity(&c, "read u32", "read u32", "read server gid") };

    p.n_layers = wire_cursor_u32(&c, "read u32");
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_VERBS_SERVER_HEAD_BYTES);
    if (p.n_layers == 0 || p.n_layers > PENSTOCK_LAYERS_MAX)
        return wire_refuse(fault, "layer count", p.n_layers, 0, "implausible verbs layer count: {value}");

    *out = p;
    *consumed = PENSTOCK_VERBS_SERVER_HEAD_BYTES;
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_layers_decode(const uint8_t *buf, size_t len, uint32_t n, struct penstock_layer *layers,
                                            size_t *consumed, struct penstock_wire_fault *fault)
{
    const size_t all = n * PENSTOCK_LAYER_BYTES;
    if (len < all)
        return wire_more(fault, len % PENSTOCK_LAYER_BYTES < 8 ? "read mr base" : "read u32", all);

    struct wire_cursor c = { .at = buf, .left = all };
    for (uint32_t i = 0; i < n; i++) {
        layers[i].base = wire_cursor_u64(&c, "read mr base");
        layers[i].rkey = wire_cursor_u32(&c, "read u32");
    }
    *consumed = all;
    return PENSTOCK_DECODE_OK;
}

enum penstock_decode penstock_verbs_server_params_decode(const uint8_t *buf, size_t len, struct penstock_layer *layers,
                                                         size_t room, struct penstock_verbs_server_params *out,
                                                         size_t *consumed, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_server_params p;
    size_t head = 0, table = 0;

    enum penstock_decode d = penstock_verbs_server_head_decode(buf, len, &p, &head, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    if (p.n_layers > room)
        return wire_refuse(fault, "layer count", p.n_layers, room, "{value} verbs layers where {want} at most belong");

    d = penstock_layers_decode(buf + head, len - head, p.n_layers, layers, &table, fault);
    if (d != PENSTOCK_DECODE_OK)
        return wire_within(fault, head, d);

    p.layers = layers;
    *out = p;
    *consumed = head + table;
    return PENSTOCK_DECODE_OK;
}
