/* The weight tier before its first read: what is asked, and what comes of the answer. Protocol 1.5 steps 1 to 3, 2.5.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/error.h"
#include "catalogue.h"
#include "client/session.h"
#include "models.h"
#include "weights.h"

/* ---- ask ---- */

int client_weights_greet(struct penstock_session *s, struct penstock_error *error)
{
    char text[PENSTOCK_MODEL_REQUEST_MAX];
    struct penstock_wire_fault fault;
    struct penstock_model_ask ask = { 0 };
    enum penstock_ask kind = PENSTOCK_ASK_MODELS;

    if (s->purpose == CLIENT_FOR_MANIFEST || s->purpose == CLIENT_FOR_JOIN) {
        kind = PENSTOCK_ASK_MODEL;
        ask.model = s->model;
        ask.model_bytes = strlen(s->model);
    }
    if (s->purpose == CLIENT_FOR_JOIN) {
        kind = PENSTOCK_ASK_JOIN;
        ask.version = penstock_catalogue_version(s->catalogue);
        ask.version_bytes = strlen(ask.version);
    }
    struct penstock_model_request request = { .text = text };
    request.len_bytes = penstock_model_ask_format(kind, &ask, text, &fault);
    size_t n = request.len_bytes ? penstock_model_request_encode(&request, s->out, &fault) : 0;
    if (n == 0) {
        char words[200];
        penstock_wire_fault_format(&fault, words, sizeof words);
        return base_error_set(error, PENSTOCK_EINVAL, "%s", words);
    }
    s->out_end = n;
    return 0;
}

enum penstock_text client_weights_text(const struct penstock_session *s)
{
    return s->purpose == CLIENT_FOR_MANIFEST ? PENSTOCK_TEXT_WEIGHT_MANIFEST : PENSTOCK_TEXT_MODELS_REPLY;
}

const char *client_weights_awaits(const struct penstock_session *s)
{
    switch (s->purpose) {
    case CLIENT_FOR_MANIFEST:
        return "manifest";
    case CLIENT_FOR_JOIN:
        return "answer to the join";
    case CLIENT_FOR_MODELS:
    case CLIENT_FOR_WORDS:
        break;
    }
    return "list of models";
}

/* ---- the answer ---- */

/* A peer that gives no version may have another model by now: whoever comes again compares the whole manifest. */
static int take_manifest(struct penstock_session *s, struct penstock_error *error)
{
    XXH128_hash_t hash = XXH3_128bits(s->body, s->body_len);
    if (s->catalogue)
        return hash.low64 == s->manifest_hash[0] && hash.high64 == s->manifest_hash[1]
                   ? 0
                   : base_error_set(error, PENSTOCK_ESTALE, "has another manifest of model '%.100s' by now", s->model);
    s->manifest_hash[0] = hash.low64;
    s->manifest_hash[1] = hash.high64;
    int code = client_catalogue_read((const char *)s->body, s->body_len, s->body_cap, &s->catalogue, error);
    /* An expert peer's comes unasked, and would only lack a model's fields. */
    static const char experts_only[] = "\"moe_layer_to_model_layer\"";
    if (code && memmem(s->body, s->body_len, experts_only, sizeof experts_only - 1))
        base_error_in(error, "does it serve weights on this port? It sent an expert store's manifest");
    return code;
}

/* What the list says about a model that was refused; always an error. */
static int find_words(struct penstock_session *s, struct penstock_error *error)
{
    struct penstock_models *models;
    *error = s->error;
    if (client_models_read((const char *)s->body, s->body_len, &models, NULL) != 0)
        return error->code;
    const struct penstock_model *m = client_models_find(models, s->model);
    char list[300];
    client_models_list(models, list, sizeof list);
    if (s->join_refused) {
        const char *version = penstock_catalogue_version(s->catalogue);
        if (!m)
            error->code = PENSTOCK_ENOTFOUND;
        else if (!m->version || strcmp(m->version, version) != 0)
            error->code = PENSTOCK_ESTALE;
    } else if (m) {
        base_error_set(error, PENSTOCK_EDENIED,
                       "closed instead of sending model '%.100s', which it has; its log says why", s->model);
    } else if (list[0]) {
        base_error_set(error, PENSTOCK_ENOTFOUND, "has no model '%.100s'; it has: %s", s->model, list);
    } else {
        base_error_set(error, PENSTOCK_ENOTFOUND, "has no model '%.100s', and no other", s->model);
    }
    penstock_models_free(models);
    return error->code;
}

