/* From the dial to the mode byte, whatever the tier: it says what is sent first, and what is made of the answer. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "model/manifest.h"

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
        if (net_connect_start(&s->addresses.at[s->address], &s->congestion, &fd, &one) != 0) {
            net_address_failed(&s->addresses.at[s->address], &s->unreached, &one);
            continue;
        }
        net_stream_plain(&s->stream, fd);
        s->has_stream = true;
        s->stream.small_window = s->tier->small_window;
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

int client_hello_ask(struct penstock_session *s, struct penstock_error *error)
{
    s->out_at = s->out_end = 0;
    s->head_bytes = 0;
    int code = s->tier->greet(s, error);
    if (code)
        return code;
    client_hello_enter(s, CLIENT_ASKING);
    if (s->tier->dialect == PENSTOCK_READ_WRITE && s->purpose == CLIENT_FOR_MANIFEST)
        return client_hello_begin(s, error);
    return client_engine_flush(s, error);
}

/* ---- the reply's head ---- */

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

static int read_into_head(struct penstock_session *s, size_t len, struct penstock_error *error)
{
    return read_some(s, s->head + s->head_bytes, len - s->head_bytes, &s->head_bytes, s->tier->awaits(s), error);
}

static int read_answer(struct penstock_session *s, size_t len, struct penstock_error *error)
{
    int code = read_into_head(s, len, error);
    if (code || s->head_bytes < len)
        return code;
    s->head_bytes = 0;
    return s->tier->take(s, error);
}

static int read_head(struct penstock_session *s, struct penstock_error *error)
{
    int code = read_into_head(s, PENSTOCK_TEXT_HEAD_BYTES, error);
    if (code)
        return code;
    uint32_t len;
    size_t consumed;
    struct penstock_wire_fault fault;
    switch (penstock_text_head_decode(s->head, s->head_bytes, s->tier->text(s), &len, &consumed, &fault)) {
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
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a %s of %zu bytes", s->tier->awaits(s),
                              s->body_len);
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
    if (s->tier->to_tcp)
        return s->tier->to_tcp(s, error);
    s->out[0] = PENSTOCK_MODE_TCP;
    s->out_at = 0;
    s->out_end = 1;
    return client_hello_ready(s, error);
}

int client_hello_ready(struct penstock_session *s, struct penstock_error *error)
{
    if (s->verbs)
        return client_verbs_ready(s, error);
    client_hello_enter(s, CLIENT_READY);
    s->rejoining = false;
    if (s->open_id != 0) /* else it was open before */
        client_op_end(s, client_op_find(s, s->open_id), 0, NULL);
    return client_engine_flush(s, error);
}

int client_hello_begin(struct penstock_session *s, struct penstock_error *error)
{
    return s->verbs ? client_verbs_begin(s, error) : client_hello_to_tcp(s, error);
}

static int read_body(struct penstock_session *s, struct penstock_error *error)
{
    int code = grow_body(s, error);
    if (code)
        return code;
    size_t room = base_min_u64(s->body_cap - MODEL_JSON_PADDING, s->body_len) - s->body_got;
    code = read_some(s, s->body + s->body_got, room, &s->body_got, s->tier->awaits(s), error);
    if (code || s->body_got < s->body_len)
        return code;
    memset(s->body + s->body_len, 0, MODEL_JSON_PADDING);
    code = s->tier->take(s, error);
    forget_body(s);
    return code;
}

/* ---- all of it ---- */

int client_hello_step(struct penstock_session *s, struct penstock_error *error)
{
    int code;
    size_t len;
    switch (s->step) {
    case CLIENT_DIALLING:
        return dialled(s, error);
    case CLIENT_ASKING:
        code = client_engine_flush(s, error);
        if (code)
            return code;
        len = s->tier->answer_bytes ? s->tier->answer_bytes(s) : 0;
        return len ? read_answer(s, len, error) : read_head(s, error);
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
    *waiting_for = s->tier->awaits(s);
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

int client_hello_redial(struct penstock_session *s, enum client_purpose purpose, struct penstock_error *error)
{
    if (s->addresses.n == 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "there is no second connection on a stream that was given");
    struct net_address *last = &s->addresses.at[s->address];
    s->addresses.at[0] = *last;
    s->addresses.n = 1;
    s->address = 0;
    s->unreached = (struct penstock_error){ 0 };
    s->purpose = purpose;
    client_engine_close_stream(s);
    forget_body(s);
    return client_hello_dial(s, error);
}

static int next_address(struct penstock_session *s, struct penstock_error *error)
{
    client_engine_close_stream(s);
    net_address_failed(&s->addresses.at[s->address++], &s->unreached, error);
    return client_hello_dial(s, error);
}

static int failed(struct penstock_session *s, struct penstock_error *error)
{
    if (s->step == CLIENT_DIALLING && s->purpose != CLIENT_FOR_WORDS)
        return next_address(s, error);
    if (s->step == CLIENT_SHAKING)
        return client_verbs_shake_failed(s, error);
    return s->tier->failed(s, error);
}

int client_hello_failed(struct penstock_session *s, struct penstock_error *error)
{
    int code = failed(s, error);
    return code && s->rejoining ? client_rejoin_failed(error) : code;
}
