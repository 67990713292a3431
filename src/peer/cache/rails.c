#include "rails.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "peer/regions.h"

/* ---- registering ---- */

static int register_arena(void *context, const struct residency_memory *memory, void **registration,
                          struct penstock_error *error)
{
    const struct peer_server *server = context;
    struct peer_regions *regions = malloc(sizeof *regions);
    if (!regions)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to register an arena");
    const struct peer_region arena = {
        .at = memory->base, .len_bytes = memory->len_bytes, .name = "an arena", .cold_fd = -1
    };
    int code =
        peer_regions_make(regions, &server->rails, &arena, 1,
                          VERBS_LOCAL_WRITE | VERBS_REMOTE_READ | VERBS_REMOTE_WRITE, false, &server->draining, error);
    if (code) {
        peer_cache_unregister(regions);
        return code;
    }
    base_log_info("cache: registered an arena of %llu bytes, in pages of %llu KiB, for RDMA on %zu device%s",
                  (unsigned long long)memory->len_bytes, (unsigned long long)memory->page_bytes >> 10,
                  regions->n_devices, regions->n_devices == 1 ? "" : "s");
    *registration = regions;
    return 0;
}

void peer_cache_unregister(void *registration)
{
    peer_regions_fini(registration);
    free(registration);
}

/* ---- the handshake ---- */

static int choose(void *context, const struct penstock_rail_choice *wishes, size_t n,
                  struct penstock_rail_choice *granted, struct penstock_error *error)
{
    struct peer_cache_rails *rails = context;
    return rail_set_ops.choose(&rails->set, wishes, n, granted, error);
}

/* Only a client with rails needs the arena registered. */
static int prepare(void *context, size_t n, struct net_rail *mine, struct penstock_error *error)
{
    struct peer_cache_rails *rails = context;
    void *registration;
    int code = residency_registration(rails->client, register_arena, rails->server, &registration, error);
    if (code)
        return code;
    const struct peer_regions *regions = registration;
    rails->set.config.pds = regions->pds;
    rails->set.config.tables = regions->tables;
    return rail_set_ops.prepare(&rails->set, n, mine, error);
}

static int complete(void *context, size_t n, const struct net_rail *theirs, const struct penstock_rail_choice *agreed,
                    struct penstock_error *error)
{
    struct peer_cache_rails *rails = context;
    return rail_set_ops.complete(&rails->set, n, theirs, agreed, error);
}

static const struct net_rail_ops ops = { .choose = choose, .prepare = prepare, .complete = complete };

int peer_cache_handshake(struct peer_cache_rails *rails, struct peer_connection *c, struct residency_client *client,
                         struct penstock_error *error)
{
    struct peer_server *server = c->server;
    *rails = (struct peer_cache_rails){ .server = server, .client = client };
    /* The peer posts nothing: its queues are as short as they can be. */
    rail_set_init(&rails->set, &(struct rail_set_config){ .devices = &server->rails,
                                                          .at_peer = true,
                                                          .access = VERBS_REMOTE_READ | VERBS_REMOTE_WRITE,
                                                          .depth = 1,
                                                          .sges_max = 1 });
    const struct net_handshake_config config = {
        .dialect = PENSTOCK_READ_WRITE,
        .other = "rail handshake",
        .ops = &ops,
        .rails = rails,
        .n_rails = server->rails.n,
        .tcp = true,
    };
    const struct net_handshake_deadlines deadlines = { .patient_ns = server->deadlines.mode_ns,
                                                       .message_ns = server->deadlines.message_ns };
    int code = net_handshake_as_peer(&c->stream, &config, &deadlines, &rails->n, error);
    if (code)
        rail_set_fini(&rails->set);
    return code;
}
