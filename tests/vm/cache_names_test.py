"""KV blocks, snapshots and prefixes by the public API, over real rails: what tests/python does over TCP."""

import os
import subprocess
import sys

from lab import BUILD, OneHost, harness

HERE = os.path.dirname(os.path.abspath(__file__))


class NamesOverRails(OneHost):
    def test_blocks_and_snapshots_have_their_names_over_rails(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "..", "python", "cache_test.py"),
                               os.path.join(BUILD, "src/client/libpenstock.so"), harness.PENSTOCK],
                              env={**os.environ, "PENSTOCK_TRANSPORT": "rdma"},
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
