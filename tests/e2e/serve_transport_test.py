"""The transport byte, and rails where there are none: a peer without RDMA serves over TCP and says why."""

import os
import unittest

import harness
from harness import MODE_TCP, MODE_VERBS

NO_RDMA_HERE = not (os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"))


class TransportByte(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model()
        self.peer = self.serve(self.path("m"), options=("--rail", "none"))

    def test_a_client_that_speaks_verbs_is_closed_and_the_log_says_why(self):
        client = self.connect(self.peer)
        client.manifest("m")
        client.send(MODE_VERBS + b"\1")  # and one rail
        self.assertTrue(client.is_closed())
        self.peer.wait_for_log(r"client 127\.0\.0\.1:\d+: closed: it asked for RDMA, which is not here: "
                               r"RDMA is turned off")
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

    def test_no_rails_are_listed(self):
        client = self.connect(self.peer)
        client.ask("penstock:models")
        self.assertEqual(client.read_json()["rails"], [])


class Rails(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model()

    def assert_misused(self, pattern, *words):
        peer = self.start("--weights", self.path("m"), *words)
        self.assertEqual(peer.wait(), 2)
        self.assertRegex(peer.log[0], pattern)

    @unittest.skipUnless(NO_RDMA_HERE, "this machine has RDMA devices")
    def test_without_rdma_one_line_says_why_and_tcp_is_served(self):
        peer = self.serve(self.path("m"))
        peer.wait_for_log(r"info: no RDMA, clients are served over TCP only: \S+")
        self.assert_serves(peer)
        client = self.connect(peer)
        client.manifest("m")
        client.send(MODE_VERBS)
        self.assertTrue(client.is_closed())
        peer.wait_for_log("closed: it asked for RDMA, which is not here: ")

    @unittest.skipUnless(NO_RDMA_HERE, "this machine has RDMA devices")
    def test_a_limit_on_rails_is_no_demand_for_any(self):
        self.assert_serves(self.serve(self.path("m"), options=("--rail", "auto:2")))

    def test_a_rail_that_was_named_and_cannot_be_had_ends_the_start(self):
        self.assert_refuses_to_start("error: --rail: ", "--weights", self.path("m"), "--rail", "no-such-device")

    def test_words_that_are_no_rails_are_refused(self):
        self.assert_misused("--rail: .*none.* stands alone", "--rail", "none", "--rail", "rxe0")
        self.assert_misused("GID .* is neither", "--rail", "rxe0:nowhere")
        self.assert_misused("is a client's", "--rail", "rxe0@1")

    def test_a_hold_that_is_none_is_refused(self):
        self.assert_misused("--hold bogus: auto, map, copy or huge is wanted", "--hold", "bogus")

    def test_the_environment_speaks_where_the_command_line_does_not(self):
        os.environ["PENSTOCK_RAILS"] = "none,rxe0"
        self.addCleanup(os.environ.pop, "PENSTOCK_RAILS")
        self.assert_misused("PENSTOCK_RAILS: .*stands alone")
        peer = self.serve(self.path("m"), options=("--rail", "none"))
        peer.wait_for_log("RDMA is turned off")
        os.environ["PENSTOCK_RAILS"] = "no-such-device"
        self.assert_refuses_to_start("error: PENSTOCK_RAILS: ", "--weights", self.path("m"))


if __name__ == "__main__":
    harness.main()
