#include "client/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"

/* How long a thread that waits looks for completions before it sleeps: a wake-up costs it several microseconds. */
#define SPIN_NS INT64_C(20000)
/* What one call may take before the caller gets a turn. */
#define BUDGET_NS (2 * BASE_MS_NS)

/* ---- its life ---- */

/* One PD a device. */
static int make_pds(struct client_verbs *v, struct penstock_error *error)
{
    for (size_t i = 0; i < v->devices.n; i++) {
        for (size_t j = 0; j < i && !v->pds[i]; j++)
            if (v->devices.devices[j] == v->devices.devices[i])
                v->pds[i] = v->pds[j];
        int code = v->pds[i] ? 0 : verbs_pd_new(v->devices.devices[i], &v->pds[i], error);
        if (code)
            return code;
    }
    return 0;
}

static void verbs_free(struct client_verbs *v)
{
    for (size_t i = v->devices.n; i-- > 0;) {
        bool shared = false;
        for (size_t j = 0; j < i; j++)
            shared = shared || v->pds[j] == v->pds[i];
        if (!shared)
            verbs_pd_free(v->pds[i]);
    }
    rail_devices_close(&v->devices);
    free(v->region_bytes);
    free(v);
}

int client_verbs_open(struct verbs_world *world, const char *rails, struct client_verbs **verbs,
                      struct penstock_error *error)
{
    struct rail_wishes wishes = { 0 };
    int code = rails ? rail_wishes_add(&wishes, rails, false, error) : 0;
    if (code)
        return code;
    struct client_verbs *v = calloc(1, sizeof *v);
    if (!v)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for rails");
    v->owner = getpid();
    code = rail_devices_open(world, &wishes, &v->devices, error);
    code = code ? code : make_pds(v, error);
    v->simulated = code == 0 && v->devices.devices[0]->event_fd < 0;
    for (size_t i = 0; code == 0 && i < v->devices.n; i++)
        rail_gid_format(v->devices.ports[i].gid, v->gid_texts[i]);
    if (code)
        verbs_free(v);
    else
        *verbs = v;
    return code;
}

static void free_session(struct penstock_session **s)
{
    penstock_session_free(*s);
    *s = NULL;
}

/* The sessions beside, and the control connections. */
static void close_streams(struct client_verbs *v)
{
    free_session(&v->beside);
    free_session(&v->rebuild);
    free_session(&v->asking);
    while (v->n_controls > 0) {
        struct net_stream *stream = &v->controls[--v->n_controls].stream;
        stream->ops->close(stream);
    }
}

static uint64_t moved(const struct client_verbs *v, size_t slot)
{
    struct rail_stats stats;
    if (!v->engine)
        return v->slots[slot].moved_bytes;
    rail_engine_stats(v->engine, slot, &stats);
    return stats.bytes;
}

void client_verbs_stop(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    v->stopping = true;
    for (size_t i = 0; v->engine && i < v->devices.n; i++)
        v->slots[i].moved_bytes = moved(v, i);
    rail_engine_free(v->engine);
    v->engine = NULL;
    close_streams(v);
}

/* In a child of fork(): the devices are the parent's, and whatever is done to them here is done to it. Connections are
 * let go of, as by a session over TCP: else the peer would not see the parent close them. */
static void leave_to_parent(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    s->verbs = NULL;
    s->shake = NULL;
    if (v->rebuild)
        v->rebuild->shake = NULL;
    close_streams(v);
}

void client_verbs_close(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    if (v && !s->verbs_lent && v->owner != getpid()) {
        leave_to_parent(s);
        return;
    }
    client_shake_free(s->shake);
    s->shake = NULL;
    s->verbs = NULL;
    if (!v || s->verbs_lent)
        return;
    s->verbs = v;
    client_verbs_stop(s);
    for (size_t i = 0; i < s->regions.n; i++)
        client_region_forget(s, &s->regions.at[i]);
    if (s->tier->forget_memory)
        s->tier->forget_memory(s);
    s->verbs = NULL;
    verbs_free(v);
}

