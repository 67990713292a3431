#include "wire_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- out ---- */

static void print_qp(struct json_writer *w, const struct penstock_qp_identity *qp)
{
    char gid[2 * sizeof qp->gid];
    for (size_t i = 0; i < sizeof qp->gid; i++) {
        gid[2 * i] = "0123456789abcdef"[qp->gid[i] >> 4];
        gid[2 * i + 1] = "0123456789abcdef"[qp->gid[i] & 15];
    }
    json_write_key_u64(w, "qpn", qp->qpn);
    json_write_key_u64(w, "psn", qp->psn);
    json_write_key(w, "gid");
    json_write_string(w, gid, sizeof gid);
}

static void print_server(struct json_writer *w, const struct penstock_verbs_server_params *params)
{
    json_write_object(w);
    print_qp(w, &params->qp);
    json_write_key(w, "layers");
    json_write_array(w);
    for (uint32_t i = 0; i < params->n_layers; i++) {
        json_write_object(w);
        json_write_key_u64(w, "base", params->layers[i].base);
        json_write_key_u64(w, "rkey", params->layers[i].rkey);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

/* Room for the tables of every rail that the protocol allows. */
static struct penstock_layer layers[PENSTOCK_RAILS_MAX * PENSTOCK_LAYERS_MAX];

static enum penstock_decode server_params_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                                size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_verbs_server_params params;
    enum penstock_decode d =
        penstock_verbs_server_params_decode(buf, len, layers, PENSTOCK_LAYERS_MAX, &params, consumed, fault);
    if (d == PENSTOCK_DECODE_OK)
        print_server(w, &params);
    return d;
}

static enum penstock_decode client_params_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                                size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_verbs_client_params params;
    enum penstock_decode d = penstock_verbs_client_params_decode(buf, len, &params, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_object(w);
    print_qp(w, &params.qp);
    json_write_object_end(w);
    return d;
}

static enum penstock_decode cache_params_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                               size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_cache_server_params params;
    enum penstock_decode d = penstock_cache_server_params_decode(buf, len, &params, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_object(w);
    print_qp(w, &params.qp);
    json_write_key_u64(w, "base", params.base_addr);
    json_write_key_u64(w, "rkey", params.rkey);
    json_write_object_end(w);
    return d;
}

static enum penstock_decode server_rails_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                               size_t *consumed, struct penstock_wire_fault *fault)
{
    struct penstock_verbs_server_params params[PENSTOCK_RAILS_MAX];
    enum penstock_decode d = penstock_server_rails_decode(
        buf, len, rails, layers, PENSTOCK_RAILS_MAX * (size_t)PENSTOCK_LAYERS_MAX, params, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_array(w);
    for (size_t i = 0; i < rails; i++)
        print_server(w, &params[i]);
    json_write_array_end(w);
    return d;
}

static enum penstock_decode model_request_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                                size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_model_request request;
    enum penstock_decode d = penstock_model_request_decode(buf, len, &request, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_object(w);
    json_write_key(w, "model");
    json_write_string(w, request.text, request.len_bytes);
    json_write_object_end(w);
    return d;
}

static enum penstock_decode expert_request_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                                 size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_expert_request request;
    enum penstock_decode d = penstock_expert_request_decode(buf, len, &request, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_object(w);
    json_write_key_u64(w, "layer", request.layer);
    json_write_key_u64(w, "expert", request.expert);
    json_write_object_end(w);
    return d;
}

static enum penstock_decode paging_header_print(const uint8_t *buf, size_t len, size_t rails, struct json_writer *w,
                                                size_t *consumed, struct penstock_wire_fault *fault)
{
    (void)rails;
    struct penstock_paging_header header;
    enum penstock_decode d = penstock_paging_header_decode(buf, len, &header, consumed, fault);
    if (d != PENSTOCK_DECODE_OK)
        return d;
    json_write_object(w);
    json_write_key_u64(w, "kind", header.kind);
    json_write_key_u64(w, "arena_bytes", header.arena_bytes);
    json_write_key_u64(w, "blob_bytes", header.blob_bytes);
    json_write_object_end(w);
    return d;
}

/* ---- in ---- */

/* An object with just these n keys. */
static int check_keys(const struct json_value *value, const char *const *keys, size_t n, struct penstock_error *error)
{
    if (value->type != JSON_OBJECT)
        return base_error_set(error, PENSTOCK_EPROTO, "%s where an object belongs", json_type_name(value->type));
    for (size_t i = 0; i < value->object.n; i++) {
        size_t k = 0;
        while (k < n && strcmp(value->object.at[i].key.at, keys[k]) != 0)
            k++;
        if (k == n)
            return base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": not one of this record's",
                                  value->object.at[i].key.at);
    }
    return json_unique_keys(value, error);
}

