#include "ends.h"

#include "../test.h"

#include <stdlib.h>

/* ---- devices, and memory to publish ---- */

static void open_end(struct ends_end *end, struct verbs_world *world, const char *rails)
{
    struct rail_wishes wishes = { 0 };
    struct penstock_error error = { 0 };
    assert_int_equal(rail_wishes_add(&wishes, rails, false, NULL), 0);
    int code = rail_devices_open(world, &wishes, &end->devices, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
    for (size_t i = 0; i < end->devices.n; i++)
        assert_int_equal(verbs_pd_new(end->devices.devices[i], &end->pds[i], NULL), 0);
    end->config = (struct rail_set_config){ .devices = &end->devices, .pds = end->pds, .depth = 128, .sges_max = 4 };
}

static void publish(struct ends *ends)
{
    struct ends_end *peer = &ends->peer;
    unsigned access = VERBS_REMOTE_READ;
    if (ends->dialect == PENSTOCK_READ_WRITE)
        access |= VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE;
    for (size_t i = 0; i < peer->devices.n; i++) {
        for (size_t r = 0; r < ends->n_regions; r++) {
            struct verbs_mr **mr = &peer->mrs[i][r];
            assert_int_equal(verbs_mr_new(peer->pds[i], ends->memory[r], ENDS_REGION_BYTES, access, mr, NULL), 0);
            peer->regions[i][r] = (struct penstock_layer){ .base = (*mr)->base, .rkey = (*mr)->rkey };
        }
        peer->tables[i] = (struct rail_table){ .regions = peer->regions[i], .n_regions = ends->n_regions };
    }
    peer->config.at_peer = true;
    peer->config.access = access;
    peer->config.depth = peer->config.sges_max = 1;
    peer->config.tables = peer->tables;
}

void ends_open(struct ends *ends, enum penstock_dialect dialect, struct verbs_world *client, const char *client_rails,
               struct verbs_world *peer, const char *peer_rails)
{
    memset(ends, 0, sizeof *ends);
    ends->dialect = dialect;
    ends->n_regions = dialect == PENSTOCK_READ_ONLY ? ENDS_REGIONS : 1;
    for (size_t r = 0; r < ENDS_REGIONS; r++) {
        ends->expected[r] = ENDS_REGION_BYTES;
        ends->memory[r] = malloc(ENDS_REGION_BYTES);
        assert_non_null(ends->memory[r]);
        memset(ends->memory[r], (int)(0xA0 + r), ENDS_REGION_BYTES);
    }
    open_end(&ends->client, client, client_rails);
    open_end(&ends->peer, peer, peer_rails);
    publish(ends);
    ends->client.config.expected_bytes = ends->expected;
    ends->client.config.n_expected = ends->n_regions;
}

static void close_end(struct ends_end *end)
{
    rail_set_fini(&end->set);
    rail_set_fini(&end->set); /* twice does no harm */
    for (size_t i = 0; i < end->devices.n; i++) {
        for (size_t r = 0; r < ENDS_REGIONS; r++)
            verbs_mr_free(end->mrs[i][r]);
        verbs_pd_free(end->pds[i]);
    }
    rail_devices_close(&end->devices);
}

void ends_close(struct ends *ends)
{
    close_end(&ends->client);
    close_end(&ends->peer);
    for (size_t r = 0; r < ENDS_REGIONS; r++)
        free(ends->memory[r]);
}

/* ---- the handshake ---- */

/* All that there is to write, from one to the other. */
static size_t carry(struct net_handshake *from, struct net_handshake *to)
{
    size_t sent = 0, len;
    while (net_handshake_next(from) == NET_HANDSHAKE_WRITE) {
        uint8_t copy[64];
        const uint8_t *bytes = net_handshake_output(from, &len);
        len = len < sizeof copy ? len : sizeof copy;
        memcpy(copy, bytes, len); /* it may be gone once it is said to be written */
        net_handshake_wrote(from, len);
        net_handshake_feed(to, copy, len);
        sent += len;
    }
    return sent;
}

/* Until neither end has more to say. Who has failed closes the stream. */
static size_t run(struct net_handshake *client, struct net_handshake *peer)
{
    size_t sent = 0;
    for (;;) {
        size_t to_peer = carry(client, peer), to_client = carry(peer, client);
        sent += to_peer;
        if (to_peer + to_client > 0)
            continue;
        if (net_handshake_next(client) == NET_HANDSHAKE_FAILED && net_handshake_next(peer) == NET_HANDSHAKE_READ)
            net_handshake_end(peer, 0);
        else if (net_handshake_next(peer) == NET_HANDSHAKE_FAILED && net_handshake_next(client) == NET_HANDSHAKE_READ)
            net_handshake_end(client, 0);
        else
            return sent;
    }
}

struct ends_outcome ends_shake(struct ends *ends, size_t n, const struct penstock_rail_choice *wishes)
{
    struct net_handshake *client, *peer;
    struct net_handshake_config config = { .dialect = ends->dialect,
                                           .ops = &rail_set_ops,
                                           .rails = &ends->client.set,
                                           .n_rails = n,
                                           .n_regions = ends->n_regions,
                                           .wishes = wishes };
    rail_set_init(&ends->client.set, &ends->client.config);
    rail_set_init(&ends->peer.set, &ends->peer.config);
    assert_int_equal(net_handshake_client_new(&config, &client, NULL), 0);
    config.rails = &ends->peer.set;
    config.n_rails = ends->peer.devices.n;
    config.wishes = NULL;
    assert_int_equal(net_handshake_peer_new(&config, &peer, NULL), 0);
    struct ends_outcome out = { .sent = run(client, peer) };
    out.client = net_handshake_next(client);
    out.peer = net_handshake_next(peer);
    out.client_error = *net_handshake_error(client);
    out.peer_error = *net_handshake_error(peer);
    net_handshake_free(client); /* with the tables that it has read */
    net_handshake_free(peer);
    return out;
}

void ends_shake_well(struct ends *ends, size_t n, const struct penstock_rail_choice *wishes)
{
    struct ends_outcome out = ends_shake(ends, n, wishes);
    assert_string_equal(out.client_error.message, "");
    assert_string_equal(out.peer_error.message, "");
    assert_int_equal(out.client, NET_HANDSHAKE_DONE);
    assert_int_equal(out.peer, NET_HANDSHAKE_DONE);
    assert_int_equal(ends->client.set.n, n);
    assert_int_equal(ends->peer.set.n, n);
}

/* ---- using it ---- */

int ends_move(struct ends *ends, size_t i, enum verbs_opcode opcode, size_t region, void *bytes, uint32_t len_bytes)
{
    struct rail *rail = &ends->client.set.rails[i];
    struct verbs_mr *mr;
    struct verbs_completion done;
    size_t posted;
    assert_int_equal(verbs_mr_new(ends->client.pds[rail->own], bytes, len_bytes, VERBS_LOCAL_WRITE, &mr, NULL), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = len_bytes, .lkey = mr->lkey };
    const struct verbs_request request = { .opcode = opcode,
                                           .signaled = true,
                                           .remote = rail->regions[region].base,
                                           .rkey = rail->regions[region].rkey,
                                           .n_sges = 1,
                                           .sges = &sge };
    assert_int_equal(verbs_post(rail->qp, &request, 1, &posted, NULL), 0);
    int n = 0;
    while (n == 0)
        n = verbs_cq_poll(rail->cq, &done, 1, NULL);
    assert_int_equal(n, 1);
    verbs_mr_free(mr);
    return done.status;
}

struct verbs_qp_state ends_state(const struct ends_end *end, size_t i)
{
    struct verbs_qp_state state;
    assert_int_equal(verbs_qp_query(end->set.rails[i].qp, &state, NULL), 0);
    return state;
}
