#include "../test.h"

#include <stdio.h>

#include "ends.h"
#include "rail/pair.h"
#include "verbs/sim/sim.h"

#define REGIONS ENDS_REGIONS
#define REGION_BYTES ENDS_REGION_BYTES

static struct sim_fabric *fabric;
static struct verbs_world *client_host, *peer_host;
static struct ends w;

/* n devices of a port each; options of each in turn, or NULL. */
static struct verbs_world *make_host(size_t n, const struct sim_port_options *options)
{
    struct verbs_world *host = sim_host(fabric);
    char device[16];
    for (size_t i = 0; i < n; i++) {
        snprintf(device, sizeof device, "sim%zu", i);
        sim_port(host, device, options ? &options[i] : NULL);
    }
    return host;
}

static void begin(enum penstock_dialect dialect, size_t n_client, const struct sim_port_options *client, size_t n_peer,
                  const struct sim_port_options *peer)
{
    fabric = sim_new(&(struct sim_options){ .automatic = true });
    client_host = make_host(n_client, client);
    peer_host = make_host(n_peer, peer);
    ends_open(&w, dialect, client_host, "auto", peer_host, "auto");
}

/* What were left behind would be a misuse, which aborts. */
static void end(void)
{
    ends_close(&w);
    sim_free(fabric);
}

