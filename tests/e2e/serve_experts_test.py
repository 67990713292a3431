"""The expert tier over TCP (docs/protocol.md 1.4): the manifest first, then records, in the order asked for."""

import json
import os
import shutil
import signal
import struct
import subprocess

import harness
from harness import MODE_TCP, MODE_VERBS, STATUS_ERR, STATUS_OK
from make_store import layer_path, make_store

SHUTDOWN = 0xFFFFFFFF
KIB = 1 << 10


class ExpertClient(harness.Client):
    def manifest_text(self):
        (length,) = struct.unpack("<I", self.read(4))
        return self.read(length).decode()

    def open_store(self):
        manifest = json.loads(self.manifest_text())
        self.send(MODE_TCP)
        self.stride = manifest["record_stride"]
        return manifest

    def ask_for(self, *records):
        self.send(b"".join(struct.pack("<II", *r) for r in records))

    def take(self):
        """The next record, or None where the peer says that there is none such."""
        return self.read(self.stride) if self.status() == STATUS_OK else None

    def fetch(self, layer, expert):
        self.ask_for((layer, expert))
        return self.take()


class ExpertTest(harness.PeerTest):
    def make(self, name="s", **sizes):
        self.store = make_store(self.path(name), **sizes)
        return self.path(name)

    def serve_store(self, directory, *options):
        peer = self.start("--experts", directory, "--listen-experts", "127.0.0.1:0", *options, listen=())
        peer.address = peer.addresses(tier="experts")[0]
        return peer

    def connect_to(self, peer):
        client = ExpertClient(peer.address)
        self.addCleanup(client.socket.close)
        return client

    def open_store(self, peer):
        client = self.connect_to(peer)
        client.open_store()
        return client

    def assert_lives(self, peer):
        self.assertIsNotNone(self.open_store(peer).fetch(0, 0))


class Records(ExpertTest):
    def setUp(self):
        super().setUp()
        self.peer = self.serve_store(self.make())

    def test_the_manifest_comes_first_compact_and_in_its_order(self):
        text = self.connect_to(self.peer).manifest_text()
        manifest = json.loads(text)
        version = manifest.pop("model_version")  # ours, at the end
        self.assertEqual(manifest, self.store.manifest())
        self.assertEqual(list(manifest), list(self.store.manifest()))
        whole = {**self.store.manifest(), "model_version": version}
        self.assertEqual(text, json.dumps(whole, separators=(",", ":")))
        self.peer.wait_for_log(rf"staged expert store s from .*: version {version}, 3 layers of 5 experts")

    def test_every_record_comes_as_it_lies_in_the_store(self):
        client = self.open_store(self.peer)
        for layer in range(self.store.layers):
            for expert in range(self.store.experts):
                self.assertEqual(client.fetch(layer, expert), self.store.record(layer, expert))

    def test_pipelined_requests_are_answered_in_order(self):
        client = self.open_store(self.peer)
        asked = [(i % 3, i * 7 % 5) for i in range(200)]
        client.ask_for(*asked)
        for layer, expert in asked:
            self.assertEqual(client.take(), self.store.record(layer, expert))

    def test_requests_may_come_with_the_mode_byte_and_in_pieces(self):
        client = self.connect_to(self.peer)
        for byte in MODE_TCP + struct.pack("<IIII", 2, 4, 0, 1):
            client.send(bytes([byte]))
        client.stride = json.loads(client.manifest_text())["record_stride"]
        self.assertEqual(client.take(), self.store.record(2, 4))
        self.assertEqual(client.take(), self.store.record(0, 1))

    def test_what_is_out_of_range_is_a_status_and_the_connection_lives(self):
        client = self.open_store(self.peer)
        for layer, expert in [(3, 0), (0, 5), (SHUTDOWN, 0), (0, SHUTDOWN), (3, 5), (2 ** 31, 2 ** 31)]:
            client.ask_for((layer, expert))
            self.assertEqual(client.status(), STATUS_ERR)
        client.ask_for((0, 0), (9, 9), (2, 4))
        self.assertEqual(client.take(), self.store.record(0, 0))
        self.assertIsNone(client.take())
        self.assertEqual(client.take(), self.store.record(2, 4))

    def test_the_shutdown_marker_ends_the_connection_after_what_came_before_it(self):
        client = self.open_store(self.peer)
        client.ask_for((1, 1), (SHUTDOWN, SHUTDOWN), (2, 2))
        self.assertEqual(client.take(), self.store.record(1, 1))
        self.assertTrue(client.is_closed())
        self.assertNotRegex("\n".join(self.peer.log), "warning|error")

    def test_an_unknown_mode_is_closed(self):
        for mode in (2, 7, 0x80, 0xFF):
            client = self.connect_to(self.peer)
            client.manifest_text()
            client.send(bytes([mode]))
            self.assertTrue(client.is_closed())
            self.peer.wait_for_log(rf"client \S+: closed: unknown transport byte {mode}$")
        self.assert_lives(self.peer)

    def test_a_client_may_leave_after_the_manifest(self):
        with self.connect_to(self.peer) as client:
            client.manifest_text()
        self.assert_lives(self.peer)
        self.assertEqual(self.peer.stop(), 0)
        self.assertNotRegex("\n".join(self.peer.log), "warning|error")

    def test_a_batch_of_clients_that_leave_in_the_middle_harms_nobody(self):
        for cut in range(18):
            with self.connect_to(self.peer) as client:
                client.send((MODE_TCP + struct.pack("<IIII", 0, 0, 1, 1))[:cut])
        self.assert_lives(self.peer)


