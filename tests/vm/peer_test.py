"""The peer's side of the rail handshake on real devices: what it answers, what it refuses, and what is left of a client."""

import signal

from lab import DEVICES, DISK, MIB, OneHost, cpu_seconds, harness, memory_kib, model, note, resources
from rail_bytes import ANY_RAIL, RailClient, mapped

GIDS = [mapped("10.77.0.1"), mapped("10.77.1.1")]


class PeerTest(OneHost):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(self.assert_resources_are_back)  # runs last: the peer is gone by then
        self.model = model("two-shards", total_bytes=4 * MIB, n_shards=2)

    def assert_resources_are_back(self):
        self.assertEqual(resources(), self.before)

    def serve(self, *options):
        peer = super().serve(self.model, options=options)
        peer.wait_for_log(r"two-shards: registered 2 shards")
        return peer

    def dial(self, peer):
        """A client that has the manifest and is to say its mode."""
        client = RailClient(peer.address)
        self.addCleanup(client.socket.close)
        client.manifest("two-shards")
        return client

    def wait_for(self, what, n):
        """Until each device has so many of them again."""
        harness.wait_until(lambda: [resources()[d][what] for d in DEVICES] == n, f"{n} {what}")


class Handshake(PeerTest):
    def test_the_frozen_handshake_publishes_every_shard_on_every_rail_at_one_address(self):
        peer = self.serve()
        first, second = self.dial(peer), self.dial(peer)
        rails = first.connect_rails(*GIDS)
        self.assertEqual([rail[2] for rail in rails], GIDS)
        self.assertEqual([len(rail[3]) for rail in rails], [2, 2])
        self.assertEqual([base for base, _ in rails[0][3]], [base for base, _ in rails[1][3]])
        others = second.connect_rails(*GIDS)
        self.assertEqual([rail[3] for rail in others], [rail[3] for rail in rails], "one registration for all clients")
        psns = {rail[1] for rail in rails + others}
        self.assertEqual(len(psns), 4, "PSNs are random")
        self.assertLess(max(psns), 1 << 24)

    def test_a_number_of_rails_that_cannot_be_is_refused(self):
        peer = self.serve()
        for n in (0, 3, 9, 0x7F):
            client = self.dial(peer)
            client.step1(n)
            self.assertTrue(client.is_closed(), f"{n} rails")
        self.assert_serves(peer, "two-shards")

    def test_a_number_of_rails_that_changes_is_refused(self):
        peer = self.serve()
        for asked, said in ((1, 2), (2, 1), (1, 0)):
            client = self.dial(peer)
            client.step1(asked)
            self.assertEqual(len(client.step2()), asked)
            client.step3(*GIDS[:said], said=said)
            self.assertTrue(client.is_closed(), f"{asked} rails, then {said}")
        self.wait_for("qp", [self.before[d]["qp"] for d in DEVICES])
        self.assert_serves(peer, "two-shards")

    def test_a_gid_that_leads_nowhere_harms_nobody(self):
        peer = self.serve()
        lost = self.dial(peer)
        lost.connect_rails(mapped("192.0.2.1"))  # Soft-RoCE looks for no route before there is something to send
        self.dial(peer).connect_rails(*GIDS)
        lost.socket.close()
        self.wait_for("qp", [self.before[d]["qp"] + 1 for d in DEVICES])

    def test_a_client_that_chooses_gets_the_smaller_of_both_ends_values(self):
        peer = self.serve()
        client = self.dial(peer)
        self.assertEqual(client.choose((1, 3, 4), (ANY_RAIL, 5, 128)), [(1, 3, 4), (0, 5, 128)])
        self.assertEqual([rail[2] for rail in client.step2()], GIDS[::-1])
        client.step3(*GIDS[::-1])
        self.assertEqual(client.read(1), bytes([harness.STATUS_OK]))
        said = peer.wait_for_log(r"reads two-shards by RDMA over 2 rails: (.*)").group(1)
        self.assertEqual(said, "1 rxe1, MTU 1024, 4 READs; 0 rxe0, MTU 4096, 128 READs")

    def test_a_rail_that_is_not_there_or_twice_cannot_be_chosen(self):
        peer = self.serve()
        for wishes in (((2, 5, 16),), ((0, 5, 16), (0, 5, 16)), ((0, 0, 16),), ((0, 5, 0),)):
            client = self.dial(peer)
            client.send(harness.MODE_VERBS + bytes([0x80 | len(wishes)]) + b"".join(map(bytes, wishes)))
            self.assertTrue(client.is_closed(), wishes)


class Endings(PeerTest):
    def test_fifty_clients_one_after_another_leave_nothing(self):
        peer = self.serve()
        with_peer, memory = resources(), None
        for i in range(50):
            client = self.dial(peer)
            client.connect_rails(*GIDS)
            client.socket.close()
            if i == 9:
                memory = memory_kib(peer.process.pid, "VmRSS")
        self.wait_for("qp", [with_peer[d]["qp"] for d in DEVICES])
        self.assertEqual(resources(), with_peer)
        grown = memory_kib(peer.process.pid, "VmRSS") - memory
        note(f"resident memory after 50 clients, beside that after 10: {grown:+d} KiB")
        self.assertLess(grown, 512)

    def test_a_drain_waits_for_a_client_of_rails_and_ends_with_it(self):
        peer = self.serve("--drain", "60")
        client = self.dial(peer)
        client.connect_rails(*GIDS)
        peer.signal(signal.SIGTERM)
        peer.wait_for_log("finishing what is being sent")
        client.socket.close()
        self.assertEqual(peer.wait(), 0)

    def test_a_drain_that_is_over_closes_the_connection(self):
        peer = self.serve("--drain", "1")
        client = self.dial(peer)
        client.connect_rails(*GIDS)
        peer.signal(signal.SIGTERM)
        self.assertTrue(client.is_closed())
        peer.wait()


class Choices(PeerTest):
    def test_no_rail_means_tcp_only(self):
        peer = OneHost.serve(self, self.model, options=("--rail", "none"))
        client = self.dial(peer)
        client.step1(1)
        self.assertTrue(client.is_closed())
        self.assertEqual(resources(), self.before)
        self.assert_serves(peer, "two-shards")

    def test_a_rail_by_device_and_gid_is_the_only_one(self):
        peer = self.serve("--rail", "rxe1:10.77.1.1")
        self.assertEqual(self.dial(peer).connect_rails(GIDS[1])[0][2], GIDS[1])
        client = self.dial(peer)
        client.step1(2)
        self.assertTrue(client.is_closed())

    def test_auto_takes_as_many_as_it_is_told(self):
        peer = self.serve("--rail", "auto:1")
        self.assertEqual(self.dial(peer).connect_rails(GIDS[0])[0][2], GIDS[0])

    def test_a_device_that_is_not_there_is_named_at_the_start(self):
        self.assert_refuses_to_start("rxe7.*", "--weights", self.model, "--rail", "rxe7")

    def test_a_memlock_limit_that_is_too_small_leaves_the_model_on_tcp(self):
        peer = OneHost.serve(self, self.model, options=("--hold", "copy"), before=(
            "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all",
            "sh", "-c", 'ulimit -l 64 && exec "$0" "$@"'))
        note(peer.wait_for_log(r"two-shards: served over TCP only: .*").group(0))
        client = self.dial(peer)
        client.step1(1)
        self.assertTrue(client.is_closed())
        self.assert_serves(peer, "two-shards")
