"""KV blocks, snapshots and prefixes by the public API, over real rails: what tests/python does over TCP."""

import os
import subprocess
import sys

from lab import BUILD, PENSTOCK, OneHost, harness

HERE = os.path.dirname(os.path.abspath(__file__))


class NamesOverRails(OneHost):
    def test_blocks_and_snapshots_have_their_names_over_rails(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "..", "python", "cache_test.py"),
                               os.path.join(BUILD, "src/client/libpenstock.so"), harness.PENSTOCK],
                              env={**os.environ, "PENSTOCK_TRANSPORT": "rdma"},
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


class NoSuchRail(OneHost):
    def test_a_rail_that_is_not_there_is_no_miss(self):
        peer = self.start("--cache", "--no-swap", "--listen-cache", "127.0.0.1:0", listen=())
        address = "%s:%d" % peer.addresses(tier="cache")[0]
        for verb in ("get", "rm", "exists"):
            done = subprocess.run([PENSTOCK, verb, address, "5", "--blob", "4096", "--arena", "65536", "--verbose",
                                   "--transport", "rdma", "--rail", "rxe7"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn("rxe7: no such RDMA device", done.stderr)
