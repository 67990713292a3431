/* From a manifest to rails: which of ours goes with which of the peer's, the rail handshake, and control connections.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

/* ---- over TCP after all ---- */

/* There can be no rails, for the reason in *error: an end for RDMA; AUTO goes on over TCP. */
static int without_rails(struct penstock_session *s, struct penstock_error *error)
{
    if (s->transport == PENSTOCK_TRANSPORT_RDMA)
        return error->code;
    free(s->why_tcp);
    s->why_tcp = strdup(error->message);
    client_verbs_close(s);
    client_verbs_to_tcp(s);
    return 0;
}

/* The same before the mode byte is sent. */
static int without_mode(struct penstock_session *s, struct penstock_error *error)
{
    int code = without_rails(s, error);
    return code ? code : client_hello_to_tcp(s, error);
}

/* ---- the rail handshake ---- */

void client_shake_free(struct client_shake *shake)
{
    if (!shake)
        return;
    net_handshake_free(shake->handshake);
    rail_set_fini(&shake->set);
    free(shake);
}

static int know_regions(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    size_t n = s->tier->regions(s);
    if (v->region_bytes)
        return 0;
    v->region_bytes = calloc(n ? n : 1, sizeof *v->region_bytes);
    if (!v->region_bytes)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the lengths of %zu files", n);
    for (size_t i = 0; i < n; i++)
        v->region_bytes[i] = s->tier->region_bytes(s, i);
    return 0;
}

/* At first all rails, but for those that could not be connected. Later what is in hand, unless the peer can only count:
 * its first ones are then what there is to be had, and those that are up already are given back. */
static void pairing_now(const struct client_verbs *v, struct rail_pairing *out)
{
    *out = v->pairing;
    if (!v->choosing)
        return;
    out->n = 0;
    for (size_t i = 0; i < v->pairing.n; i++) {
        const struct client_slot *slot = &v->slots[v->pairing.own[i]];
        if (v->engine ? slot->in_hand : slot->failures == 0) {
            out->own[out->n] = v->pairing.own[i];
            out->wishes[out->n++] = v->pairing.wishes[i];
        }
    }
}

static int begin_shake(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    char other[128];
    int code = know_regions(s, error);
    if (code)
        return code;
    struct client_shake *k = calloc(1, sizeof *k);
    if (!k)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the rail handshake");
    client_shake_free(s->shake);
    s->shake = k;
    pairing_now(v, &k->pairing);
    const struct rail_set_config set = { .devices = &v->devices,
                                         .pds = v->pds,
                                         .own = k->pairing.own,
                                         .depth = RAIL_DEPTH,
                                         .sges_max = RAIL_SGES,
                                         .expected_bytes = v->region_bytes,
                                         .n_expected = s->tier->regions(s) };
    rail_set_init(&k->set, &set);
    snprintf(other, sizeof other, "%s %.100s", s->tier->peer, s->peer);
    const struct net_handshake_config config = { .dialect = s->tier->dialect,
                                                 .other = other,
                                                 .ops = &rail_set_ops,
                                                 .rails = &k->set,
                                                 .n_rails = k->pairing.n,
                                                 .n_regions = set.n_expected,
                                                 .wishes = v->choosing ? k->pairing.wishes : NULL };
    code = net_handshake_client_new(&config, &k->handshake, error);
    if (code)
        return code;
    if (s->tier->dialect == PENSTOCK_READ_ONLY) {
        s->out[0] = PENSTOCK_MODE_VERBS;
        s->out_at = 0;
        s->out_end = 1;
    }
    client_hello_enter(s, CLIENT_SHAKING);
    return client_engine_flush(s, error);
}

/* Nothing was sent yet: what cannot be begun may be done without. */
static int begin(struct penstock_session *s, struct penstock_error *error)
{
    int code = begin_shake(s, error);
    if (code == 0 || s->step == CLIENT_SHAKING || s->verbs_lent)
        return code;
    return without_mode(s, error);
}

/* A peer of the frozen protocol, as far as is known: what it has shows in how many it grants. */
static int begin_frozen(struct penstock_session *s, struct penstock_error *error)
{
    s->verbs->choosing = false;
    int code = rail_pair(&s->verbs->devices, NULL, &s->verbs->pairing, error);
    return code ? code : begin(s, error);
}

