#include "../test.h"

#include <stdio.h>

#include "rail/gid.h"
#include "rail/ports.h"

#define GIDS_MAX 8
#define PORTS_MAX 10

static struct verbs_port some[PORTS_MAX];
static struct verbs_gid gids[PORTS_MAX][GIDS_MAX];
static struct verbs_ports ports;

static void begin(void)
{
    memset(some, 0, sizeof some);
    ports = (struct verbs_ports){ .at = some };
}

static struct verbs_port *add_port(const char *device, uint8_t number)
{
    struct verbs_port *port = &some[ports.n];
    *port = (struct verbs_port){ .port = number,
                                 .active = true,
                                 .ethernet = true,
                                 .state = "ACTIVE",
                                 .mtu = 5,
                                 .gbps = 200,
                                 .reads_out = 16,
                                 .reads_in = 200,
                                 .work_requests_max = 1000,
                                 .sges_max = 30,
                                 .mr_bytes_max = 1 << 30,
                                 .message_bytes_max = 1 << 23,
                                 .gids = gids[ports.n] };
    snprintf(port->device, sizeof port->device, "%s", device);
    ports.n++;
    return port;
}

static void add_gid(struct verbs_port *port, enum verbs_gid_type type, const char *text)
{
    struct verbs_gid *gid = &port->gids[port->n_gids];
    gid->index = (uint32_t)port->n_gids++;
    gid->type = type;
    assert_true(rail_gid_parse(text, gid->raw));
}

/* Where every sort of GID is on offer. */
static struct verbs_port *add_full_port(const char *device, uint8_t number)
{
    struct verbs_port *port = add_port(device, number);
    add_gid(port, VERBS_GID_ROCE_V1, "fe80::1");
    add_gid(port, VERBS_GID_ROCE_V2, "fe80::1");
    add_gid(port, VERBS_GID_ROCE_V1, "10.0.0.2");
    add_gid(port, VERBS_GID_ROCE_V2, "169.254.3.4");
    add_gid(port, VERBS_GID_ROCE_V2, "127.0.0.1");
    add_gid(port, VERBS_GID_ROCE_V2, "2001:db8::2");
    add_gid(port, VERBS_GID_ROCE_V2, "10.0.0.2");
    add_gid(port, VERBS_GID_ROCE_V2, "10.0.0.3");
    return port;
}

