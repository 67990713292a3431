/* From the dial to the mode byte: protocol 1.5 steps 1 to 3, 2.1 and 2.5. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <xxhash.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/catalogue.h"
#include "client/models.h"
#include "client/verbs.h"

#define BODY_FIRST_BYTES ((size_t)64 << 10)
/* Words for a refusal are worth no long wait. */
#define WORDS_TIMEOUT_NS (5 * BASE_SECOND_NS)

void client_hello_enter(struct penstock_session *s, enum client_step step)
{
    s->step = step;
    s->progress_ns = base_now_ns();
}

/* ---- dial ---- */

int client_hello_dial(struct penstock_session *s, struct penstock_error *error)
{
    for (; s->address < s->addresses.n; s->address++) {
        int fd;
        struct penstock_error one;
        if (net_connect_start(&s->addresses.at[s->address], &fd, &one) != 0) {
            net_address_failed(&s->addresses.at[s->address], &s->unreached, &one);
            continue;
        }
        net_stream_plain(&s->stream, fd);
        s->has_stream = true;
        client_hello_enter(s, CLIENT_DIALLING);
        return client_engine_watch(s, EPOLLOUT, error);
    }
    if (error)
        *error = s->unreached;
    /* The peer is named in any case: where it is this very address, once is enough. */
    size_t len = strlen(s->peer);
    if (error && s->addresses.n == 1 && strncmp(error->message, s->peer, len) == 0 &&
        strncmp(error->message + len, ": ", 2) == 0)
        memmove(error->message, error->message + len + 2, strlen(error->message + len + 2) + 1);
    return s->unreached.code;
}

static int dialled(struct penstock_session *s, struct penstock_error *error)
{
    struct pollfd p = { .fd = s->stream.fd, .events = POLLOUT };
    if (poll(&p, 1, 0) < 1)
        return -EAGAIN;
    int code = net_connect_result(s->stream.fd, error);
    return code ? code : client_hello_ask(s, error);
}

/* ---- ask ---- */

int client_hello_ask(struct penstock_session *s, struct penstock_error *error)
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
    s->out_at = 0;
    s->out_end = n;
    s->head_bytes = 0;
    client_hello_enter(s, CLIENT_ASKING);
    return client_engine_flush(s, error);
}

static enum penstock_text text_due(const struct penstock_session *s)
{
    return s->purpose == CLIENT_FOR_MANIFEST ? PENSTOCK_TEXT_WEIGHT_MANIFEST : PENSTOCK_TEXT_MODELS_REPLY;
}

static int read_some(struct penstock_session *s, void *to, size_t len, size_t *got, const char *what,
                     struct penstock_error *error)
{
    struct iovec iov = { .iov_base = to, .iov_len = len };
    ssize_t n = s->stream.ops->readv(&s->stream, &iov, 1);
    if (n == -EAGAIN)
        return -EAGAIN;
    if (n == 0 || n == -ECONNRESET || n == -EPIPE)
        return base_error_set(error, PENSTOCK_ECLOSED, "read %s: connection closed", what);
    if (n < 0) {
        int code = client_engine_broken((int)-n, "read", error);
        base_error_in(error, "%s", what);
        return code;
    }
    *got += (size_t)n;
    s->progress_ns = base_now_ns();
    return 0;
}

static const char *what_is_due(const struct penstock_session *s)
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

static int read_head(struct penstock_session *s, struct penstock_error *error)
{
    int code =
        read_some(s, s->head + s->head_bytes, sizeof s->head - s->head_bytes, &s->head_bytes, what_is_due(s), error);
    if (code)
        return code;
    uint32_t len;
    size_t consumed;
    struct penstock_wire_fault fault;
    switch (penstock_text_head_decode(s->head, s->head_bytes, text_due(s), &len, &consumed, &fault)) {
    case PENSTOCK_DECODE_OK:
        s->body_len = len;
        s->body_got = 0;
        client_hello_enter(s, CLIENT_BODY);
        return 0;
    case PENSTOCK_DECODE_MORE:
        return 0;
    case PENSTOCK_DECODE_MALFORMED:
        break;
    }
    char words[200];
    penstock_wire_fault_format(&fault, words, sizeof words);
    return base_error_set(error, PENSTOCK_EPROTO, "%s; is it another program's port?", words);
}

/* ---- body ---- */

/* The length is the peer's word only: memory is taken as bytes come, at most twice what is there. */
static int grow_body(struct penstock_session *s, struct penstock_error *error)
{
    size_t want = base_max_u64(s->body_got * 2, BODY_FIRST_BYTES);
    want = base_min_u64(want, s->body_len) + MODEL_JSON_PADDING;
    if (want <= s->body_cap)
        return 0;
    uint8_t *grown = realloc(s->body, want);
    if (!grown)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a %s of %zu bytes", what_is_due(s), s->body_len);
    s->body = grown;
    s->body_cap = want;
    return 0;
}

