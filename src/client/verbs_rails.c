/* Rails as they come and go: into the engine, with the control connections that they hang on; out of it, when they
 * fail; and built anew. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

#define RETRY_NS BASE_SECOND_NS /* doubled with every failure in a row, up to */
#define RETRY_MAX_NS (60 * BASE_SECOND_NS)

/* ---- control connections ---- */

static int watch(const struct penstock_session *s, int fd, uint32_t what, struct penstock_error *error)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = what };
    if (fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    return base_error_sys(error, errno, "epoll_ctl");
}

/* A port that goes down, a device that goes: each once, whatever the number of its rails. */
static int watch_devices(const struct penstock_session *s, struct penstock_error *error)
{
    const struct rail_devices *devices = &s->verbs->devices;
    int code = 0;
    for (size_t i = 0; code == 0 && i < devices->n; i++) {
        bool known = false;
        for (size_t j = 0; j < i; j++)
            known = known || devices->devices[j] == devices->devices[i];
        code = known ? 0 : watch(s, devices->devices[i]->event_fd, 0, error);
    }
    return code;
}

static int make_engine(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    const struct rail_engine_config config = { .devices = &v->devices,
                                               .pds = v->pds,
                                               .n_rails = v->devices.n,
                                               .deadline_ns = v->rail_deadline_ns,
                                               .rail_failed = client_verbs_rail_failed,
                                               .peer_gone = client_verbs_peer_gone,
                                               .context = s };
    if (v->engine)
        return 0;
    for (size_t i = 0; i < v->pairing.n; i++)
        v->slots[v->pairing.own[i]].paired = true;
    int code = watch_devices(s, error);
    code = code ? code : rail_engine_new(&config, &v->engine, error);
    v->up = code == 0;
    return code;
}

/* Into its slot. */
static int take_rail(struct penstock_session *s, struct rail *rail, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    size_t slot = rail->own;
    struct client_slot *c = &v->slots[slot];
    struct rail_stats stats;
    rail_engine_stats(v->engine, slot, &stats);
    c->control = v->n_controls;
    c->peer_rail = rail->peer_rail;
    c->mtu = rail->mtu;
    c->reads = rail->reads_out;
    c->bytes_before = stats.bytes;
    int code = watch(s, rail->cq->fd, CLIENT_WATCH_CQ, error);
    return code ? code : rail_engine_attach(v->engine, slot, rail, c->failures > 0, error);
}

static void put_off(struct client_slot *slot)
{
    unsigned more = slot->in_a_row > 1 ? slot->in_a_row - 2 : 0; /* the first is followed by another try at once */
    int64_t wait_ns = slot->in_a_row > 1 ? RETRY_NS << (more < 7 ? more : 7) : 0;
    slot->retry_ns = base_deadline_ns(wait_ns < RETRY_MAX_NS ? wait_ns : RETRY_MAX_NS);
}

void client_slot_failed(struct client_slot *slot, const struct penstock_error *error)
{
    slot->failures++;
    slot->in_a_row++;
    slot->error = *error;
    put_off(slot);
}

int client_verbs_take_rails(struct penstock_session *s, struct penstock_session *from, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    struct client_control *control = &v->controls[v->n_controls]; /* each that is kept is another slot's */
    int code = make_engine(s, error);
    if (code)
        return code;
    *control = (struct client_control){ .stream = from->stream };
    for (size_t i = 0; i < from->shake->set.n; i++) {
        struct rail *rail = &from->shake->set.rails[i];
        struct client_slot *slot = &v->slots[rail->own];
        if (rail_engine_rail(v->engine, rail->own))
            continue;
        struct penstock_error why = { 0 };
        int failed = take_rail(s, rail, &why);
        if (failed == 0) {
            control->rails++;
            continue;
        }
        client_slot_failed(slot, &why);
        *error = why;
        code = failed;
    }
    if (control->rails == 0)
        return code ? code : base_error_set(error, PENSTOCK_ECLOSED, "no rail was needed any more");
    client_shake_free(from->shake);
    from->shake = NULL;
    if (s->tier->one_stream)
        return 0;
    v->n_controls++;
    if (from->watched)
        epoll_ctl(from->epoll, EPOLL_CTL_DEL, from->stream.fd, NULL);
    from->watched = 0;
    from->has_stream = false;
    return watch(s, control->stream.fd, 0, error);
}

void client_verbs_drop_controls(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    if (v->judge_ns != 0)
        return; /* they may still say that the peer is gone */
    for (size_t i = v->n_controls; i-- > 0;) {
        if (v->controls[i].rails > 0)
            continue;
        v->controls[i].stream.ops->close(&v->controls[i].stream);
        size_t last = --v->n_controls;
        v->controls[i] = v->controls[last];
        for (size_t slot = 0; slot < v->devices.n; slot++)
            if (v->slots[slot].control == last)
                v->slots[slot].control = i;
    }
}

