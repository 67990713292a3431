#include "../test.h"

#include <stdio.h>

#include "rail/pair.h"
#include "rail/set.h"
#include "verbs/sim/sim.h"

#define REGIONS 3
#define REGION_BYTES 64

/* One end: a host of the fabric with its devices open, a PD for each, and at the peer memory that is published. */
struct end {
    struct verbs_world *host;
    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX]; /* of rail i; rails of one device share one */
    struct verbs_mr *mrs[PENSTOCK_RAILS_MAX][REGIONS];
    struct penstock_layer regions[PENSTOCK_RAILS_MAX][REGIONS];
    struct rail_table tables[PENSTOCK_RAILS_MAX];
    struct rail_set_config config;
    struct rail_set set;
};

static struct {
    struct sim_fabric *fabric;
    struct end client, peer;
    uint8_t memory[REGIONS][REGION_BYTES];
    uint64_t expected[REGIONS];
    enum penstock_dialect dialect;
    size_t n_regions;
} w;

/* ---- two hosts ---- */

/* options: of each port in turn, or NULL. */
static void begin_end(struct end *end, size_t n, const struct sim_port_options *options)
{
    struct rail_wishes wishes = { 0 };
    struct penstock_error error = { 0 };
    char device[16];
    end->host = sim_host(w.fabric);
    for (size_t i = 0; i < n; i++) {
        snprintf(device, sizeof device, "sim%zu", i);
        sim_port(end->host, device, options ? &options[i] : NULL);
    }
    int code = rail_devices_open(end->host, &wishes, &end->devices, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
    assert_int_equal(end->devices.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(verbs_pd_new(end->devices.devices[i], &end->pds[i], NULL), 0);
    end->config = (struct rail_set_config){ .devices = &end->devices, .pds = end->pds, .depth = 128, .sges_max = 4 };
}

static void publish(struct end *peer)
{
    unsigned access =
        VERBS_REMOTE_READ | (w.dialect == PENSTOCK_READ_WRITE ? VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE : 0u);
    for (size_t i = 0; i < peer->devices.n; i++) {
        for (size_t r = 0; r < w.n_regions; r++) {
            struct verbs_mr **mr = &peer->mrs[i][r];
            assert_int_equal(verbs_mr_new(peer->pds[i], w.memory[r], REGION_BYTES, access, mr, NULL), 0);
            peer->regions[i][r] = (struct penstock_layer){ .base = (*mr)->base, .rkey = (*mr)->rkey };
        }
        peer->tables[i] = (struct rail_table){ .regions = peer->regions[i], .n_regions = w.n_regions };
    }
    peer->config.at_peer = true;
    peer->config.access = access;
    peer->config.depth = peer->config.sges_max = 1;
    peer->config.tables = peer->tables;
}

static void begin(enum penstock_dialect dialect, size_t n_client, const struct sim_port_options *client, size_t n_peer,
                  const struct sim_port_options *peer)
{
    memset(&w, 0, sizeof w);
    w.dialect = dialect;
    w.n_regions = dialect == PENSTOCK_READ_ONLY ? REGIONS : 1;
    w.fabric = sim_new(&(struct sim_options){ .automatic = true });
    begin_end(&w.client, n_client, client);
    begin_end(&w.peer, n_peer, peer);
    publish(&w.peer);
    for (size_t r = 0; r < REGIONS; r++) {
        w.expected[r] = REGION_BYTES;
        memset(w.memory[r], (int)(0xA0 + r), REGION_BYTES);
    }
    w.client.config.expected_bytes = w.expected;
    w.client.config.n_expected = w.n_regions;
}

static void end_of(struct end *end)
{
    rail_set_fini(&end->set);
    rail_set_fini(&end->set); /* twice does no harm */
    for (size_t i = 0; i < end->devices.n; i++) {
        for (size_t r = 0; r < REGIONS; r++)
            verbs_mr_free(end->mrs[i][r]);
        verbs_pd_free(end->pds[i]);
    }
    rail_devices_close(&end->devices);
    struct sim_objects left = sim_host_objects(end->host);
    assert_int_equal(left.devices + left.pds + left.mrs + left.cqs + left.qps, 0);
}

/* Everything has to be gone: what is left behind is a misuse that aborts. */
static void end(void)
{
    end_of(&w.client);
    end_of(&w.peer);
    sim_free(w.fabric);
}

/* ---- the handshake between them ---- */

struct outcome {
    enum net_handshake_next client, peer;
    struct penstock_error client_error, peer_error;
    size_t sent; /* bytes by the client */
};

/* Carries bytes to and fro until neither end has any. */
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

static struct outcome shake(size_t n, const struct penstock_rail_choice *wishes)
{
    struct net_handshake *client, *peer;
    struct outcome out = { 0 };
    struct net_handshake_config config = { .dialect = w.dialect,
                                           .ops = &rail_set_ops,
                                           .rails = &w.client.set,
                                           .n_rails = n,
                                           .n_regions = w.n_regions,
                                           .wishes = wishes };
    rail_set_init(&w.client.set, &w.client.config);
    rail_set_init(&w.peer.set, &w.peer.config);
    assert_int_equal(net_handshake_client_new(&config, &client, NULL), 0);
    config.rails = &w.peer.set;
    config.n_rails = w.peer.devices.n;
    config.wishes = NULL;
    assert_int_equal(net_handshake_peer_new(&config, &peer, NULL), 0);
    for (;;) {
        size_t sent = carry(client, peer), came = carry(peer, client);
        out.sent += sent;
        if (sent + came > 0)
            continue;
        /* A side that has failed closes its stream. */
        if (net_handshake_next(client) == NET_HANDSHAKE_FAILED && net_handshake_next(peer) == NET_HANDSHAKE_READ)
            net_handshake_end(peer, 0);
        else if (net_handshake_next(peer) == NET_HANDSHAKE_FAILED && net_handshake_next(client) == NET_HANDSHAKE_READ)
            net_handshake_end(client, 0);
        else
            break;
    }
    out.client = net_handshake_next(client);
    out.peer = net_handshake_next(peer);
    out.client_error = *net_handshake_error(client);
    out.peer_error = *net_handshake_error(peer);
    net_handshake_free(client); /* with the tables that it has read */
    net_handshake_free(peer);
    return out;
}

static void shake_well(size_t n, const struct penstock_rail_choice *wishes)
{
    struct outcome out = shake(n, wishes);
    assert_string_equal(out.client_error.message, "");
    assert_string_equal(out.peer_error.message, "");
    assert_int_equal(out.client, NET_HANDSHAKE_DONE);
    assert_int_equal(out.peer, NET_HANDSHAKE_DONE);
    assert_int_equal(w.client.set.n, n);
    assert_int_equal(w.peer.set.n, n);
}

/* One work request through rail i, by what the client's set says of it. Returns its status. */
static int move(size_t i, enum verbs_opcode opcode, size_t region, void *bytes, uint64_t len)
{
    struct rail *rail = &w.client.set.rails[i];
    struct verbs_mr *mr;
    struct verbs_completion done;
    size_t posted;
    assert_int_equal(verbs_mr_new(w.client.pds[rail->own], bytes, len, VERBS_LOCAL_WRITE, &mr, NULL), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = (uint32_t)len, .lkey = mr->lkey };
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

static struct verbs_qp_state state_of(const struct end *end, size_t i)
{
    struct verbs_qp_state state;
    assert_int_equal(verbs_qp_query(end->set.rails[i].qp, &state, NULL), 0);
    return state;
}

static void assert_both(size_t i, uint8_t mtu, uint8_t reads)
{
    struct verbs_qp_state ours = state_of(&w.client, i), theirs = state_of(&w.peer, i);
    assert_string_equal(ours.state, "RTS");
    assert_string_equal(theirs.state, "RTS");
    assert_int_equal(ours.mtu, mtu);
    assert_int_equal(theirs.mtu, mtu);
    assert_int_equal(ours.reads_out, reads);
    assert_int_equal(theirs.reads_in, reads);
    assert_int_equal(w.client.set.rails[i].mtu, mtu);
    assert_int_equal(w.client.set.rails[i].reads_out, reads);
}

/* ---- tests ---- */

static void every_region_is_read_over_every_rail(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 8 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        begin(PENSTOCK_READ_ONLY, counts[c], NULL, counts[c], NULL);
        shake_well(counts[c], NULL);
        for (size_t i = 0; i < counts[c]; i++) {
            assert_int_equal(w.client.set.rails[i].n_regions, REGIONS);
            assert_both(i, 5, 16);
            for (size_t r = 0; r < REGIONS; r++) {
                uint8_t landed[REGION_BYTES] = { 0 };
                assert_int_equal(move(i, VERBS_READ, r, landed, sizeof landed), 0);
                assert_memory_equal(landed, w.memory[r], sizeof landed);
            }
        }
        end();
    }
}

static void a_read_only_peer_cannot_be_written_to(void **state)
{
    (void)state;
    uint8_t bytes[8] = { 1 };
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    shake_well(1, NULL);
    assert_int_not_equal(move(0, VERBS_WRITE, 0, bytes, sizeof bytes), 0);
    assert_int_equal(w.memory[0][0], 0xA0);
    end();
}

static void one_region_is_read_and_written(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 8 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        begin(PENSTOCK_READ_WRITE, counts[c], NULL, counts[c], NULL);
        shake_well(counts[c], NULL);
        for (size_t i = 0; i < counts[c]; i++) {
            uint8_t out[8] = { (uint8_t)i, 1, 2, 3 }, back[8] = { 0 };
            assert_int_equal(w.client.set.rails[i].n_regions, 1);
            assert_int_equal(move(i, VERBS_WRITE, 0, out, sizeof out), 0);
            assert_memory_equal(w.memory[0], out, sizeof out);
            assert_int_equal(move(i, VERBS_READ, 0, back, sizeof back), 0);
            assert_memory_equal(back, out, sizeof out);
        }
        end();
    }
}

static void psns_are_random_and_24_bits_wide(void **state)
{
    (void)state;
    uint32_t all_or = 0, all_and = UINT32_MAX;
    for (int round = 0; round < 8; round++) {
        begin(PENSTOCK_READ_ONLY, 8, NULL, 8, NULL);
        shake_well(8, NULL);
        for (size_t i = 0; i < 8; i++) {
            all_or |= w.client.set.rails[i].psn | w.peer.set.rails[i].psn;
            all_and &= w.client.set.rails[i].psn & w.peer.set.rails[i].psn;
        }
        end();
    }
    assert_int_equal(all_or, 0xFFFFFF); /* 128 numbers: a bit that is the same in all of them is not random */
    assert_int_equal(all_and, 0);
}

static void without_a_choice_each_end_takes_its_own_mtu(void **state)
{
    (void)state;
    const struct sim_port_options four = { .mtu = 4, .reads_out = 8 }, three = { .mtu = 3, .reads_in = 100 };
    begin(PENSTOCK_READ_ONLY, 1, &four, 1, &three);
    shake_well(1, NULL);
    assert_int_equal(state_of(&w.client, 0).mtu, 4);
    assert_int_equal(state_of(&w.peer, 0).mtu, 3);
    assert_int_equal(state_of(&w.client, 0).reads_out, 8); /* fewer outstanding where the device has less */
    assert_int_equal(state_of(&w.peer, 0).reads_in, 16);
    end();
}

static void with_a_choice_both_take_the_smaller_values(void **state)
{
    (void)state;
    const struct sim_port_options ours[] = { { .mtu = 5, .reads_out = 128, .reads_in = 128 },
                                             { .mtu = 3, .reads_out = 20, .reads_in = 128 } };
    const struct sim_port_options theirs[] = { { .mtu = 4, .reads_out = 128, .reads_in = 64 },
                                               { .mtu = 5, .reads_out = 128, .reads_in = 128 } };
    struct rail_pairing pairing;
    begin(PENSTOCK_READ_ONLY, 2, ours, 2, theirs);
    assert_int_equal(rail_pair(&w.client.devices, NULL, &pairing, NULL), 0);
    shake_well(2, pairing.wishes);
    assert_both(0, 4, 64);
    assert_both(1, 3, 20);
    end();
}

static void a_client_chooses_among_the_peers_rails(void **state)
{
    (void)state;
    const struct penstock_rail_choice wishes[] = {
        { PENSTOCK_PEER_RAIL_ANY, 5, 16 }, { 0, 5, 16 }, { PENSTOCK_PEER_RAIL_ANY, 5, 16 }, { 3, 5, 16 }
    };
    static const uint8_t granted[] = { 1, 0, 2, 3 };
    static const uint8_t own[] = { 2, 0, 3, 1 };
    begin(PENSTOCK_READ_ONLY, 4, NULL, 5, NULL);
    w.client.config.own = own;
    shake_well(4, wishes);
    for (size_t i = 0; i < 4; i++) {
        uint8_t landed[REGION_BYTES] = { 0 };
        assert_int_equal(w.client.set.rails[i].peer_rail, granted[i]);
        assert_int_equal(w.client.set.rails[i].own, own[i]);
        assert_int_equal(w.peer.set.rails[i].own, granted[i]);
        assert_int_equal(w.client.set.rails[i].regions[1].rkey, w.peer.mrs[granted[i]][1]->rkey);
        assert_int_equal(move(i, VERBS_READ, 1, landed, sizeof landed), 0);
        assert_memory_equal(landed, w.memory[1], sizeof landed);
    }
    end();
}

static void a_choice_that_cannot_be_granted(void **state)
{
    (void)state;
    static const struct {
        struct penstock_rail_choice wishes[2];
        int code;
        const char *words;
    } cases[] = {
        { { { 2, 5, 16 }, { 0, 5, 16 } }, PENSTOCK_ENOTFOUND, "client: wants rail 2, and 2 are here (0 to 1)" },
        { { { 0, 5, 16 }, { 254, 5, 16 } }, PENSTOCK_ENOTFOUND, "client: wants rail 254, and 2 are here (0 to 1)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(PENSTOCK_READ_ONLY, 2, NULL, 2, NULL);
        struct outcome out = shake(2, cases[i].wishes);
        assert_int_equal(out.peer, NET_HANDSHAKE_FAILED);
        assert_int_equal(out.peer_error.code, cases[i].code);
        assert_string_equal(out.peer_error.message, cases[i].words);
        assert_int_equal(out.client, NET_HANDSHAKE_FAILED);
        assert_int_equal(out.client_error.code, PENSTOCK_EDENIED);
        end();
    }
}

/* The codec refuses a rail that is wished for twice; the set does so by itself. */
static void a_rail_twice_is_refused(void **state)
{
    (void)state;
    const struct penstock_rail_choice wishes[] = { { 1, 5, 16 }, { 1, 5, 16 }, { 0, 5, 16 } };
    struct penstock_rail_choice granted[3];
    struct penstock_error error = { 0 };
    begin(PENSTOCK_READ_ONLY, 2, NULL, 2, NULL);
    rail_set_init(&w.peer.set, &w.peer.config);
    assert_int_equal(rail_set_ops.choose(&w.peer.set, wishes, 2, granted, &error), PENSTOCK_EINVAL);
    assert_string_equal(error.message, "wants rail 1 twice");
    assert_int_equal(rail_set_ops.choose(&w.peer.set, wishes, 3, granted, &error), PENSTOCK_ELIMIT);
    assert_string_equal(error.message, "wants 3 rails, and 2 are here");
    end();
}

static void a_peer_with_fewer_rails_refuses(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 3, NULL, 2, NULL);
    struct outcome out = shake(3, NULL);
    assert_int_equal(out.peer_error.code, PENSTOCK_ELIMIT);
    assert_int_equal(out.client_error.code, PENSTOCK_EDENIED);
    assert_int_equal(w.client.set.n, 3); /* the set is the caller's to give up */
    rail_set_fini(&w.client.set);
    shake_well(2, NULL); /* a client dials again with fewer */
    end();
}

static void tables_that_do_not_fit_are_answered_with_nothing(void **state)
{
    (void)state;
    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        begin((enum penstock_dialect)dialect, 2, NULL, 2, NULL);
        w.peer.regions[1][0].base = UINT64_MAX - REGION_BYTES + 2;
        struct outcome out = shake(2, NULL);
        assert_int_equal(out.sent, 1); /* step 1, and no step 3 */
        assert_int_equal(out.client_error.code, PENSTOCK_EPROTO);
        assert_string_equal(out.client_error.message,
                            "peer: rail 1 (sim1 port 1): published region 0 at 0xffffffffffffffc1, where its 64 bytes "
                            "do not fit below 2^64");
        assert_int_equal(out.peer_error.code, PENSTOCK_ECLOSED);
        end();
    }
}

