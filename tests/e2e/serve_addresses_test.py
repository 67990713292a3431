"""Where a peer listens."""

import socket
import unittest

import harness


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


class Addresses(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model()

    @unittest.skipUnless(has_ipv6(), "no IPv6 loopback here")
    def test_ipv6(self):
        peer = self.serve(self.path("m"), listen=["[::1]:0"])
        self.assertEqual(peer.address[0], "::1")
        self.assert_serves(peer)

    def test_host_names(self):
        self.assert_serves(self.serve(self.path("m"), listen=["localhost:0"]))

    @unittest.skipUnless(has_ipv6(), "no IPv6 loopback here")
    def test_no_host_is_every_address_of_both_kinds(self):
        peer = self.serve(self.path("m"), listen=[":0"])
        for host in ["127.0.0.1", "::1"]:
            peer.address = (host, peer.addresses()[0][1])
            self.assert_serves(peer)

    def test_several_addresses(self):
        peer = self.serve(self.path("m"), listen=["127.0.0.1:0", "127.0.0.2:0"])
        for peer.address in peer.addresses(2):
            self.assert_serves(peer)

    def test_an_address_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            name = "127.0.0.1:%d" % taken.getsockname()[1]
            self.assert_refuses_to_start(f"listen on {name}: .*Address already in use", "--weights", self.path("m"),
                                         listen=[name])

    def test_addresses_that_make_no_sense_are_refused(self):
        for name, pattern in [("127.0.0.1:http", "the port is not a number"), ("127.0.0.1:65536", "the port is not"),
                              ("::1:99999", "needs brackets"), ("[::1", r"\[ADDRESS\]:PORT"),
                              ("192.0.2.1:0", "not an address of this machine")]:
            self.assert_refuses_to_start(pattern, "--weights", self.path("m"), listen=[name])


if __name__ == "__main__":
    harness.main()