class Transports(ExpertTest):
    def test_a_client_that_speaks_verbs_in_either_dialect_is_closed_where_there_are_no_rails(self):
        peer = self.serve_store(self.make(), "--rail", "none")
        for step_1 in (b"\1", b"\x81\xff\3\x10"):
            client = self.connect_to(peer)
            client.manifest_text()
            client.send(MODE_VERBS + step_1)
            self.assertTrue(client.is_closed())
        peer.wait_for_log("closed: it asked for RDMA, which is not here: RDMA is turned off", 2)
        self.assert_lives(peer)


class Beside(ExpertTest):
    def test_weights_and_experts_are_served_by_one_process(self):
        self.small_model()
        peer = self.start("--weights", self.path("m"), "--experts", self.make(), "--listen-experts", "127.0.0.1:0")
        peer.address = peer.addresses()[0]
        self.assert_serves(peer)
        peer.address = peer.addresses(tier="experts")[0]
        self.assertEqual(self.open_store(peer).fetch(1, 2), self.store.record(1, 2))

    def test_the_limit_on_connections_is_one_for_both(self):
        self.small_model()
        peer = self.start("--weights", self.path("m"), "--experts", self.make(), "--listen-experts", "127.0.0.1:0",
                          "--max-connections", "1")
        peer.address = peer.addresses()[0]
        with harness.Client(peer.address) as client:
            client.open("m")
            peer.address = peer.addresses(tier="experts")[0]
            self.assertTrue(self.connect_to(peer).is_closed())
            peer.wait_for_log(r"refused: too many connections: all 1 .*--max-connections")

    def test_both_count_against_the_ceiling(self):
        self.small_model(body=bytes(100 * KIB))
        peer = self.start("--weights", self.path("m"), "--experts", self.make(), "--max-memory", "200K")
        self.assertEqual(peer.wait(), 1)
        self.assertRegex(peer.log[-1], r"s needs .* in use \(m 100\.\d\d KiB\)")

    def assert_misused(self, pattern, *words):
        peer = self.start(*words, listen=())
        self.assertEqual(peer.wait(), 2)
        self.assertRegex(peer.log[0], pattern)

    def test_usage_is_checked(self):
        store = self.make()
        self.assert_misused("one store a peer", "--experts", store, "--experts", store)
        self.assert_misused("nothing to serve: .*--experts")
        self.assert_misused("--listen-weights .*: there are no weights to serve", "--experts", store,
                            "--listen-weights", "127.0.0.1:0")
        self.small_model()
        self.assert_misused("--listen-experts .*: there are no experts to serve", "--weights", self.path("m"),
                            "--listen-experts", "127.0.0.1:0")

    def test_what_is_no_store_ends_the_start(self):
        store = self.make()
        os.unlink(os.path.join(store, "manifest.json"))
        for directory, pattern in [(store, "manifest.json"), (self.path("nowhere"), "nowhere")]:
            peer = self.start("--experts", directory, "--listen-experts", "127.0.0.1:0", listen=())
            self.assertEqual(peer.wait(), 1)
            self.assertRegex(peer.log[-1], pattern)


