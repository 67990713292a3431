#include "verbs_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rail/set.h"
#include "thread.h"

struct service {
    struct peer_connection *connection;
    struct peer_served *served;
    struct rail_set set;
    size_t n_rails;
    int code;
    struct penstock_error error;
};

/* ---- the handshake ---- */

/* The peer posts nothing: its queues are as short as they can be. */
static void open_set(struct service *s)
{
    rail_set_init(&s->set, &(struct rail_set_config){
                               .devices = &s->connection->server->rails,
                               .pds = s->served->registration.regions.pds,
                               .at_peer = true,
                               .access = VERBS_REMOTE_READ,
                               .depth = 1,
                               .sges_max = 1,
                               .tables = s->served->registration.regions.tables,
                           });
}

static void *shake_hands(void *argument)
{
    struct service *s = argument;
    struct peer_server *server = s->connection->server;
    s->code = peer_registration_want(s->served, &server->registrar, &s->error);
    if (s->code) {
        base_error_in(&s->error, "%s is served over TCP only", s->served->id);
        return NULL;
    }
    open_set(s);
    const struct net_handshake_config config = {
        .dialect = PENSTOCK_READ_ONLY,
        .other = "rail handshake",
        .ops = &rail_set_ops,
        .rails = &s->set,
        .n_rails = server->rails.n,
        .n_regions = s->served->registration.regions.n,
    };
    const struct net_handshake_deadlines deadlines = { .patient_ns = server->deadlines.mode_ns,
                                                       .message_ns = server->deadlines.message_ns };
    s->code = net_handshake_as_peer(&s->connection->stream, &config, &deadlines, &s->n_rails, &s->error);
    if (s->code)
        rail_set_fini(&s->set);
    return NULL;
}

/* On a thread that is waited for: registering and the libraries of devices want more stack than a connection has. */
static int connect_rails(struct service *s)
{
    int failed = peer_thread_run_large(shake_hands, s);
    if (failed)
        s->code = base_error_sys(&s->error, failed, "no thread for the rail handshake");
    return s->code;
}

/* ---- what comes after it ---- */

/* What the QPs are in fact set to. */
static void log_rails(const struct service *s)
{
    const struct peer_connection *c = s->connection;
    char words[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < s->n_rails && at < sizeof words; i++) {
        const struct rail *rail = &s->set.rails[i];
        struct verbs_qp_state state = { 0 };
        struct penstock_error error;
        if (verbs_qp_query(rail->qp, &state, &error))
            base_log_debug("client %s: %s", c->client, error.message);
        int n = snprintf(words + at, sizeof words - at, "%s%u %s, MTU %u, %u READs", i ? "; " : "", rail->own,
                         c->server->rails.ports[rail->own].device, verbs_mtu_bytes(state.mtu), state.reads_in);
        at += n > 0 ? (size_t)n : 0;
        base_log_debug("client %s: rail %u: QP 0x%x, PSN 0x%x", c->client, rail->own, rail->qp->qpn, rail->psn);
    }
    base_log_info("client %s: reads %s by RDMA over %zu rail%s: %s", c->client, s->served->id, s->n_rails,
                  s->n_rails == 1 ? "" : "s", words);
}

/* Nothing may be asked here: what comes is discarded (protocol 1.3). Ends with the client, with a drain that is over,
 * or with what it reads: whoever ends it shuts the stream down. */
static void idle(struct peer_connection *c)
{
    uint8_t nothing[512];
    const struct iovec into = { .iov_base = nothing, .iov_len = sizeof nothing };
    while (c->stream.ops->readv(&c->stream, &into, 1) > 0)
        ;
}

static enum peer_end serve(struct service *s)
{
    struct peer_connection *c = s->connection;
    if (connect_rails(s)) {
        peer_connection_complain(c, "closed, no RDMA for it: %s", s->error.message);
        return PEER_END_LINGER;
    }
    int64_t began_ns = base_now_ns();
    log_rails(s);
    idle(c);
    /* A client whose rails die must know by then that it is the peer that has gone. */
    c->stream.ops->shutdown(&c->stream, SHUT_RDWR);
    rail_set_fini(&s->set);
    base_log_debug("client %s: done with %s after %.3f s", c->client, s->served->id,
                   (double)(base_now_ns() - began_ns) / 1e9);
    return PEER_END_CLOSE;
}

enum peer_end peer_verbs_serve(struct peer_connection *c)
{
    if (c->server->rails.n == 0) {
        peer_connection_complain(c, "closed: it asked for RDMA, which is not here: %s", c->server->no_rdma);
        return PEER_END_LINGER;
    }
    struct service *s = calloc(1, sizeof *s);
    if (!s) {
        peer_connection_complain(c, "closed: no memory for its rails");
        return PEER_END_LINGER;
    }
    s->connection = c;
    s->served = c->served;
    peer_connection_set_rails(c, true);
    enum peer_end end = serve(s);
    peer_connection_set_rails(c, false);
    free(s);
    return end;
}
