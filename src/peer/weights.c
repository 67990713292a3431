
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/wire.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "service.h"
#include "thread.h"
#include "transport.h"
#include "weight_requests.h"
#include "json/write.h"

static int from_wire(const struct penstock_wire_fault *fault, struct penstock_error *error)
{
    char words[256];
    penstock_wire_fault_format(fault, words, sizeof words);
    return base_error_set(error, PENSTOCK_EPROTO, "%s", words);
}

/* An answer to a request that begins with penstock:. */
static int send_json(struct peer_connection *c, const struct base_buf *json, struct penstock_error *error)
{
    uint8_t head[PENSTOCK_TEXT_HEAD_BYTES];
    struct penstock_wire_fault fault;
    if (json->failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an answer");
    if (penstock_text_head_encode(PENSTOCK_TEXT_MODELS_REPLY, json->n, head, &fault) == 0)
        return from_wire(&fault, error);
    int code = net_stream_write_all(&c->stream, head, sizeof head, c->server->deadlines.message_ns, error);
    return code ? code : net_stream_write_all(&c->stream, json->at, json->n, c->server->deadlines.message_ns, error);
}

/* A refusal in words (protocol 2.5): for requests that begin with penstock: only, since no other client reads it. */
static void send_refusal(struct peer_connection *c, const char *words)
{
    struct base_buf json = { 0 };
    struct json_writer w = { .buf = &json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key_text(&w, "error", words);
    json_write_object_end(&w);
    struct penstock_error error;
    if (send_json(c, &json, &error))
        base_log_debug("client %s: could not be told why it is refused", c->client);
    base_buf_fini(&json);
}

/* A model request as it came, the caller's to free. */
struct request {
    uint8_t *bytes;
    struct penstock_model_request decoded; /* in bytes */
};

/* *got 0: the client closed before it said anything. */
static int read_request(struct peer_connection *c, struct request *out, size_t *got, struct penstock_error *error)
{
    uint8_t prefix[4];
    size_t consumed;
    struct penstock_wire_fault fault;
    int code = peer_connection_read_message(c, prefix, sizeof prefix, c->server->deadlines.first_byte_ns, got, error);
    if (code)
        return code;
    /* The length is judged before anything is allocated; what is missing is the text. */
    if (penstock_model_request_decode(prefix, sizeof prefix, &out->decoded, &consumed, &fault) != PENSTOCK_DECODE_MORE)
        return from_wire(&fault, error);
    size_t need = fault.need;
    out->bytes = malloc(need);
    if (!out->bytes)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a request");
    memcpy(out->bytes, prefix, sizeof prefix);
    code = net_stream_read_all(&c->stream, out->bytes + sizeof prefix, need - sizeof prefix,
                               c->server->deadlines.message_ns, NULL, error);
    if (code == 0 &&
        penstock_model_request_decode(out->bytes, need, &out->decoded, &consumed, &fault) != PENSTOCK_DECODE_OK)
        code = from_wire(&fault, error);
    if (code)
        free(out->bytes);
    return code;
}

/* ---- what follows a model request ---- */

static int get_model(struct peer_connection *c, const struct penstock_model_ask *ask, struct peer_model **model,
                     struct penstock_error *error)
{
    if (memchr(ask->model, 0, ask->model_bytes))
        return base_error_set(error, PENSTOCK_EINVAL, "a model's name has no NUL byte in it");
    char *name = strndup(ask->model, ask->model_bytes);
    int code = name ? peer_models_get(&c->server->models, name, model, error)
                    : base_error_set(error, PENSTOCK_ENOMEM, "no memory for a request");
    free(name);
    if (code)
        return code;
    return peer_connection_use(c, &(*model)->served, error);
}

static int send_manifest(struct peer_connection *c, const struct peer_model *model, struct penstock_error *error)
{
    return net_stream_write_all(&c->stream, model->served.reply.at, model->served.reply.n,
                                c->server->deadlines.message_ns, error);
}

static int refuse(struct peer_connection *c, const char *words)
{
    peer_connection_complain(c, "refused: %s", words);
    send_refusal(c, words);
    return PENSTOCK_EREFUSED;
}

static int join(struct peer_connection *c, const struct penstock_model_ask *ask, struct peer_model **model)
{
    struct penstock_error error;
    if (get_model(c, ask, model, &error))
        return refuse(c, error.message);
    const char *version = (*model)->staged.manifest.model_version;
    if (!version || strlen(version) != ask->version_bytes || memcmp(version, ask->version, ask->version_bytes) != 0)
        return refuse(c, "the model has another version by now: fetch its manifest again");

    struct base_buf json = { 0 };
    struct json_writer w = { .buf = &json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key_text(&w, "model_version", version);
    json_write_object_end(&w);
    int code = send_json(c, &json, &error);
    base_buf_fini(&json);
    if (code)
        (void)peer_connection_ended(c, "while it joins a model", false, &error);
    return code;
}

static void list_models(struct peer_connection *c)
{
    struct base_buf json = { 0 };
    struct penstock_error error;
    int code = peer_models_list(&c->server->models, &c->server->rails, &json, &error);
    if (code)
        send_refusal(c, error.message);
    else if (send_json(c, &json, &error))
        (void)peer_connection_ended(c, "while models are listed", false, &error);
    base_buf_fini(&json);
}

/* True: the connection goes on with the mode byte. */
static bool answer_request(struct peer_connection *c, const struct penstock_model_request *request,
                           struct peer_model **model)
{
    struct penstock_model_ask ask;
    struct penstock_wire_fault fault;
    struct penstock_error error;

    switch (penstock_model_ask_parse(request, &ask, &fault)) {
    case PENSTOCK_ASK_MODELS:
        list_models(c);
        return false;
    case PENSTOCK_ASK_JOIN:
        return join(c, &ask, model) == 0;
    case PENSTOCK_ASK_MODEL:
        if (get_model(c, &ask, model, &error)) {
            peer_connection_complain(c, "refused: %s", error.message); /* which no client of this request can read */
            return false;
        }
        if (send_manifest(c, *model, &error) == 0)
            return true;
        (void)peer_connection_ended(c, "while the manifest is sent", false, &error);
        return false;
    case PENSTOCK_ASK_UNKNOWN:
    default:
        (void)from_wire(&fault, &error);
        (void)refuse(c, error.message);
        return false;
    }
}

struct answering {
    struct peer_connection *connection;
    const struct penstock_model_request *request;
    struct peer_model **model;
    bool go_on;
};

static void *answering(void *argument)
{
    struct answering *a = argument;
    a->go_on = answer_request(a->connection, a->request, a->model);
    return NULL;
}

/* On a thread of its own that is waited for. Staging wants more stack than a connection has; and the kernel keeps 32
 * KiB for each thread that has sent a few bytes once: thousands that idle are better off never having done so. */
static bool answer_aside(struct peer_connection *c, const struct penstock_model_request *request,
                         struct peer_model **model)
{
    struct answering a = { .connection = c, .request = request, .model = model };
    int failed = peer_thread_run_large(answering, &a);
    if (failed)
        peer_connection_complain(c, "closed: no thread to answer it: %s", strerrordesc_np(failed));
    return a.go_on;
}

static enum peer_end serve(struct peer_connection *c)
{
    struct request request;
    struct peer_model *model = NULL;
    size_t got;
    struct penstock_error error;
    if (read_request(c, &request, &got, &error))
        return peer_connection_ended(c, "while it sends a model request", got > 0, &error);
    bool go_on = answer_aside(c, &request.decoded, &model);
    free(request.bytes);
    return go_on ? peer_transport_serve(c, &peer_weight_requests) : PEER_END_LINGER;
}

static enum peer_end refuse_connection(struct peer_connection *c)
{
    struct request request;
    size_t got;
    struct penstock_error error;
    char words[160];
    snprintf(words, sizeof words, "too many connections: all %zu that this peer allows are in use",
             c->server->options->max_connections);
    peer_connection_complain(c, "refused: %s (--max-connections)", words);
    if (read_request(c, &request, &got, &error))
        return peer_connection_ended(c, "while it sends a model request", false, &error);
    struct penstock_model_ask ask;
    struct penstock_wire_fault fault;
    if (penstock_model_ask_parse(&request.decoded, &ask, &fault) != PENSTOCK_ASK_MODEL)
        send_refusal(c, words);
    free(request.bytes);
    return PEER_END_LINGER;
}

static bool wanted(const struct peer_options *options)
{
    return options->weights.n > 0 || options->allow_any_path;
}

static int open_models(struct peer_server *server, struct penstock_error *error)
{
    for (size_t i = 0; i < server->options->weights.n; i++) {
        const struct peer_directory *d = &server->options->weights.at[i];
        int code = peer_models_add(&server->models, d->name, d->path, error);
        if (code)
            return code;
    }
    return 0;
}

const struct peer_service peer_weights_service = {
    .name = "weights",
    .default_address = PEER_LISTEN_WEIGHTS,
    .default_port = PENSTOCK_PORT_WEIGHTS,
    .wanted = wanted,
    .open = open_models,
    .serve = serve,
    .refuse = refuse_connection,
};
