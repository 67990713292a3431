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
#include "client/catalogue.h"
#include "client/verbs.h"
#include "model/digest.h"

static int missing(const char *what, struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_EINVAL, "%s must be given, not NULL", what);
}

/* ---- begin and end ---- */

static int take_model(const char *model, const struct penstock_catalogue *catalogue, struct penstock_error *error)
{
    size_t len = model ? strlen(model) : 0;
    if (len == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "no model is named");
    if (len > PENSTOCK_MODEL_REQUEST_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "the model's name has %zu bytes, and may have %u", len,
                              PENSTOCK_MODEL_REQUEST_MAX);
    if (strncmp(model, "penstock:", 9) == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "'%.100s': names that begin with penstock: are the protocol's",
                              model);
    if (catalogue && !penstock_catalogue_version(catalogue))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "'%.100s' cannot be joined: the peer gave its catalogue no model_version", model);
    return 0;
}

static struct penstock_session *allocate(const char *peer, const char *model)
{
    struct penstock_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    base_list_init(&s->ops);
    base_list_init(&s->done);
    base_list_init(&s->told);
    s->epoll = -1;
    s->peer = strdup(peer);
    s->model = strdup(model ? model : "");
    s->scratch = malloc(CLIENT_SCRATCH_BYTES);
    s->ahead = malloc(CLIENT_AHEAD_BYTES_MAX); /* pages that are never written cost nothing */
    if (s->peer && s->model && s->scratch && s->ahead)
        return s;
    penstock_session_free(s);
    return NULL;
}

