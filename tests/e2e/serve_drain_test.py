"""SIGTERM: no new connections, idle ones closed at once, what is being sent is finished, exit 0."""

import signal

import harness
from harness import STATUS_OK

MIB = 1 << 20


class Drain(harness.PeerTest):
    def serve_big(self, *options):
        """More than sockets hold, so that a reply is still on its way when the signal comes."""
        self.small_model(body=bytes(32 * MIB))
        self.big = 32 * MIB
        return self.serve(self.path("m"), options=("--no-digests", *options))

    def ask_for_all(self, peer):
        client = self.connect(peer)
        client.open("m")
        client.send(client.request(0, 0, self.big))
        self.assertEqual(client.status(), STATUS_OK)
        return client

    def test_idle_connections_are_closed_at_once(self):
        peer = self.serve_big()
        idle, silent = self.connect(peer), self.connect(peer)
        idle.open("m")
        idle.range(0, 0, 8)
        self.assert_serves(peer)
        peer.signal(signal.SIGTERM)
        self.assertTrue(idle.is_closed())
        self.assertTrue(silent.is_closed())
        silent.socket.close()
        self.assertEqual(peer.wait(), 0)
        self.assertIn("stopped", peer.log[-1])

    def test_what_is_being_sent_is_finished(self):
        peer = self.serve_big()
        client = self.ask_for_all(peer)
        peer.signal(signal.SIGTERM)
        peer.wait_for_log("SIGTERM: finishing what is being sent")

        def is_refused():
            try:
                harness.Client(peer.address).socket.close()
                return False
            except ConnectionError:
                return True
        harness.wait_until(is_refused, "a refused connection")
        client.read(self.big)
        self.assertTrue(client.is_closed())
        client.socket.close()
        self.assertEqual(peer.wait(), 0)

    def test_a_client_that_does_not_read_cannot_hold_up_the_end(self):
        peer = self.serve_big("--drain", "0.2")
        self.ask_for_all(peer)
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)

    def test_a_second_signal_ends_it_at_once(self):
        peer = self.serve_big("--drain", "1000")
        self.ask_for_all(peer)
        peer.signal(signal.SIGTERM)
        peer.wait_for_log("SIGTERM")
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)
        peer.wait_for_log("a second signal")

    def test_interrupt_is_the_same(self):
        peer = self.serve_big()
        peer.signal(signal.SIGINT)
        self.assertEqual(peer.wait(), 0)


if __name__ == "__main__":
    harness.main()