int client_weights_take(struct penstock_session *s, struct penstock_error *error)
{
    const char *json = (const char *)s->body;
    int code = PENSTOCK_EPROTO;
    switch (s->purpose) {
    case CLIENT_FOR_MANIFEST:
        code = take_manifest(s, error);
        code = code ? code : client_hello_begin(s, error);
        break;
    case CLIENT_FOR_JOIN:
        code = client_join_read(json, s->body_len, penstock_catalogue_version(s->catalogue), error);
        s->join_refused = code == PENSTOCK_EDENIED;
        if (code)
            base_error_in(error, "join '%.100s'", s->model);
        else
            code = client_hello_begin(s, error);
        break;
    case CLIENT_FOR_MODELS:
        code = client_models_read(json, s->body_len, &s->models, error);
        if (code == 0) {
            client_op_end(s, client_op_find(s, s->open_id), 0, NULL);
            code = base_error_set(error, PENSTOCK_ECLOSED, "the list of models is complete");
        }
        break;
    case CLIENT_FOR_WORDS:
        code = find_words(s, error);
        break;
    }
    return code;
}

/* ---- no answer ---- */

/* What there is to say where the peer said no more. */
static int without_words(const struct penstock_session *s, struct penstock_error *error)
{
    if (error->code == PENSTOCK_EUNREACHABLE && !s->join_refused)
        return base_error_set(error, PENSTOCK_ECLOSED,
                              "closed instead of sending model '%.100s', and nothing listens there any more: was it "
                              "stopped?",
                              s->model);
    *error = s->error;
    return error->code;
}

/* One more connection, to ask for what the peer has. The words so far are in s->error. */
static int ask_for_words(struct penstock_session *s, struct penstock_error *error)
{
    if (s->addresses.n == 0 || s->verbs_lent)
        return error->code;
    s->error = *error;
    if (client_hello_redial(s, CLIENT_FOR_WORDS, error) == 0)
        return 0;
    return without_words(s, error);
}

int client_weights_failed(struct penstock_session *s, struct penstock_error *error)
{
    /* A network that broke (sys_errno) is no answer. */
    bool silent =
        error->code == PENSTOCK_ECLOSED && error->sys_errno == 0 && s->step == CLIENT_ASKING && s->head_bytes == 0;
    if (s->purpose == CLIENT_FOR_WORDS) {
        if (s->step != CLIENT_BODY || error->code == PENSTOCK_ECLOSED || error->code == PENSTOCK_ETIMEOUT)
            return without_words(s, error);
        return error->code;
    }
    if (s->join_refused)
        return ask_for_words(s, error);
    if (!silent)
        return error->code;
    switch (s->purpose) {
    case CLIENT_FOR_MANIFEST:
        base_error_set(error, PENSTOCK_EDENIED,
                       "closed instead of sending model '%.100s': it has no such model, or could not read it; its log "
                       "says why",
                       s->model);
        return ask_for_words(s, error);
    case CLIENT_FOR_JOIN:
        return base_error_set(error, PENSTOCK_EDENIED,
                              "closed instead of answering a join: it has too many "
                              "connections, or is a peer that does not know of joining");
    case CLIENT_FOR_MODELS:
        return base_error_set(error, PENSTOCK_ECLOSED,
                              "closed without an answer: was it stopped? (a peer of the frozen protocol, which cannot "
                              "list its models, closes as well)");
    case CLIENT_FOR_WORDS:
        break;
    }
    return error->code;
}
