#include "cursor.h"
#include "fault.h"

#define PREFIX "penstock:"
#define MODELS "penstock:models"
#define JOIN "penstock:join "

static bool begins_with(const char *text, size_t len, const char *start)
{
    size_t n = strlen(start);
    return len >= n && memcmp(text, start, n) == 0;
}

bool penstock_model_version_valid(const char *version, size_t len_bytes)
{
    if (len_bytes == 0 || len_bytes > PENSTOCK_MODEL_VERSION_MAX)
        return false;
    for (size_t i = 0; i < len_bytes; i++)
        if (version[i] < 0x21 || version[i] > 0x7E || version[i] == '"' || version[i] == '\\')
            return false;
    return true;
}

static enum penstock_ask unknown(struct penstock_wire_fault *fault, const char *field, uint64_t value,
                                 const char *reason)
{
    wire_refuse_encode(fault, field, value, reason);
    return PENSTOCK_ASK_UNKNOWN;
}

static enum penstock_ask parse_join(const char *rest, size_t len, struct penstock_model_ask *out,
                                    struct penstock_wire_fault *fault)
{
    size_t version_bytes = 0;
    while (version_bytes < len && rest[version_bytes] != ' ')
        version_bytes++;
    if (!penstock_model_version_valid(rest, version_bytes))
        return unknown(fault, "join version", version_bytes, "join request without a model version");
    if (version_bytes + 1 >= len)
        return unknown(fault, "join model", 0, "join request without a model");
    *out = (struct penstock_model_ask){ .model = rest + version_bytes + 1,
                                        .model_bytes = len - version_bytes - 1,
                                        .version = rest,
                                        .version_bytes = version_bytes };
    return PENSTOCK_ASK_JOIN;
}

enum penstock_ask penstock_model_ask_parse(const struct penstock_model_request *request, struct penstock_model_ask *out,
                                           struct penstock_wire_fault *fault)
{
    const char *text = request->text;
    const size_t len = request->len_bytes;

    if (!begins_with(text, len, PREFIX)) {
        *out = (struct penstock_model_ask){ .model = text, .model_bytes = len };
        return PENSTOCK_ASK_MODEL;
    }
    if (begins_with(text, len, JOIN))
        return parse_join(text + strlen(JOIN), len - strlen(JOIN), out, fault);
    if (len == strlen(MODELS) && begins_with(text, len, MODELS)) {
        *out = (struct penstock_model_ask){ 0 };
        return PENSTOCK_ASK_MODELS;
    }
    return unknown(fault, "model request", len, "unknown request: penstock:models and penstock:join are known");
}

static char *put(char *out, const char *bytes, size_t n)
{
    memcpy(out, bytes, n);
    return out + n;
}

static size_t format_join(const struct penstock_model_ask *ask, char *out, struct penstock_wire_fault *fault)
{
    if (!penstock_model_version_valid(ask->version, ask->version_bytes))
        return wire_refuse_encode(fault, "join version", ask->version_bytes, "join request without a model version");
    const size_t before = strlen(JOIN) + ask->version_bytes + 1;
    if (ask->model_bytes == 0 || ask->model_bytes > PENSTOCK_MODEL_REQUEST_MAX - before)
        return wire_refuse_encode(fault, "join model", ask->model_bytes, "implausible model name length: {value}");

    out = put(out, JOIN, strlen(JOIN));
    out = put(out, ask->version, ask->version_bytes);
    out = put(out, " ", 1);
    put(out, ask->model, ask->model_bytes);
    return before + ask->model_bytes;
}

size_t penstock_model_ask_format(enum penstock_ask kind, const struct penstock_model_ask *ask, char *out,
                                 struct penstock_wire_fault *fault)
{
    switch (kind) {
    case PENSTOCK_ASK_MODEL:
        if (ask->model_bytes == 0 || ask->model_bytes > PENSTOCK_MODEL_REQUEST_MAX)
            return wire_refuse_encode(fault, "model", ask->model_bytes, "implausible model name length: {value}");
        if (begins_with(ask->model, ask->model_bytes, PREFIX))
            return wire_refuse_encode(fault, "model", 0, "no model name begins with " PREFIX);
        put(out, ask->model, ask->model_bytes);
        return ask->model_bytes;
    case PENSTOCK_ASK_MODELS:
        put(out, MODELS, strlen(MODELS));
        return strlen(MODELS);
    case PENSTOCK_ASK_JOIN:
        return format_join(ask, out, fault);
    case PENSTOCK_ASK_UNKNOWN:
        break;
    }
    return wire_refuse_encode(fault, "model request", kind, "no such request: {value}");
}
