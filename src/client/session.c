/* The public calls on a session: arguments are checked here, and the engine driven. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

/* ---- begin and end ---- */

static struct penstock_session *allocate(const struct client_start *start, const char *peer)
{
    struct penstock_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    base_list_init(&s->ops);
    base_list_init(&s->done);
    base_list_init(&s->told);
    for (size_t i = 0; i < CLIENT_URGENCIES; i++)
        base_list_init(&s->unsent[i]);
    base_list_init(&s->on_rails);
    s->tier = start->tier;
    s->purpose = start->purpose;
    s->epoll = -1;
    s->peer = strdup(peer);
    s->model = strdup(start->model ? start->model : "");
    penstock_catalogue_ref(start->catalogue);
    s->catalogue = start->catalogue;
    s->scratch = malloc(CLIENT_SCRATCH_BYTES);
    s->ahead = malloc(CLIENT_AHEAD_BYTES_MAX); /* pages that are never written cost nothing */
    if (s->peer && s->model && s->scratch && s->ahead && (!s->tier->set_up || !s->tier->set_up(s, start->argument)))
        return s;
    penstock_session_free(s);
    return NULL;
}

/* Everything but the first step. */
static int prepare(const struct client_start *start, const char *peer, const struct penstock_options *options,
                   struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    struct penstock_session *s = allocate(start, peer);
    if (!s) {
        base_error_set(error, PENSTOCK_ENOMEM, "no memory for a session");
        return PENSTOCK_ENOMEM;
    }
    struct client_op *open = NULL;
    int code = client_options_take(s, start->world, options, start->purpose, error);
    if (code == 0 && (s->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        code = base_error_sys(error, errno, "epoll_create");
    else if (code == 0 && !(open = client_op_new(s, CLIENT_OP_OPEN, s->manifest_timeout_ns, NULL)))
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for a session");
    if (!open) {
        penstock_session_free(s);
        return code ? code : PENSTOCK_ENOMEM;
    }
    s->open_id = *op = open->id;
    *session = s;
    return 0;
}

int client_session_start(const struct client_start *start, const char *peer, const struct penstock_options *options,
                         struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    struct penstock_session *s;
    struct penstock_error words = { 0 };
    int code = prepare(start, peer, options, &s, op, &words);
    if (code == 0) {
        code = net_resolve(peer, start->tier->port, 0, &s->addresses, &words);
        code = code ? code : client_hello_dial(s, &words);
        if (code) {
            client_engine_name(s, &words);
            penstock_session_free(s);
        }
    }
    if (code == 0)
        *session = s;
    else if (error)
        *error = words;
    return code;
}

int client_session_start_on(const struct client_start *start, struct net_stream *stream,
                            const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                            struct penstock_error *error)
{
    struct penstock_session *s;
    int code = prepare(start, "stream", options, &s, op, error);
    if (code) {
        stream->ops->close(stream);
        return code;
    }
    s->stream = *stream;
    s->has_stream = true;
    code = client_hello_ask(s, error);
    if (code)
        penstock_session_free(s);
    else
        *session = s;
    return code;
}

int client_session_opened(struct penstock_session *s, penstock_op op, struct penstock_session **session,
                          struct penstock_error *error)
{
    int code = penstock_wait(s, op, NULL, error);
    if (code)
        penstock_session_free(s);
    else
        *session = s;
    return code;
}

int client_session_beside(struct penstock_session *s, enum client_purpose purpose, bool for_rails,
                          struct penstock_session **session, struct penstock_error *error)
{
    const struct penstock_options options = { .size = sizeof options,
                                              .transport = PENSTOCK_TRANSPORT_TCP,
                                              .connect_timeout_ns = s->connect_timeout_ns,
                                              .manifest_timeout_ns = s->manifest_timeout_ns,
                                              .reply_timeout_ns = s->reply_timeout_ns,
                                              .rails_timeout_ns = s->rails_timeout_ns,
                                              .congestion = !s->congestion.demanded_by ? NULL
                                                            : s->congestion.name[0]    ? s->congestion.name
                                                                                       : "system" };
    const struct client_tier *lister = purpose == CLIENT_FOR_MODELS ? s->tier->lister : NULL;
    const struct client_start start = { .tier = lister ? lister : s->tier,
                                        .purpose = purpose,
                                        .model = s->model,
                                        .catalogue = purpose == CLIENT_FOR_MODELS ? NULL : s->catalogue };
    struct penstock_session *b;
    penstock_op op;
    if (s->addresses.n == 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "there is no second connection on a stream that was given");
    int code = prepare(&start, s->peer, &options, &b, &op, error);
    if (code)
        return code;
    memcpy(b->manifest_hash, s->manifest_hash, sizeof b->manifest_hash);
    if (for_rails) {
        b->verbs = s->verbs;
        b->verbs_lent = true;
    }
    b->addresses.at[0] = s->addresses.at[s->address];
    b->addresses.n = 1;
    struct epoll_event event = { .events = EPOLLIN };
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, b->epoll, &event) != 0)
        code = base_error_sys(error, errno, "epoll_ctl");
    code = code ? code : client_hello_dial(b, error);
    if (code)
        penstock_session_free(b);
    else
        *session = b;
    return code;
}

