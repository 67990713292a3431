/* The cache tier (protocol 1.6, 2.2, 2.3 and 2.6), the peer's side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/wire.h>

#include "base/error.h"
#include "base/log.h"
#include "cache.h"
#include "peer/service.h"
#include "peer/thread.h"
#include "rails.h"
#include "stats.h"
#include "tcp.h"
#include "verbs.h"

/* ---- the header ---- */

static bool wire_refused(struct peer_connection *c, const struct penstock_wire_fault *fault)
{
    char words[200];
    penstock_wire_fault_format(fault, words, sizeof words);
    peer_connection_complain(c, "refused: %s", words);
    return false;
}

/* False: *end says how to close, and why is in the log. */
static bool read_header(struct peer_connection *c, struct penstock_paging_header *out, enum peer_end *end)
{
    uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
    int64_t first_ns = c->server->deadlines.first_byte_ns;
    struct penstock_wire_fault fault;
    struct penstock_error error;
    size_t have = 0, consumed;
    enum penstock_decode d;
    *end = PEER_END_LINGER;
    /* No further than what can be judged: a stranger who sends a few bytes and waits gets an answer. */
    while ((d = penstock_paging_header_decode(bytes, have, out, &consumed, &fault)) == PENSTOCK_DECODE_MORE) {
        size_t got;
        if (peer_connection_read_message(c, bytes + have, fault.need - have, first_ns, &got, &error)) {
            *end = peer_connection_ended(c, "while it sends the paging header", have + got > 0, &error);
            return false;
        }
        have = fault.need;
        first_ns = c->server->deadlines.message_ns;
    }
    return d == PENSTOCK_DECODE_OK || wire_refused(c, &fault);
}

/* ---- statistics ---- */

static int send_statistics(struct peer_connection *c, const struct base_buf *json, struct penstock_error *error)
{
    uint8_t head[PENSTOCK_TEXT_HEAD_BYTES];
    struct penstock_wire_fault fault;
    if (penstock_text_head_encode(PENSTOCK_TEXT_CACHE_STATISTICS, json->n, head, &fault) == 0) {
        char words[200];
        penstock_wire_fault_format(&fault, words, sizeof words);
        return base_error_set(error, PENSTOCK_EPROTO, "%s", words);
    }
    int code = net_stream_write_all(&c->stream, head, sizeof head, c->server->deadlines.message_ns, error);
    return code ? code : net_stream_write_all(&c->stream, json->at, json->n, c->server->deadlines.message_ns, error);
}

static void answer_statistics(struct peer_connection *c)
{
    struct base_buf json = { 0 };
    struct penstock_error error;
    int code = peer_cache_stats_write(c->server, &json, &error);
    if (code == 0)
        code = send_statistics(c, &json, &error);
    if (code)
        (void)peer_connection_ended(c, "while statistics are sent", true, &error);
    base_buf_fini(&json);
}

/* ---- a session ---- */

struct session {
    struct peer_connection *connection;
    struct penstock_paging_header header;
    struct residency_client *client; /* NULL: refused */
    struct peer_cache_rails rails;
    bool go_on;
};

static const char *kind_name(const struct penstock_paging_header *h)
{
    return h->kind == PENSTOCK_ARENA_KV ? "KV" : "SSM";
}

static bool join(struct session *s)
{
    struct penstock_error error;
    const struct penstock_paging_header *h = &s->header;
    if (residency_join(s->connection->server->cache.residency, (enum residency_kind)h->kind, h->arena_bytes,
                       h->blob_bytes, &s->client, &error) == 0)
        return true;
    peer_connection_complain(s->connection, "refused (%s): %s", kind_name(h), error.message);
    return false;
}

static bool shake_hands(struct session *s)
{
    struct peer_connection *c = s->connection;
    struct penstock_error error;
    if (peer_cache_handshake(&s->rails, c, s->client, &error) == 0)
        return true;
    if (c->server->rails.n == 0 && error.code != PENSTOCK_ECLOSED && error.code != PENSTOCK_ETIMEOUT)
        peer_connection_complain(c, "closed: it asked for RDMA, which is not here: %s", c->server->no_rdma);
    else
        (void)peer_connection_ended(c, "in the rail handshake", true, &error);
    return false;
}

/* On a thread that is waited for: disks, registering and the libraries of devices want more stack than a connection
 * has. */
static void *begin(void *argument)
{
    struct session *s = argument;
    if (s->header.kind == PENSTOCK_ARENA_STATISTICS)
        answer_statistics(s->connection);
    else
        s->go_on = join(s) && shake_hands(s);
    return NULL;
}

static void log_session(const struct session *s)
{
    char how[32] = "TCP";
    if (s->rails.n > 0)
        snprintf(how, sizeof how, "RDMA over %zu rail%s", s->rails.n, s->rails.n == 1 ? "" : "s");
    if (s->header.blob_bytes > 0)
        base_log_debug("client %s: joins the %s arena of blobs of %llu bytes, by %s", s->connection->client,
                       kind_name(&s->header), (unsigned long long)s->header.blob_bytes, how);
    else
        base_log_debug("client %s: has a raw %s arena of %llu bytes, by %s", s->connection->client,
                       kind_name(&s->header), (unsigned long long)s->header.arena_bytes, how);
}

static enum peer_end serve_session(struct session *s)
{
    struct peer_connection *c = s->connection;
    int failed = peer_thread_run_large(begin, s);
    if (failed)
        peer_connection_complain(c, "closed: no thread to answer it: %s", strerrordesc_np(failed));
    if (!s->go_on)
        return PEER_END_LINGER;
    log_session(s);
    return s->rails.n > 0 ? peer_cache_verbs_serve(c, &s->rails, s->header.blob_bytes)
                          : peer_cache_tcp_serve(c, s->client, s->header.blob_bytes);
}

static enum peer_end serve(struct peer_connection *c)
{
    enum peer_end end;
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        peer_connection_complain(c, "closed: no memory for it");
        return PEER_END_LINGER;
    }
    s->connection = c;
    if (read_header(c, &s->header, &end))
        end = serve_session(s);
    /* Its QPs are gone: nobody writes into its slots any more (protocol 3). */
    residency_client_free(s->client);
    free(s);
    return end;
}

static enum peer_end refuse(struct peer_connection *c)
{
    peer_connection_complain(c,
                             "refused: too many connections: all %zu that this peer allows are in use "
                             "(--max-connections)",
                             c->server->options->max_connections);
    return PEER_END_LINGER;
}

/* ---- the service ---- */

static bool wanted(const struct peer_options *options)
{
    return options->cache.on;
}

const struct peer_service peer_cache_service = {
    .name = "cache",
    .default_address = PEER_LISTEN_CACHE,
    .default_port = PENSTOCK_PORT_CACHE,
    .wanted = wanted,
    .open = peer_cache_open,
    .serve = serve,
    .refuse = refuse,
};
