"""Fetches of experts over real rails: what is posted for them, exactly; both programs; rails that go; and figures beside
ib_read_bw."""

import json
import os
import subprocess

from lab import DEVICES, DISK, PENSTOCK, OneHost, harness, note, output, program, resources
from make_store import make_store
from rail_read import perftest_rate

DEPTH = 16


class Fetches(OneHost):
    SIZES = {"layers": 3, "experts": 16}

    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(lambda: self.assertEqual(resources(), self.before, "RDMA objects left behind"))
        self.directory = os.path.join(DISK, type(self).__name__)
        self.store = make_store(self.directory, **self.SIZES)
        self.peer = self.start("--experts", self.directory, "--listen-experts", "127.0.0.1:0", listen=())
        self.peer.address = self.peer.addresses(tier="experts")[0]
        self.peer.wait_for_log(r"registered \d+ layer files?, ")
        self.address = "%s:%d" % self.peer.address

    def counts(self, *words):
        done = json.loads(output(program("fetch_counts"), *words, self.address))
        for i, rail in enumerate(done["rails"]):
            note(f"{' '.join(words) or 'all rails'}, rail {i}: " + ", ".join(f"{k} {v}" for k, v in rail.items()))
        return done


class Counts(Fetches):
    def test_a_record_is_one_read_and_each_rail_has_sixteen_outstanding(self):
        for rails in ("rxe0", "auto"):
            done = self.counts("--rails", rails, "--depth", str(DEPTH), "--batches", "6")
            self.assertEqual(len(done["rails"]), 1 if rails == "rxe0" else 2)
            for rail in done["rails"]:
                self.assertEqual(rail["work_requests"], 6 * DEPTH)
                self.assertEqual(rail["outstanding_max"], DEPTH)
                self.assertEqual(rail["bytes"], 6 * DEPTH * self.store.stride)

    def test_a_uniform_load_is_even(self):
        done = json.loads(output(PENSTOCK, "bench", "experts", self.address, "--count", "2000", "--seconds", "60",
                                 "--transport", "rdma", "--zipf", "0", "--json"))
        first, second = (rail["bytes"] for rail in done["rails"])
        note(f"{first} bytes and {second}")
        self.assertAlmostEqual(first / second, 1, delta=0.05)
        self.assertEqual([m["depth"] for m in done["measurements"]], [1, 2 * DEPTH, 1, 2 * DEPTH])


class Programs(Fetches):
    def test_a_record_comes_as_it_lies_in_the_store(self):
        path = os.path.join(DISK, "record")
        for words, transport in ((("--transport", "rdma"), "rdma"), ((), "rdma"), (("--rail", "none"), "tcp")):
            done = json.loads(output(PENSTOCK, "fetch", self.address, "2", "7", "-o", path, "--json", *words))
            self.assertEqual((done["transport"], done["layer"], done["expert"]), (transport, 2, 7))
            with open(path, "rb") as f:
                self.assertEqual(f.read(), self.store.record(2, 7))

    def test_the_rail_is_that_of_the_expert(self):
        for expert in range(4):
            done = json.loads(output(PENSTOCK, "fetch", self.address, "1", str(expert), "--json"))
            self.assertEqual([rail["bytes"] > 0 for rail in done["rails"]], [expert % 2 == 0, expert % 2 == 1])

    def test_named_rails_of_the_peers_are_taken(self):
        done = json.loads(output(PENSTOCK, "fetch", self.address, "0", "0", "--rail", "rxe1@1", "--json"))
        self.assertEqual([(rail["device"], rail["peer_rail"]) for rail in done["rails"]], [("rxe1", 1)])

    def test_a_peer_that_is_killed_ends_a_bench(self):
        bench = subprocess.Popen([PENSTOCK, "bench", "experts", self.address, "--seconds", "600"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.peer.wait_for_log("reads Programs by RDMA over 2 rails")
        self.peer.process.kill()
        said, _ = bench.communicate(timeout=60)
        self.assertEqual(bench.returncode, 1, said)
        self.assertIn("expert peer " + self.address, said)
        harness.wait_until(lambda: resources() == self.before, "nothing left")


class Speed(Fetches):
    SIZES = {"layers": 1, "experts": 8, "inter": 512, "hidden": 2048}  # 1.77 MB each: a real one's size

    def test_throughput_beside_ib_read_bw(self):
        for rails, devices in (("rxe0", DEVICES[:1]), ("auto", DEVICES)):
            done = self.counts("--rails", rails, "--depth", "4", "--batches", "4")
            theirs = perftest_rate(devices, "-s", str(self.store.stride), "-n", "16")
            note(f"{len(devices)} of two rails: {done['bytes'] / done['seconds'] / 1e6:.0f} MB/s, ib_read_bw "
                 f"{theirs:.0f} MB/s")
            self.assertEqual(sum(rail["work_requests"] for rail in done["rails"]), done["records"])