int client_verbs_begin(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    if (v->pairing.n > 0)
        return begin(s, error);
    v->choosing = s->addresses.n > 0 && (!s->tier->version || s->tier->version(s));
    if (!v->choosing)
        return begin_frozen(s, error);
    if (!s->tier->listed) {
        rail_pair_blindly(&v->devices, &v->pairing);
        return begin(s, error);
    }
    if (client_session_beside(s, CLIENT_FOR_MODELS, false, &v->asking, error) != 0)
        return without_mode(s, error);
    client_hello_enter(s, CLIENT_PAIRING);
    return client_engine_flush(s, error);
}

/* The version shows whether a peer is ours; without one, that it closed instead of listing its rails. */
static bool is_frozen(const struct penstock_session *s, int code)
{
    return !s->tier->version && (code == PENSTOCK_ECLOSED || code == PENSTOCK_EDENIED);
}

static int pair(struct penstock_session *s, struct penstock_error *error)
{
    struct rail_listing theirs;
    int code = s->tier->listed(s->verbs->asking, &theirs, error);
    if (code == 0 && theirs.n == 0)
        code = base_error_set(error, PENSTOCK_EUNSUPPORTED, "the peer has no rails: its log says why");
    return code ? code : rail_pair(&s->verbs->devices, &theirs, &s->verbs->pairing, error);
}

/* Nothing is due on the session's own stream meanwhile. */
static int still_there(struct penstock_session *s, struct penstock_error *error)
{
    uint8_t byte;
    const struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
    ssize_t n = s->stream.ops->readv(&s->stream, &iov, 1);
    if (n == -EAGAIN)
        return 0;
    if (n > 0)
        return base_error_set(error, PENSTOCK_EPROTO, "sent bytes that nobody asked for");
    return n < 0 ? client_engine_broken((int)-n, "read", error)
                 : base_error_set(error, PENSTOCK_ECLOSED, "closed the connection after its manifest");
}

int client_verbs_pair(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    struct penstock_session *asking = v->asking;
    int gone = still_there(s, error);
    if (gone)
        return gone;
    client_engine_run(asking);
    if (asking->open_id != 0)
        return -EAGAIN;
    int code = pair(s, error);
    penstock_session_free(asking);
    v->asking = NULL;
    if (code && is_frozen(s, code))
        return begin_frozen(s, error);
    return code ? without_mode(s, error) : begin(s, error);
}

/* As far as the socket allows. 0: nothing is left to do. */
static int exchange(struct penstock_session *s, struct penstock_error *error)
{
    struct net_handshake *h = s->shake->handshake;
    for (;;) {
        enum net_handshake_next next = net_handshake_next(h);
        uint8_t in[4096];
        size_t len;
        ssize_t n;
        if (next == NET_HANDSHAKE_READ) {
            len = net_handshake_want(h);
            struct iovec to = { .iov_base = in, .iov_len = len < sizeof in ? len : sizeof in };
            n = s->stream.ops->readv(&s->stream, &to, 1);
            if (n > 0)
                net_handshake_feed(h, in, (size_t)n);
        } else if (next == NET_HANDSHAKE_WRITE) {
            const uint8_t *out = net_handshake_output(h, &len);
            struct iovec from = { .iov_base = (void *)(uintptr_t)out, .iov_len = len };
            n = s->stream.ops->writev(&s->stream, &from, 1, false);
            if (n > 0)
                net_handshake_wrote(h, (size_t)n);
        } else {
            return 0;
        }
        if (n == -EAGAIN) {
            int code = client_engine_watch(s, next == NET_HANDSHAKE_READ ? EPOLLIN : EPOLLOUT, error);
            return code ? code : -EAGAIN;
        }
        if (n <= 0)
            net_handshake_end(h, (int)-n);
        s->progress_ns = base_now_ns(); /* what was fed may have taken long: queue pairs are made meanwhile */
    }
}

/* ---- up ---- */

/* A memlock limit that lets nothing be registered shows here, where TCP is still to be had; who insists on RDMA may
 * have DEVICE memory, which needs none. */