static struct rail_chosen choose(const char *wished)
{
    struct rail_wishes wishes = { 0 };
    struct rail_chosen chosen;
    struct penstock_error error = { 0 };
    if (wished)
        assert_int_equal(rail_wishes_add(&wishes, wished, false, NULL), 0);
    int code = rail_ports_choose(&ports, &wishes, &chosen, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
    return chosen;
}

static void assert_not(const char *wished, int code, const char *words)
{
    struct rail_wishes wishes = { 0 };
    struct rail_chosen chosen;
    struct penstock_error error = { 0 };
    if (wished)
        assert_int_equal(rail_wishes_add(&wishes, wished, false, NULL), 0);
    assert_int_equal(rail_ports_choose(&ports, &wishes, &chosen, &error), code);
    assert_string_equal(error.message, words);
}

static void the_best_gid_of_a_port_whatever_its_place(void **state)
{
    (void)state;
    static const struct {
        enum verbs_gid_type type;
        const char *gid, *why;
    } best_first[] = {
        { VERBS_GID_ROCE_V2, "10.0.0.2", "RoCE v2, IPv4 10.0.0.2: the first routable of 7 GIDs" },
        { VERBS_GID_ROCE_V2, "2001:db8::2", "RoCE v2, IPv6 2001:db8::2: no routable IPv4 among 6 GIDs" },
        { VERBS_GID_ROCE_V2, "169.254.3.4", "RoCE v2, IPv4 169.254.3.4: link-local, and nothing better among 5 GIDs" },
        { VERBS_GID_ROCE_V2, "fe80::1", "RoCE v2, IPv6 fe80::1: link-local, and nothing better among 4 GIDs" },
        { VERBS_GID_ROCE_V1, "2001:db8::3", "RoCE v1, IPv6 2001:db8::3: no RoCE v2 among 3 GIDs" },
        { VERBS_GID_ROCE_V1, "fe80::1", "RoCE v1, IPv6 fe80::1: no RoCE v2 among 2 GIDs" },
    };
    const size_t n = sizeof best_first / sizeof *best_first;
    for (int reversed = 0; reversed < 2; reversed++) {
        for (size_t from = 0; from < n; from++) {
            begin();
            struct verbs_port *port = add_port("mlx5_0", 1);
            add_gid(port, VERBS_GID_ROCE_V2, "127.0.0.1");
            for (size_t i = from; i < n; i++) {
                size_t at = reversed ? n - 1 - (i - from) : i;
                add_gid(port, best_first[at].type, best_first[at].gid);
            }
            struct rail_chosen chosen = choose(NULL);
            uint8_t want[16];
            assert_true(rail_gid_parse(best_first[from].gid, want));
            assert_int_equal(chosen.n, 1);
            assert_memory_equal(chosen.at[0].gid, want, 16);
            assert_int_equal(chosen.at[0].gid_index, reversed ? n - from : 1);
            assert_string_equal(chosen.at[0].why, best_first[from].why);
        }
    }
}

static void an_infiniband_port_is_no_rail(void **state)
{
    (void)state;
    begin();
    struct verbs_port *port = add_port("ib0", 1);
    port->ethernet = false;
    add_gid(port, VERBS_GID_IB, "fd00::1");
    static const char words[] =
        "ib0 port 1 is InfiniBand (the protocol names ports by GIDs alone, and InfiniBand needs "
        "LIDs: only RoCE will do)";
    char whole[200];
    snprintf(whole, sizeof whole, "no RDMA port can be used: %s", words);
    assert_not(NULL, PENSTOCK_ENOTFOUND, whole);
    snprintf(whole, sizeof whole, "rail ib0: %s", words);
    assert_not("ib0", PENSTOCK_ENOTFOUND, whole);
    add_gid(add_port("rxe0", 1), VERBS_GID_ROCE_V2, "fe80::9"); /* not left out for the other's sake */
    assert_int_equal(choose(NULL).n, 1);
    assert_string_equal(choose(NULL).left_out, words);
}

static void every_active_port_is_a_rail_and_the_others_are_named(void **state)
{
    (void)state;
    begin();
    add_full_port("mlx5_0", 1);
    struct verbs_port *down = add_full_port("mlx5_0", 2);
    down->active = false;
    snprintf(down->state, sizeof down->state, "DOWN");
    add_port("mlx5_1", 1);
    add_gid(add_port("mlx5_2", 1), VERBS_GID_ROCE_V2, "fe80::9");
    add_full_port("mlx5_3", 1);
    struct rail_chosen chosen = choose("auto");
    assert_int_equal(chosen.n, 2);
    assert_string_equal(chosen.at[1].device, "mlx5_3");
    assert_string_equal(chosen.left_out,
                        "mlx5_0 port 2 is DOWN (bring it up with: ip link set INTERFACE up; rdma link shows which); "
                        "mlx5_1 port 1 has no GID (give its network interface an address); "
                        "mlx5_2 port 1 has only link-local GIDs (give its network interface an address)");
}

static void a_rail_has_what_its_port_can(void **state)
{
    (void)state;
    begin();
    add_full_port("mlx5_0", 1);
    struct rail_chosen chosen = choose("mlx5_0@5");
    const struct rail_port *rail = &chosen.at[0];
    assert_int_equal(rail->port, 1);
    assert_int_equal(rail->mtu, 5);
    assert_int_equal(rail->reads_out, 16);
    assert_int_equal(rail->reads_in, 128); /* the protocol's most */
    assert_int_equal(rail_port_reads(rail), 16);
    assert_int_equal(rail->work_requests_max, 1000);
    assert_int_equal(rail->sges_max, 30);
    assert_int_equal(rail->mr_bytes_max, 1 << 30);
    assert_int_equal(rail->message_bytes_max, 1 << 23);
    assert_int_equal(rail->peer_rail, 5);
}

static void a_device_that_knows_no_reads_or_requests_has_one(void **state)
{
    (void)state;
    begin();
    struct verbs_port *port = add_full_port("mlx5_0", 1);
    port->reads_out = 0;
    port->work_requests_max = port->sges_max = 0;
    assert_int_equal(choose(NULL).at[0].reads_out, 1);
    assert_int_equal(choose(NULL).at[0].work_requests_max, 1);
    assert_int_equal(choose(NULL).at[0].sges_max, 1);
    assert_int_equal(choose(NULL).at[0].peer_rail, PENSTOCK_PEER_RAIL_ANY);
}

static void a_limit_and_the_protocols_own(void **state)
{
    (void)state;
    char device[16];
    begin();
    for (int i = 0; i < 10; i++) {
        snprintf(device, sizeof device, "rxe%d", i);
        add_full_port(device, 1);
    }
    assert_int_equal(choose(NULL).n, 8);
    assert_string_equal(choose(NULL).left_out,
                        "rxe8 port 1 is one more than are wanted; rxe9 port 1 is one more than are wanted");
    assert_int_equal(choose("auto:3").n, 3);
    assert_string_equal(choose("auto:3").at[2].device, "rxe2");
}

static void named_rails_in_the_order_named(void **state)
{
    (void)state;
    begin();
    add_full_port("mlx5_0", 1);
    add_full_port("mlx5_0", 2);
    add_gid(add_port("mlx5_1", 1), VERBS_GID_ROCE_V2, "fe80::9");
    struct rail_chosen chosen = choose("mlx5_1,mlx5_0:5@3,mlx5_0,mlx5_0:10.0.0.2,mlx5_0:0");
    assert_int_equal(chosen.n, 5);
    assert_string_equal(chosen.at[0].device, "mlx5_1"); /* named: link-local or not */
    assert_int_equal(chosen.at[1].port, 1);
    assert_int_equal(chosen.at[1].gid_index, 5);
    assert_int_equal(chosen.at[1].peer_rail, 3);
    assert_string_equal(chosen.at[1].why, "RoCE v2, IPv6 2001:db8::2: as asked for");
    assert_int_equal(chosen.at[2].port, 2);      /* one that no rail has yet */
    assert_int_equal(chosen.at[3].port, 1);      /* none is left */
    assert_int_equal(chosen.at[3].gid_index, 6); /* not RoCE v1's entry of the same address */
    assert_int_equal(chosen.at[4].gid_index, 0);
    assert_string_equal(chosen.left_out, "");
}

static void a_named_device_uses_its_link_local_port_last(void **state)
{
    (void)state;
    begin();
    add_gid(add_port("mlx5_0", 1), VERBS_GID_ROCE_V2, "fe80::9");
    add_full_port("mlx5_0", 2);
    assert_int_equal(choose("mlx5_0").at[0].port, 2);
    assert_int_equal(choose("mlx5_0,mlx5_0").at[1].port, 2);
    assert_int_equal(choose("mlx5_0:fe80::9").at[0].port, 1);
    assert_int_equal(choose("mlx5_0:0,mlx5_0:0").at[1].port, 2); /* both have such a GID */
}

static void a_wish_that_cannot_be_met_says_why(void **state)
{
    (void)state;
    begin();
    assert_not("rxe0", PENSTOCK_ENOTFOUND, "rail rxe0: no such RDMA device; there is none");
    add_full_port("mlx5_0", 1);
    add_full_port("mlx5_0", 2);
    struct verbs_port *down = add_full_port("mlx5_1", 1);
    down->active = false;
    snprintf(down->state, sizeof down->state, "DOWN");
    assert_not("mlx5_0,rxe0", PENSTOCK_ENOTFOUND, "rail rxe0: no such RDMA device; there are: mlx5_0, mlx5_1");
    assert_not(
        "mlx5_1", PENSTOCK_ENOTFOUND,
        "rail mlx5_1: mlx5_1 port 1 is DOWN (bring it up with: ip link set INTERFACE up; rdma link shows which)");
    assert_not("mlx5_0:77", PENSTOCK_ENOTFOUND,
               "rail mlx5_0:77: mlx5_0 port 1 has no such GID (ibv_devinfo -v shows those that it has); mlx5_0 port 2 "
               "has no such GID (ibv_devinfo -v shows those that it has)");
    assert_not("mlx5_0:10.0.0.9", PENSTOCK_ENOTFOUND,
               "rail mlx5_0:::ffff:10.0.0.9: mlx5_0 port 1 has no such GID (ibv_devinfo -v shows those that it has); "
               "mlx5_0 port 2 has no such GID (ibv_devinfo -v shows those that it has)");
}

static void no_rail_at_all_says_why_not(void **state)
{
    (void)state;
    begin();
    assert_not(NULL, PENSTOCK_ENOTFOUND, "no RDMA port can be used: there is no RDMA device (rdma link shows them)");
    assert_not("none", PENSTOCK_EUNSUPPORTED, "RDMA is turned off (rails: none)");
    add_gid(add_port("rxe0", 1), VERBS_GID_ROCE_V2, "127.0.0.1");
    struct verbs_port *down = add_full_port("mlx5_0", 1);
    down->active = false;
    snprintf(down->state, sizeof down->state, "INIT");
    add_full_port("rxe1", 1)->mtu = 0;
    assert_not(
        "auto", PENSTOCK_ENOTFOUND,
        "no RDMA port can be used: rxe0 port 1 has no GID (give its network interface an address); mlx5_0 port 1 is "
        "INIT (bring it up with: ip link set INTERFACE up; rdma link shows which); rxe1 port 1 has an MTU that is none "
        "(0)");
}

static void link_local_alone_is_better_than_nothing(void **state)
{
    (void)state;
    begin();
    add_gid(add_port("rxe0", 1), VERBS_GID_ROCE_V2, "fe80::9");
    add_gid(add_port("rxe1", 1), VERBS_GID_ROCE_V2, "169.254.0.9");
    assert_int_equal(choose(NULL).n, 2);
}

static void a_rail_in_words(void **state)
{
    (void)state;
    char out[400];
    begin();
    struct verbs_port *port = add_full_port("mlx5_0", 1);
    struct rail_chosen chosen = choose(NULL);
    const char *words = "mlx5_0 port 1, GID 6 ::ffff:10.0.0.2, MTU 4096, 200 Gb/s (RoCE v2, IPv4 10.0.0.2: the first "
                        "routable of 8 GIDs)";
    assert_int_equal(rail_port_format(&chosen.at[0], out, sizeof out), strlen(words));
    assert_string_equal(out, words);
    assert_int_equal(rail_port_format(&chosen.at[0], out, 10), 9);
    assert_string_equal(out, "mlx5_0 po");
    port->gbps = 0;
    chosen = choose("mlx5_0:7");
    rail_port_format(&chosen.at[0], out, sizeof out);
    assert_string_equal(out, "mlx5_0 port 1, GID 7 ::ffff:10.0.0.3, MTU 4096, speed not known (RoCE v2, IPv4 10.0.0.3: "
                             "as asked for)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_gid_of_a_port_whatever_its_place),
        cmocka_unit_test(an_infiniband_port_is_no_rail),
        cmocka_unit_test(every_active_port_is_a_rail_and_the_others_are_named),
        cmocka_unit_test(a_rail_has_what_its_port_can),
        cmocka_unit_test(a_device_that_knows_no_reads_or_requests_has_one),
        cmocka_unit_test(a_limit_and_the_protocols_own),
        cmocka_unit_test(named_rails_in_the_order_named),
        cmocka_unit_test(a_named_device_uses_its_link_local_port_last),
        cmocka_unit_test(a_wish_that_cannot_be_met_says_why),
        cmocka_unit_test(no_rail_at_all_says_why_not),
        cmocka_unit_test(link_local_alone_is_better_than_nothing),
        cmocka_unit_test(a_rail_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