void penstock_session_free(struct penstock_session *session)
{
    struct penstock_session *s = session;
    if (!s)
        return;
    client_verbs_close(s);
    /* After fork() the parent shares the epoll set: nothing is taken out of it, the fds are closed and no more. */
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->has_stream)
        s->stream.ops->close(&s->stream);
    client_engine_forget_out(s);
    base_vec_free(&s->regions); /* first: there is nothing left to unregister when operations go */
    client_ops_free(s);
    if (s->tier->fini)
        s->tier->fini(s);
    penstock_catalogue_unref(s->catalogue);
    penstock_models_free(s->models);
    free(s->why_tcp);
    free(s->body);
    free(s->scratch);
    free(s->ahead);
    free(s->peer);
    free(s->model);
    free(s);
}

/* ---- memory ---- */

static int check_memory(const struct penstock_memory *m, struct penstock_error *error)
{
    uint64_t begin = m->where == PENSTOCK_DEVICE ? m->offset_bytes : (uintptr_t)m->address;
    if (m->where != PENSTOCK_HOST && m->where != PENSTOCK_DEVICE)
        return base_error_set(error, PENSTOCK_EINVAL, "memory: unknown kind %d", m->where);
    if (m->where == PENSTOCK_DEVICE && m->dmabuf_fd < 0)
        return base_error_set(error, PENSTOCK_EINVAL, "memory: DEVICE memory needs its dmabuf_fd, which is %d",
                              m->dmabuf_fd);
    if ((m->where == PENSTOCK_HOST && !m->address && m->len_bytes > 0) || m->len_bytes > SIZE_MAX - begin)
        return base_error_set(error, PENSTOCK_EINVAL, "memory: no %" PRIu64 " bytes can lie there", m->len_bytes);
    return 0;
}

int client_memory_region(const struct penstock_memory *m, struct client_region *region, struct penstock_error *error)
{
    int code = check_memory(m, error);
    if (code)
        return code;
    *region = (struct client_region){ .len_bytes = m->len_bytes, .device = m->where == PENSTOCK_DEVICE };
    if (region->device) {
        region->dmabuf_fd = m->dmabuf_fd;
        region->offset_bytes = m->offset_bytes;
    } else {
        region->address = m->address;
    }
    return 0;
}

int penstock_register(struct penstock_session *session, const struct penstock_memory *memory, uint32_t *region,
                      struct penstock_error *error)
{
    struct penstock_memory m;
    if (!session || !region)
        return client_missing("session and region", error);
    int code = client_take_sized(&m, memory, "memory", error);
    if (code)
        return code;
    struct client_region r;
    code = client_memory_region(&m, &r, error);
    if (code)
        return code;
    r.known = true;
    size_t i = session->region_free;
    while (i < session->regions.n && session->regions.at[i].known)
        i++;
    if (i < session->regions.n)
        session->regions.at[i] = r;
    else if (i >= UINT32_MAX || !base_vec_push(&session->regions, r))
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more region");
    session->region_free = i + 1;
    *region = (uint32_t)i;
    return 0;
}

int penstock_unregister(struct penstock_session *session, uint32_t region, struct penstock_error *error)
{
    if (!session)
        return client_missing("session", error);
    if (region >= session->regions.n || !session->regions.at[region].known)
        return base_error_set(error, PENSTOCK_EINVAL, "no region %" PRIu32 " is registered", region);
    struct client_region *r = &session->regions.at[region];
    if (r->users > 0)
        return base_error_set(error, PENSTOCK_EINVAL, "region %" PRIu32 ": %zu reads into it are not done", region,
                              r->users);
    client_region_forget(session, r);
    *r = (struct client_region){ 0 };
    if (region < session->region_free)
        session->region_free = region;
    return 0;
}

/* ---- what it runs on ---- */

enum penstock_transport penstock_session_transport(const struct penstock_session *session)
{
    if (!session || (session->verbs && !session->verbs->up))
        return PENSTOCK_TRANSPORT_AUTO;
    return session->verbs ? PENSTOCK_TRANSPORT_RDMA : PENSTOCK_TRANSPORT_TCP;
}

const char *penstock_session_transport_why(const struct penstock_session *session)
{
    return session ? session->why_tcp : NULL;
}

