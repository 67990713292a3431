"""Blobs that lie on the disk in several pieces, and are sent over TCP as they come from it (docs/protocol.md 2.2)."""

import os
import signal
import subprocess

import harness
from cache_blobs import blob
from cache_wire import FETCH, MIB, MISS, OK, CacheTest, arena_of

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
BLOB, SLOTS, KEYS = 3 * MIB, 3, 8
PIECE = MIB // 2
SHAPE = {"arena_bytes": SLOTS * BLOB, "blob_bytes": BLOB}
COMMAND = ("--blob", str(BLOB), "--arena", str(SLOTS * BLOB))


class Large(CacheTest):
    def fill(self, peer):
        client = self.connect(peer, **SHAPE)
        for key in range(KEYS):
            client.put_turn(key, 1)
        return client

    def swap_file(self, suffix="swap"):
        return os.path.join(self.swap_directory(), f"kv-{BLOB}.{suffix}")

    def flip(self, at):
        """A bit at that place of every record."""
        with open(self.swap_file(), "r+b") as f:
            for record in range(KEYS):
                f.seek(record * BLOB + at)
                byte = f.read(1)
                f.seek(record * BLOB + at)
                f.write(bytes([byte[0] ^ 4]))
            f.flush()
            os.fsync(f.fileno())

    def arena(self, peer):
        return arena_of(peer.address, blob_bytes=BLOB)

    def on_disk(self, peer):
        """A key that is, and stays so unless somebody asks for it."""
        harness.wait_until(lambda: self.arena(peer)["on_disk"] >= KEYS - SLOTS, "enough is on disk")
        return 0

    def name(self, peer):
        return "{}:{}".format(*peer.address)

    def penstock(self, *words):
        return subprocess.run([PENSTOCK, *map(str, words)], capture_output=True, timeout=60, check=False)


class AsTheyCome(Large):
    def test_they_come_whole_one_after_the_other_and_pipelined(self):
        for options in ((), ("--swap-keep",)):
            peer = self.serve_cache(*options)
            client = self.fill(peer)
            for key in range(KEYS):
                self.assertEqual(client.fetch_turn(key), 1)
            client.send(b"".join(client.request(FETCH, key) for key in range(KEYS)))
            for key in range(KEYS):
                self.assertEqual(client.take(), blob(key, 1, BLOB))
            self.assert_arena_is(peer, pinned=0, errors=0, misses=0)
            self.assertEqual(peer.stop(), 0)

    def assert_arena_is(self, peer, **figures):
        arena = self.arena(peer)
        self.assertEqual({name: arena[name] for name in figures}, figures)

    def test_and_so_they_do_where_the_sums_beside_them_are_gone_or_wrong(self):
        peer = self.serve_cache("--swap-keep")
        self.fill(peer)
        for body in (b"", b"wrong" * 100):
            peer.signal(signal.SIGTERM)
            self.assertEqual(peer.wait(), 0)
            with open(self.swap_file("sums"), "wb") as f:
                f.write(body)
            peer = self.serve_cache("--swap-keep")
            client = self.connect(peer, **SHAPE)
            for key in range(KEYS):
                self.assertEqual(client.fetch_turn(key), 1)
            self.assert_arena_is(peer, errors=0, misses=0)

    def test_a_client_that_stops_half_way_keeps_no_slot_when_it_goes(self):
        peer = self.serve_cache()
        client = self.fill(peer)
        for key in range(KEYS):
            client.send(client.request(FETCH, key))
        self.assertEqual(client.read(1 + PIECE)[:1], OK)
        client.socket.close()
        harness.wait_until(lambda: self.arena(peer)["pinned"] == 0, "nothing is pinned")
        again = self.connect(peer, **SHAPE)
        for key in range(KEYS):
            self.assertEqual(again.fetch_turn(key), 1)

    def test_a_peer_that_is_killed_half_way_leaves_what_it_had_on_disk(self):
        peer = self.serve_cache("--swap-keep")
        client = self.fill(peer)
        there = self.arena(peer)["on_disk"]
        client.send(b"".join(client.request(FETCH, key) for key in range(KEYS)))
        self.assertEqual(client.read(1 + PIECE)[:1], OK)
        peer.signal(signal.SIGKILL)
        peer.wait()
        again = self.connect(self.serve_cache("--swap-keep"), **SHAPE)
        found = [again.fetch_turn(key) for key in range(KEYS)]
        self.assertGreaterEqual(found.count(1), there)
        self.assertLessEqual(set(found), {1, None})


class Damaged(Large):
    def test_what_is_right_is_sent_then_the_connection_ends_and_then_it_is_a_miss(self):
        peer = self.serve_cache()
        client = self.fill(peer)
        key = self.on_disk(peer)
        self.flip(BLOB - 1)
        client.send(client.request(FETCH, key))
        got = b""
        while part := client.socket.recv(1 << 20):
            got += part
        self.assertEqual(got[:1], OK)
        self.assertIn(len(got) - 1, range(PIECE, BLOB - PIECE + 1, PIECE), "pieces, and never the damaged one")
        self.assertEqual(got[1:], blob(key, 1, BLOB)[:len(got) - 1])
        again = self.connect(peer, **SHAPE)
        again.send(again.request(FETCH, key))
        self.assertEqual(again.read(1), MISS)
        peer.wait_for_log("error: .*is not what was written there")
        peer.wait_for_log("warning: .*closed inside a cache request: the rest of a blob .*damaged")
        arena = self.arena(peer)
        self.assertEqual((arena["errors"], arena["pinned"]), (1, 0))

    def test_in_its_first_piece_it_is_a_miss_at_once(self):
        peer = self.serve_cache()
        client = self.fill(peer)
        key = self.on_disk(peer)
        self.flip(PIECE // 2)
        self.assertIsNone(client.fetch(key))
        self.assertEqual(self.arena(peer)["errors"], 1)

    def test_to_the_command_it_is_a_miss_in_any_piece(self):
        peer = self.serve_cache()
        client = self.fill(peer)
        key = self.on_disk(peer)
        self.flip(2 * PIECE + 7)
        target = self.path("target")
        got = self.penstock("get", self.name(peer), key, target, *COMMAND)
        self.assertEqual(got.returncode, 3, got.stderr)
        self.assertIn(f"{key} is not there", got.stderr.decode())
        self.assertFalse(os.path.exists(target))
        client.put_turn(key, 2)
        self.assertEqual(client.fetch_turn(key), 2)

    def test_of_many_that_are_asked_for_at_once_the_good_ones_come(self):
        peer = self.serve_cache()
        self.fill(peer)
        self.on_disk(peer)
        self.flip(4 * PIECE + 7)
        targets = {key: self.path(f"target{key}") for key in range(KEYS)}
        statuses = {}
        for first in range(0, KEYS, SLOTS - 1):  # more at once would be refused for want of slots
            running = {key: subprocess.Popen([PENSTOCK, "get", self.name(peer), str(key), targets[key], *COMMAND],
                                             stderr=subprocess.DEVNULL)
                       for key in range(first, min(first + SLOTS - 1, KEYS))}
            statuses |= {key: process.wait(60) for key, process in running.items()}
        self.assertEqual(set(statuses.values()), {0, 3})
        for key, status in statuses.items():
            self.assertEqual(os.path.exists(targets[key]), status == 0)
            if status == 0:
                with open(targets[key], "rb") as f:
                    self.assertEqual(f.read(), blob(key, 1, BLOB))
        arena = self.arena(peer)
        self.assertEqual((arena["pinned"], arena["errors"]), (0, list(statuses.values()).count(3)))


if __name__ == "__main__":
    harness.main()
