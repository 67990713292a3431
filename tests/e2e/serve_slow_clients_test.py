"""Clients that say nothing, stop in the middle, never read, or are too many: each costs only itself."""

import struct

import harness
from harness import MODE_TCP, STATUS_OK

MIB = 1 << 20


class SlowClients(harness.PeerTest):
    def serve_impatiently(self, scale, *options):
        self.small_model(body=bytes(4 * MIB))
        return self.serve(self.path("m"), options=("--deadline-scale", str(scale), *options))

    def test_a_client_that_says_nothing_is_closed(self):
        peer = self.serve_impatiently(0.01)
        client = self.connect(peer)
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"client \S+: closed, while it sends a model request: no byte came in 0\.1 s")
        self.assert_serves(peer)

    def test_a_client_that_stops_inside_its_request_is_closed(self):
        peer = self.serve_impatiently(0.01)
        client = self.connect(peer)
        client.send(struct.pack("<I", 100) + b"mod")
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"closed, while it sends a model request: read: no byte moved in 0\.3 s")

    def test_a_client_that_takes_the_manifest_and_says_nothing_is_closed(self):
        peer = self.serve_impatiently(0.001)
        client = self.connect(peer)
        client.manifest("m")
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"closed, before the transport byte: no byte came in 0\.3 s")

    def test_a_client_that_stops_inside_a_range_request_is_closed(self):
        peer = self.serve_impatiently(0.01)
        client = self.connect(peer)
        client.open("m")
        client.send(client.request(0, 0, 8)[:-1])
        self.assertTrue(client.is_closed())
        peer.wait_for_log("closed inside a request")

    def test_between_requests_a_client_may_take_its_time(self):
        peer = self.serve_impatiently(0.01)
        idle, silent = self.connect(peer), self.connect(peer)
        idle.open("m")
        self.assertTrue(silent.is_closed())
        stopped = self.connect(peer)  # and for longer than any deadline inside a message
        stopped.send(b"\1")
        self.assertTrue(stopped.is_closed())
        self.assertEqual(len(idle.range(0, 0, 8)), 8)

    def test_a_client_that_asks_and_never_reads_is_dropped(self):
        peer = self.serve_impatiently(0.01)
        client = self.connect(peer)
        client.open("m")
        client.send(client.request(0, 0, 4 * MIB) * 256)
        self.assert_serves(peer)
        peer.wait_for_log(r"client \S+: dropped: ")
        self.assert_serves(peer)

    def test_what_a_client_that_never_reads_has_asked_for_is_not_held_in_memory(self):
        peer = self.serve_impatiently(1)
        client = self.connect(peer)
        client.open("m")
        before = peer.memory()
        client.socket.setblocking(False)
        try:
            while True:  # until the peer reads no more
                client.socket.send(client.request(0, 0, 64) * 256)
        except BlockingIOError:
            pass
        self.assert_serves(peer)
        self.assertLess(peer.memory() - before, 8 * MIB)

    def test_too_many_connections_are_refused_in_words_and_give_way(self):
        peer = self.serve_impatiently(1, "--max-connections", "2")
        first, second = self.connect(peer), self.connect(peer)
        first.open("m")
        second.open("m")
        third = self.connect(peer)
        third.ask("penstock:models")
        self.assertEqual(third.read_json()["error"],
                         "too many connections: all 2 that this peer allows are in use")
        self.assertTrue(third.is_closed())
        peer.wait_for_log(r"refused: too many connections.*--max-connections")
        fourth = self.connect(peer)
        fourth.ask("m")  # whose client could not read words
        self.assertTrue(fourth.is_closed())

        self.assertEqual(len(first.range(0, 0, 8)), 8)
        first.send(first.request(harness.END, 0, 0))
        self.assertTrue(first.is_closed())
        first.socket.close()

        def there_is_room():
            with harness.Client(peer.address) as next_one:
                next_one.ask("penstock:models")
                return "models" in next_one.read_json()
        harness.wait_until(there_is_room, "room for a connection")

    def test_a_batch_of_clients_that_leave_in_the_middle_harms_nobody(self):
        peer = self.serve_impatiently(1)
        for cut in range(0, 26):
            with harness.Client(peer.address) as client:
                client.send((b"\1\0\0\0m" + MODE_TCP + client.request(0, 0, MIB))[:cut])
        with harness.Client(peer.address) as client:
            client.open("m")
            client.send(client.request(0, 0, 4 * MIB) * 8)
            self.assertEqual(client.status(), STATUS_OK)
        self.assert_serves(peer)


if __name__ == "__main__":
    harness.main()