#define CHECK_KEYS(value, error, ...)                                                                                  \
    check_keys(value, (const char *const[]){ __VA_ARGS__ },                                                            \
               sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *), error)

static int get_u32(const struct json_value *value, const char *key, uint32_t *out, struct penstock_error *error)
{
    uint64_t wide = 0;
    int code = json_get_u64(value, key, UINT32_MAX, &wide, error);
    *out = (uint32_t)wide;
    return code;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static int get_qp(const struct json_value *value, struct penstock_qp_identity *qp, struct penstock_error *error)
{
    const char *gid;
    int code = get_u32(value, "qpn", &qp->qpn, error);
    if (code == 0)
        code = get_u32(value, "psn", &qp->psn, error);
    if (code == 0)
        code = json_get_string(value, "gid", &gid, error);
    if (code != 0)
        return code;

    bool good = strlen(gid) == 2 * sizeof qp->gid;
    for (size_t i = 0; good && i < sizeof qp->gid; i++) {
        int high = hex_digit(gid[2 * i]), low = hex_digit(gid[2 * i + 1]);
        good = high >= 0 && low >= 0;
        qp->gid[i] = good ? (uint8_t)(high << 4 | low) : 0;
    }
    return good ? 0 : base_error_set(error, PENSTOCK_EPROTO, "field \"gid\": not 32 hex digits");
}

/* Room for n bytes, counted. */
static int take_room(struct base_buf *out, size_t n, uint8_t **at, struct penstock_error *error)
{
    *at = base_buf_room(out, n);
    if (!*at)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the record");
    out->n += n;
    return 0;
}

static int refused(struct penstock_error *error, const struct penstock_wire_fault *fault)
{
    char message[200];
    penstock_wire_fault_format(fault, message, sizeof message);
    return base_error_set(error, PENSTOCK_EINVAL, "%s", message);
}

/* params->layers is the caller's to free, also on failure. */
static int get_server(const struct json_value *value, struct penstock_verbs_server_params *params,
                      struct penstock_error *error)
{
    const struct json_value *table;
    int code = CHECK_KEYS(value, error, "qpn", "psn", "gid", "layers");
    if (code == 0)
        code = get_qp(value, &params->qp, error);
    if (code == 0)
        code = json_get_array(value, "layers", &table, error);
    if (code != 0 || table->array.n == 0)
        return code;

    /* The text held them all: no more than what a text can be long. */
    params->n_layers = (uint32_t)table->array.n;
    params->layers = calloc(table->array.n, sizeof *params->layers);
    if (!params->layers)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu layers", table->array.n);
    for (size_t i = 0; i < table->array.n; i++) {
        const struct json_value *layer = &table->array.at[i];
        code = CHECK_KEYS(layer, error, "base", "rkey");
        if (code == 0)
            code = json_get_u64(layer, "base", UINT64_MAX, &params->layers[i].base, error);
        if (code == 0)
            code = get_u32(layer, "rkey", &params->layers[i].rkey, error);
        if (code != 0)
            return base_error_in(error, "layer %zu", i);
    }
    return 0;
}

static int server_params_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    struct penstock_verbs_server_params params = { 0 };
    uint8_t *at;
    int code = get_server(value, &params, error);
    if (code == 0)
        code = take_room(out, penstock_verbs_server_params_size(params.n_layers), &at, error);
    if (code == 0)
        penstock_verbs_server_params_encode(&params, at);
    free(params.layers);
    return code;
}

static int client_params_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    struct penstock_verbs_client_params params;
    uint8_t *at;
    int code = CHECK_KEYS(value, error, "qpn", "psn", "gid");
    if (code == 0)
        code = get_qp(value, &params.qp, error);
    if (code == 0)
        code = take_room(out, PENSTOCK_VERBS_CLIENT_PARAMS_BYTES, &at, error);
    if (code == 0)
        penstock_verbs_client_params_encode(&params, at);
    return code;
}

static int cache_params_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    struct penstock_cache_server_params params;
    uint8_t *at;
    int code = CHECK_KEYS(value, error, "qpn", "psn", "gid", "base", "rkey");
    if (code == 0)
        code = get_qp(value, &params.qp, error);
    if (code == 0)
        code = json_get_u64(value, "base", UINT64_MAX, &params.base_addr, error);
    if (code == 0)
        code = get_u32(value, "rkey", &params.rkey, error);
    if (code == 0)
        code = take_room(out, PENSTOCK_CACHE_SERVER_PARAMS_BYTES, &at, error);
    if (code == 0)
        penstock_cache_server_params_encode(&params, at);
    return code;
}