class Changes(ExpertTest):
    """Records of some 800 KB: more than the kernel sends at once."""

    def setUp(self):
        super().setUp()
        self.directory = self.make(layers=2, experts=3, inter=512, hidden=1024)
        self.peer = self.serve_store(self.directory, "--no-warm")

    def test_a_replaced_store_is_staged_anew_and_old_connections_keep_the_old_records(self):
        before = self.connect_to(self.peer)
        old_version, old = before.open_store()["model_version"], self.store
        shutil.move(self.directory, self.path("old"))
        self.make(layers=2, experts=3, inter=512, hidden=1024, seed=2)
        after = self.connect_to(self.peer)
        self.assertNotEqual(after.open_store()["model_version"], old_version)
        self.assertEqual(before.fetch(1, 2), old.record(1, 2))
        self.assertEqual(after.fetch(1, 2), self.store.record(1, 2))

    def test_a_layer_rewritten_in_place_closes_its_connections(self):
        client = self.open_store(self.peer)
        with open(layer_path(self.directory, 1), "r+b") as f:
            f.write(b"news")
        self.assertTrue(client.is_closed())
        self.peer.wait_for_log("the files of s were changed in place: its connections are closed")
        self.assert_lives(self.peer)

    def test_a_store_that_breaks_is_refused_and_served_again_when_it_is_mended(self):
        layer = layer_path(self.directory, 1)
        os.rename(layer, layer + ".away")
        self.assertTrue(self.connect_to(self.peer).is_closed())
        self.peer.wait_for_log("refused: .*experts_00001.xpr")
        done = subprocess.run([harness.PENSTOCK, "fetch", "%s:%d" % self.peer.address, "0", "0"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("it can't read its store", done.stderr)
        os.rename(layer + ".away", layer)
        self.assert_lives(self.peer)

    def test_what_a_truncated_layer_has_lost_is_a_status_as_long_as_that_can_be_said(self):
        client = self.open_store(self.peer)
        os.truncate(layer_path(self.directory, 1), 2 * self.store.stride - 1)
        client.ask_for((1, 0), (1, 1), (1, 2), (0, 2))
        self.assertEqual(client.take(), self.store.record(1, 0))
        self.assertIsNone(client.take())
        self.assertIsNone(client.take())
        self.assertEqual(client.take(), self.store.record(0, 2))
        self.peer.wait_for_log("refused a range: s: experts_00001.xpr was cut short while it was served")

    def test_a_layer_truncated_while_a_record_is_sent_closes_and_the_peer_lives(self):
        """By sendfile, and by pages of the mapping once all of it is warm."""
        for options in (["--no-warm"], []):
            directory = self.make("big", layers=1, experts=1, inter=8192, hidden=2048)  # some 25 MB
            peer = self.serve_store(directory, *options)
            if not options:
                peer.wait_for_log("info: big: warm, ")
            client = self.open_store(peer)
            client.ask_for((0, 0))
            self.assertEqual(client.status(), STATUS_OK)
            os.truncate(layer_path(directory, 0), 4096)
            with self.assertRaises((EOFError, ConnectionResetError)):
                client.read(client.stride)
            peer.wait_for_log("closed, it could not be given what it was promised: big: experts_00000.xpr was cut short"
                              "|the files of big were changed in place")
            self.make("big", layers=1, experts=1)
            self.assert_lives(peer)

    def test_records_of_a_warm_store_are_the_same(self):
        peer = self.serve_store(self.directory)
        peer.wait_for_log("info: s: warm, ")
        client = self.open_store(peer)
        asked = [(i % 2, i % 3) for i in range(30)]
        client.ask_for(*asked)
        for layer, expert in asked:
            self.assertEqual(client.take(), self.store.record(layer, expert))


class Patience(ExpertTest):
    def test_a_client_that_takes_the_manifest_and_says_nothing_is_closed(self):
        peer = self.serve_store(self.make(), "--deadline-scale", "0.001")
        client = self.connect_to(peer)
        client.manifest_text()
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"closed, before the transport byte: no byte came in 0\.3 s")

    def test_a_client_that_stops_inside_a_request_is_closed(self):
        peer = self.serve_store(self.make(), "--deadline-scale", "0.01")
        client = self.open_store(peer)
        client.send(b"\0\0\0\0\0")
        self.assertTrue(client.is_closed())
        peer.wait_for_log("closed inside a request")

    def test_a_client_that_asks_and_never_reads_is_dropped(self):
        peer = self.serve_store(self.make(experts=2, inter=512, hidden=1024), "--deadline-scale", "0.01")
        self.open_store(peer).ask_for(*[(0, 0)] * 256)
        peer.wait_for_log(r"client \S+: dropped: ")
        self.assert_lives(peer)

    def test_what_a_client_that_never_reads_has_asked_for_is_not_held_in_memory(self):
        peer = self.serve_store(self.make())
        client = self.open_store(peer)
        before = peer.memory()
        client.socket.setblocking(False)
        try:
            while True:  # until the peer reads no more
                client.socket.send(struct.pack("<II", 1, 1) * 256)
        except BlockingIOError:
            pass
        self.assert_lives(peer)
        self.assertLess(peer.memory() - before, 8 << 20)


class Drain(ExpertTest):
    def test_idle_connections_are_closed_and_what_is_being_sent_is_finished(self):
        peer = self.serve_store(self.make(layers=1, experts=1, inter=8192, hidden=4096))
        idle, silent, busy = self.open_store(peer), self.connect_to(peer), self.open_store(peer)
        silent.manifest_text()
        busy.ask_for((0, 0))
        self.assertEqual(busy.status(), STATUS_OK)
        peer.signal(signal.SIGTERM)
        for client in (idle, silent):
            self.assertTrue(client.is_closed())
            client.socket.close()
        self.assertEqual(busy.read(busy.stride), self.store.record(0, 0))
        self.assertTrue(busy.is_closed())
        busy.socket.close()
        self.assertEqual(peer.wait(), 0)
        self.assertIn("stopped", peer.log[-1])


if __name__ == "__main__":
    harness.main()
