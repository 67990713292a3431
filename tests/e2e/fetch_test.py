"""`penstock fetch` and `penstock bench experts` beside a peer that may misbehave, and beside `penstock serve`."""

import json
import os
import resource
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from fake_experts import FakeExperts  # noqa: E402
from make_store import Store  # noqa: E402

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
STORE = Store(layers=3, experts=5)


def run(*words):
    return subprocess.run([PENSTOCK, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


class Fetch(unittest.TestCase):
    def fetch(self, peer, layer, expert, *more):
        return run("fetch", peer.address, layer, expert, *more)

    def test_says_what_the_record_is(self):
        with FakeExperts(STORE, version="v7") as peer:
            got = self.fetch(peer, 1, 4, "--json")
        self.assertEqual(got.stderr, "")
        said = json.loads(got.stdout)
        self.assertEqual(said["model_version"], "v7")
        self.assertEqual((said["layer"], said["model_layer"], said["expert"]), (1, 2, 4))
        self.assertEqual((said["inter"], said["hidden"], said["group_size"]), (STORE.inter, STORE.hidden, STORE.group))
        self.assertEqual(said["bytes"], STORE.stride)
        # Nine digits: enough to be read back as the same 32 bits.
        self.assertEqual(struct.pack("<3f", *said["scale2"]), struct.pack("<3f", *STORE.scale2(1, 4)))
        self.assertEqual(tuple(said["input_scale"]), STORE.input_scale(1, 4))
        self.assertEqual([p["offset"] for p in said["parts"]], list(STORE.offsets[:-1]))
        self.assertEqual([p["bytes"] for p in said["parts"]], list(STORE.lengths))
        self.assertEqual([p["name"] for p in said["parts"]],
                         ["gate.packed", "gate.scale", "up.packed", "up.scale", "down.packed", "down.scale"])
        self.assertEqual(said["transport"], "tcp")

    def test_says_the_same_to_people(self):
        with FakeExperts(STORE) as peer:
            got = self.fetch(peer, 2, 1, "-v")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("layer 2 (the model's 3), expert 1: inter 64, hidden 128, groups of 16", got.stdout)
        self.assertIn("over TCP", got.stdout)
        self.assertIn("the peer gives none", got.stderr)

    def test_writes_the_record_as_it_lies_in_the_store(self):
        with tempfile.TemporaryDirectory() as scratch, FakeExperts(STORE) as peer:
            path = os.path.join(scratch, "record")
            got = self.fetch(peer, 0, 3, "-o", path)
            self.assertEqual(got.returncode, 0, got.stderr)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), STORE.record(0, 3))
            got = self.fetch(peer, 0, 3, "-o", os.path.join(scratch, "no", "where"))
            self.assertEqual(got.returncode, 1)
            self.assertIn("can't be written: No such file or directory", got.stderr)

    def test_an_output_that_fails_half_way_leaves_the_file_as_it_was(self):
        with tempfile.TemporaryDirectory() as scratch, FakeExperts(STORE) as peer:
            path = os.path.join(scratch, "record")
            with open(path, "wb") as f:
                f.write(b"as it was")
            got = subprocess.run([PENSTOCK, "fetch", peer.address, "0", "3", "-o", path], capture_output=True, text=True,
                                 timeout=60, check=False,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
            self.assertEqual(got.returncode, 1)
            self.assertIn("can't be written: File too large", got.stderr)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), b"as it was")
            self.assertEqual(os.listdir(scratch), ["record"])

    def test_an_output_that_is_a_pipe_is_written_to_and_not_replaced(self):
        with tempfile.TemporaryDirectory() as scratch, FakeExperts(STORE) as peer:
            path = os.path.join(scratch, "pipe")
            os.mkfifo(path)
            end = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # a record fits in the pipe's buffer
            try:
                got = self.fetch(peer, 0, 3, "-o", path)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertEqual(os.read(end, 1 << 20), STORE.record(0, 3))
            finally:
                os.close(end)
            self.assertTrue(stat.S_ISFIFO(os.stat(path).st_mode))

    def test_an_output_that_is_a_link_stays_one(self):
        with tempfile.TemporaryDirectory() as scratch, FakeExperts(STORE) as peer:
            path, link = os.path.join(scratch, "record"), os.path.join(scratch, "link")
            open(path, "wb").close()
            os.symlink("record", link)
            self.assertEqual(self.fetch(peer, 0, 3, "-o", link).returncode, 0)
            self.assertTrue(os.path.islink(link))
            with open(path, "rb") as f:
                self.assertEqual(f.read(), STORE.record(0, 3))

    def test_a_frozen_peer_is_asked_over_tcp_where_there_is_no_rdma(self):
        with FakeExperts(STORE) as peer:
            self.assertEqual(self.fetch(peer, 0, 0, "--rail", "none").returncode, 0)
            self.assertEqual(peer.modes, [b"\0"])
            got = self.fetch(peer, 0, 0, "--rail", "none", "--transport", "rdma")
            self.assertEqual(got.returncode, 1)
            self.assertEqual(peer.requests, [(0, 0)])

    def test_what_the_store_has_not_is_never_asked_for(self):
        with FakeExperts(STORE) as peer:
            for layer, expert in (3, 0), (0, 5), (0xFFFFFFFE, 0xFFFFFFFE):
                got = self.fetch(peer, layer, expert)
                self.assertEqual(got.returncode, 1)
                self.assertIn(f"no layer {layer}, expert {expert}: the store has 3 layers of 5 experts", got.stderr)
            self.assertEqual(peer.requests, [])

    def test_a_refusal_is_said(self):
        with FakeExperts(STORE, refuse=lambda layer, expert: True) as peer:
            got = self.fetch(peer, 1, 2)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn(f"penstock: expert peer {peer.address}: refused layer 1, expert 2 (status 1)", got.stderr)

    def test_scales_that_are_no_numbers_are_null(self):
        def damage(layer, expert, record):
            return record[:32] + struct.pack("<3f", float("nan"), float("inf"), 2.0) + record[44:]

        with FakeExperts(STORE, damage=damage) as peer:
            got = self.fetch(peer, 1, 2, "--json")
        self.assertEqual(json.loads(got.stdout, parse_constant=self.fail)["scale2"], [None, None, 2.0])

    def test_a_peer_that_ends_before_its_first_reply_is_not_taken_for_one_without_tcp(self):
        def close(layer, expert):
            raise ConnectionError

        with FakeExperts(STORE, refuse=close) as peer:
            got = self.fetch(peer, 1, 2)
        self.assertEqual(got.returncode, 1)
        self.assertIn("closed the connection: it ended, or a file changed under it", got.stderr)

    def test_another_record_is_refused(self):
        with FakeExperts(STORE, damage=lambda layer, expert, record: STORE.record(layer, expert + 1)) as peer:
            got = self.fetch(peer, 1, 2)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("layer 1, expert 2: record expert: 3, not 2", got.stderr)

    def test_another_store_than_the_earlier_one_is_refused(self):
        with FakeExperts(STORE, version="v2") as peer:
            self.assertEqual(self.fetch(peer, 0, 0, "--model-version", "v2").returncode, 0)
            got = self.fetch(peer, 0, 0, "--model-version", "v1")
            self.assertEqual(got.returncode, 1)
            self.assertIn("its model_version is 'v2', and 'v1' was asked for", got.stderr)

    def test_a_peer_that_dies_in_the_middle_is_said_to(self):
        with FakeExperts(STORE, stop_after=0) as peer:
            got = self.fetch(peer, 0, 0)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("closed the connection", got.stderr)

    def test_a_peer_that_sends_no_manifest_is_said_to(self):
        with FakeExperts(STORE, silent=True) as peer:
            got = self.fetch(peer, 0, 0)
        self.assertEqual(got.returncode, 1)
        self.assertIn("closed instead of sending its manifest", got.stderr)

    def test_a_manifest_that_disagrees_with_itself_is_refused(self):
        with FakeExperts(STORE, manifest={"record_stride": STORE.stride + 4096}) as peer:
            got = self.fetch(peer, 0, 0)
        self.assertEqual(got.returncode, 1)
        self.assertIn("record_stride", got.stderr)

    def test_usage(self):
        for words in ([], ["127.0.0.1:1", 0], ["127.0.0.1:1", "a", 0], ["127.0.0.1:1", 0, "-1"],
                      ["127.0.0.1:1", 0, 0, 0], ["127.0.0.1:1", 0, 0, "--transport", "x"],
                      ["127.0.0.1:1", 0, 0, "--timeout", "0"], ["127.0.0.1:1", 0, 0, "--rail", ""],
                      ["127.0.0.1:1", 0, 0, "-o", ""], ["127.0.0.1:1", 0, 0, "--what"]):
            got = run("fetch", *words)
            self.assertEqual((got.returncode, got.stdout), (2, ""), words)
            self.assertIn("penstock fetch", got.stderr)
        self.assertIn("usage: penstock fetch", run("fetch", "--help").stdout)


