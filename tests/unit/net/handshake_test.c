#include "handshake_rig.h"

#include <errno.h>
#include <stdio.h>

/* ---- the transcripts of protocol 1.3 ---- */

static const uint8_t identities[] = {
    0x44, 0x33, 0x22, 0x11, 0xCC, 0xBB, 0xAA, 0x00, 0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67,
    0x68, 0x69, 0x6A, 0x6B, 0x6C, 0x6D, 0x6E, 0x6F, 0x88, 0x77, 0x66, 0x55, 0xFF, 0xEE, 0xDD, 0x00,
    0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x7B, 0x7C, 0x7D, 0x7E, 0x7F,
};

static void a_clients_whole_output_byte_for_byte(void **state)
{
    (void)state;
    static uint8_t from_peer[1024];
    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        for (size_t n = 1; n <= 2; n++) {
            uint8_t whole[50] = { (uint8_t)n, (uint8_t)n }, out[50];
            memcpy(whole + 2, identities, 24 * n);
            size_t len = tables((enum penstock_dialect)dialect, n, 3, from_peer);
            struct net_handshake *h = client((enum penstock_dialect)dialect, n, 3);
            size_t written = 0, read = 0;
            from_peer[len] = PENSTOCK_STATUS_OK;
            while (net_handshake_next(h) != NET_HANDSHAKE_DONE) {
                if (net_handshake_next(h) == NET_HANDSHAKE_WRITE) {
                    written += take(h, out + written);
                    continue;
                }
                /* It reads when it has written exactly 1 byte, or everything. */
                assert_int_equal(written, read < len ? 1 : 2 + 24 * n);
                assert_int_equal(feed(h, from_peer + read, 1), 1);
                read++;
            }
            assert_int_equal(written, 2 + 24 * n);
            assert_memory_equal(out, whole, written);
            assert_int_equal(read, len + 1);
            assert_int_equal(net_handshake_n_rails(h), n);
            assert_int_equal(ours.prepared, 1);
            assert_int_equal(ours.completed, 1);
            net_handshake_free(h);
        }
    }
}

static void a_peers_whole_output_byte_for_byte(void **state)
{
    (void)state;
    static const uint8_t read_only[] = {
        1,                                                                      /* rails */
        0x04, 3,    2,    1,                                                    /* qpn */
        0x07, 6,    5,    0,                                                    /* psn */
        0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5,                                     /* gid */
        0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xAB, 0xAC, 0xAD, 0xAE, 0xAF, 2, 0, 0, 0, /* regions */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xE0, 0,    0, 0,       /* base, rkey */
        0x89, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xE0, 0,    0, 0,
    };
    uint8_t out[128], request[26] = { 1, 1 };
    memcpy(request + 2, identities, 24);
    struct net_handshake *h = peer(PENSTOCK_READ_ONLY, 1, 2);
    assert_int_equal(feed(h, request, sizeof request), 1);
    assert_int_equal(take(h, out), sizeof read_only);
    assert_memory_equal(out, read_only, sizeof read_only);
    assert_int_equal(feed(h, request + 1, sizeof request - 1), 25);
    assert_int_equal(take(h, out), 1);
    assert_int_equal(out[0], PENSTOCK_STATUS_OK);
    assert_int_equal(net_handshake_next(h), NET_HANDSHAKE_DONE);
    assert_int_equal(theirs.theirs[0].qpn, 0x11223344);
    net_handshake_free(h);

    h = peer(PENSTOCK_READ_WRITE, 1, 0);
    assert_int_equal(feed(h, request, 1), 1);
    assert_int_equal(take(h, out), 37);
    assert_memory_equal(out, read_only, 25);
    assert_memory_equal(out + 25, read_only + 29, 12);
    net_handshake_free(h);
}

/* ---- both ends ---- */

static void run_both(struct net_handshake *a, struct net_handshake *b)
{
    static uint8_t bytes[PENSTOCK_SERVER_RAILS_BYTES_MAX];
    for (int turn = 0; turn < 8; turn++) {
        size_t n = take(a, bytes);
        assert_int_equal(feed(b, bytes, n), n);
        n = take(b, bytes);
        assert_int_equal(feed(a, bytes, n), n);
    }
}

