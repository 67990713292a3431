#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "weights.h"
#include "json/json.h"

struct penstock_models {
    BASE_VEC(struct penstock_model) list;
    struct json_doc doc; /* the strings live here */
};

/* Words of a stranger, for a message that may reach a terminal: without control characters. */
static void copy_words(const char *words, char *out, size_t size)
{
    size_t n = 0;
    for (; words[n] && n + 1 < size; n++)
        out[n] = (unsigned char)words[n] < 0x20 || words[n] == 0x7f ? '?' : words[n];
    out[n] = 0;
}

/* What every such reply has: the version, and perhaps a refusal. */
static int read_reply(const char *json, size_t len, struct json_doc *doc, struct penstock_error *error)
{
    int code = json_parse(json, len, doc, error);
    if (code == PENSTOCK_ECORRUPT && error)
        error->code = PENSTOCK_EPROTO;
    if (code)
        return code == PENSTOCK_ECORRUPT ? PENSTOCK_EPROTO : code;
    const char *words;
    uint64_t version;
    if (json_find(&doc->root, "error")) {
        code = json_get_string(&doc->root, "error", &words, error);
        if (code == 0) {
            char clean[400];
            copy_words(words, clean, sizeof clean);
            code = base_error_set(error, PENSTOCK_EDENIED, "%s", clean);
        }
    } else {
        code = json_get_u64(&doc->root, "version", UINT64_MAX, &version, error);
        if (code == 0 && version != 1)
            code = base_error_set(error, PENSTOCK_EPROTO, "reply of version %llu, not 1", (unsigned long long)version);
    }
    if (code)
        json_doc_fini(doc);
    return code;
}

int client_join_read(const char *json, size_t len, const char *version, struct penstock_error *error)
{
    struct json_doc doc;
    const char *theirs;
    int code = read_reply(json, len, &doc, error);
    if (code)
        return code;
    code = json_get_string(&doc.root, "model_version", &theirs, error);
    if (code == 0 && strcmp(theirs, version) != 0)
        code = base_error_set(error, PENSTOCK_EPROTO, "answered a join with another version than the one asked for");
    json_doc_fini(&doc);
    return code;
}

static int read_model(const struct json_value *v, struct penstock_model *m, struct penstock_error *error)
{
    *m = (struct penstock_model){ 0 };
    int code = json_get_string(v, "id", &m->id, error);
    code = code ? code : json_get_u64(v, "shards", UINT64_MAX, &m->shards, error);
    code = code ? code : json_get_u64(v, "tensors", UINT64_MAX, &m->tensors, error);
    code = code ? code : json_get_u64(v, "bytes", UINT64_MAX, &m->bytes, error);
    code = code ? code : json_get_u64(v, "files", UINT64_MAX, &m->files, error);
    if (code == 0 && json_find(v, "model_version"))
        code = json_get_string(v, "model_version", &m->version, error);
    return code;
}

int client_models_read(const char *json, size_t len, struct penstock_models **models, struct penstock_error *error)
{
    struct penstock_models *m = calloc(1, sizeof *m);
    if (!m)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a list of models");
    int code = read_reply(json, len, &m->doc, error);
    if (code) {
        free(m);
        return code;
    }
    const struct json_value *list;
    code = json_get_array(&m->doc.root, "models", &list, error);
    for (size_t i = 0; code == 0 && i < list->array.n; i++) {
        struct penstock_model model;
        code = read_model(&list->array.at[i], &model, error);
        if (code)
            base_error_in(error, "models[%zu]", i);
        else if (!base_vec_push(&m->list, model))
            code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for a list of %zu models", list->array.n);
    }
    if (code) {
        penstock_models_free(m);
        return code;
    }
    *models = m;
    return 0;
}

static const char *last_component(const char *id)
{
    const char *slash = strrchr(id, '/');
    return slash ? slash + 1 : id;
}

const struct penstock_model *client_models_find(const struct penstock_models *models, const char *request)
{
    for (size_t i = 0; i < models->list.n; i++)
        if (strcmp(models->list.at[i].id, request) == 0)
            return &models->list.at[i];
    for (size_t i = 0; i < models->list.n; i++)
        if (strcmp(last_component(models->list.at[i].id), last_component(request)) == 0)
            return &models->list.at[i];
    return NULL;
}

void client_models_list(const struct penstock_models *models, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < models->list.n; i++) {
        char id[200];
        copy_words(models->list.at[i].id, id, sizeof id);
        if (at + strlen(id) + sizeof ", , ..." > size) {
            snprintf(out + at, size - at, "%s...", i ? ", " : "");
            return;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "", id);
    }
}

int client_models_listed(const struct penstock_session *asked, struct rail_listing *out, struct penstock_error *error)
{
    if (asked->models)
        return rail_listing_read(&asked->models->doc.root, out, error);
    *error = asked->error;
    return error->code;
}

size_t penstock_models_count(const struct penstock_models *models)
{
    return models ? models->list.n : 0;
}

const struct penstock_model *penstock_models_at(const struct penstock_models *models, size_t index)
{
    return models && index < models->list.n ? &models->list.at[index] : NULL;
}

void penstock_models_free(struct penstock_models *models)
{
    if (!models)
        return;
    base_vec_free(&models->list);
    json_doc_fini(&models->doc);
    free(models);
}

int penstock_models_get(const char *peer, const struct penstock_options *options, struct penstock_models **models,
                        struct penstock_error *error)
{
    struct penstock_session *s;
    penstock_op op;
    if (!models)
        return base_error_set(error, PENSTOCK_EINVAL, "models must be given, not NULL");
    int code = client_session_new(peer, options, CLIENT_FOR_MODELS, NULL, NULL, &s, &op, error);
    if (code)
        return code;
    code = penstock_wait(s, op, NULL, error);
    if (code == 0) {
        *models = s->models;
        s->models = NULL;
    }
    penstock_session_free(s);
    return code;
}