/* Everything but the first step. */
static int prepare(struct verbs_world *world, const char *peer, const struct penstock_options *options,
                   enum client_purpose purpose, const char *model, struct penstock_catalogue *catalogue,
                   struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    int code = purpose == CLIENT_FOR_MODELS ? 0 : take_model(model, catalogue, error);
    if (code)
        return code;
    struct penstock_session *s = allocate(peer, model);
    if (!s) {
        base_error_set(error, PENSTOCK_ENOMEM, "no memory for a session");
        return PENSTOCK_ENOMEM;
    }
    struct client_op *open = NULL;
    code = client_options_take(s, world, options, purpose, error);
    if (code == 0 && (s->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        code = base_error_sys(error, errno, "epoll_create");
    else if (code == 0 && !(open = client_op_new(s, CLIENT_OP_OPEN, s->manifest_timeout_ns, NULL)))
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for a session");
    if (!open) {
        penstock_session_free(s);
        return code ? code : PENSTOCK_ENOMEM;
    }
    s->purpose = purpose;
    s->open_id = *op = open->id;
    if (catalogue) {
        penstock_catalogue_ref(catalogue);
        s->catalogue = catalogue;
    }
    *session = s;
    return 0;
}

int client_session_in_world(struct verbs_world *world, const char *peer, const struct penstock_options *options,
                            enum client_purpose purpose, const char *model, struct penstock_catalogue *catalogue,
                            struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    struct penstock_session *s;
    struct penstock_error words = { 0 };
    if (!peer || !session || !op)
        return missing("peer, session and op", error);
    int code = prepare(world, peer, options, purpose, model, catalogue, &s, op, &words);
    if (code == 0) {
        code = net_resolve(peer, PENSTOCK_PORT_WEIGHTS, 0, &s->addresses, &words);
        code = code ? code : client_hello_dial(s, &words);
        if (code) {
            base_error_in(&words, "weight peer %.100s", peer);
            penstock_session_free(s);
        }
    }
    if (code == 0)
        *session = s;
    else if (error)
        *error = words;
    return code;
}

int client_session_new(const char *peer, const struct penstock_options *options, enum client_purpose purpose,
                       const char *model, struct penstock_catalogue *catalogue, struct penstock_session **session,
                       penstock_op *op, struct penstock_error *error)
{
    return client_session_in_world(NULL, peer, options, purpose, model, catalogue, session, op, error);
}

int client_session_beside(struct penstock_session *s, enum client_purpose purpose, bool for_rails,
                          struct penstock_session **session, struct penstock_error *error)
{
    const struct penstock_options options = { .size = sizeof options,
                                              .transport = PENSTOCK_TRANSPORT_TCP,
                                              .connect_timeout_ns = s->connect_timeout_ns,
                                              .manifest_timeout_ns = s->manifest_timeout_ns,
                                              .reply_timeout_ns = s->reply_timeout_ns,
                                              .rails_timeout_ns = s->rails_timeout_ns };
    struct penstock_session *b;
    penstock_op op;
    if (s->addresses.n == 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "there is no second connection on a stream that was given");
    int code = prepare(NULL, s->peer, &options, purpose, s->model, NULL, &b, &op, error);
    if (code)
        return code;
    if (purpose != CLIENT_FOR_MODELS) {
        b->catalogue = penstock_session_catalogue(s);
        memcpy(b->manifest_hash, s->manifest_hash, sizeof b->manifest_hash);
    }
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

int client_session_on_stream(struct net_stream *stream, const struct penstock_options *options,
                             enum client_purpose purpose, const char *model, struct penstock_catalogue *catalogue,
                             struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    struct penstock_session *s;
    int code = prepare(NULL, "stream", options, purpose, model, catalogue, &s, op, error);
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

int penstock_weights_start(const char *peer, const char *model, struct penstock_catalogue *catalogue,
                           const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                           struct penstock_error *error)
{
    return client_session_new(peer, options, catalogue ? CLIENT_FOR_JOIN : CLIENT_FOR_MANIFEST, model, catalogue,
                              session, op, error);
}

int penstock_weights_open(const char *peer, const char *model, struct penstock_catalogue *catalogue,
                          const struct penstock_options *options, struct penstock_session **session,
                          struct penstock_error *error)
{
    struct penstock_session *s;
    penstock_op op = 0;
    if (!session)
        return missing("session", error);
    int code = penstock_weights_start(peer, model, catalogue, options, &s, &op, error);
    if (code)
        return code;
    code = penstock_wait(s, op, NULL, error);
    if (code)
        penstock_session_free(s);
    else
        *session = s;
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
    base_vec_free(&s->regions); /* first: there is nothing left to unregister when operations go */
    client_ops_free(s);
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

struct penstock_catalogue *penstock_session_catalogue(struct penstock_session *session)
{
    if (!session || !session->catalogue)
        return NULL;
    penstock_catalogue_ref(session->catalogue);
    return session->catalogue;
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

int penstock_register(struct penstock_session *session, const struct penstock_memory *memory, uint32_t *region,
                      struct penstock_error *error)
{
    struct penstock_memory m;
    if (!session || !region)
        return missing("session and region", error);
    int code = client_take_sized(&m, memory, "memory", error);
    if (code)
        return code;
    code = check_memory(&m, error);
    if (code)
        return code;
    struct client_region r = { .len_bytes = m.len_bytes, .known = true, .device = m.where == PENSTOCK_DEVICE };
    if (r.device) {
        r.dmabuf_fd = m.dmabuf_fd;
        r.offset_bytes = m.offset_bytes;
    } else {
        r.address = m.address;
    }
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
        return missing("session", error);
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

static int can_submit(const struct penstock_session *s, int64_t timeout_ns, struct penstock_error *error)
{
    if (s->step == CLIENT_DEAD)
        /* What it died of is news to a caller that had no operation under way. */
        return base_error_set(error, PENSTOCK_EDEAD, "%s", s->error.message);
    if (!s->catalogue)
        return base_error_set(error, PENSTOCK_EINVAL, "the session has no catalogue yet: wait until it is open");
    if (timeout_ns < 0)
        return base_error_set(error, PENSTOCK_EINVAL, "the timeout is negative");
    return 0;
}

static void begin(struct penstock_session *s, struct client_op *op)
{
    if (s->verbs)
        client_verbs_start(s, op);
    else
        client_op_queue(s, op);
}

/* What a read asks for, in the form that its transport takes. */
static int plan_read(const struct penstock_session *s, const struct penstock_read *r, struct client_plan *plan,
                     struct client_split *split, struct penstock_error *error)
{
    const struct client_region *region = &s->regions.at[r->region];
    *plan = (struct client_plan){ 0 };
    *split = (struct client_split){ 0 };
    if (s->verbs) {
        int code = client_split_make(s->catalogue, r->ranges, r->count, region->len_bytes, split, error);
        if (code == 0 && region->device && split->n_files > 0) {
            client_split_fini(split);
            code =
                base_error_set(error, PENSTOCK_EUNSUPPORTED,
                               "read: region %" PRIu32 " is DEVICE memory, which only shards can be read into: other "
                               "files come over TCP",
                               r->region);
        }
        return code;
    }
    if (region->device)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "read: region %" PRIu32 " is DEVICE memory, and this session runs over TCP%s%.300s",
                              r->region, s->why_tcp ? ": " : "", s->why_tcp ? s->why_tcp : "");
    return client_plan_make(s->catalogue, r->ranges, r->count, region->address, region->len_bytes, plan, error);
}

int client_submit(struct penstock_session *s, const struct penstock_read *read, struct client_then *then,
                  penstock_op *op, struct penstock_error *error)
{
    struct penstock_read r;
    if (!s || !op) {
        (void)missing("session and op", error);
        return PENSTOCK_EINVAL;
    }
    int code = client_take_sized(&r, read, "read", error);
    code = code ? code : can_submit(s, r.timeout_ns, error);
    if (code)
        return code;
    if (r.region >= s->regions.n || !s->regions.at[r.region].known)
        return base_error_set(error, PENSTOCK_EINVAL, "read: no region %" PRIu32 " is registered", r.region);
    if (!r.ranges && r.count > 0)
        return base_error_set(error, PENSTOCK_EINVAL, "read: no ranges are given");
    struct client_region *region = &s->regions.at[r.region];
    struct client_plan plan;
    struct client_split split;
    code = plan_read(s, &r, &plan, &split, error);
    if (code)
        return code;
    struct client_op *o = client_op_new(s, CLIENT_OP_READ, r.timeout_ns ? r.timeout_ns : s->reply_timeout_ns, r.user);
    if (!o) {
        client_plan_fini(&plan);
        client_split_fini(&split);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    }
    o->region = r.region;
    o->plan = plan;
    o->split = split;
    o->then = then;
    region->users++;
    *op = o->id;
    begin(s, o);
    return 0;
}

int penstock_submit(struct penstock_session *session, const struct penstock_read *read, penstock_op *op,
                    struct penstock_error *error)
{
    return client_submit(session, read, NULL, op, error);
}

int penstock_submit_digests(struct penstock_session *session, const struct penstock_digests *digests, penstock_op *op,
                            struct penstock_error *error)
{
    struct penstock_digests d;
    struct penstock_session *s = session;
    if (!s || !op)
        return missing("session and op", error);
    int code = client_take_sized(&d, digests, "digests", error);
    code = code ? code : can_submit(s, d.timeout_ns, error);
    if (code)
        return code;
    const struct penstock_file *file = penstock_catalogue_file(s->catalogue, d.file);
    if (!file || !file->name)
        return base_error_set(error, PENSTOCK_EINVAL, "digests: the model has no file %" PRIu32, d.file);
    if (d.first_chunk >= model_digest_chunks(file->len_bytes))
        return base_error_set(error, PENSTOCK_EINVAL, "digests: %s has no chunk %" PRIu64, file->name, d.first_chunk);
    if (!d.out || d.max == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "digests: there is no room for any");
    struct client_op *o =
        client_op_new(s, CLIENT_OP_DIGESTS, d.timeout_ns ? d.timeout_ns : s->reply_timeout_ns, d.user);
    if (!o)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    o->one_request = (struct client_request){ .file = d.file, .offset_bytes = d.first_chunk };
    o->plan = (struct client_plan){ .requests = &o->one_request, .n_requests = 1 };
    o->digests[0].iov_base = d.out;
    o->digests_max = d.max;
    *op = o->id;
    begin(s, o);
    return 0;
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
        client_op_end(session, o, PENSTOCK_ECANCELED, NULL);
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
        return missing("session", error);
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

int penstock_read_wait(struct penstock_session *session, const struct penstock_read *read, struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit(session, read, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

const char *penstock_version(void)
{
    return PENSTOCK_VERSION;
}