static void assert_both(size_t i, uint8_t mtu, uint8_t reads)
{
    struct verbs_qp_state ours = ends_state(&w.client, i), theirs = ends_state(&w.peer, i);
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
        ends_shake_well(&w, counts[c], NULL);
        for (size_t i = 0; i < counts[c]; i++) {
            assert_int_equal(w.client.set.rails[i].n_regions, REGIONS);
            assert_both(i, 5, 16);
            for (size_t r = 0; r < REGIONS; r++) {
                uint8_t landed[REGION_BYTES] = { 0 };
                assert_int_equal(ends_move(&w, i, VERBS_READ, r, landed, sizeof landed), 0);
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
    ends_shake_well(&w, 1, NULL);
    assert_int_not_equal(ends_move(&w, 0, VERBS_WRITE, 0, bytes, sizeof bytes), 0);
    assert_int_equal(w.memory[0][0], 0xA0);
    end();
}

static void one_region_is_read_and_written(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 8 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        begin(PENSTOCK_READ_WRITE, counts[c], NULL, counts[c], NULL);
        ends_shake_well(&w, counts[c], NULL);
        for (size_t i = 0; i < counts[c]; i++) {
            uint8_t out[8] = { (uint8_t)i, 1, 2, 3 }, back[8] = { 0 };
            assert_int_equal(w.client.set.rails[i].n_regions, 1);
            assert_int_equal(ends_move(&w, i, VERBS_WRITE, 0, out, sizeof out), 0);
            assert_memory_equal(w.memory[0], out, sizeof out);
            assert_int_equal(ends_move(&w, i, VERBS_READ, 0, back, sizeof back), 0);
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
        ends_shake_well(&w, 8, NULL);
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
    ends_shake_well(&w, 1, NULL);
    assert_int_equal(ends_state(&w.client, 0).mtu, 4);
    assert_int_equal(ends_state(&w.peer, 0).mtu, 3);
    assert_int_equal(ends_state(&w.client, 0).reads_out, 8); /* fewer outstanding where the device has less */
    assert_int_equal(ends_state(&w.peer, 0).reads_in, 16);
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
    ends_shake_well(&w, 2, pairing.wishes);
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
    ends_shake_well(&w, 4, wishes);
    for (size_t i = 0; i < 4; i++) {
        uint8_t landed[REGION_BYTES] = { 0 };
        assert_int_equal(w.client.set.rails[i].peer_rail, granted[i]);
        assert_int_equal(w.client.set.rails[i].own, own[i]);
        assert_int_equal(w.peer.set.rails[i].own, granted[i]);
        assert_int_equal(w.client.set.rails[i].regions[1].rkey, w.peer.mrs[granted[i]][1]->rkey);
        assert_int_equal(ends_move(&w, i, VERBS_READ, 1, landed, sizeof landed), 0);
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
        struct ends_outcome out = ends_shake(&w, 2, cases[i].wishes);
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
    struct ends_outcome out = ends_shake(&w, 3, NULL);
    assert_int_equal(out.peer_error.code, PENSTOCK_ELIMIT);
    assert_int_equal(out.client_error.code, PENSTOCK_EDENIED);
    assert_int_equal(w.client.set.n, 3); /* the set is the caller's to give up */
    rail_set_fini(&w.client.set);
    ends_shake_well(&w, 2, NULL); /* a client dials again with fewer */
    end();
}

static void tables_that_do_not_fit_are_answered_with_nothing(void **state)
{
    (void)state;
    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        begin((enum penstock_dialect)dialect, 2, NULL, 2, NULL);
        w.peer.regions[1][0].base = UINT64_MAX - REGION_BYTES + 2;
        struct ends_outcome out = ends_shake(&w, 2, NULL);
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
    ends_shake_well(&w, 1, NULL);
    end();
}

static void tables_of_another_length(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    w.client.config.n_expected = 2;
    struct ends_outcome out = ends_shake(&w, 1, NULL);
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
    struct ends_outcome out = ends_shake(&w, 1, NULL);
    assert_int_equal(out.peer_error.code, PENSTOCK_EUNSUPPORTED);
    assert_string_equal(out.peer_error.message,
                        "client: rail 0 (sim0 port 1): the device takes 4 READs at once, and the client will send 16: "
                        "only a client that agrees on fewer can be served here");
    assert_int_equal(out.client_error.code, PENSTOCK_EDENIED); /* it hears of it by its ack */
    rail_set_fini(&w.client.set);

    assert_int_equal(rail_pair(&w.client.devices, NULL, &pairing, NULL), 0);
    ends_shake_well(&w, 1, pairing.wishes);
    assert_both(0, 5, 4);
    end();

    /* At the client nothing ever comes in. */
    begin(PENSTOCK_READ_ONLY, 1, &few, 1, NULL);
    ends_shake_well(&w, 1, NULL);
    assert_int_equal(ends_state(&w.client, 0).reads_in, 4);
    assert_int_equal(ends_state(&w.client, 0).reads_out, 16);
    end();
}

static void queues_are_cut_to_what_the_port_has(void **state)
{
    (void)state;
    const struct sim_port_options small = { .work_requests_max = 10, .sges_max = 2 };
    begin(PENSTOCK_READ_ONLY, 1, &small, 1, NULL);
    ends_shake_well(&w, 1, NULL);
    assert_int_equal(w.client.set.rails[0].depth, 10);
    assert_int_equal(w.client.set.rails[0].sges_max, 2);
    end();
    begin(PENSTOCK_READ_ONLY, 1, NULL, 1, NULL);
    ends_shake_well(&w, 1, NULL);
    assert_int_equal(w.client.set.rails[0].depth, 128);
    assert_int_equal(w.client.set.rails[0].sges_max, 4);
    end();
}

/* A rail that was given away: to an engine, which frees it. */
static void a_rail_may_be_taken_out(void **state)
{
    (void)state;
    begin(PENSTOCK_READ_ONLY, 2, NULL, 2, NULL);
    ends_shake_well(&w, 2, NULL);
    struct rail rail = w.client.set.rails[1];
    w.client.set.rails[1] = (struct rail){ 0 };
    rail_set_fini(&w.client.set);
    assert_int_equal(sim_host_objects(client_host).qps, 1);
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
                struct ends_end *failing = at_peer ? &w.peer : &w.client;
                struct verbs_world *host = at_peer ? peer_host : client_host;
                sim_fail_calls(host, calls[c], nth, 1, PENSTOCK_ENOMEM);
                struct ends_outcome out = ends_shake(&w, 3, NULL);
                const struct penstock_error *error = at_peer ? &out.peer_error : &out.client_error;
                snprintf(rail, sizeof rail, "%s: rail %d (sim%d port 1): ", at_peer ? "client" : "peer", (int)nth - 1,
                         (int)nth - 1);
                assert_int_equal(error->code, PENSTOCK_ENOMEM);
                assert_ptr_equal(strstr(error->message, rail), error->message);
                assert_int_equal(out.client, NET_HANDSHAKE_FAILED);
                assert_int_equal(failing->set.n, 0);
                struct sim_objects left = sim_host_objects(host);
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