static void forget_body(struct penstock_session *s)
{
    free(s->body);
    s->body = NULL;
    s->body_cap = 0;
}

int client_hello_to_tcp(struct penstock_session *s, struct penstock_error *error)
{
    s->out[0] = PENSTOCK_MODE_TCP;
    s->out_at = 0;
    s->out_end = 1;
    client_hello_enter(s, CLIENT_READY);
    client_op_end(s, client_op_find(s, s->open_id), 0, NULL);
    return client_engine_flush(s, error);
}

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
    return client_catalogue_read((const char *)s->body, s->body_len, s->body_cap, &s->catalogue, error);
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

static int begin(struct penstock_session *s, struct penstock_error *error)
{
    return s->verbs ? client_verbs_begin(s, error) : client_hello_to_tcp(s, error);
}

static int body_complete(struct penstock_session *s, struct penstock_error *error)
{
    const char *json = (const char *)s->body;
    int code = PENSTOCK_EPROTO;
    memset(s->body + s->body_len, 0, MODEL_JSON_PADDING);
    switch (s->purpose) {
    case CLIENT_FOR_MANIFEST:
        code = take_manifest(s, error);
        code = code ? code : begin(s, error);
        break;
    case CLIENT_FOR_JOIN:
        code = client_join_read(json, s->body_len, penstock_catalogue_version(s->catalogue), error);
        s->join_refused = code == PENSTOCK_EDENIED;
        if (code)
            base_error_in(error, "join '%.100s'", s->model);
        else
            code = begin(s, error);
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
    forget_body(s);
    return code;
}

static int read_body(struct penstock_session *s, struct penstock_error *error)
{
    int code = grow_body(s, error);
    if (code)
        return code;
    size_t room = base_min_u64(s->body_cap - MODEL_JSON_PADDING, s->body_len) - s->body_got;
    code = read_some(s, s->body + s->body_got, room, &s->body_got, what_is_due(s), error);
    if (code || s->body_got < s->body_len)
        return code;
    return body_complete(s, error);
}

/* ---- all of it ---- */

int client_hello_step(struct penstock_session *s, struct penstock_error *error)
{
    int code;
    switch (s->step) {
    case CLIENT_DIALLING:
        return dialled(s, error);
    case CLIENT_ASKING:
        code = client_engine_flush(s, error);
        return code ? code : read_head(s, error);
    case CLIENT_BODY:
        return read_body(s, error);
    case CLIENT_PAIRING:
        return client_verbs_pair(s, error);
    case CLIENT_SHAKING:
        return client_verbs_shake(s, error);
    case CLIENT_RAILS: /* verbs.c has the rest; or they are there to be taken */
    case CLIENT_READY:
    case CLIENT_DEAD:
        break;
    }
    return -EAGAIN;
}

int64_t client_hello_timeout(const struct penstock_session *s, const char **waiting_for)
{
    int64_t limit = s->purpose == CLIENT_FOR_WORDS ? WORDS_TIMEOUT_NS : INT64_MAX, timeout = s->reply_timeout_ns;
    *waiting_for = what_is_due(s);
    if (s->step == CLIENT_DIALLING) {
        *waiting_for = "connection";
        timeout = s->connect_timeout_ns;
    } else if (s->step == CLIENT_ASKING) {
        timeout = s->manifest_timeout_ns;
    } else if (s->step == CLIENT_SHAKING) {
        *waiting_for = "rails";
        timeout = net_handshake_is_patient(s->shake->handshake) ? s->rails_timeout_ns : s->reply_timeout_ns;
    }
    return timeout < limit ? timeout : limit;
}

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

int client_hello_redial(struct penstock_session *s, enum client_purpose purpose, struct penstock_error *error)
{
    if (s->addresses.n == 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "there is no second connection on a stream that was given");
    struct net_address *last = &s->addresses.at[s->address];
    s->addresses.at[0] = *last;
    s->addresses.n = 1;
    s->address = 0;
    s->purpose = purpose;
    client_engine_close_stream(s);
    forget_body(s);
    return client_hello_dial(s, error);
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

static int next_address(struct penstock_session *s, struct penstock_error *error)
{
    client_engine_close_stream(s);
    net_address_failed(&s->addresses.at[s->address++], &s->unreached, error);
    return client_hello_dial(s, error);
}

int client_hello_failed(struct penstock_session *s, struct penstock_error *error)
{
    /* A network that broke (sys_errno) is no answer. */
    bool silent =
        error->code == PENSTOCK_ECLOSED && error->sys_errno == 0 && s->step == CLIENT_ASKING && s->head_bytes == 0;
    if (s->purpose == CLIENT_FOR_WORDS) {
        if (s->step != CLIENT_BODY || error->code == PENSTOCK_ECLOSED || error->code == PENSTOCK_ETIMEOUT)
            return without_words(s, error);
        return error->code;
    }
    if (s->step == CLIENT_SHAKING)
        return client_verbs_shake_failed(s, error);
    if (s->step == CLIENT_DIALLING)
        return next_address(s, error);
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