/* ---- operations ---- */

int client_can_submit(const struct penstock_session *s, const struct client_tier *tier, int64_t timeout_ns,
                      struct penstock_error *error)
{
    if (s->tier != tier)
        return base_error_set(error, PENSTOCK_EINVAL, "the session is one with %s %.100s", s->tier->peer, s->peer);
    if (s->step == CLIENT_DEAD)
        /* What it died of is news to a caller that had no operation under way. */
        return base_error_set(error, PENSTOCK_EDEAD, "%s", s->error.message);
    if (timeout_ns < 0)
        return base_error_set(error, PENSTOCK_EINVAL, "the timeout is negative");
    return 0;
}

/* Over TCP: the rest of what is being sent is sent all the same, for the peer to find the next request. */
static void cancel(struct penstock_session *s, struct client_op *op)
{
    struct penstock_error error;
    if (client_engine_detach(s, op, &error) != 0)
        client_engine_fail(s, &error);
    else
        client_op_end(s, op, PENSTOCK_ECANCELED, NULL);
}

int penstock_cancel(struct penstock_session *session, penstock_op op)
{
    static const struct penstock_error canceled = { .code = PENSTOCK_ECANCELED, .message = "canceled" };
    if (!session)
        return PENSTOCK_EINVAL;
    struct client_op *o = client_op_find(session, op);
    if (!o || o->done)
        return PENSTOCK_ENOTFOUND;
    if (o->kind == CLIENT_OP_OPEN)
        client_engine_die(session, &canceled); /* there is nothing else that it could do */
    else if (session->verbs)
        client_verbs_cancel(session, o);
    else
        cancel(session, o);
    return 0;
}

/* ---- the loop ---- */

int penstock_fd(const struct penstock_session *session)
{
    return session ? session->epoll : PENSTOCK_EINVAL;
}

int64_t penstock_timeout_ns(const struct penstock_session *session)
{
    return session ? client_engine_timeout_ns(session, true) : -1;
}

static int state_of(const struct penstock_session *s)
{
    return s->step == CLIENT_DEAD ? s->error.code : 0;
}

int penstock_poll(struct penstock_session *session, struct penstock_completion *completions, size_t max, size_t *done)
{
    struct penstock_session *s = session;
    if (!s || !done || (!completions && max > 0))
        return PENSTOCK_EINVAL;
    client_ops_forget_told(s);
    client_engine_run(s);
    *done = 0;
    while (*done < max && !base_list_empty(&s->done))
        client_op_tell(s, base_list_entry(s->done.next, struct client_op, node), &completions[(*done)++]);
    return state_of(s);
}

const struct penstock_error *penstock_op_error(const struct penstock_session *session, penstock_op op)
{
    static const struct penstock_error canceled = { .code = PENSTOCK_ECANCELED, .message = "canceled" };
    if (session && op == 0)
        return session->step == CLIENT_DEAD ? &session->error : NULL;
    const struct client_op *o = session ? client_op_find_told(session, op) : NULL;
    if (!o)
        return NULL;
    if (o->error)
        return o->error;
    if (o->code == PENSTOCK_ECANCELED)
        return &canceled;
    return o->code == session->error.code ? &session->error : NULL;
}

/* Until there is something to do. */
static void sleep_until_due(const struct penstock_session *s)
{
    int64_t timeout_ns = client_engine_timeout_ns(s, false);
    if (timeout_ns == 0)
        return;
    struct pollfd p = { .fd = s->epoll, .events = POLLIN };
    /* EINTR, like everything else, is a reason to look. */
    (void)poll(&p, 1, timeout_ns < 0 ? -1 : base_poll_ms(base_deadline_ns(timeout_ns)));
}

int penstock_wait(struct penstock_session *session, penstock_op op, struct penstock_completion *completion,
                  struct penstock_error *error)
{
    struct penstock_session *s = session;
    if (!s)
        return client_missing("session", error);
    client_ops_forget_told(s);
    struct client_op *o = client_op_find(s, op);
    if (!o)
        return base_error_set(error, PENSTOCK_ENOTFOUND, "no operation %" PRIu64 " is under way or to be polled for",
                              op);
    s->waited_for = true;
    while (!o->done) {
        client_engine_run(s);
        if (!o->done)
            sleep_until_due(s);
    }
    s->waited_for = false;
    int code = o->code;
    client_op_tell(s, o, completion);
    if (code && error) {
        const struct penstock_error *words = penstock_op_error(s, op);
        if (words)
            *error = *words;
        else
            base_error_set(error, code, "no memory for more words");
    }
    return code;
}

const char *penstock_version(void)
{
    return PENSTOCK_VERSION;
}
