/* Drives a session: whatever the socket allows now, then the deadlines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

int client_engine_watch(struct penstock_session *s, uint32_t events, struct penstock_error *error)
{
    if (events == s->watched)
        return 0;
    struct epoll_event event = { .events = events };
    if (epoll_ctl(s->epoll, s->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->stream.fd, &event) != 0)
        return base_error_sys(error, errno, "epoll_ctl");
    s->watched = events;
    return 0;
}

void client_engine_close_stream(struct penstock_session *s)
{
    if (!s->has_stream)
        return;
    if (s->watched)
        epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->stream.fd, NULL);
    s->watched = 0;
    s->stream.ops->close(&s->stream);
    s->has_stream = false;
}

int client_engine_broken(int sys_errno, const char *doing, struct penstock_error *error)
{
    int code = base_error_sys(error, sys_errno, "%s", doing);
    if (code == PENSTOCK_ESYS)
        code = sys_errno == ETIMEDOUT ? PENSTOCK_ETIMEOUT : PENSTOCK_ECLOSED;
    if (error)
        error->code = code;
    return code;
}

/* ---- out ---- */

void client_engine_attach(struct penstock_session *s, struct client_op *op, const struct iovec *body)
{
    s->bodies[s->body_end++] =
        (struct client_body){ .at = s->out_end, .bytes = body->iov_base, .len_bytes = body->iov_len, .op = op };
}

int client_engine_detach(struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    for (size_t i = s->body_at; i < s->body_end; i++) {
        struct client_body *b = &s->bodies[i];
        if (b->op != op)
            continue;
        b->copy = malloc(b->len_bytes);
        if (!b->copy)
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory to finish what was begun to be sent");
        memcpy(b->copy, b->bytes, b->len_bytes);
        b->bytes = b->copy;
        b->op = NULL;
    }
    return 0;
}

void client_engine_forget_out(struct penstock_session *s)
{
    while (s->body_at < s->body_end)
        free(s->bodies[s->body_at++].copy);
    s->out_at = s->out_end = 0;
    s->body_at = s->body_end = 0;
}

#define OUT_IOV_MAX 64

static int gather(struct penstock_session *s, struct iovec *iov)
{
    int n = 0;
    size_t at = s->out_at;
    for (size_t i = s->body_at; i < s->body_end && n + 2 < OUT_IOV_MAX; i++) {
        const struct client_body *b = &s->bodies[i];
        if (at < b->at)
            iov[n++] = (struct iovec){ .iov_base = s->out + at, .iov_len = b->at - at };
        at = b->at;
        iov[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)b->bytes, .iov_len = b->len_bytes };
        if (i + 1 < s->body_end)
            continue;
        if (at < s->out_end)
            iov[n++] = (struct iovec){ .iov_base = s->out + at, .iov_len = s->out_end - at };
        return n;
    }
    if (s->body_at == s->body_end)
        iov[n++] = (struct iovec){ .iov_base = s->out + at, .iov_len = s->out_end - at };
    return n;
}

/* n bytes of what gather has laid out are gone. */
static void account(struct penstock_session *s, size_t n)
{
    while (s->body_at < s->body_end) {
        struct client_body *b = &s->bodies[s->body_at];
        size_t head = base_min_u64(n, b->at - s->out_at);
        s->out_at += head;
        n -= head;
        size_t part = base_min_u64(n, b->len_bytes);
        b->bytes += part;
        b->len_bytes -= part;
        n -= part;
        if (s->out_at < b->at || b->len_bytes > 0)
            return;
        free(b->copy);
        s->body_at++;
    }
    s->out_at += n;
}

int client_engine_flush(struct penstock_session *s, struct penstock_error *error)
{
    while (client_has_out(s)) {
        struct iovec iov[OUT_IOV_MAX];
        ssize_t n = s->stream.ops->writev(&s->stream, iov, gather(s, iov), false);
        if (n == -EAGAIN)
            break;
        if (n == -EPIPE || n == -ECONNRESET) {
            /* Why it closed, or a last reply, may still be there to be read: the reader will see the end. */
            client_engine_forget_out(s);
            break;
        }
        if (n < 0)
            return client_engine_broken((int)-n, "send", error);
        /* A frozen peer's socket takes requests for a long time: what is awaited are replies. */
        if ((s->step != CLIENT_READY && s->step != CLIENT_RAILS) || s->body_at < s->body_end)
            s->progress_ns = base_now_ns();
        account(s, (size_t)n);
    }
    bool more = client_has_out(s);
    if (!more)
        client_engine_forget_out(s);
    return client_engine_watch(s, more ? EPOLLIN | EPOLLOUT : EPOLLIN, error);
}