/* ---- what fds tell ---- */

static void port_is_down(struct penstock_session *s, size_t slot, enum verbs_event event)
{
    struct client_verbs *v = s->verbs;
    struct penstock_error error;
    if (!v->engine || !rail_engine_rail(v->engine, slot))
        return;
    base_error_set(&error, PENSTOCK_ECLOSED, "%s",
                   event == VERBS_EVENT_DEVICE_GONE ? "the device is gone" : "the port went down (ip link, rdma link)");
    rail_engine_detach(v->engine, slot, &error);
}

static void look_at_devices(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    for (size_t i = 0; i < v->devices.n; i++) {
        enum verbs_event event;
        uint8_t port = 0;
        while ((event = verbs_device_event(v->devices.devices[i], &port)) != VERBS_EVENT_NONE) {
            if (event == VERBS_EVENT_DEVICE_GONE) /* its fd tells of that for ever */
                (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, v->devices.devices[i]->event_fd, NULL);
            for (size_t slot = 0; slot < v->devices.n; slot++)
                if (v->devices.devices[slot] == v->devices.devices[i] &&
                    (event == VERBS_EVENT_DEVICE_GONE ||
                     (event == VERBS_EVENT_PORT_DOWN && v->devices.ports[slot].port == port)))
                    port_is_down(s, slot, event);
        }
    }
}

/* Runs what is beside the session, where its fd or its time says so. */
static void look_beside(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    if (v->rebuild)
        client_verbs_rebuilding(s);
    if (v->beside) {
        client_engine_run(v->beside);
        client_verbs_collect(s);
    }
}

static bool time_beside(const struct client_verbs *v)
{
    return (v->rebuild && client_engine_timeout_ns(v->rebuild, true) == 0) ||
           (v->beside && client_engine_timeout_ns(v->beside, true) == 0);
}

/* Whether the peer is gone: *error says so. */
static bool look(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    struct epoll_event events[8];
    int n = epoll_wait(s->epoll, events, sizeof events / sizeof *events, 0);
    bool cqs = false, others = false; /* than CQs, which are polled in any case */
    for (int i = 0; i < n; i++) {
        cqs = cqs || events[i].data.u32 == CLIENT_WATCH_CQ;
        others = others || events[i].data.u32 != CLIENT_WATCH_CQ;
    }
    if (cqs)
        rail_engine_woken(v->engine);
    if (others) {
        if (client_verbs_peer_gone(s, error))
            return true;
        look_at_devices(s);
    }
    if (others || time_beside(v))
        look_beside(s);
    return false;
}

/* ---- one step ---- */

static bool outstanding(const struct client_verbs *v)
{
    return rail_engine_deadline_ns(v->engine) != INT64_MAX;
}

/* A read that waits for less long than rails are given shortens their deadline, while it is the first. */
static int64_t deadline_now(const struct penstock_session *s)
{
    if (base_list_empty(&s->on_rails))
        return s->verbs->rail_deadline_ns;
    const struct client_op *op = base_list_entry(s->on_rails.next, struct client_op, queue);
    return op->timeout_ns < s->verbs->rail_deadline_ns ? op->timeout_ns : s->verbs->rail_deadline_ns;
}

/* Polls until nothing more moves; for a thread that waits, a moment longer. The CQs are armed then. */
static void move(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    int64_t begun_ns = base_now_ns(), now_ns = begun_ns, moved_ns = begun_ns;
    v->submitted = v->armed = false;
    rail_engine_set_deadline(v->engine, deadline_now(s));
    for (;;) {
        if (s->tier->pump)
            s->tier->pump(s);
        bool more = rail_engine_poll(v->engine, now_ns);
        now_ns = base_now_ns();
        if (more) {
            moved_ns = now_ns;
            v->armed = false;
            s->more = now_ns - begun_ns > BUDGET_NS;
            if (s->more)
                return;
        } else if (v->armed) {
            return;
        } else if (!s->waited_for || !outstanding(v) || now_ns - moved_ns > SPIN_NS) {
            rail_engine_arm(v->engine); /* where nothing is outstanding: what woke and is of no use any more */
            v->armed = true;            /* and what came before it is polled for once more */
        }
    }
}

