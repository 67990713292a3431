"""The expert tier on real devices: records by READ, for clients that speak the frozen protocol (programs/raw_client.c, and
bytes written by hand), and what is left of them."""

import os
import signal
import struct
import subprocess

from lab import DEVICES, DISK, OneHost, cpu_seconds, hardware_counter, harness, note, program, resources
from make_store import layer_path, make_store
from rail_bytes import RailClient, mapped

GIDS = [mapped("10.77.0.1"), mapped("10.77.1.1")]
REFUSED, FAILED = 3, 4  # raw_client's exit statuses


class Experts(OneHost):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(lambda: self.assertEqual(resources(), self.before))
        self.directory = os.path.join(DISK, "experts")
        self.store = make_store(self.directory, layers=3, experts=16)

    def serve_store(self, *options):
        peer = self.start("--experts", self.directory, "--listen-experts", "127.0.0.1:0", *options, listen=())
        peer.address = peer.addresses(tier="experts")[0]
        note(peer.wait_for_log("experts: registered 3 layer files, .*").group(0))
        self.registered = resources()
        return peer

    def raw_client(self, peer, *words, devices=DEVICES):
        rails = [word for device in devices for word in ("--device", device)]
        layers = [word for i in range(3) for word in ("--file", f"{i}={layer_path(self.directory, i)}")]
        host, port = peer.address
        return subprocess.Popen([program("raw_client"), "--experts", str(self.store.stride), *rails, *layers, *words,
                                 host, str(port)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def status_of(self, client):
        self.said, _ = client.communicate(timeout=60)
        return client.returncode

    def assert_reads(self, peer, **options):
        self.assertEqual(self.status_of(self.raw_client(peer, **options)), 0, self.said)

    def dial(self, peer):
        client = RailClient(peer.address)
        self.addCleanup(client.socket.close)
        manifest = client.read_json()
        self.assertEqual(manifest["num_moe_layers"], 3)
        return client

    def assert_nothing_is_left(self):
        harness.wait_until(lambda: resources() == self.registered, f"{self.registered}, not {resources()}")

    def wait_for(self, client, line):
        while client.stdout.readline().strip() != line:
            if client.poll() is not None:
                raise AssertionError(f"it ended and never said {line!r}")

    def test_every_record_comes_over_one_rail_and_two(self):
        peer = self.serve_store()
        for devices in (DEVICES[:1], DEVICES):
            self.assert_reads(peer, devices=devices)
        self.assert_nothing_is_left()

    def test_the_peer_does_nothing_while_records_are_read(self):
        peer = self.serve_store()
        client = self.raw_client(peer, "--forever")
        self.wait_for(client, "reading")
        before, packets = cpu_seconds(peer.process.pid), hardware_counter(DEVICES[0], "sent_pkts")
        harness.wait_until(lambda: hardware_counter(DEVICES[0], "sent_pkts") > packets + 2000, "2000 packets")
        spent = cpu_seconds(peer.process.pid) - before
        client.kill()
        self.status_of(client)
        note(f"the peer's CPU while 2000 packets went over rail 0: {spent:.2f} s")
        self.assertLessEqual(spent, 0.05)  # the watch looks at the files now and then

    def test_the_handshake_publishes_every_layer_on_every_rail_at_one_address(self):
        peer = self.serve_store()
        client = self.dial(peer)
        rails = client.connect_rails(*GIDS)
        self.assertEqual([rail[2] for rail in rails], GIDS)
        self.assertEqual([len(rail[3]) for rail in rails], [3, 3])
        self.assertEqual([base for base, _ in rails[0][3]], [base for base, _ in rails[1][3]])
        self.assertEqual(self.dial(peer).connect_rails(*GIDS)[0][3], rails[0][3], "one registration for all clients")

    def test_a_client_that_chooses_gets_the_smaller_of_both_ends_values(self):
        peer = self.serve_store()
        client = self.dial(peer)
        self.assertEqual(client.choose((1, 3, 4)), [(1, 3, 4)])
        client.step2()
        client.step3(GIDS[1])
        self.assertEqual(client.read(1), bytes([harness.STATUS_OK]))
        peer.wait_for_log("reads experts by RDMA over 1 rail: 1 rxe1, MTU 1024, 4 READs")

    def test_nothing_can_be_written_and_no_other_key_opens_anything(self):
        peer = self.serve_store()
        for word in ("--write", "--wrong-rkey"):
            self.assertEqual(self.status_of(self.raw_client(peer, word)), FAILED, self.said)
        self.assert_reads(peer)

    def test_counts_of_rails_that_cannot_be_are_refused(self):
        peer = self.serve_store()
        for words in (("--rails", "0"), ("--rails", "9"), ("--rails", "2", "--rails-again", "1")):
            self.assertEqual(self.status_of(self.raw_client(peer, *words)), REFUSED, self.said)
        self.assert_nothing_is_left()

    def test_every_step_can_be_the_last_for_one_that_closes_and_for_one_that_is_killed(self):
        peer = self.serve_store()
        for step in ("manifest", "mode", "step1", "step2", "step3", "ack"):
            self.assertEqual(self.status_of(self.raw_client(peer, "--stop-after", step)), 0, f"{step}: {self.said}")
            client = self.raw_client(peer, "--stop-after", step, "--wait")
            self.wait_for(client, "waiting")
            client.kill()
            self.status_of(client)
        self.assert_nothing_is_left()
        self.assert_reads(peer)

    def test_a_drain_waits_for_a_client_of_rails_and_then_tells_it_that_the_peer_goes(self):
        for seconds in ("60", "1"):
            peer = self.serve_store("--drain", seconds)
            client = self.dial(peer)
            client.connect_rails(*GIDS)
            peer.signal(signal.SIGTERM)
            peer.wait_for_log("finishing what is being sent")
            if seconds == "60":
                client.socket.close()
            else:
                self.assertTrue(client.is_closed())
            self.assertEqual(peer.wait(), 0)

    def test_a_layer_rewritten_in_place_ends_its_clients_and_newcomers_read_the_new_bytes(self):
        peer = self.serve_store()
        client = self.dial(peer)
        client.connect_rails(*GIDS)
        with open(layer_path(self.directory, 1), "r+b") as f:
            f.seek(self.store.stride - 4)
            f.write(b"news")
        self.assertTrue(client.is_closed())
        self.assert_reads(peer)

    def test_records_over_tcp_are_the_same(self):
        client = self.dial(self.serve_store())
        client.send(harness.MODE_TCP + struct.pack("<II", 2, 15))
        self.assertEqual(client.read(1 + self.store.stride), b"\0" + self.store.record(2, 15))

    def test_a_ceiling_below_the_copy_refuses_rails_after_step_1_and_serves_tcp(self):
        size = sum(os.path.getsize(layer_path(self.directory, i)) for i in range(3))
        peer = self.start("--experts", self.directory, "--listen-experts", "127.0.0.1:0", "--hold", "copy",
                          "--max-memory", str(size + 4096), listen=())
        peer.address = peer.addresses(tier="experts")[0]
        note(peer.wait_for_log("experts: served over TCP only: .*").group(0))
        self.assertEqual(self.status_of(self.raw_client(peer)), REFUSED, self.said)
        client = self.dial(peer)
        client.send(harness.MODE_TCP + struct.pack("<II", 0, 0))
        self.assertEqual(client.read(1), bytes([harness.STATUS_OK]))
