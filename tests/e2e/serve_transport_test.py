"""The transport byte: what a peer that serves over TCP alone does with clients that want something else."""

import harness
from harness import MODE_TCP, MODE_VERBS


class TransportByte(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model()
        self.peer = self.serve(self.path("m"))

    def test_a_frozen_client_that_speaks_verbs_alone_is_closed_and_the_log_says_why(self):
        client = self.connect(self.peer)
        client.manifest("m")
        client.send(MODE_VERBS + b"\1")  # and one rail
        self.assertTrue(client.is_closed())
        self.peer.wait_for_log(r"client 127\.0\.0\.1:\d+: closed: this build serves weights over TCP only; "
                               r"the client asked for RDMA")
        self.assert_serves(self.peer)

    def test_an_unknown_transport_is_closed(self):
        client = self.connect(self.peer)
        client.manifest("m")
        client.send(b"\7")
        self.assertTrue(client.is_closed())
        self.peer.wait_for_log("unknown transport byte 7")

    def test_a_client_may_leave_after_the_manifest(self):
        with harness.Client(self.peer.address) as client:
            client.manifest("m")
        self.assert_serves(self.peer)
        self.assertEqual(self.peer.stop(), 0)
        self.assertNotRegex("\n".join(self.peer.log), "WARN|warning|error")

    def test_the_transport_may_come_with_the_request_and_the_first_range(self):
        client = self.connect(self.peer)
        client.send(b"\1\0\0\0m" + MODE_TCP + client.request(0, 0, 8))
        client.read_json()
        self.assertEqual(client.status(), harness.STATUS_OK)
        client.read(8)


if __name__ == "__main__":
    harness.main()