static void a_table_up_to_the_last_address_fits(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    w.peer.regions[0][2].base = UINT64_MAX - REGION_BYTES;
    shake_well(1, NULL);
    end();
}

static void tables_of_another_length(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    w.client.config.n_expected = 2;
    struct outcome out = shake(1, NULL);
    assert_int_equal(out.sent, 1);
    assert_string_equal(out.client_error.message,
                        "peer: rail 0 (sim0 port 1): published 3 regions where the manifest has 2");
    end();
}

static void a_responder_that_cannot_take_16_reads(void **state)
{
    (void)state;
    const struct sim_port_options few = { .reads_in = 4 };
    struct rail_pairing pairing;
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, &few);
    struct outcome out = shake(1, NULL);
    assert_int_equal(out.peer_error.code, PENSTOCK_EUNSUPPORTED);
    assert_string_equal(out.peer_error.message,
                        "client: rail 0 (sim0 port 1): the device takes 4 READs at once, and the client will send 16: "
                        "only a client that agrees on fewer can be served here");
    assert_int_equal(out.client_error.code, PENSTOCK_EDENIED); /* it hears of it by its ack */
    rail_set_fini(&w.client.set);

    assert_int_equal(rail_pair(&w.client.devices, NULL, &pairing, NULL), 0);
    shake_well(1, pairing.wishes);
    assert_both(0, 5, 4);
    end();

    /* At the client nothing ever comes in. */
    begin(PENSTOCK_READ_ONLY, 1, &few, 1, NULL);
    shake_well(1, NULL);
    assert_int_equal(state_of(&w.client, 0).reads_in, 4);
    assert_int_equal(state_of(&w.client, 0).reads_out, 16);
    end();
}