static void both_ends_get_the_others_identities_and_tables(void **state)
{
    (void)state;
    static const struct {
        enum penstock_dialect dialect;
        size_t n_rails, n_regions;
    } cases[] = {
        { PENSTOCK_READ_ONLY, 1, 1 },  { PENSTOCK_READ_ONLY, 8, 1000 }, { PENSTOCK_READ_ONLY, 2, 4096 },
        { PENSTOCK_READ_WRITE, 1, 1 }, { PENSTOCK_READ_WRITE, 127, 1 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct net_handshake *a = client(cases[c].dialect, cases[c].n_rails, cases[c].n_regions);
        struct net_handshake *b = peer(cases[c].dialect, NET_RAILS_MAX, cases[c].n_regions);
        run_both(a, b);
        assert_int_equal(net_handshake_next(a), NET_HANDSHAKE_DONE);
        assert_int_equal(net_handshake_next(b), NET_HANDSHAKE_DONE);
        assert_int_equal(ours.n_their_regions, cases[c].n_regions);
        assert_false(ours.agreed || theirs.agreed);
        for (size_t i = 0; i < cases[c].n_rails; i++) {
            struct penstock_qp_identity mine = fake_rails_identity(i, true), other = fake_rails_identity(i, false);
            assert_memory_equal(&theirs.theirs[i], &mine, sizeof mine);
            assert_memory_equal(&ours.theirs[i], &other, sizeof other);
            for (size_t l = 0; i < PENSTOCK_RAILS_MAX && l < cases[c].n_regions; l++) {
                assert_int_equal(ours.their_regions[i][l].base, theirs.regions[i][l].base);
                assert_int_equal(ours.their_regions[i][l].rkey, theirs.regions[i][l].rkey);
            }
        }
        net_handshake_free(a);
        net_handshake_free(b);
    }
}

static struct net_handshake *choosing_client(const struct penstock_rail_choice *wishes, size_t n)
{
    struct net_handshake *h;
    fake_rails_init(&ours, 0);
    const struct net_handshake_config config = {
        .other = PEER, .ops = &fake_rails_ops, .rails = &ours, .n_rails = n, .n_regions = 1, .wishes = wishes
    };
    assert_int_equal(net_handshake_client_new(&config, &h, NULL), 0);
    return h;
}

static const struct penstock_rail_choice wishes[2] = { { 3, 5, 32 }, { PENSTOCK_PEER_RAIL_ANY, 3, 16 } };

static void rails_are_chosen(void **state)
{
    (void)state;
    static const struct penstock_rail_choice granted[2] = { { 3, 4, 32 }, { 6, 3, 16 } };
    struct net_handshake *a = choosing_client(wishes, 2), *b = peer(PENSTOCK_READ_ONLY, 8, 1);
    run_both(a, b);
    assert_int_equal(net_handshake_next(a), NET_HANDSHAKE_DONE);
    assert_int_equal(net_handshake_next(b), NET_HANDSHAKE_DONE);
    assert_int_equal(theirs.chosen, 1);
    assert_memory_equal(ours.choice, granted, sizeof granted);
    assert_memory_equal(theirs.choice, granted, sizeof granted);
    net_handshake_free(a);
    net_handshake_free(b);
}

static void a_choice_that_cannot_be_granted_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[64];
    struct net_handshake *a = choosing_client(wishes, 2), *b = peer(PENSTOCK_READ_ONLY, 8, 1);
    theirs.choose_code = PENSTOCK_EDENIED;
    size_t n = take(a, bytes);
    assert_int_equal(n, 7);
    assert_int_equal(bytes[0], 0x82);
    feed(b, bytes, n);
    assert_failed(b, PENSTOCK_EDENIED, "client 10.0.0.7:40000: no such rail");
    net_handshake_end(a, 0);
    assert_failed(a, PENSTOCK_EDENIED,
                  PEER " refused the rails (usual cause: it knows of no choice of rails, or cannot grant this one): "
                       "peer rail: connection closed");

    struct net_rail_ops frozen = fake_rails_ops;
    frozen.choose = NULL;
    const struct net_handshake_config config = {
        .other = "client", .ops = &frozen, .rails = &theirs, .n_rails = 8, .n_regions = 1
    };
    assert_int_equal(net_handshake_peer_new(&config, &b, NULL), 0);
    feed(b, bytes, n);
    assert_failed(b, PENSTOCK_EUNSUPPORTED, "client: wants to choose rails, which cannot be done here");
}

