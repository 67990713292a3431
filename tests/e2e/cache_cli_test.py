"""`penstock put`, `get`, `rm`, `exists`, `stat` and `bench cache` beside a cache peer that may misbehave, and beside
`penstock serve --cache`."""

import json
import os
import resource
import subprocess
import tempfile
import threading
import unittest

from fake_cache import EXISTS, FETCH, PUT, REMOVE, FakeCache
from harness import Peer

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
BLOB = bytes(range(256)) * 32


def run(*words, **more):
    return subprocess.run([PENSTOCK, *map(str, words)], capture_output=True, timeout=60, check=False, **more)


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.source, self.target = self.path("source"), self.path("target")
        self.write(self.source, BLOB)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, path, body):
        with open(path, "wb") as f:
            f.write(body)
        return path

    def read(self, path):
        with open(path, "rb") as f:
            return f.read()

    def peer(self, **how):
        peer = FakeCache(**how)
        self.addCleanup(peer.die)
        return peer

    def succeeds(self, *words, **more):
        got = run(*words, **more)
        self.assertEqual((got.returncode, got.stderr), (0, b""), words)
        return got.stdout

    def fails(self, status, words, *command, **more):
        got = run(*command, **more)
        self.assertEqual((got.returncode, got.stdout), (status, b""), command)
        self.assertIn(words, got.stderr.decode())
        return got.stderr.decode()


class Blobs(Cli):
    def test_what_is_put_is_got_until_it_is_removed(self):
        peer = self.peer().address
        self.assertEqual(self.succeeds("put", peer, 5, self.source), b"")
        self.assertEqual(self.succeeds("exists", peer, "0x5"), b"there\n")
        self.assertEqual(self.succeeds("get", peer, 5, self.target), b"")
        self.assertEqual(self.read(self.target), BLOB)
        self.assertEqual(self.succeeds("get", peer, 5), BLOB)
        self.assertEqual(self.succeeds("rm", peer, 5), b"")
        self.fails(3, "5 is not there", "get", peer, 5, self.path("none"))
        self.fails(3, "has no ssm arena", "get", peer, 5, self.path("none"), "--kind", "ssm")
        self.assertFalse(os.path.exists(self.path("none")))
        self.assertEqual(run("exists", peer, 5).returncode, 3)
        self.assertEqual(self.succeeds("rm", peer, 5), b"")

    def test_the_blob_has_the_files_size_and_kinds_do_not_mix(self):
        peer = self.peer()
        self.succeeds("put", peer.address, 1, self.source, "--kind", "ssm", "--arena", "1M")
        self.succeeds("put", peer.address, 1, "-", input=bytes(4096))
        self.assertEqual([(a["kind"], a["blob_bytes"], a["arena_bytes"]) for a in peer.arenas.values()],
                         [("ssm", 8192, 1 << 20), ("kv", 4096, 1 << 30)])
        self.assertEqual(self.succeeds("get", peer.address, 1), bytes(4096))
        self.assertEqual(self.succeeds("get", peer.address, 1, "--kind", "ssm"), BLOB)

    def test_an_arena_that_is_not_there_is_not_made_by_who_looks_into_it(self):
        peer = self.peer()
        for words in ("get",), ("exists",), ("exists", "--blob", "8K"):
            self.assertEqual(run(words[0], peer.address, 1, *words[1:]).returncode, 3)
        self.succeeds("rm", peer.address, 1)
        self.assertEqual(peer.arenas, {})

    def test_which_arena_is_meant_has_to_be_said_where_there_are_several(self):
        peer = self.peer().address
        self.succeeds("put", peer, 1, self.source)
        self.succeeds("put", peer, 1, self.source, "--blob", "64K")
        self.fails(1, "several kv arenas, with blobs of 8.00 KiB, 64.00 KiB: --blob says which", "get", peer, 1)
        self.assertEqual(self.succeeds("get", peer, 1, "--blob", 65536), BLOB + bytes(65536 - len(BLOB)))

    def test_a_file_of_no_whole_pages_needs_a_size(self):
        peer = self.peer().address
        odd, empty = self.write(self.path("odd"), bytes(5000)), self.write(self.path("empty"), b"")
        self.fails(1, "has 5000 bytes, and blobs a multiple of 4096: --blob 8192 takes it", "put", peer, 1, odd)
        self.fails(1, "empty is empty", "put", peer, 1, empty)
        self.fails(1, "has more bytes than the 4096 of --blob", "put", peer, 1, odd, "--blob", "4K")
        self.fails(1, "No such file", "put", peer, 1, self.path("none"))
        self.fails(1, "Is a directory", "put", peer, 1, self.folder)

    def test_keys_have_64_bits_and_128_where_that_is_asked_for(self):
        peer = self.peer()
        wide = "0x123456789abcdef0fedcba9876543210"
        self.fails(2, "keys above 64 bits need --wide", "put", peer.address, wide, self.source)
        self.succeeds("put", peer.address, wide, self.source, "--wide")
        self.succeeds("exists", peer.address, wide[2:].upper(), "--wide")
        self.succeeds("put", peer.address, 2**64 - 1, self.source)
        self.assertEqual(peer.requests, [(PUT, int(wide, 16)), (EXISTS, int(wide, 16)), (PUT, 2**64 - 1)])
        for key in "", "x", "0x", "0x1g", "1 ", "+1", 2**64, "0x" + "0" * 33:
            self.fails(2, "KEY is a decimal number", "exists", peer.address, key, "--wide")

    def test_a_peer_without_statistics_is_told_the_size(self):
        peer = self.peer(statistics=False)
        self.succeeds("put", peer.address, 1, self.source)
        self.fails(1, "without --blob the peer is asked for its arenas", "get", peer.address, 1)
        self.assertEqual(self.succeeds("get", peer.address, 1, "--blob", "8K"), BLOB)

    def test_a_refusal_is_said(self):
        peer = self.peer(refuse=[7]).address
        self.fails(1, "could not put 1 of 1 blobs", "put", peer, 7, self.source)
        self.succeeds("put", peer, 8, self.source)
        self.fails(1, "could not get 1 of 1 blobs", "get", peer, 7, self.target)
        self.assertEqual(os.listdir(self.folder), ["source"])

    def test_says_more_where_asked(self):
        peer = self.peer().address
        said = run("put", peer, "0x10", self.source, "-v").stderr.decode()
        self.assertIn("put 0x10, in the kv arena with blobs of 8.00 KiB", said)
        self.assertIn("over TCP", said)


