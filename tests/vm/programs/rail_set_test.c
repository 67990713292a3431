/* src/rail on two devices that exist, with different MTUs: what both ends of a handshake set their QPs to. Runs in the
 * guest, as root. Nothing is read: on one host Soft-RoCE has no way from one of its devices to another.
 *
 *     rail_set_test CLIENT_DEVICE PEER_DEVICE */
#include "../../unit/test.h"

#include <stdio.h>

#include "ends.h"
#include "rail/pair.h"

static const char *client_device, *peer_device;
static struct verbs_world *world;
static struct ends ends;

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static int begin(void **state)
{
    (void)state;
    ends_open(&ends, PENSTOCK_READ_ONLY, world, client_device, world, peer_device);
    assert_int_not_equal(ends.client.devices.ports[0].mtu, ends.peer.devices.ports[0].mtu);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ends_close(&ends);
    return 0;
}

static void say(const char *whose, const struct ends_end *end)
{
    char words[400];
    struct verbs_qp_state s = ends_state(end, 0);
    rail_port_format(&end->devices.ports[0], words, sizeof words);
    printf("%s: %s: QP at MTU %u, READs %u out %u in\n", whose, words, verbs_mtu_bytes(s.mtu), s.reads_out, s.reads_in);
}

static void ends_that_agree_take_the_smaller_values(void **state)
{
    (void)state;
    const struct rail_port *ours = &ends.client.devices.ports[0], *theirs = &ends.peer.devices.ports[0];
    struct rail_pairing pairing;
    assert_int_equal(rail_pair(&ends.client.devices, NULL, &pairing, NULL), 0);
    ends_shake_well(&ends, 1, pairing.wishes);
    say("client", &ends.client);
    say("peer", &ends.peer);
    struct verbs_qp_state client = ends_state(&ends.client, 0), peer = ends_state(&ends.peer, 0);
    assert_string_equal(client.state, "RTS");
    assert_string_equal(peer.state, "RTS");
    assert_int_equal(client.mtu, smaller(ours->mtu, theirs->mtu));
    assert_int_equal(peer.mtu, smaller(ours->mtu, theirs->mtu));
    assert_int_equal(client.reads_out, smaller(rail_port_reads(ours), rail_port_reads(theirs)));
    assert_int_equal(peer.reads_in, client.reads_out);
    assert_true(client.reads_out > 16); /* else nothing is shown */
}

static void fewer_reads_are_agreed_on_where_the_client_says_so(void **state)
{
    (void)state;
    const struct penstock_rail_choice wish = { PENSTOCK_PEER_RAIL_ANY, 1, 4 }; /* drivers round up to a power of two */
    ends_shake_well(&ends, 1, &wish);
    assert_int_equal(ends_state(&ends.peer, 0).mtu, 1);
    assert_int_equal(ends_state(&ends.client, 0).mtu, 1);
    assert_int_equal(ends_state(&ends.peer, 0).reads_in, 4);
    assert_int_equal(ends_state(&ends.client, 0).reads_out, 4);
}

static void ends_that_do_not_take_their_own_mtu_and_16_reads(void **state)
{
    (void)state;
    ends_shake_well(&ends, 1, NULL);
    assert_int_equal(ends_state(&ends.client, 0).mtu, ends.client.devices.ports[0].mtu);
    assert_int_equal(ends_state(&ends.peer, 0).mtu, ends.peer.devices.ports[0].mtu);
    assert_int_equal(ends_state(&ends.client, 0).reads_out, 16);
    assert_int_equal(ends_state(&ends.peer, 0).reads_in, 16);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ends_that_agree_take_the_smaller_values),
        TEST(fewer_reads_are_agreed_on_where_the_client_says_so),
        TEST(ends_that_do_not_take_their_own_mtu_and_16_reads),
    };
    struct penstock_error error;
    if (argc != 3 || verbs_world_open(&world, &error) != 0)
        return 2;
    client_device = argv[1];
    peer_device = argv[2];
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    verbs_world_free(world);
    return failed;
}