static void a_close_after_the_answer_to_a_choice_is_no_refusal(void **state)
{
    (void)state;
    static const int how[] = { 0, ECONNRESET };
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[64];
        struct net_handshake *h = choosing_client(wishes, 2);
        assert_int_equal(take(h, bytes), 7);
        assert_int_equal(feed(h, (const uint8_t *)"\3\4\40\6\3\20", 6), 6);
        net_handshake_end(h, how[i]);
        assert_failed(h, PENSTOCK_ECLOSED, PEER ": read server rail count: connection closed");
    }
}

static void zero_rails_are_the_tcp_data_plane(void **state)
{
    (void)state;
    uint8_t bytes[8];
    struct net_handshake *a = client(PENSTOCK_READ_WRITE, 0, 0), *b = peer(PENSTOCK_READ_WRITE, 1, 0);
    assert_int_equal(take(a, bytes), 1);
    assert_int_equal(feed(b, bytes, 1), 1);
    assert_int_equal(take(b, bytes), 2);
    assert_memory_equal(bytes, "\0\0", 2);
    assert_int_equal(feed(a, bytes, 2), 2);
    assert_int_equal(net_handshake_next(a), NET_HANDSHAKE_DONE);
    assert_int_equal(net_handshake_next(b), NET_HANDSHAKE_DONE);
    assert_int_equal(net_handshake_n_rails(a), 0);
    assert_int_equal(ours.prepared + theirs.prepared + ours.completed + theirs.completed, 0);
    net_handshake_free(a);
    net_handshake_free(b);
}

/* ---- refusals ---- */

static void a_client_refuses_what_a_peer_may_not_say(void **state)
{
    (void)state;
    static const struct {
        enum penstock_dialect dialect;
        size_t at; /* of step 2 */
        uint8_t byte;
        const char *words;
    } cases[] = {
        { PENSTOCK_READ_ONLY, 0, 0, PEER ": implausible server rail count: 0" },
        { PENSTOCK_READ_ONLY, 0, 9, PEER ": implausible server rail count: 9" },
        { PENSTOCK_READ_ONLY, 0, 1, PEER ": server framed 1 rails but client negotiated 2" },
        { PENSTOCK_READ_ONLY, 25, 0, PEER ": implausible verbs layer count: 0" },
        { PENSTOCK_READ_ONLY, 28, 1, PEER ": implausible verbs layer count: 16777219" },
        { PENSTOCK_READ_ONLY, 25, 2, PEER ": published 2 regions where the manifest has 3" },
        { PENSTOCK_READ_ONLY, 25 + 28 + 36, 4, PEER ": published 4 regions where the manifest has 3" },
        { PENSTOCK_READ_WRITE, 0, 1, PEER " granted 1 rails, wanted 2" },
        { PENSTOCK_READ_WRITE, 0, 255, PEER " granted 255 rails, wanted 2" },
    };
    uint8_t bytes[256], out[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = tables(cases[i].dialect, 2, 3, bytes);
        bytes[cases[i].at] = cases[i].byte;
        struct net_handshake *h = client(cases[i].dialect, 2, 3);
        assert_int_equal(take(h, out), 1);
        /* Refused at the field that is wrong: nothing after its record is read, nothing more is sent. */
        assert_in_range(feed(h, bytes, len), cases[i].at + 1, cases[i].at + 4);
        assert_int_equal(ours.completed, 0);
        assert_failed(h, PENSTOCK_EPROTO, cases[i].words);
    }
}