class Failures(Cli):
    def test_a_file_that_changes_while_it_is_read_is_not_put(self):
        peer, moving, over = self.peer(), self.path("moving"), threading.Event()
        with open(moving, "wb") as f:
            f.truncate(64 << 20)

        def keep_changing():
            while not over.is_set():
                os.utime(moving)

        thread = threading.Thread(target=keep_changing)
        thread.start()
        try:
            self.fails(1, "moving changed while it was read: nothing is put", "put", peer.address, 1, moving)
        finally:
            over.set()
            thread.join()
        self.assertEqual(peer.blobs, {})

    def test_a_peer_that_dies_half_way_leaves_the_file_as_it_was(self):
        peer = self.peer(stop_after=1)
        self.succeeds("put", peer.address, 1, self.source)
        self.write(self.target, b"as it was")
        self.fails(1, "closed the connection", "get", peer.address, 1, self.target)
        self.assertEqual(self.read(self.target), b"as it was")
        self.assertEqual(sorted(os.listdir(self.folder)), ["source", "target"])

    def test_a_peer_that_dies_while_it_takes_a_blob_has_not_got_it(self):
        peer = self.peer(stop_after=0)
        self.fails(1, "closed the connection", "put", peer.address, 1, self.source)
        self.assertEqual(peer.blobs, {})
        self.fails(1, "connection refused", "put", peer.address, 1, self.source)

    def test_an_output_that_fails_half_way_leaves_nothing_behind(self):
        peer = self.peer().address
        self.succeeds("put", peer, 1, self.source)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        self.fails(1, "can't be written: File too large", "get", peer, 1, self.target, preexec_fn=limit)
        self.assertEqual(os.listdir(self.folder), ["source"])
        self.fails(1, "can't be written: No space left on device", "get", peer, 1, "/dev/full")
        self.fails(1, "can't be written: No such file or directory", "get", peer, 1, self.path("no/where"))
        with open("/dev/full", "wb") as full:
            got = subprocess.run([PENSTOCK, "get", peer, "1"], stdout=full, stderr=subprocess.PIPE, timeout=60,
                                 check=False)
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"standard output can't be written: No space left on device", got.stderr)

    def test_usage(self):
        peer = self.peer()
        for words in (["put"], ["put", peer.address], ["put", peer.address, 1, self.source, "x"],
                      ["put", peer.address, 1, ""], ["put", peer.address, 1, self.source, "-o", "x"],
                      ["get", peer.address, 1, "x", "-o", "x"], ["rm", peer.address, 1, "x"],
                      ["exists", peer.address], ["exists", peer.address, 1, "x"], ["get", peer.address, 1, "--kind", "x"],
                      ["get", peer.address, 1, "--blob", "5000"], ["get", peer.address, 1, "--blob", "0"],
                      ["get", peer.address, 1, "--blob", "8K", "--arena", "12K"], ["get", peer.address, 1, "--arena", "9T"],
                      ["get", peer.address, 1, "--timeout", "0"], ["get", peer.address, 1, "--transport", "x"],
                      ["get", peer.address, 1, "--rail", ""], ["get", peer.address, 1, "--what"], ["stat"],
                      ["stat", peer.address, "x"], ["stat", peer.address, "--watch=0"], ["stat", peer.address, "--rail=x"]):
            self.fails(2, f"penstock {words[0]}", *words)
        self.assertEqual(peer.requests, [])
        for name in "put", "get", "rm", "exists", "stat":
            self.assertIn(f"usage: penstock {name}".encode(), self.succeeds(name, "--help"))