int client_verbs_step(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    bool gone = look(s, error);
    if (!gone) {
        if (v->simulated)
            look_at_devices(s); /* no fd tells of them */
        client_verbs_rebuild(s);
        move(s);
        client_verbs_drop_controls(s);
        gone = v->judge_ns != 0 && client_verbs_peer_gone(s, error);
    }
    if (!gone && v->broken.code) {
        *error = v->broken;
        gone = true;
    }
    if (gone)
        return error->code;
    client_verbs_judge(s);
    return -EAGAIN;
}

static int64_t earlier(int64_t deadline_ns, const struct penstock_session *beside)
{
    int64_t timeout_ns = beside ? client_engine_timeout_ns(beside, true) : -1;
    int64_t at = timeout_ns < 0 ? BASE_NEVER : base_deadline_ns(timeout_ns);
    return at < deadline_ns ? at : deadline_ns;
}

int64_t client_verbs_deadline_ns(const struct penstock_session *s)
{
    const struct client_verbs *v = s->verbs;
    int64_t at = earlier(earlier(earlier(BASE_NEVER, v->asking), v->rebuild), v->beside);
    if (v->judge_ns != 0 && v->judge_ns < at)
        at = v->judge_ns;
    if (!v->engine)
        return at;
    if (s->tier->due_ns && s->tier->due_ns(s) < at)
        at = s->tier->due_ns(s);
    if (v->submitted || ((v->wanted || v->building) && !v->rebuild && v->judge_ns == 0))
        return 0;
    int64_t rails = rail_engine_deadline_ns(v->engine);
    if (rails != INT64_MAX && (v->simulated || !v->armed))
        return 0; /* also in a simulated world, which has no fds */
    return rails < at ? rails : at;
}

/* ---- what there is to say ---- */

size_t penstock_session_rails(const struct penstock_session *session)
{
    size_t n = 0;
    for (size_t i = 0; session && session->verbs && i < session->verbs->devices.n; i++)
        n += session->verbs->slots[i].paired;
    return n;
}

int penstock_session_rail(const struct penstock_session *session, size_t index, struct penstock_rail_info *info)
{
    const struct client_verbs *v = session ? session->verbs : NULL;
    if (!v || !info || info->size < sizeof info->size || info->size > 4096)
        return PENSTOCK_EINVAL;
    size_t slot = 0;
    for (; slot < v->devices.n; slot++)
        if (v->slots[slot].paired && index-- == 0)
            break;
    if (slot == v->devices.n)
        return PENSTOCK_EINVAL;
    const struct rail_port *port = &v->devices.ports[slot];
    const struct client_slot *c = &v->slots[slot];
    const struct penstock_rail_info all = {
        .size = info->size,
        .device = port->device,
        .gid = v->gid_texts[slot],
        .why = port->why,
        .failure = c->failures ? c->error.message : NULL,
        .port = port->port,
        .gid_index = port->gid_index,
        .peer_rail = c->peer_rail,
        .mtu_bytes = verbs_mtu_bytes(c->mtu),
        .reads = c->reads,
        .up = v->engine && rail_engine_rail(v->engine, slot),
        .gbps = port->gbps,
        .bytes = moved(v, slot),
        .failures = c->failures,
    };
    size_t size = info->size;
    if (size > sizeof all)
        memset((char *)info + sizeof all, 0, size - sizeof all);
    memcpy(info, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

const char *penstock_session_bounce_why(const struct penstock_session *session)
{
    return session && session->verbs && session->verbs->bounce.code ? session->verbs->bounce.message : NULL;
}