static void a_peer_refuses_what_a_client_may_not_ask(void **state)
{
    (void)state;
    static const struct {
        enum penstock_dialect dialect;
        uint8_t asked;
        int code;
        const char *words;
    } cases[] = {
        { PENSTOCK_READ_ONLY, 0, PENSTOCK_EPROTO, "implausible client rail count: 0" },
        { PENSTOCK_READ_ONLY, 9, PENSTOCK_EPROTO, "implausible client rail count: 9" },
        { PENSTOCK_READ_ONLY, 0x80, PENSTOCK_EPROTO, "implausible client rail count: 128" },
        { PENSTOCK_READ_ONLY, 3, PENSTOCK_ELIMIT, "asked for 3 rails, and 2 are here" },
        { PENSTOCK_READ_WRITE, 3, PENSTOCK_ELIMIT, "asked for 3 rails, and 2 are here" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[128];
        struct net_handshake *h = peer(cases[i].dialect, 2, 1);
        assert_int_equal(feed(h, &cases[i].asked, 1), 1);
        snprintf(words, sizeof words, "client 10.0.0.7:40000: %s", cases[i].words);
        assert_int_equal(theirs.prepared, 0);
        assert_failed(h, cases[i].code, words);
    }
}

static void a_rail_count_that_changes_is_refused(void **state)
{
    (void)state;
    uint8_t count = 2, out[256];
    struct net_handshake *h = peer(PENSTOCK_READ_ONLY, 8, 1);
    feed(h, &count, 1);
    (void)take(h, out);
    count = 1;
    assert_int_equal(feed(h, &count, 1), 1);
    assert_int_equal(theirs.completed, 0);
    assert_failed(h, PENSTOCK_EPROTO, "client 10.0.0.7:40000: client framed 1 rails but negotiated 2");
}

static void a_bad_ack_is_a_refusal(void **state)
{
    (void)state;
    uint8_t bytes[256], out[64];
    size_t len = tables(PENSTOCK_READ_ONLY, 1, 1, bytes);
    bytes[len] = 7;
    struct net_handshake *h = client(PENSTOCK_READ_ONLY, 1, 1);
    (void)take(h, out);
    assert_int_equal(feed(h, bytes, len), len);
    (void)take(h, out);
    assert_int_equal(feed(h, bytes + len, 1), 1);
    assert_failed(h, PENSTOCK_EDENIED, PEER " refused connection (ack 7)");
}

static void a_rail_set_that_fails_at_the_peer(void **state)
{
    (void)state;
    uint8_t request[26] = { 1, 1 }, out[64];
    struct net_handshake *h = peer(PENSTOCK_READ_WRITE, 1, 0);
    theirs.prepare_code = PENSTOCK_ELIMIT;
    feed(h, request, 1);
    assert_failed(h, PENSTOCK_ELIMIT, "client 10.0.0.7:40000: above the memory cap");

    /* From step 3 on there is an ack to say it with. */
    h = peer(PENSTOCK_READ_WRITE, 1, 0);
    theirs.complete_code = PENSTOCK_ESYS;
    feed(h, request, 1);
    (void)take(h, out);
    feed(h, request + 1, 25);
    assert_int_equal(take(h, out), 1);
    assert_int_equal(out[0], PENSTOCK_STATUS_ERR);
    assert_failed(h, PENSTOCK_ESYS, "client 10.0.0.7:40000: QP to RTR");
}

static void a_rail_set_that_fails_at_the_client(void **state)
{
    (void)state;
    uint8_t bytes[256], out[64];
    struct net_handshake *h = client(PENSTOCK_READ_ONLY, 1, 1);
    ours.prepare_code = PENSTOCK_ENOMEM;
    assert_int_equal(take(h, out), 1);
    assert_failed(h, PENSTOCK_ENOMEM, PEER ": above the memory cap");

    size_t len = tables(PENSTOCK_READ_ONLY, 1, 1, bytes);
    h = client(PENSTOCK_READ_ONLY, 1, 1);
    ours.complete_code = PENSTOCK_ESYS;
    (void)take(h, out);
    feed(h, bytes, len);
    (void)take(h, out);
    assert_failed(h, PENSTOCK_ESYS, PEER ": QP to RTR");
}

static void tables_that_the_rail_set_refuses_are_answered_with_nothing(void **state)
{
    (void)state;
    uint8_t bytes[512], out[8];
    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        size_t len = tables((enum penstock_dialect)dialect, 2, 3, bytes);
        struct net_handshake *h = client((enum penstock_dialect)dialect, 2, 3);
        assert_int_equal(take(h, out), 1);
        ours.check_code = PENSTOCK_EPROTO;
        assert_int_equal(feed(h, bytes, len), len);
        assert_int_equal(ours.checked, 1);
        assert_int_equal(ours.completed, 0);
        assert_failed(h, PENSTOCK_EPROTO, PEER ": region 1 wraps");
    }
}