static int get_rails(const struct json_value *value, struct penstock_verbs_server_params *rails,
                     struct penstock_error *error)
{
    for (size_t i = 0; i < value->array.n; i++)
        if (get_server(&value->array.at[i], &rails[i], error) != 0)
            return base_error_in(error, "rail %zu", i);
    return 0;
}

static int server_rails_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    if (value->type != JSON_ARRAY)
        return base_error_set(error, PENSTOCK_EPROTO, "%s where an array belongs", json_type_name(value->type));

    struct penstock_verbs_server_params rails[PENSTOCK_RAILS_MAX] = { 0 };
    struct penstock_wire_fault fault;
    const size_t n = value->array.n;
    uint8_t *at;
    if (n > PENSTOCK_RAILS_MAX || n == 0) /* the codec has the words; it looks at no rail and writes nothing */
        return penstock_server_rails_encode(rails, n, NULL, &fault) == 0 ? refused(error, &fault) : PENSTOCK_EINVAL;

    int code = get_rails(value, rails, error);
    if (code == 0)
        code = take_room(out, penstock_server_rails_size(rails, n), &at, error);
    if (code == 0 && penstock_server_rails_encode(rails, n, at, &fault) == 0)
        code = refused(error, &fault);
    for (size_t i = 0; i < n; i++)
        free(rails[i].layers);
    return code;
}

static int model_request_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    uint8_t bytes[PENSTOCK_MODEL_REQUEST_BYTES_MAX];
    struct penstock_wire_fault fault;
    int code = CHECK_KEYS(value, error, "model");
    if (code != 0)
        return code;
    const struct json_value *model = json_find(value, "model");
    if (!model || model->type != JSON_STRING)
        return base_error_set(error, PENSTOCK_EPROTO, "field \"model\": not a string");

    const struct penstock_model_request request = { .text = model->string.at, .len_bytes = model->string.len };
    size_t n = penstock_model_request_encode(&request, bytes, &fault);
    if (n == 0)
        return refused(error, &fault);
    base_buf_append(out, bytes, n);
    return 0;
}

static int expert_request_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    struct penstock_expert_request request;
    uint8_t *at;
    int code = CHECK_KEYS(value, error, "layer", "expert");
    if (code == 0)
        code = get_u32(value, "layer", &request.layer, error);
    if (code == 0)
        code = get_u32(value, "expert", &request.expert, error);
    if (code == 0)
        code = take_room(out, PENSTOCK_EXPERT_REQUEST_BYTES, &at, error);
    if (code == 0)
        penstock_expert_request_encode(&request, at);
    return code;
}

static int paging_header_parse(const struct json_value *value, struct base_buf *out, struct penstock_error *error)
{
    struct penstock_paging_header header = { 0 };
    struct penstock_wire_fault fault;
    uint64_t kind = 0;
    size_t consumed;
    uint8_t *at;
    int code = CHECK_KEYS(value, error, "kind", "arena_bytes", "blob_bytes");
    if (code == 0)
        code = json_get_u64(value, "kind", UINT8_MAX, &kind, error);
    if (code == 0)
        code = json_get_u64(value, "arena_bytes", UINT64_MAX, &header.arena_bytes, error);
    if (code == 0)
        code = json_get_u64(value, "blob_bytes", UINT64_MAX, &header.blob_bytes, error);
    if (code == 0)
        code = take_room(out, PENSTOCK_PAGING_HEADER_BYTES, &at, error);
    if (code != 0)
        return code;

    header.kind = (uint8_t)kind;
    penstock_paging_header_encode(&header, at);
    /* The encoder trusts its caller; here the caller is a stranger. */
    if (penstock_paging_header_decode(at, PENSTOCK_PAGING_HEADER_BYTES, &header, &consumed, &fault) !=
        PENSTOCK_DECODE_OK)
        return refused(error, &fault);
    return 0;
}

static const struct wire_json_record records[] = {
    { "verbs-server-params", false, server_params_print, server_params_parse },
    { "verbs-client-params", false, client_params_print, client_params_parse },
    { "cache-server-params", false, cache_params_print, cache_params_parse },
    { "server-rails", true, server_rails_print, server_rails_parse },
    { "model-request", false, model_request_print, model_request_parse },
    { "expert-request", false, expert_request_print, expert_request_parse },
    { "paging-header", false, paging_header_print, paging_header_parse },
};

const struct wire_json_record *wire_json_at(size_t index)
{
    return index < sizeof records / sizeof *records ? &records[index] : NULL;
}

const struct wire_json_record *wire_json_find(const char *name)
{
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        if (strcmp(records[i].name, name) == 0)
            return &records[i];
    return NULL;
}