static void queues_are_cut_to_what_the_port_has(void **state)
{
    (void)state;
    const struct sim_port_options small = { .work_requests_max = 10, .sges_max = 2 };
    begin(PENSTOCK_READ_ONLY, 1, &small, 1, NULL);
    shake_well(1, NULL);
    assert_int_equal(w.client.set.rails[0].depth, 10);
    assert_int_equal(w.client.set.rails[0].sges_max, 2);
    end();
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    shake_well(1, NULL);
    assert_int_equal(w.client.set.rails[0].depth, 128);
    assert_int_equal(w.client.set.rails[0].sges_max, 4);
    end();
}

/* A rail that was given away: to an engine, which frees it. */
static void a_rail_may_be_taken_out(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 2, NULL, 2, NULL);
    shake_well(2, NULL);
    struct rail rail = w.client.set.rails[1];
    w.client.set.rails[1] = (struct rail){ 0 };
    rail_set_fini(&w.client.set);
    assert_int_equal(sim_host_objects(w.client.host).qps, 1);
    rail_fini(&rail);
    assert_null(rail.qp);
    end();
}

static void every_call_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    static const enum sim_call calls[] = { SIM_CQ_NEW, SIM_QP_NEW, SIM_QP_CONNECT };
    for (int at_peer = 0; at_peer < 2; at_peer++) {
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            for (uint64_t nth = 1; nth <= 3; nth++) {
                char rail[40];
                begin(PENSTOCK_READ_ONLY, 3, NULL, 3, NULL);
                struct end *failing = at_peer ? &w.peer : &w.client;
                sim_fail_calls(failing->host, calls[c], nth, 1, PENSTOCK_ENOMEM);
                struct outcome out = shake(3, NULL);
                const struct penstock_error *error = at_peer ? &out.peer_error : &out.client_error;
                snprintf(rail, sizeof rail, "%s: rail %d (sim%d port 1): ", at_peer ? "client" : "peer", (int)nth - 1,
                         (int)nth - 1);
                assert_int_equal(error->code, PENSTOCK_ENOMEM);
                assert_ptr_equal(strstr(error->message, rail), error->message);
                assert_int_equal(out.client, NET_HANDSHAKE_FAILED);
                assert_int_equal(failing->set.n, 0);
                struct sim_objects left = sim_host_objects(failing->host);
                assert_int_equal(left.cqs + left.qps, 0);
                end();
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_region_is_read_over_every_rail),
        cmocka_unit_test(a_read_only_peer_cannot_be_written_to),
        cmocka_unit_test(one_region_is_read_and_written),
        cmocka_unit_test(psns_are_random_and_24_bits_wide),
        cmocka_unit_test(without_a_choice_each_end_takes_its_own_mtu),
        cmocka_unit_test(with_a_choice_both_take_the_smaller_values),
        cmocka_unit_test(a_client_chooses_among_the_peers_rails),
        cmocka_unit_test(a_choice_that_cannot_be_granted),
        cmocka_unit_test(a_rail_twice_is_refused),
        cmocka_unit_test(a_peer_with_fewer_rails_refuses),
        cmocka_unit_test(tables_that_do_not_fit_are_answered_with_nothing),
        cmocka_unit_test(a_table_up_to_the_last_address_fits),
        cmocka_unit_test(tables_of_another_length),
        cmocka_unit_test(a_responder_that_cannot_take_16_reads),
        cmocka_unit_test(queues_are_cut_to_what_the_port_has),
        cmocka_unit_test(a_rail_may_be_taken_out),
        cmocka_unit_test(every_call_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