static void a_peer_whose_tables_are_not_what_it_serves_sends_none(void **state)
{
    (void)state;
    uint8_t count = 1;
    struct net_handshake *h = peer(PENSTOCK_READ_ONLY, 1, 3);
    theirs.n_regions = 2;
    feed(h, &count, 1);
    assert_failed(h, PENSTOCK_EINVAL, "client 10.0.0.7:40000: rail 0 has 2 regions, and 3 are served");
}

static void no_rail_may_stay_unconnected(void **state)
{
    (void)state;
    struct penstock_error error;
    const struct net_rail ends[3] = { 0 };
    fake_rails_init(&ours, 0);
    assert_int_equal(net_rails_complete(&fake_rails_ops, &ours, 2, ends, 1, NULL, &error), PENSTOCK_EPROTO);
    assert_string_equal(error.message, "1 rails to connect 2 of ours to: none may stay unconnected");
    assert_int_equal(net_rails_complete(&fake_rails_ops, &ours, 2, ends, 3, NULL, &error), PENSTOCK_EPROTO);
    assert_int_equal(ours.completed, 0);
    assert_int_equal(net_rails_complete(&fake_rails_ops, &ours, 2, ends, 2, NULL, &error), 0);
}

static void a_config_that_the_wire_cannot_say_is_refused(void **state)
{
    (void)state;
    static const struct penstock_rail_choice bad = { 0, 6, 16 };
    static const struct {
        struct net_handshake_config config;
        const char *words;
    } cases[] = {
        { { .n_rails = 0, .n_regions = 1 }, "rails to ask for: implausible client rail count: 0" },
        { { .n_rails = 9, .n_regions = 1 }, "rails to ask for: implausible client rail count: 9" },
        { { .n_rails = 1, .n_regions = 1, .wishes = &bad }, "rails to ask for: implausible path mtu: 6" },
        { { .n_rails = 1, .n_regions = 0 }, "0 regions on a rail: 1 to 4096 can be published" },
        { { .n_rails = 1, .n_regions = 4097 }, "4097 regions on a rail: 1 to 4096 can be published" },
        { { .n_rails = 128, .dialect = PENSTOCK_READ_WRITE }, "128 rails: at most 127 can be asked for" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_handshake *h;
        struct penstock_error error;
        assert_int_equal(net_handshake_client_new(&cases[i].config, &h, &error), PENSTOCK_EINVAL);
        assert_string_equal(error.message, cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clients_whole_output_byte_for_byte),
        cmocka_unit_test(a_peers_whole_output_byte_for_byte),
        cmocka_unit_test(both_ends_get_the_others_identities_and_tables),
        cmocka_unit_test(rails_are_chosen),
        cmocka_unit_test(a_choice_that_cannot_be_granted_is_refused),
        cmocka_unit_test(a_close_after_the_answer_to_a_choice_is_no_refusal),
        cmocka_unit_test(zero_rails_are_the_tcp_data_plane),
        cmocka_unit_test(a_client_refuses_what_a_peer_may_not_say),
        cmocka_unit_test(a_peer_refuses_what_a_client_may_not_ask),
        cmocka_unit_test(a_rail_count_that_changes_is_refused),
        cmocka_unit_test(a_bad_ack_is_a_refusal),
        cmocka_unit_test(a_rail_set_that_fails_at_the_peer),
        cmocka_unit_test(a_rail_set_that_fails_at_the_client),
        cmocka_unit_test(tables_that_the_rail_set_refuses_are_answered_with_nothing),
        cmocka_unit_test(a_peer_whose_tables_are_not_what_it_serves_sends_none),
        cmocka_unit_test(no_rail_may_stay_unconnected),
        cmocka_unit_test(a_config_that_the_wire_cannot_say_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