static int try_memory(struct penstock_session *s, struct penstock_error *error)
{
    const struct client_verbs *v = s->verbs;
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX] = { 0 };
    int code = 0;
    for (size_t i = 0; i < v->pairing.n && code == 0 && s->transport == PENSTOCK_TRANSPORT_AUTO; i++)
        code = verbs_mr_new(v->pds[v->pairing.own[i]], s->scratch, CLIENT_SCRATCH_BYTES, VERBS_LOCAL_WRITE, &mrs[i],
                            error);
    for (size_t i = 0; i < v->pairing.n; i++)
        verbs_mr_free(mrs[i]);
    return code;
}

int client_verbs_ready(struct penstock_session *s, struct penstock_error *error)
{
    (void)error;
    client_hello_enter(s, CLIENT_RAILS);
    client_op_end(s, client_op_find(s, s->open_id), 0, NULL);
    if (!s->verbs_lent)
        client_verbs_resume(s);
    return 0;
}

/* The handshake is through. */
static int shaken(struct penstock_session *s, struct penstock_error *error)
{
    if (!s->verbs_lent) {
        int code = try_memory(s, error);
        code = code ? code : client_verbs_take_rails(s, s, error);
        if (code || s->tier->rails_up)
            return code ? code : s->tier->rails_up(s, error);
    }
    return client_verbs_ready(s, error);
}

int client_verbs_shake(struct penstock_session *s, struct penstock_error *error)
{
    int code = client_engine_flush(s, error);
    if (code == 0 && s->out_at < s->out_end)
        return -EAGAIN;
    code = code ? code : exchange(s, error);
    if (code)
        return code;
    if (net_handshake_next(s->shake->handshake) == NET_HANDSHAKE_DONE)
        return shaken(s, error);
    *error = *net_handshake_error(s->shake->handshake);
    return error->code;
}

/* Whether TCP may do where the handshake failed like this: not where the peer is gone or makes no sense. */
static bool may_do_without(int code)
{
    return code != PENSTOCK_ECLOSED && code != PENSTOCK_EPROTO && code != PENSTOCK_ETIMEOUT && code != PENSTOCK_ESTALE;
}

/* A rail of ours that could not be connected costs no other: the rest are asked for without it, and it is tried again
 * when they have been up. */
static bool leave_out_failed(struct penstock_session *s, const struct penstock_error *error)
{
    const struct client_shake *k = s->shake;
    if (!k || !s->verbs->choosing || s->addresses.n == 0 || k->set.failed >= k->pairing.n || k->pairing.n == 1)
        return false;
    client_slot_failed(&s->verbs->slots[k->pairing.own[k->set.failed]], error);
    return true;
}

/* A peer closes where it is asked for more rails than it has: one of the frozen protocol, or one that does not list its
 * rails. */
static bool may_have_fewer(const struct penstock_session *s, int code)
{
    return code == PENSTOCK_EDENIED && s->verbs->pairing.n > 1 && !(s->verbs->choosing && s->tier->listed);
}

/* AUTO ends here, at a peer that did not list its rails. */
static void no_way_left(struct penstock_error *error)
{
    struct penstock_error rails = *error;
    base_error_set(error, rails.code, "%.400s; TCP is no way either: a peer of the frozen protocol has none",
                   rails.message);
}

int client_verbs_shake_failed(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    if (s->verbs_lent)
        return error->code;
    bool fewer = leave_out_failed(s, error);
    client_shake_free(s->shake); /* its rails hang on the stream that is closed next */
    s->shake = NULL;
    if (s->addresses.n == 0)
        return error->code;
    if (may_have_fewer(s, error->code) && !fewer) {
        v->pairing.n--;
        fewer = true;
    }
    if (!fewer) {
        bool tcp = v->choosing || s->tier->frozen_tcp;
        if (!tcp && s->transport == PENSTOCK_TRANSPORT_AUTO && s->tier->dialect == PENSTOCK_READ_WRITE)
            no_way_left(error);
        if (!tcp || !may_do_without(error->code) || without_rails(s, error) != 0)
            return error->code;
    }
    return client_hello_redial(s, s->tier->again(s), error);
}