/* ---- ends ---- */

void client_engine_die(struct penstock_session *s, const struct penstock_error *error)
{
    if (s->verbs && !s->verbs_lent)
        client_verbs_stop(s);
    client_shake_free(s->shake);
    s->shake = NULL;
    client_engine_close_stream(s);
    s->error = *error;
    s->step = CLIENT_DEAD;
    s->flight_n = 0;
    s->in_flight_bytes = 0;
    s->later_in_flight = 0;
    client_engine_forget_out(s);
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        free(op->error); /* of a part of it, which this explains */
        op->error = NULL;
        client_op_end(s, op, error->code, NULL);
    }
}

void client_engine_name(const struct penstock_session *s, struct penstock_error *error)
{
    size_t len = strlen(s->tier->peer);
    if (strncmp(error->message, s->tier->peer, len) != 0 || error->message[len] != ' ')
        base_error_in(error, "%s %.100s", s->tier->peer, s->peer);
}

void client_engine_fail(struct penstock_session *s, struct penstock_error *error)
{
    client_engine_name(s, error);
    client_engine_die(s, error);
}

/* 0: go on; -EAGAIN: nothing more can be done now. */
static int step(struct penstock_session *s, struct penstock_error *error)
{
    if (s->step == CLIENT_RAILS)
        return s->verbs_lent ? -EAGAIN : client_verbs_step(s, error);
    if (s->step != CLIENT_READY) {
        int code = client_hello_step(s, error);
        return code == 0 || code == -EAGAIN ? code : client_hello_failed(s, error);
    }
    int code = client_engine_flush(s, error);
    client_flight_fill(s);
    code = code ? code : client_engine_flush(s, error);
    code = code ? code : client_flight_receive(s, error);
    s->more = code == 0;
    return code == 0 ? -EAGAIN : code;
}

/* Replies come in order: what stalls is always the first operation's. */
static int64_t deadline_ns(const struct penstock_session *s, const char **waiting_for)
{
    int64_t timeout;
    if (s->step == CLIENT_READY) {
        *waiting_for = "reply";
        const struct client_flight *f = &s->flights[s->flight_head];
        if (s->flight_n == 0 && !client_has_out(s))
            return BASE_NEVER;
        timeout = s->flight_n > 0 && f->op ? f->op->timeout_ns : s->reply_timeout_ns;
    } else {
        timeout = client_hello_timeout(s, waiting_for);
    }
    int64_t deadline;
    return __builtin_add_overflow(s->progress_ns, timeout, &deadline) ? BASE_NEVER : deadline;
}

void client_engine_run(struct penstock_session *s)
{
    struct penstock_error error;
    s->more = false;
    while (s->step != CLIENT_DEAD) {
        int code = step(s, &error);
        if (code == -EAGAIN) {
            const char *waiting_for;
            int64_t deadline =
                s->step == CLIENT_RAILS || s->step == CLIENT_PAIRING ? BASE_NEVER : deadline_ns(s, &waiting_for);
            int64_t now = deadline == BASE_NEVER || s->more ? 0 : base_now_ns();
            if (now < deadline)
                return;
            base_error_set(&error, PENSTOCK_ETIMEOUT, "no %s, and not a byte for %.1f s", waiting_for,
                           (double)(now - s->progress_ns) / (double)BASE_SECOND_NS);
            code = s->step == CLIENT_READY ? PENSTOCK_ETIMEOUT : client_hello_failed(s, &error);
        }
        if (code)
            client_engine_fail(s, &error);
    }
}

int64_t client_engine_timeout_ns(const struct penstock_session *s, bool done)
{
    if (s->more || (done && !base_list_empty(&s->done)))
        return 0;
    if (s->step == CLIENT_DEAD || (s->step == CLIENT_RAILS && s->verbs_lent))
        return -1;
    if (s->step == CLIENT_READY && client_flight_may_fill(s))
        return 0; /* submitted since the last poll */
    const char *waiting_for;
    bool verbs = s->step == CLIENT_RAILS || s->step == CLIENT_PAIRING;
    int64_t deadline = verbs ? client_verbs_deadline_ns(s) : deadline_ns(s, &waiting_for);
    if (deadline == BASE_NEVER)
        return -1;
    int64_t now = base_now_ns();
    return now < deadline ? deadline - now : 0;
}
