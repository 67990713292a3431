"""The cache and its disk, over TCP: more blobs than memory, restarts and kills, damage, caps, a full disk
(docs/protocol.md 1.6 and 3)."""

import contextlib
import ctypes
import os
import signal
import unittest

import harness
from cache_blobs import blob
from cache_wire import ARENA, BLOB, ERR, FETCH, MIB, OK, SSM, CacheTest, TcpClient, arena_of, statistics

SLOTS = ARENA // BLOB
MANY = 12 * SLOTS


PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


@contextlib.contextmanager
def stuck(thread):
    """A thread of a child that does not go on, whatever happens to its sockets; the block sees the child end."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    if libc.ptrace(PTRACE_SEIZE, thread, 0, 0) or libc.ptrace(PTRACE_INTERRUPT, thread, 0, 0):
        raise unittest.SkipTest(f"no thread can be stopped: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, WALL)
    yield
    os.waitpid(thread, WALL)  # its end: the process is not gone before that is taken


class Spilling(CacheTest):
    def fill(self, client, n=MANY, turn=1):
        for key in range(n):
            client.put_turn(key, turn)

    def fetched(self, peer, keys, **options):
        """{key: turn} of those that are there, all of them whole."""
        with TcpClient(peer.address, **options) as client:
            found = {key: client.fetch_turn(key) for key in keys}
        return {key: turn for key, turn in found.items() if turn is not None}

    def restart(self, peer, number=signal.SIGKILL, *options):
        peer.signal(number)
        self.assertEqual(peer.wait(), -number if number == signal.SIGKILL else 0)
        return self.serve_cache("--swap-keep", *options)


class Disk(Spilling):
    def test_many_more_blobs_than_slots_are_read_back_byte_for_byte(self):
        peer = self.serve_cache()
        client = self.connect(peer)
        self.fill(client)
        for key in range(MANY):
            self.assertEqual(client.fetch_turn(key), 1)
        arena = arena_of(peer.address)
        self.assertEqual((arena["resident"] + arena["on_disk"], arena["slots"], arena["hits"], arena["drops"]),
                         (MANY, SLOTS, MANY, 0))
        self.assertLessEqual(arena["resident"], SLOTS)
        self.assertGreaterEqual(arena["spills"], MANY - SLOTS)
        self.assertGreaterEqual(arena["faults"], MANY - SLOTS)
        self.assertGreaterEqual(statistics(peer.address)["swap"]["used"], (MANY - SLOTS) * BLOB)

    def test_and_so_they_are_in_the_other_order_and_pipelined(self):
        client = self.connect(self.serve_cache())
        self.fill(client)
        client.send(b"".join(client.request(FETCH, key) for key in reversed(range(MANY))))
        for key in reversed(range(MANY)):
            self.assertEqual(client.take(), blob(key, 1, BLOB))

    def test_a_blob_that_was_read_back_and_not_changed_is_not_written_again(self):
        peer = self.serve_cache()
        client = self.connect(peer)
        self.fill(client)
        for _ in range(3):
            for key in range(MANY):
                self.assertEqual(client.fetch_turn(key), 1)
        self.assertEqual(arena_of(peer.address)["spills"], MANY)

    def test_an_arena_of_one_slot_takes_overwrites(self):
        client = self.connect(self.serve_cache(), arena_bytes=BLOB)
        for turn in range(5):
            for key in (1, 2, 3):
                client.put_turn(key, turn)
                self.assertEqual(client.fetch_turn(key), turn)

    def test_blobs_that_were_overwritten_or_removed_on_disk_are_so(self):
        client = self.connect(self.serve_cache())
        self.fill(client)
        for key in range(0, MANY, 3):
            client.put_turn(key, 2)
        for key in range(1, MANY, 3):
            client.remove(key)
        for key in range(MANY):
            self.assertEqual(client.fetch_turn(key), (2, None, 1)[key % 3])

    def test_large_blobs(self):
        client = self.connect(self.serve_cache(), kind=SSM, arena_bytes=8 * MIB, blob_bytes=4 * MIB)
        for key in range(5):
            client.put_turn(key, 1)
        for key in range(5):
            self.assertEqual(client.fetch_turn(key), 1)

    def test_without_a_swap_what_is_evicted_is_gone_and_the_latest_are_there(self):
        peer = self.serve_cache("--no-swap", swap=())
        client = self.connect(peer)
        self.fill(client)
        found = self.fetched(peer, range(MANY))
        self.assertEqual(set(found.values()), {1})
        self.assertIn(MANY - 1, found)
        arena = arena_of(peer.address)
        self.assertEqual((arena["resident"], arena["on_disk"], arena["drops"], arena["spills"]),
                         (len(found), 0, MANY - len(found), 0))
        self.assertLessEqual(len(found), SLOTS)

    def test_a_cap_drops_the_coldest_and_keeps_the_rest(self):
        for cap in ("--swap-cap", "--swap-cap-kv"):
            peer = self.serve_cache(cap, str(20 * BLOB))
            self.fill(self.connect(peer))
            with TcpClient(peer.address) as client:
                there = [key for key in range(MANY) if client.exists(key)]
            self.assertEqual(there, list(range(MANY - len(there), MANY)), "the latest, without a gap")
            self.assertGreaterEqual(len(there), 20)
            self.assertLessEqual(len(there), 20 + SLOTS)
            self.assertEqual(arena_of(peer.address)["drops"], MANY - len(there))
            self.assertLessEqual(statistics(peer.address)["swap"]["used"], 20 * BLOB)
            self.assertEqual(set(self.fetched(peer, range(MANY)).values()), {1})
            self.assertEqual(peer.stop(), 0)

    def test_two_peers_on_one_directory_are_one_too_many(self):
        first = self.serve_cache()
        second = self.start("--cache", "--listen-cache", "127.0.0.1:0", "--swap-dir", self.swap_directory(), listen=())
        self.assertEqual(second.wait(), 1)
        self.assertRegex("\n".join(second.log), f"swap directory .* is in use by process {first.process.pid} .*its own")

    def test_a_directory_that_is_not_there_ends_the_start(self):
        peer = self.start("--cache", "--listen-cache", "127.0.0.1:0", "--swap-dir", self.path("nowhere"), listen=())
        self.assertEqual(peer.wait(), 1)
        self.assertRegex("\n".join(peer.log), "nowhere: No such file or directory")


class Restarts(Spilling):
    def test_without_swap_keep_everything_misses(self):
        peer = self.serve_cache()
        self.fill(self.connect(peer))
        peer.signal(signal.SIGKILL)
        peer.wait()
        self.assertEqual(self.fetched(self.serve_cache(), range(MANY)), {})

    def test_with_swap_keep_a_planned_end_loses_nothing(self):
        peer = self.serve_cache("--swap-keep")
        with TcpClient(peer.address) as client:
            self.fill(client)
            client.wide(1)
            client.put_turn(1 | 5 << 64, 3)
        peer = self.restart(peer, signal.SIGTERM)
        self.assertEqual(self.fetched(peer, range(MANY)), dict.fromkeys(range(MANY), 1))
        wide = self.connect(peer)
        wide.wide(1)
        self.assertEqual(wide.fetch_turn(1 | 5 << 64), 3)

    def test_with_swap_keep_a_connection_that_does_not_end_loses_nothing_either(self):
        peer = self.serve_cache("--swap-keep", "--drain", "0")
        threads = f"/proc/{peer.process.pid}/task"
        before = set(os.listdir(threads))
        client = self.connect(peer)
        self.fill(client, SLOTS // 2)
        [thread] = set(os.listdir(threads)) - before
        with stuck(int(thread)):
            peer.signal(signal.SIGTERM)
            peer.wait_for_log("stopped with connections that did not end in time")
        self.assertEqual(peer.wait(), 0)
        self.assertEqual(self.fetched(self.serve_cache("--swap-keep"), range(SLOTS // 2)),
                         dict.fromkeys(range(SLOTS // 2), 1))

    def test_with_swap_keep_a_kill_loses_only_what_was_in_memory(self):
        peer = self.serve_cache("--swap-keep")
        self.fill(self.connect(peer))
        arena = arena_of(peer.address)
        peer = self.restart(peer)
        found = self.fetched(peer, range(MANY))
        self.assertEqual(set(found.values()), {1})
        self.assertGreaterEqual(len(found), arena["on_disk"])
        again = self.connect(peer)
        self.fill(again, turn=2)
        self.assertEqual(self.fetched(peer, range(MANY)), dict.fromkeys(range(MANY), 2))

    def test_after_a_kill_nothing_comes_back_that_was_replaced_or_removed(self):
        peer = self.serve_cache("--swap-keep")
        client = self.connect(peer)
        self.fill(client)
        for key in range(0, MANY, 3):
            client.put_turn(key, 2)
        for key in range(1, MANY, 3):
            client.remove(key)
        client.own(1)
        for key in range(1000, 1000 + MANY):
            client.put_turn(key, 1)
        found = self.fetched(self.restart(peer), [*range(MANY), *range(1000, 1000 + MANY)])
        self.assertTrue(found)
        for key, turn in found.items():
            self.assertLess(key, 1000, "it was owned")
            self.assertEqual(turn, (2, "removed", 1)[key % 3])

    def test_a_kill_in_the_middle_of_everything_leaves_only_what_is_whole(self):
        peer = self.serve_cache("--swap-keep")
        sent = {}
        client = self.connect(peer)
        self.fill(client)
        for key in range(MANY):
            sent[key] = {1, key + 2}
        client.send(b"".join(client.put_request(key, blob(key, key + 2, BLOB)) for key in range(MANY // 2)))
        client.read(MANY // 4)
        found = self.fetched(self.restart(peer), range(MANY))
        for key, turn in found.items():
            self.assertIn(turn, {key + 2} if key < MANY // 4 else sent[key], key)

    def test_the_other_keys_of_an_arena_that_grew_are_found_again(self):
        """The arena's size is the next client's to say."""
        peer = self.serve_cache("--swap-keep")
        self.fill(self.connect(peer))
        peer = self.restart(peer, signal.SIGTERM)
        self.assertEqual(self.fetched(peer, range(MANY), arena_bytes=4 * BLOB), dict.fromkeys(range(MANY), 1))
        self.assertEqual(arena_of(peer.address)["slots"], 4)


class Damage(Spilling):
    def records(self):
        """The file of them, of which there are MANY and no more: it is longer than what has been written to it."""
        (name,) = [name for name in os.listdir(self.swap_directory()) if name.endswith(".swap")]
        return open(os.path.join(self.swap_directory(), name), "r+b")

    def flip(self):
        """A bit in every record."""
        with self.records() as f:
            for at in range(BLOB // 3, MANY * BLOB, BLOB):
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 4]))
            f.flush()
            os.fsync(f.fileno())

    def test_a_flipped_bit_is_a_miss_and_logged_and_counted(self):
        peer = self.serve_cache()
        client = self.connect(peer)
        self.fill(client)
        self.flip()
        found = self.fetched(peer, range(MANY))
        self.assertLessEqual(len(found), SLOTS, "what was still in memory")
        self.assertEqual(set(found.values()) | {1}, {1})
        peer.wait_for_log("error: .*is not what was written there")
        self.assertEqual(arena_of(peer.address)["errors"], MANY - len(found))
        self.fill(client, turn=2)
        self.assertEqual(self.fetched(peer, range(MANY)), dict.fromkeys(range(MANY), 2))

    def test_and_so_it_is_after_a_restart(self):
        peer = self.serve_cache("--swap-keep")
        self.fill(self.connect(peer))
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)
        self.flip()
        peer = self.serve_cache("--swap-keep")
        self.assertEqual(self.fetched(peer, range(MANY)), {})
        self.assertEqual(arena_of(peer.address)["errors"], MANY)

    def test_records_that_changed_places_are_misses(self):
        peer = self.serve_cache("--swap-keep")
        self.fill(self.connect(peer))
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)
        with self.records() as f:
            records = f.read(MANY * BLOB)
            f.seek(0)
            f.write(records[BLOB:] + records[:BLOB])
        self.assertEqual(self.fetched(self.serve_cache("--swap-keep"), range(MANY)), {})


class FullDisk(Spilling):
    SMALL = 256 * 1024

    def serve_on_small_disk(self, *options):
        """In a mount namespace of the peer's own."""
        before = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=$0 none "$1" && shift && exec "$@"',
                  str(self.SMALL), self.swap_directory())
        if os.system("unshare -rm mount -t tmpfs none /mnt 2>/dev/null") != 0:
            self.skipTest("a tmpfs of our own needs a user namespace")
        return self.serve_cache(*options, before=before)

    def test_a_put_that_needs_room_on_it_is_an_error_and_what_is_there_stays(self):
        peer = self.serve_on_small_disk()
        client = self.connect(peer)
        statuses = {key: client.put(key, blob(key, 1, BLOB)) for key in range(MANY)}
        self.assertEqual(set(statuses.values()), {OK, ERR})
        peer.wait_for_log("error: .*the disk is full")
        taken = [key for key in range(MANY) if statuses[key] == OK]
        self.assertTrue(all(client.exists(key) for key in taken), "nothing was lost")
        read = 0
        for key in taken:  # one on disk needs a slot, which without room on disk nobody may have
            client.send(client.request(FETCH, key))
            if client.read(1) == OK:
                self.assertEqual(client.read(BLOB), blob(key, 1, BLOB))
                read += 1
        self.assertGreaterEqual(read, SLOTS // 2)
        self.assertTrue(all(client.exists(key) for key in taken), "nor is anything now")
        for key in taken:
            client.remove(key)
        client.put_turn(1, 2)
        self.assertEqual(client.fetch_turn(1), 2)


if __name__ == "__main__":
    harness.main()
