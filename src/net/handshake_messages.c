#include "handshake_state.h"

#define LAYERS_AT_ONCE ((uint32_t)(IN_BYTES / PENSTOCK_LAYER_BYTES))

/* ---- reading ---- */

static enum penstock_decode decode_request(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    size_t consumed;
    return penstock_rails_request_decode(h->in, h->in_len, h->config.dialect, &h->request, &consumed, fault);
}

static enum penstock_decode decode_answer(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    size_t consumed;
    return penstock_rails_answer_decode(h->in, h->in_len, &h->request, h->agreed, &consumed, fault);
}

static enum penstock_decode decode_table_head(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_server_params params;
    size_t consumed;
    enum penstock_decode d = penstock_verbs_server_head_decode(h->in, h->in_len, &params, &consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    if (params.n_layers != h->config.n_regions) {
        *fault = (struct penstock_wire_fault){ .field = "layer count",
                                               .reason = "published {value} regions where the manifest has {want}",
                                               .value = params.n_layers,
                                               .want = h->config.n_regions };
        return PENSTOCK_DECODE_MALFORMED;
    }
    h->theirs[h->rail] = (struct net_rail){ .qp = params.qp,
                                            .n_regions = params.n_layers,
                                            .regions = h->layers + h->rail * h->config.n_regions };
    h->in_table = true;
    h->layer = 0;
    return d;
}

static enum penstock_decode decode_table_part(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    uint32_t left = h->theirs[h->rail].n_regions - h->layer;
    uint32_t n = left < LAYERS_AT_ONCE ? left : LAYERS_AT_ONCE;
    struct penstock_layer *to = h->layers + h->rail * h->config.n_regions + h->layer;
    size_t consumed;
    enum penstock_decode d = penstock_layers_decode(h->in, h->in_len, n, to, &consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    h->layer += n;
    if (n == left) {
        h->in_table = false;
        h->rail++;
    }
    return d;
}

static enum penstock_decode decode_server_rails(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    size_t consumed;
    while (h->rail < h->n) {
        enum penstock_decode d;
        if (!h->counted)
            d = penstock_server_rail_count_decode(h->in, h->in_len, h->n, &consumed, fault);
        else
            d = h->in_table ? decode_table_part(h, fault) : decode_table_head(h, fault);
        if (d != PENSTOCK_DECODE_OK)
            return d;
        h->counted = true;
        h->in_len = 0;
    }
    return PENSTOCK_DECODE_OK;
}

static enum penstock_decode decode_cache_rails(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    struct penstock_cache_server_params rails[NET_RAILS_MAX];
    size_t consumed;
    enum penstock_decode d = penstock_cache_rails_decode(h->in, h->in_len, h->n, rails, &consumed, fault);
    for (size_t i = 0; d == PENSTOCK_DECODE_OK && i < h->n; i++) {
        h->layers[i] = (struct penstock_layer){ .base = rails[i].base_addr, .rkey = rails[i].rkey };
        h->theirs[i] = (struct net_rail){ .qp = rails[i].qp, .n_regions = 1, .regions = &h->layers[i] };
    }
    return d;
}

static enum penstock_decode decode_client_rails(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_client_params rails[NET_RAILS_MAX];
    size_t consumed;
    enum penstock_decode d = penstock_client_rails_decode(h->in, h->in_len, h->n, rails, &consumed, fault);
    for (size_t i = 0; d == PENSTOCK_DECODE_OK && i < h->n; i++)
        h->theirs[i] = (struct net_rail){ .qp = rails[i].qp };
    return d;
}

enum penstock_decode net_handshake_decode(struct net_handshake *h, struct penstock_wire_fault *fault)
{
    size_t consumed;
    switch (h->step) {
    case STEP_REQUEST:
        return decode_request(h, fault);
    case STEP_ANSWER:
        return decode_answer(h, fault);
    case STEP_TABLES:
        return h->config.dialect == PENSTOCK_READ_ONLY ? decode_server_rails(h, fault) : decode_cache_rails(h, fault);
    case STEP_IDENTITIES:
        return decode_client_rails(h, fault);
    default:
        return penstock_ack_decode(h->in, h->in_len, &consumed, fault);
    }
}

/* ---- writing ---- */

size_t net_handshake_identities_encode(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_client_params rails[NET_RAILS_MAX];
    for (size_t i = 0; i < h->n; i++)
        rails[i].qp = h->mine[i].qp;
    return penstock_client_rails_encode(rails, h->n, out, fault);
}

static size_t encode_server_rails(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_server_params rails[PENSTOCK_RAILS_MAX];
    for (size_t i = 0; i < h->n; i++)
        rails[i] =
            (struct penstock_verbs_server_params){ .qp = h->mine[i].qp,
                                                   .n_layers = h->mine[i].n_regions,
                                                   .layers = (struct penstock_layer *)(uintptr_t)h->mine[i].regions };
    return penstock_server_rails_encode(rails, h->n, out, fault);
}

static size_t encode_cache_rails(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault)
{
    struct penstock_cache_server_params rails[NET_RAILS_MAX];
    for (size_t i = 0; i < h->n; i++)
        rails[i] = (struct penstock_cache_server_params){ .qp = h->mine[i].qp,
                                                          .base_addr = h->mine[i].regions->base,
                                                          .rkey = h->mine[i].regions->rkey };
    return penstock_cache_rails_encode(rails, h->n, out, fault);
}

static size_t answer_size(const struct net_handshake *h)
{
    return h->request.choosing ? h->n * PENSTOCK_RAIL_CHOICE_BYTES : 0;
}

size_t net_handshake_tables_size(const struct net_handshake *h)
{
    size_t tables = h->config.dialect == PENSTOCK_READ_ONLY
                        ? 1 + h->n * penstock_verbs_server_params_size((uint32_t)h->config.n_regions)
                        : penstock_cache_rails_size(h->n);
    return answer_size(h) + tables;
}

size_t net_handshake_tables_encode(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault)
{
    if (h->request.choosing)
        penstock_rails_answer_encode(h->agreed, h->n, out);
    out += answer_size(h);
    return h->config.dialect == PENSTOCK_READ_ONLY ? encode_server_rails(h, out, fault)
                                                   : encode_cache_rails(h, out, fault);
}
