/* The expert tier (protocol 1.4), the peer's side. */
#include <string.h>

#include <penstock/wire.h>

#include "base/error.h"
#include "experts.h"
#include "service.h"
#include "thread.h"
#include "transport.h"

/* ---- records over TCP ---- */

static enum peer_request_kind parse(const struct peer_served *served, const uint8_t *raw, struct peer_range *range)
{
    const struct peer_store *store = base_list_entry(served, struct peer_store, served);
    const struct model_expert_geometry *g = &store->store.manifest.geometry;
    struct penstock_expert_request r;
    struct penstock_wire_fault fault;
    size_t consumed;
    (void)!penstock_expert_request_decode(raw, PENSTOCK_EXPERT_REQUEST_BYTES, &r, &consumed,
                                          &fault); /* whole ones always decode */
    if (penstock_expert_request_is_shutdown(&r))
        return PEER_REQUEST_END;
    if (r.layer >= g->num_moe_layers || r.expert >= g->num_experts)
        return PEER_REQUEST_REFUSED;
    *range = (struct peer_range){ .file = &served->files[r.layer],
                                  .offset = model_expert_record_at(g, r.expert),
                                  .len = g->record_stride };
    return PEER_REQUEST_RANGE;
}

static const struct peer_requests requests = { .request_bytes = PENSTOCK_EXPERT_REQUEST_BYTES,
                                               .parse = parse,
                                               .copy_warm = true };

/* ---- the manifest, which comes before anything is asked ---- */

struct greeting {
    struct peer_connection *connection;
    bool go_on;
};

static void *greet(void *argument)
{
    struct greeting *g = argument;
    struct peer_connection *c = g->connection;
    struct peer_served *served;
    struct penstock_error error;
    int code = peer_experts_get(&c->server->experts, &served, &error);
    if (code == 0)
        code = peer_connection_use(c, served, &error);
    if (code) {
        peer_connection_complain(c, "refused: %s", error.message); /* which no client of this tier can read */
        return NULL;
    }
    code = net_stream_write_all(&c->stream, served->reply.at, served->reply.n, c->server->deadlines.message_ns, &error);
    if (code)
        (void)peer_connection_ended(c, "while the manifest is sent", false, &error);
    g->go_on = code == 0;
    return NULL;
}

/* Aside, as the weight service answers: a store may have to be staged anew. */
static enum peer_end serve(struct peer_connection *c)
{
    struct greeting g = { .connection = c };
    int failed = peer_thread_run_large(greet, &g);
    if (failed)
        peer_connection_complain(c, "closed: no thread to answer it: %s", strerrordesc_np(failed));
    return g.go_on ? peer_transport_serve(c, &requests) : PEER_END_LINGER;
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
    return options->experts != NULL;
}

static int open_store(struct peer_server *server, struct penstock_error *error)
{
    struct peer_served *served;
    int code = peer_experts_get(&server->experts, &served, error);
    if (code == 0)
        peer_served_unref(served);
    return code;
}

const struct peer_service peer_experts_service = {
    .name = "experts",
    .default_address = PEER_LISTEN_EXPERTS,
    .default_port = PENSTOCK_PORT_EXPERTS,
    .wanted = wanted,
    .open = open_store,
    .serve = serve,
    .refuse = refuse,
};
