#include "../test.h"

#include <stdio.h>

#include "rail/gid.h"
#include "rail/pair.h"

static struct rail_devices own;
static struct rail_listing theirs;

/* Addresses separated by blanks; "@N" behind one of ours wishes for the peer's rail N. */
static void set_up(const char *ours, const char *peers)
{
    char gid[64];
    int taken;
    memset(&own, 0, sizeof own);
    memset(&theirs, 0, sizeof theirs);
    for (; sscanf(ours, " %63[^ @]%n", gid, &taken) == 1; ours += taken) {
        struct rail_port *port = &own.ports[own.n];
        unsigned wish = PENSTOCK_PEER_RAIL_ANY;
        int more = 0;
        assert_true(rail_gid_parse(gid, port->gid));
        if (sscanf(ours + taken, "@%u%n", &wish, &more) == 1)
            taken += more;
        snprintf(port->device, sizeof port->device, "rxe%zu", own.n++);
        port->peer_rail = (uint8_t)wish;
        port->mtu = 4;
        port->reads_out = 64;
        port->reads_in = 32;
    }
    for (; sscanf(peers, " %63s%n", gid, &taken) == 1; peers += taken) {
        assert_true(rail_gid_parse(gid, theirs.at[theirs.n].gid));
        theirs.at[theirs.n].index = (uint8_t)theirs.n;
        theirs.n++;
    }
}

/* "0>1 1>0": which of ours goes to which of the peer's. */
static void assert_pairs(const char *ours, const char *peers, const char *want)
{
    struct rail_pairing pairing;
    struct penstock_error error = { 0 };
    char got[128] = "";
    set_up(ours, peers);
    int code = rail_pair(&own, &theirs, &pairing, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
    for (size_t i = 0; i < pairing.n; i++) {
        size_t len = strlen(got);
        snprintf(got + len, sizeof got - len, "%s%u>%u", i ? " " : "", pairing.own[i], pairing.wishes[i].peer_rail);
        assert_int_equal(pairing.wishes[i].path_mtu, 4);
        assert_int_equal(pairing.wishes[i].rd_atomic, 32);
    }
    assert_string_equal(got, want);
}

static void assert_none(const char *ours, const char *peers, bool choice, int code, const char *words)
{
    struct rail_pairing pairing;
    struct penstock_error error = { 0 };
    set_up(ours, peers);
    assert_int_equal(rail_pair(&own, choice ? &theirs : NULL, &pairing, &error), code);
    assert_string_equal(error.message, words);
}

static void the_same_subnet_first(void **state)
{
    (void)state;
    assert_pairs("10.0.0.1 10.0.1.1", "10.0.0.2 10.0.1.2", "0>0 1>1");
    assert_pairs("10.0.0.1 10.0.1.1", "10.0.1.2 10.0.0.2", "0>1 1>0");
    assert_pairs("10.77.0.1 10.78.0.1", "10.78.1.2 10.77.1.2", "0>1 1>0");
    assert_pairs("10.0.1.1 10.0.0.1", "10.0.0.2", "1>0"); /* the closest goes first, not the first */
    assert_pairs("2001:db8:0:1::1 2001:db8:0:2::1", "2001:db8:0:2::9 2001:db8:0:1::9", "0>1 1>0");
}

static void on_one_subnet_host_parts_do_not_count(void **state)
{
    (void)state;
    assert_pairs("10.0.0.1 10.0.0.2", "10.0.0.3 10.0.0.4", "0>0 1>1");
    assert_pairs("fe80::1 fe80::2", "fe80::2:1 fe80::1:1", "0>0 1>1");
}

static void the_rest_by_position(void **state)
{
    (void)state;
    assert_pairs("10.0.0.1 11.0.0.1 12.0.0.1", "20.0.0.1 10.0.0.2 22.0.0.1 23.0.0.1", "0>1 1>0 2>2");
    assert_pairs("10.0.0.1 11.0.0.1 12.0.0.1", "20.0.0.1 21.0.0.1", "0>0 1>1"); /* fewer rails */
    assert_pairs("10.0.0.1", "20.0.0.1 21.0.0.1", "0>0");
}

static void ipv4_goes_with_ipv4(void **state)
{
    (void)state;
    assert_pairs("2001:db8::1 10.0.0.1", "20.0.0.1 fd00::1", "0>1 1>0");
    assert_pairs("2001:db8::1 10.0.0.1", "20.0.0.1", "1>0");
    assert_none("2001:db8::1", "20.0.0.1", true, PENSTOCK_ENOTFOUND,
                "no rail of ours reaches one of the peer's: addresses of one kind (IPv4, IPv6) are needed, and ours "
                "begin with 2001:db8::1, the peer's with ::ffff:20.0.0.1");
}

static void a_named_rail_before_all(void **state)
{
    (void)state;
    assert_pairs("10.0.0.1@1 10.0.1.1", "10.0.0.2 10.0.1.2", "0>1 1>0");
    assert_pairs("10.0.0.1 10.0.1.1@0", "10.0.0.2 10.0.1.2", "0>1 1>0");
    assert_pairs("10.0.0.1@1 fd00::1@0", "10.0.0.2 fd00::2", "0>1 1>0"); /* whoever says so knows */
    assert_none("10.0.0.1@2", "10.0.0.2 10.0.1.2", true, PENSTOCK_ENOTFOUND,
                "rail rxe0@2: the peer has no rail 2; it lists 2");
    assert_none("10.0.0.1@0 10.0.0.3@0", "10.0.0.2 10.0.1.2", true, PENSTOCK_EINVAL,
                "rail rxe1@0: another rail goes there already");
}

static void a_peers_index_is_not_its_place(void **state)
{
    (void)state;
    struct rail_pairing pairing;
    set_up("10.0.0.1 10.0.1.1@200", "10.0.0.2 10.0.1.2");
    theirs.at[0].index = 7;
    theirs.at[1].index = 200;
    assert_int_equal(rail_pair(&own, &theirs, &pairing, NULL), 0);
    assert_int_equal(pairing.n, 2);
    assert_int_equal(pairing.wishes[0].peer_rail, 7);
    assert_int_equal(pairing.wishes[1].peer_rail, 200);
}

static void where_nobody_chooses_it_is_by_position(void **state)
{
    (void)state;
    struct rail_pairing pairing;
    set_up("10.0.0.1 fd00::1", "");
    assert_int_equal(rail_pair(&own, NULL, &pairing, NULL), 0);
    assert_int_equal(pairing.n, 2);
    assert_int_equal(pairing.own[1], 1);
    assert_int_equal(pairing.wishes[1].peer_rail, 1);
    assert_none("10.0.0.1 10.0.1.1@0", "", false, PENSTOCK_EUNSUPPORTED,
                "rail rxe1@0: this peer lets nobody choose among its rails: leave out \"@0\"");
}

static void where_the_peer_lists_nothing_names_go_before_positions(void **state)
{
    (void)state;
    static const struct {
        const char *ours;
        uint8_t want[3];
    } cases[] = { { "10.0.0.1 10.0.1.1 10.0.2.1", { 0, 1, 2 } },
                  { "10.0.0.1@1 10.0.1.1 10.0.2.1", { 1, 0, 2 } },
                  { "10.0.0.1 10.0.1.1@0 10.0.2.1@1", { 2, 0, 1 } } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rail_pairing pairing;
        set_up(cases[c].ours, "");
        rail_pair_blindly(&own, &pairing);
        assert_int_equal(pairing.n, 3);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(pairing.own[i], i);
            assert_int_equal(pairing.wishes[i].peer_rail, cases[c].want[i]);
        }
    }
}