bool client_verbs_peer_gone(void *session, struct penstock_error *error)
{
    struct penstock_session *s = session;
    struct client_verbs *v = s->verbs;
    if (s->tier->one_stream)
        return s->tier->hear(s, error) != 0;
    for (size_t i = 0; i < v->n_controls; i++) {
        struct net_stream *stream = &v->controls[i].stream;
        uint8_t byte;
        const struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
        ssize_t n = v->controls[i].mute ? -EAGAIN : stream->ops->readv(stream, &iov, 1);
        if (n == 0 || n == -ECONNRESET || n == -EPIPE)
            base_error_set(error, PENSTOCK_ECLOSED,
                           "has gone: it closed the connection that the rails hang on, or died");
        else if (n > 0)
            base_error_set(error, PENSTOCK_EPROTO, "sent bytes that nobody asked for");
        if (n >= 0 || n == -ECONNRESET || n == -EPIPE) {
            client_engine_name(s, error);
            return true;
        }
        if (n != -EAGAIN) { /* whatever else a stream may suffer, the rails are another way */
            v->controls[i].mute = true;
            epoll_ctl(s->epoll, EPOLL_CTL_DEL, stream->fd, NULL);
        }
    }
    return false;
}

/* Operations that the engine has not got yet know nothing of a rail's end: where it was the last, they have it built
 * anew, or end where this one has come to nothing again. */
static void care_for_waiting(struct penstock_session *s, const struct client_slot *slot)
{
    struct client_verbs *v = s->verbs;
    bool waiting = false;
    base_list_for_each (node, &s->ops)
        waiting = waiting || base_list_entry(node, struct client_op, node)->waiting;
    if (!waiting)
        return;
    v->building = true;
    v->wanted = v->wanted || slot->in_a_row < 2;
    v->rebuild_error = slot->error;
    client_engine_name(s, &v->rebuild_error);
}

void client_verbs_rail_failed(void *session, size_t slot, const struct penstock_error *error)
{
    struct penstock_session *s = session;
    struct client_verbs *v = s->verbs;
    struct client_slot *c = &v->slots[slot];
    struct rail_stats stats;
    rail_engine_stats(v->engine, slot, &stats);
    c->in_a_row = stats.bytes > c->bytes_before ? 0 : c->in_a_row + 1;
    c->failures++;
    c->error = *error;
    put_off(c);
    if (c->control < v->n_controls && v->controls[c->control].rails > 0)
        v->controls[c->control].rails--;
    care_for_waiting(s, c);
}

/* ---- built anew ---- */

static bool is_due(const struct client_verbs *v, size_t slot, int64_t now_ns)
{
    return v->slots[slot].paired && !rail_engine_rail(v->engine, slot) &&
           (v->slots[slot].retry_ns <= now_ns || rail_engine_alive(v->engine) == 0);
}

/* What is being built could not be. */
static void rebuild_failed(struct penstock_session *s, const struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    v->rebuild_error = *error;
    client_engine_name(s, &v->rebuild_error);
    for (size_t i = 0; i < v->devices.n; i++)
        if (v->slots[i].in_hand) {
            v->slots[i].in_a_row++;
            put_off(&v->slots[i]);
        }
}

/* Takes in hand what is to be built next; false: nothing is left to try. A rail at a time, so that one whose link is
 * still down costs no other; but a peer that can only count gives its first ones or none. */
static bool take_in_hand(struct client_verbs *v)
{
    int64_t now_ns = base_now_ns();
    bool any = false;
    for (size_t i = 0; i < v->devices.n; i++) {
        struct client_slot *slot = &v->slots[i];
        slot->in_hand = is_due(v, i, now_ns) && !slot->tried && (!any || !v->choosing);
        slot->tried = slot->tried || slot->in_hand;
        any = any || slot->in_hand;
    }
    return any;
}

static bool carries_waiting(const struct penstock_session *s)
{
    return s->tier->carries ? s->tier->carries(s) : rail_engine_alive(s->verbs->engine) > 0;
}

void client_verbs_rebuild(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    struct penstock_error error;
    if (v->rebuild || v->judge_ns != 0)
        return;
    client_verbs_drop_controls(s); /* later they may have to be kept, and what is built needs a place */
    if (v->wanted)
        for (size_t i = 0; i < v->devices.n; i++)
            v->slots[i].tried = false;
    v->building = v->building || v->wanted;
    v->wanted = false;
    while (v->building) {
        v->building = take_in_hand(v);
        if (!v->building)
            break;
        if (client_session_beside(s, s->tier->again(s), true, &v->rebuild, &error) == 0)
            return;
        rebuild_failed(s, &error);
    }
    if (!carries_waiting(s) && v->rebuild_error.code)
        client_verbs_give_up(s, &v->rebuild_error);
}

void client_verbs_rebuilding(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    struct penstock_session *r = v->rebuild;
    struct penstock_error error;
    client_engine_run(r);
    if (r->step != CLIENT_RAILS && r->step != CLIENT_DEAD)
        return;
    int code = 0;
    if (r->step == CLIENT_DEAD) {
        error = r->error;
        code = error.code;
    } else {
        code = client_verbs_take_rails(s, r, &error);
    }
    penstock_session_free(r);
    v->rebuild = NULL;
    if (code)
        rebuild_failed(s, &error);
    else
        v->rebuild_error.code = 0;
    if (rail_engine_alive(v->engine) > 0)
        client_verbs_resume(s);
}
