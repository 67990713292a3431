"""What an operator may say of a cache, and what the log answers."""

import os
import signal
import struct

import harness

PAGING_MAGIC = 0x5041474500000002
KV = 1


class Options(harness.PeerTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("swap"))

    def start_cache(self, *options):
        return self.start("--cache", "--listen-cache", "127.0.0.1:0", *options, listen=())

    def assert_ends(self, status, pattern, *words):
        peer = self.start(*words, listen=())
        self.assertEqual(peer.wait(), status)
        self.assertRegex(peer.log[-1], pattern)

    def assert_refused(self, peer, pattern, arena_bytes, blob_bytes, *rails):
        with harness.Client(peer.addresses(tier="cache")[0]) as client:
            client.send(struct.pack("<QBQQ", PAGING_MAGIC, KV, arena_bytes, blob_bytes) + bytes(rails))
            self.assertTrue(client.is_closed())
        peer.wait_for_log(pattern)

    def test_options_that_make_no_sense_are_named(self):
        for pattern, *words in [
                ("--listen-cache: there is no cache", "--allow-any-path", "--listen-cache", "127.0.0.1:0"),
                ("--ttl-kv: there is no cache", "--allow-any-path", "--ttl-kv", "1h"),
                ("--swap-keep: there is no swap", "--cache", "--swap-keep"),
                ("--swap-cap: with --no-swap there is no disk", "--cache", "--no-swap", "--swap-cap", "1G"),
                ("--no-swap: contradicts --swap-dir", "--cache", "--no-swap", "--swap-dir", self.path("swap")),
                ("one swap directory a peer", "--cache", "--swap-dir", "a", "--swap-dir", "b"),
                ("--swap-cap-kv 5X: a size", "--cache", "--swap-cap-kv", "5X"),
                ("--ttl-ssm 3w: a duration", "--cache", "--ttl-ssm", "3w"),
                ("--arena-idle 99999999999: a duration", "--cache", "--arena-idle", "99999999999"),
                ("--numa-node 0.5: a node", "--cache", "--numa-node", "0.5")]:
            with self.subTest(pattern):
                self.assert_ends(2, pattern, *words)

    def test_what_is_not_there_ends_the_start(self):
        listen = ("--cache", "--listen-cache", "127.0.0.1:0")
        self.assert_ends(1, "swap directory .*nowhere: No such file", *listen, "--swap-dir", self.path("nowhere"))
        self.assert_ends(1, "--numa-node 1000: there is no such node", *listen, "--no-swap", "--numa-node", "1000")

    def test_a_second_peer_on_a_swap_directory_does_not_start(self):
        first = self.start_cache("--swap-dir", self.path("swap"))
        first.addresses(tier="cache")
        self.assert_ends(1, rf"in use by process {first.process.pid} ", "--cache", "--listen-cache", "127.0.0.1:0",
                         "--swap-dir", self.path("swap"))

    def test_the_log_says_what_it_came_to(self):
        peer = self.start_cache("--swap-dir", self.path("swap"), "--swap-cap", "0", "--swap-cap-kv", "1T", "--swap-keep")
        peer.wait_for_log(r"caps: no cap in all, KV 1024 GiB, SSM no cap; blobs are kept over a restart")
        peer.wait_for_log(r"swap directory \S+: (io_uring|a pool of threads).*, (O_DIRECT|through the page cache)")
        peer.addresses(tier="cache")
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)

    def test_refusals_say_what_to_change(self):
        peer = self.start_cache("--rail", "none", "--max-memory", "1M")
        peer.wait_for_log("no swap directory: raw arenas only; for paging give --swap-dir, or --no-swap")
        self.assert_refused(peer, r"refused \(KV\): paging needs a swap directory \(--swap-dir\)", 8192, 4096)
        self.assert_refused(peer, r"refused \(KV\): .* needs 2\.00 MiB .* --max-memory allows", 2 << 20, 0)
        self.assert_refused(peer, "arena size 8193 is not a multiple of the blob size 4096", 8193, 4096)
        self.assert_refused(peer, "it asked for RDMA, which is not here: .*rails: none", 8192, 0, 1)

    def test_a_stranger_is_told_off_after_eight_bytes(self):
        peer = self.start_cache("--no-swap")
        with harness.Client(peer.addresses(tier="cache")[0]) as client:
            client.send(b"GET / HT")
            self.assertTrue(client.is_closed())
        peer.wait_for_log("refused: paging magic .*: not a paging client")


if __name__ == "__main__":
    harness.main()