static void nothing_to_pair(void **state)
{
    (void)state;
    assert_none("10.0.0.1", "", true, PENSTOCK_ENOTFOUND, "the peer lists no rails");
    assert_none("", "10.0.0.1", true, PENSTOCK_ENOTFOUND, "there are no rails");
}

/* Whatever the addresses: nobody twice, and as many as there can be where all are of one kind. */
static void no_rail_twice(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct rail_pairing pairing;
        bool ours_seen[PENSTOCK_RAILS_MAX] = { false }, theirs_seen[PENSTOCK_RAILS_MAX] = { false };
        set_up("10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1",
               "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1");
        own.n = 1 + test_random(&seed) % PENSTOCK_RAILS_MAX;
        theirs.n = 1 + test_random(&seed) % PENSTOCK_RAILS_MAX;
        for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++) {
            own.ports[i].gid[13] = theirs.at[i].gid[14] = (uint8_t)(test_random(&seed) % 3);
            own.ports[i].gid[14] = theirs.at[i].gid[13] = (uint8_t)(test_random(&seed) % 3);
        }
        assert_int_equal(rail_pair(&own, &theirs, &pairing, NULL), 0);
        assert_int_equal(pairing.n, own.n < theirs.n ? own.n : theirs.n);
        for (size_t i = 0; i < pairing.n; i++) {
            assert_true(pairing.own[i] < own.n && pairing.wishes[i].peer_rail < theirs.n);
            assert_false(ours_seen[pairing.own[i]] || theirs_seen[pairing.wishes[i].peer_rail]);
            ours_seen[pairing.own[i]] = theirs_seen[pairing.wishes[i].peer_rail] = true;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_subnet_first),
        cmocka_unit_test(on_one_subnet_host_parts_do_not_count),
        cmocka_unit_test(the_rest_by_position),
        cmocka_unit_test(ipv4_goes_with_ipv4),
        cmocka_unit_test(a_named_rail_before_all),
        cmocka_unit_test(a_peers_index_is_not_its_place),
        cmocka_unit_test(where_nobody_chooses_it_is_by_position),
        cmocka_unit_test(where_the_peer_lists_nothing_names_go_before_positions),
        cmocka_unit_test(nothing_to_pair),
        cmocka_unit_test(no_rail_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
