/* The stream beside the rails of a cache session: requests out, replies in, both pipelined. Never more is asked for
 * than replies can be kept of, so that both ends always can go on. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "verbs.h"

/* What may be said before it is asked again whether there is room: an MGET that is being gathered, and what comes
 * behind it. */
#define REPLIES_MAX (CLIENT_HOLD_MAX + 1)
#define REQUEST_BYTES_MAX (5 + 16 * CLIENT_HOLD_MAX + 17)

_Static_assert(sizeof((struct client_cache_verbs *)0)->in >= CLIENT_JOBS_MAX * PENSTOCK_PAGING_REPLY_BYTES_MAX,
               "every reply that can be outstanding has its place");

/* ---- out ---- */

bool client_control_has_room(const struct penstock_session *s)
{
    return s->cache->verbs->n_expected + REPLIES_MAX <= CLIENT_JOBS_MAX &&
           s->out_end + REQUEST_BYTES_MAX <= sizeof s->out;
}

static void expect(struct penstock_session *s, uint8_t op, struct client_job *job)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (c->n_expected == 0)
        s->progress_ns = base_now_ns();
    c->expected[(c->expected_first + c->n_expected++) % CLIENT_JOBS_MAX] =
        (struct client_expected){ .op = op, .job = job };
}

static void encode(struct penstock_session *s, const struct penstock_paging_request *request)
{
    const struct penstock_paging_framing framing = { .wide = s->cache->arena.wide != 0 };
    s->out_end += penstock_paging_request_encode(request, &framing, s->out + s->out_end, NULL);
}

void client_control_ask(struct penstock_session *s, uint8_t op, struct client_job *const *jobs, size_t n)
{
    struct penstock_key keys[CLIENT_HOLD_MAX];
    for (size_t i = 0; i < n; i++) {
        keys[i] = jobs[i]->key;
        expect(s, op, jobs[i]);
    }
    encode(s, &(struct penstock_paging_request){ .op = op, .key = jobs[0]->key, .keys = keys, .n_keys = (uint32_t)n });
}

void client_control_release(struct penstock_session *s)
{
    struct client_cache_verbs *c = s->cache->verbs;
    if (c->n_read == 0 || !client_control_has_room(s))
        return;
    expect(s, PENSTOCK_OP_RELEASE, NULL);
    encode(s, &(struct penstock_paging_request){
                  .op = PENSTOCK_OP_RELEASE, .keys = c->read, .n_keys = (uint32_t)c->n_read });
    c->holding -= (unsigned)c->n_read;
    c->n_read = 0;
}

/* ---- in ---- */

int client_control_hear(struct penstock_session *s, struct penstock_error *error)
{
    struct client_cache_verbs *c = s->cache->verbs;
    while (c->in_bytes < sizeof c->in) {
        const struct iovec to = { .iov_base = c->in + c->in_bytes, .iov_len = sizeof c->in - c->in_bytes };
        ssize_t n = s->stream.ops->readv(&s->stream, &to, 1);
        if (n == -EAGAIN)
            return 0;
        int code = 0;
        if (n == 0 || n == -ECONNRESET || n == -EPIPE)
            code = base_error_set(error, PENSTOCK_ECLOSED,
                                  "has gone: it closed the connection that the rails hang on, or died");
        else if (n < 0)
            code = client_engine_broken((int)-n, "receive", error);
        if (code) {
            client_engine_name(s, error);
            return code;
        }
        c->in_bytes += (size_t)n;
        s->progress_ns = base_now_ns();
        if ((size_t)n < to.iov_len)
            return 0; /* that was all */
    }
    return 0;
}

int client_control_take(struct penstock_session *s, struct penstock_error *error)
{
    struct client_cache_verbs *c = s->cache->verbs;
    size_t at = 0;
    int code = 0;
    while (code == 0 && at < c->in_bytes) {
        if (c->n_expected == 0)
            return base_error_set(error, PENSTOCK_EPROTO, "sent bytes that nobody asked for");
        const struct client_expected e = c->expected[c->expected_first];
        struct penstock_paging_reply reply;
        size_t consumed;
        struct penstock_wire_fault fault;
        if (penstock_paging_reply_decode(c->in + at, c->in_bytes - at, e.op, &reply, &consumed, &fault) !=
            PENSTOCK_DECODE_OK)
            break; /* the rest is to come: no reply is malformed */
        at += consumed;
        c->expected_first = (c->expected_first + 1) % CLIENT_JOBS_MAX;
        c->n_expected--;
        code = client_cache_answered(s, e.op, e.job, &reply, error);
    }
    memmove(c->in, c->in + at, c->in_bytes - at);
    c->in_bytes -= at;
    return code;
}

/* Replies come in order: what stalls is always the first one. */
int64_t client_control_due_ns(const struct penstock_session *s)
{
    const struct client_cache_verbs *c = s->cache->verbs;
    int64_t due_ns, timeout_ns = s->reply_timeout_ns;
    if (!c || c->n_expected == 0)
        return BASE_NEVER;
    if (c->expected[c->expected_first].job)
        timeout_ns = c->expected[c->expected_first].job->op->timeout_ns;
    return __builtin_add_overflow(s->progress_ns, timeout_ns, &due_ns) ? BASE_NEVER : due_ns;
}