class Bench(unittest.TestCase):
    def test_measures_four_times_and_asks_for_the_same_each_time(self):
        asked = []
        for _ in range(2):
            with FakeExperts(STORE) as peer:
                got = run("bench", "experts", peer.address, "--count", 40, "--depth", 4, "--json")
                self.assertEqual(got.returncode, 0, got.stderr)
                asked.append(peer.requests)
        self.assertEqual(asked[0], asked[1])
        said = json.loads(got.stdout)
        self.assertEqual(said["record_bytes"], STORE.stride)
        self.assertEqual([(m["experts"], m["depth"], m["records"]) for m in said["measurements"]],
                         [("uniform", 1, 40), ("uniform", 4, 40), ("zipf", 1, 40), ("zipf", 4, 40)])
        for m in said["measurements"]:
            latency = m["latency_us"]
            self.assertGreater(latency["p50"], 0)
            self.assertLessEqual(latency["p50"], latency["p90"])
            self.assertLessEqual(latency["p99"], latency["max"])
            self.assertAlmostEqual(m["records_per_second"], m["records"] / m["seconds"], delta=m["records_per_second"] / 50)

    def test_zipfs_law_makes_some_experts_likelier_and_layers_take_turns(self):
        with FakeExperts(STORE) as peer:
            got = run("bench", "experts", peer.address, "--count", 300, "--depth", 1, "--zipf", 3)
            self.assertEqual(got.returncode, 0, got.stderr)
            uniform, zipf = peer.requests[1:301], peer.requests[601:901]
        self.assertEqual([layer for layer, _ in uniform], [i % 3 for i in range(300)])
        share = lambda asked: sum(expert == 0 for _, expert in asked) / len(asked)
        self.assertLess(share(uniform), 0.4)
        self.assertGreater(share(zipf), 0.6)
        self.assertIn("EXPERTS  DEPTH", got.stdout)
        self.assertEqual(len(got.stdout.splitlines()), 6)

    def test_ends_by_the_clock(self):
        with FakeExperts(STORE) as peer:
            got = run("bench", "experts", peer.address, "--seconds", "0.01", "--json")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertTrue(all(m["seconds"] < 5 for m in json.loads(got.stdout)["measurements"]))

    def test_a_peer_that_dies_is_said_to(self):
        with FakeExperts(STORE, stop_after=30) as peer:
            got = run("bench", "experts", peer.address, "--count", 100)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("closed the connection", got.stderr)

    def test_usage(self):
        for words in ([], ["experts"], ["weights", "x"], ["experts", "x", "--count", "0"],
                      ["experts", "x", "--seconds", "nan"], ["experts", "x", "--depth", "5000"]):
            got = run("bench", *words)
            self.assertEqual((got.returncode, got.stdout), (2, ""), words)


if __name__ == "__main__":
    unittest.main()