class Stat(Cli):
    def test_a_table_has_a_row_for_each_arena(self):
        peer = self.peer()
        self.assertEqual(self.succeeds("stat", peer.address), b"memory 0 B of 1.00 TiB, swap 0 B (no cap)\nno arenas\n")
        self.succeeds("put", peer.address, 1, self.source, "--arena", "1M")
        self.succeeds("get", peer.address, 1)
        lines = self.succeeds("stat", peer.address).decode().splitlines()
        self.assertEqual(lines[0], "memory 1.00 MiB of 1.00 TiB, swap 0 B (no cap)")
        self.assertEqual(lines[1].split(), "KIND BLOB ARENA SLOTS RESIDENT ON DISK RESERVED PINNED CLIENTS HITS MISSES "
                                           "PUTS SPILLS FAULTS DROPS ERRORS".split())
        self.assertEqual(lines[2].split(), "kv 8.00 KiB 1.00 MiB 128 1 0 0 0 0 1 0 1 0 0 0 0".split())
        self.assertEqual(len({len(line) for line in lines[1:]}), 1)

    def test_json_is_passed_on_as_it_came(self):
        text = ('{"version":1,"memory":{"used":1,"cap":2},"swap":{"used":3,"cap":4},"arenas":[],"rails":[],'
                '"later":{"more":[1.5]}}')
        peer = self.peer(statistics=text)
        self.assertEqual(self.succeeds("stat", peer.address, "--json"), text.encode() + b"\n")

    def test_a_watch_gives_what_happened_since_the_time_before(self):
        peer = self.peer()
        self.succeeds("put", peer.address, 1, self.source)
        with subprocess.Popen([PENSTOCK, "stat", peer.address, "--watch=0.01"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as watch:
            try:
                tables = [[next(watch.stdout) for _ in range(4)] for _ in range(2)]
                peer.die()
                _, words = watch.communicate(timeout=60)
            finally:
                watch.kill()
        self.assertEqual(tables[0][2].split()[-7:], ["0", "0", "1", "0", "0", "0", "0"])
        self.assertIn("PUTS/S", tables[1][1])
        self.assertEqual(tables[1][2].split()[-7:], ["0.0"] * 7)
        self.assertEqual(watch.returncode, 1)
        self.assertIn("connection refused", words)

    def test_what_makes_no_sense_is_said(self):
        for text, words in (("{", ""), ('{"version":2}', "version 2"), ('{"version":1}', 'field "memory"'),
                            ('{"version":1,"memory":{"used":0,"cap":0},"swap":{"used":0,"cap":0},"arenas":[{"kind":"kv"}]}',
                             'arenas[0]: field "blob_bytes"')):
            self.fails(1, words, "stat", self.peer(statistics=text).address)
        self.fails(1, "frozen protocol, which keeps no statistics", "stat", self.peer(statistics=False).address)


class Bench(Cli):
    def bench(self, peer, *words):
        return json.loads(self.succeeds("bench", "cache", peer, "--blob", "8K", "--json", *words))

    def test_fills_mixes_and_leaves_nothing_behind(self):
        peer = self.peer()
        said = self.bench(peer.address, "--keys", 20, "--ops", 200, "--mix", "put=1,get=2,exists=1", "--depth", 4, "--verify")
        self.assertEqual((said["kind"], said["blob_bytes"], said["keys"], said["depth"], said["zipf"], said["verified"]),
                         ("kv", 8192, 20, 4, None, True))
        self.assertEqual(said["fill"]["ops"], 20)
        self.assertEqual(list(said["mix"]), ["put", "get", "exists"])
        self.assertEqual(sum(f["ops"] for f in said["mix"].values()), 200)
        self.assertEqual([f["misses"] + f["refused"] for f in said["mix"].values()], [0, 0, 0])
        asked = [op for op, _ in peer.requests]
        self.assertEqual([asked.count(op) for op in (PUT, FETCH, EXISTS, REMOVE)],
                         [20 + said["mix"]["put"]["ops"], said["mix"]["get"]["ops"], said["mix"]["exists"]["ops"], 20])
        self.assertEqual((peer.blobs, len(peer.owned)), ({}, 20 + said["mix"]["put"]["ops"]))
        for figures in said["fill"], *said["mix"].values():
            latency = figures["latency_us"]
            self.assertTrue(0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"], latency)

    def test_the_choice_is_the_same_in_every_run_and_the_keys_are_not(self):
        runs = []
        for _ in range(2):
            peer = self.peer()
            self.bench(peer.address, "--keys", 10, "--ops", 100, "--depth", 1)
            names = {key: i for i, (_, key) in enumerate(peer.requests[:10])}
            runs.append((set(names), [(op, names[key]) for op, key in peer.requests]))
        self.assertEqual(runs[0][1], runs[1][1])
        self.assertFalse(runs[0][0] & runs[1][0])

    def test_zipfs_law_makes_some_keys_likelier(self):
        peer = self.peer()
        self.bench(peer.address, "--keys", 10, "--ops", 200, "--zipf=3", "--mix", "get=1")
        first = peer.requests[0][1]
        self.assertGreater(sum(request == (FETCH, first) for request in peer.requests), 120)

    def test_a_table_says_the_same(self):
        words = ("--blob", "8K", "--keys", 5, "--ops", 20, "--mix", "rm=1,get=1", "--zipf")
        got = self.succeeds("bench", "cache", self.peer().address, *words).decode().splitlines()
        self.assertEqual(got[0], "5 keys with kv blobs of 8.00 KiB, Zipf's law (1), 16 at once, over TCP")
        self.assertEqual([line.split()[0] for line in got[1:]], ["ACTION", "fill", "get", "rm"])
        self.assertEqual(len({len(line) for line in got[1:]}), 1)

    def test_blobs_that_are_not_what_was_put_are_found(self):
        torn = lambda key, blob: blob[:4096] + bytes(len(blob) - 4096)
        self.fails(1, "blobs came back damaged", "bench", "cache", self.peer(damage=torn).address, "--blob", "8K",
                   "--verify", "--ops", 50, "--keys", 5)

    def test_a_peer_without_owners_is_cleaned_up_after(self):
        peer = self.peer(features=1)
        self.bench(peer.address, "--keys", 5, "--ops", 10)
        self.assertEqual((peer.blobs, peer.owned), ({}, []))

    def test_a_peer_that_dies_is_said_to(self):
        self.fails(1, "closed the connection", "bench", "cache", self.peer(stop_after=30).address, "--blob", "8K")

    def test_usage(self):
        for words in ([], ["x"], ["x", "--blob", "5K"], ["x", "--blob", "4K", "y"], ["x", "--blob", "4K", "--keys", "0"],
                      ["x", "--blob", "4K", "--depth", "4097"], ["x", "--blob", "4K", "--seconds", "nan"],
                      ["x", "--blob", "4K", "--arena", "6K"], ["x", "--blob", "4K", "--zipf=11"],
                      *(["x", "--blob", "4K", "--mix", mix] for mix in ("", "put", "put=0", "put=1,put=1", "fly=1", "get=-1"))):
            self.fails(2, "penstock bench cache: ", "bench", "cache", *words)
        self.assertIn(b"usage: penstock bench cache", self.succeeds("bench", "cache", "--help"))


class Served(Cli):
    """By a peer that really keeps blobs: eight in memory, the others on disk."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("swap"))

    def serve(self):
        peer = Peer("--cache", "--listen-cache", "127.0.0.1:0", "--swap-dir", self.path("swap"), "--swap-keep", listen=(),
                    cache=self.path("state"))
        self.addCleanup(peer.stop)
        return peer, "%s:%d" % peer.addresses(tier="cache")[0]

    def arena(self, address):
        (arena,) = json.loads(self.succeeds("stat", address, "--json"))["arenas"]
        return arena

    def test_more_blobs_than_slots_come_back_also_from_the_next_peer(self):
        peer, address = self.serve()
        blobs = {key: bytes([key]) * 8192 for key in range(12)}
        for key, blob in blobs.items():
            self.succeeds("put", address, key, input=blob) if key else self.succeeds(
                "put", address, key, "--arena", "64K", input=blob)
        arena = self.arena(address)
        self.assertEqual((arena["slots"], arena["resident"] + arena["on_disk"], arena["puts"]), (8, 12, 12))
        self.assertGreaterEqual(arena["spills"], 4)
        self.assertEqual({key: self.succeeds("get", address, key) for key in blobs}, blobs)
        self.assertEqual(peer.stop(), 0)
        peer, address = self.serve()
        arena = self.arena(address)
        self.assertEqual((arena["arena_bytes"], arena["on_disk"]), (0, 12))
        self.assertIn("  -  ", self.succeeds("stat", address).decode())
        self.assertEqual(self.succeeds("get", address, 11, "--arena", "64K"), blobs[11])
        self.succeeds("rm", address, 11)
        self.assertEqual(run("exists", address, 11).returncode, 3)

    def test_bench_verifies_what_was_on_disk_and_leaves_nothing(self):
        _, address = self.serve()
        said = json.loads(self.succeeds("bench", "cache", address, "--blob", "64K", "--arena", "512K", "--keys", 40, "--ops",
                                        300, "--mix", "put=2,get=6,exists=1,rm=1", "--verify", "--json"))
        self.assertEqual(said["mix"]["get"]["refused"], 0)
        arena = self.arena(address)
        self.assertEqual(arena["resident"] + arena["on_disk"], 0)
        self.assertEqual(arena["puts"], 40 + said["mix"]["put"]["ops"] - said["mix"]["put"]["refused"])
        self.assertEqual(arena["hits"], said["mix"]["get"]["ops"] - said["mix"]["get"]["misses"])
        self.assertGreater(arena["faults"], 0)


if __name__ == "__main__":
    unittest.main()
