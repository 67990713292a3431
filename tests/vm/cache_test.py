"""The cache on real devices, for hand-written clients of the frozen protocol in both modes, alone and beside clients of
the TCP data plane. Nobody reads bytes that were not committed (docs/protocol.md 1.6 and 3)."""

import json
import os
import random
import shutil
import signal
import statistics as figures
import struct
from concurrent.futures import ThreadPoolExecutor

from lab import DEVICES, DISK, MIB, OneHost, harness, note, output, program, resources

from cache_blobs import History, blob, turn_of
from cache_rails import RailsClient, WorkRequestFailed
from rail_read import perftest_rate

from cache_wire import BIT_EXISTS, BIT_MGET, BIT_OWN, BIT_WIDE, BLOB, ERR, KIB, MISS, OK, CacheTest, statistics

SLOTS = 8
MANY = 3 * SLOTS


class Cache(OneHost, CacheTest):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(lambda: self.assertEqual(resources(), self.before, "RDMA objects left behind"))

    def swap_directory(self):
        """On a disk that knows O_DIRECT."""
        path = os.path.join(DISK, "swap")
        if not os.path.exists(path):
            os.mkdir(path)
            self.addCleanup(shutil.rmtree, path)
        return path

    def dial(self, peer, **options):
        client = RailsClient(peer.address, **options)
        self.addCleanup(lambda: client.process.poll() is None and client.kill())
        return client

    def assert_nothing_is_held(self, peer, **figures):
        self.assert_arena(peer, reserved=0, pinned=0, **figures)


class Paging(Cache):
    def test_many_more_blobs_than_slots_come_back_over_one_rail_and_two_and_over_tcp(self):
        peer = self.serve_cache()
        for turn, devices in enumerate((DEVICES[1:], DEVICES)):
            client = self.dial(peer, devices=devices)
            for key in range(MANY):
                client.put_turn(key, turn)
            for key in range(MANY):
                self.assertEqual(client.fetch_turn(key), turn)
        tcp = self.connect(peer)
        for key in range(MANY):
            self.assertEqual(tcp.fetch_turn(key), 1)
            tcp.put_turn(key, 2)
        for key in range(0, MANY, 7):
            self.assertEqual(client.fetch_turn(key), 2)

    def test_one_arena_is_registered_once_and_lies_at_one_address(self):
        peer = self.serve_cache()
        first, second = self.dial(peer), self.dial(peer, devices=DEVICES[::-1])
        self.assertEqual([rail[3:] for rail in first.rails], [rail[3:] for rail in second.rails[::-1]])
        self.assertEqual(first.rails[0][3], first.rails[1][3])
        other = self.dial(peer, blob_bytes=2 * BLOB)
        self.assertNotEqual(other.base, first.base)
        self.assertEqual(len({rail[1] for client in (first, second, other) for rail in client.rails}), 6,
                         "PSNs are random")

    def test_what_each_request_is_answered(self):
        client = self.dial(self.serve_cache(), devices=DEVICES[:1])
        self.assertEqual(client.get(1), MISS)
        self.assertEqual(client.commit(1), ERR, "nothing reserved, nothing there")
        first = client.alloc(1)
        self.assertEqual(client.alloc(1), first, "the same slot")
        self.assertEqual(client.get(1), MISS, "not committed")
        client.write(first, blob(1, 1, BLOB))
        self.assertEqual((client.commit(1), client.commit(1)), (OK, OK))
        self.assertEqual(client.fetch_turn(1), 1)
        self.assertNotEqual(client.alloc(1), first, "readers have the old one")
        self.assertEqual(client.fetch_turn(1), 1)
        client.remove(1)  # and its reservation
        client.remove(1)
        self.assertEqual((client.get(1), client.commit(1)), (MISS, ERR))
        self.assertEqual(client.ask_for(0x55, 1), ERR, "an unknown op")
        client.put_turn(1, 2)
        self.assertEqual(client.fetch_turn(1), 2)

    def test_the_last_commit_wins_and_each_has_a_slot_of_its_own(self):
        peer = self.serve_cache()
        first, second = self.dial(peer, devices=DEVICES[:1]), self.dial(peer, devices=DEVICES[1:])
        mine, others = first.alloc(1), second.alloc(1)
        self.assertNotEqual(mine, others)
        first.write(mine, blob(1, 1, BLOB))
        second.write(others, blob(1, 2, BLOB))
        self.assertEqual(second.commit(1), OK)
        self.assertEqual((first.fetch_turn(1), second.fetch_turn(1)), (2, 2))
        self.assertEqual(first.commit(1), OK)
        self.assertEqual((first.fetch_turn(1), second.fetch_turn(1)), (1, 1))

    def test_a_pinned_blob_stays_what_it_is_while_it_is_replaced_removed_and_crowded_out(self):
        peer = self.serve_cache()
        reader, writer = self.dial(peer, devices=DEVICES[:1]), self.connect(peer)
        for change in (lambda: writer.put_turn(1, 2), lambda: writer.remove(1), lambda: None):
            writer.put_turn(1, 1)
            offset = reader.get(1)
            change()
            for key in range(100, 100 + 2 * SLOTS):
                writer.put_turn(key)
            self.assertEqual(turn_of(reader.read_range(offset, BLOB), 1), 1)
            self.assertEqual(reader.ask_for(0x55), ERR)  # lets go
        self.assert_nothing_is_held(peer)

    def test_a_client_holds_a_quarter_of_the_slots_at_most(self):
        peer = self.serve_cache()
        greedy, other = self.dial(peer, devices=DEVICES[:1]), self.connect(peer)
        self.assertEqual([isinstance(greedy.alloc(key), int) for key in range(3)], [True, True, False])
        for key in range(10, 20):
            other.put_turn(key)
        found = greedy.mget(range(10, 20))
        self.assertEqual(sum(isinstance(slot, int) for slot in found), SLOTS // 4, found)
        self.assertEqual({slot for slot in found if isinstance(slot, bytes)}, {ERR})
        for key in range(20, 40):
            other.put_turn(key)
        self.assert_arena(peer, reserved=2, pinned=2)
        greedy.kill()
        self.assert_nothing_is_held(peer)

    def test_an_arena_of_one_slot_takes_overwrites(self):
        client = self.dial(self.serve_cache(), devices=DEVICES[:1], arena_bytes=BLOB)
        for turn in range(3):
            for key in (1, 2):
                client.put_turn(key, turn)
                self.assertEqual(client.fetch_turn(key), turn)


class Features(Cache):
    def test_batches_pin_until_they_are_released(self):
        peer = self.serve_cache()
        client, other = self.dial(peer, devices=DEVICES[:1], arena_bytes=16 * BLOB), self.connect(peer)
        self.assertEqual(client.features(), BIT_EXISTS | BIT_MGET | BIT_OWN | BIT_WIDE)
        for key in range(40):
            other.put_turn(key, 1)
        found = client.mget([1, 99, 2, 1])
        self.assertEqual((found[1], found[0]), (MISS, found[3]))
        for key in range(40):
            other.put_turn(key, 2)
        self.assertEqual([turn_of(client.read_range(found[i], BLOB), key) for i, key in ((0, 1), (2, 2))], [1, 1])
        client.release([1, 2])
        self.assertEqual(turn_of(client.read_range(found[3], BLOB), 1), 1, "the second pin")
        client.release([1, 1, 77])
        self.assert_nothing_is_held(peer)
        self.assertEqual(client.fetch_turn(1), 2)

    def test_lists_of_none_and_of_too_many_close(self):
        peer = self.serve_cache()
        for n in (0, 1025):
            client = self.dial(peer, devices=DEVICES[:1])
            client.send(struct.pack("<BI", 0x21, n))
            self.assertTrue(client.is_closed())

    def test_wide_and_owned_keys(self):
        peer = self.serve_cache()
        client, other = self.dial(peer, devices=DEVICES[:1]), self.connect(peer)
        self.assertEqual((client.wide(1), other.wide(1), client.own(1)), (OK, OK, OK))
        for high in (0, 1):
            client.put_turn(7 | high << 64, high + 1)
        other.put_turn(7, 3)
        self.assertEqual([other.fetch_turn(7 | high << 64) for high in (0, 1, 2)], [3, 2, None])
        client.kill()
        harness.wait_until(lambda: not other.exists(7 | 1 << 64), "the end of what was owned")
        self.assertEqual(other.fetch_turn(7), 3)


class Raw(Cache):
    def test_an_arena_of_ones_own_starts_with_zeros_and_goes_with_its_connection(self):
        peer = self.serve_cache(swap=())
        clients = [self.dial(peer, blob_bytes=0, arena_bytes=300 * KIB) for _ in range(2)]
        for i, client in enumerate(clients):
            self.assertEqual(client.read_range(0, 300 * KIB), bytes(300 * KIB))
            client.write(100 * KIB, bytes([i + 1]) * 200 * KIB)
        for i, client in enumerate(clients):
            self.assertEqual(client.read_range(100 * KIB - 1, 3), bytes([0, i + 1, i + 1]))
            with self.assertRaises(WorkRequestFailed):
                client.write(300 * KIB - 100, bytes(4096 + 100))  # beyond its end, and beyond its last page
        clients[0].close()
        clients[1].kill()
        harness.wait_until(lambda: statistics(peer.address)["memory"]["used"] == 0, "memory given back")
        self.assertEqual({d: r["mr"] for d, r in resources().items()}, {d: r["mr"] for d, r in self.before.items()})


class Shared(Cache):
    KEYS, STEPS = 16, 25

    def live(self, peer, history, number):
        """Every other one over verbs."""
        dice = random.Random(number)
        client = self.dial(peer, devices=[DEVICES[number // 2 % 2]]) if number % 2 == 0 else self.connect(peer)
        for i in range(self.STEPS):
            key, what, turn = dice.randrange(self.KEYS), dice.random(), number * self.STEPS + i
            if what < 0.4:
                body = blob(key, turn, BLOB)
                history.change(key, turn, lambda: client.put(key, body) == OK)
            elif what < 0.5:
                history.change(key, None, lambda: client.remove(key) is None)
            else:
                history.read(key, lambda: client.fetch_turn(key))
        if number % 2 == 0:
            client.close()

    def test_what_is_read_is_whole_and_the_latest(self):
        for options, swap in (((), ("--swap-dir", None)), (("--no-swap",), ())):
            peer, history = self.serve_cache(*options, swap=swap), History()
            with ThreadPoolExecutor(6) as pool:
                for life in [pool.submit(self.live, peer, history, i) for i in range(6)]:
                    life.result()
            note(f"{history.judge(may_forget=bool(options))} reads explained")
            self.assert_nothing_is_held(peer, errors=0)
            self.assertEqual(peer.stop(), 0)


class Deaths(Cache):
    def put_some(self, peer):
        other = self.connect(peer)
        for key in range(2 * SLOTS):
            other.put_turn(key, 1)
        return other

    def test_at_every_step_leaves_nothing_and_harms_nobody(self):
        peer = self.serve_cache()
        other = self.put_some(peer)
        first = self.dial(peer)  # registers
        first.close()
        harness.wait_until(lambda: statistics(peer.address)["arenas"][0]["connections"] == 1, "its end")
        left = resources()
        for step in RailsClient.STEPS:
            self.dial(peer, stop_after=step).kill()

        def allocated(client):
            return client.alloc(1)

        def half_written(client):
            client.write(client.alloc(1), blob(1, 9, BLOB)[:BLOB // 2])

        def written(client):
            client.write(client.alloc(1), blob(1, 9, BLOB))

        def writing(client):
            client.write_forever(client.alloc(1), blob(1, 9, BLOB))

        def committing(client):
            client.write(client.alloc(2), blob(2, 2, BLOB))
            client.send(client.request(2, 2)[:5])

        def pinned(client):
            client.get(3)
            client.mget([4, 5])

        def faulting(client):
            client.send(b"".join(client.list_request(0x21, [key]) for key in range(2 * SLOTS)))
        for step in (allocated, half_written, written, writing, committing, pinned, faulting):
            client = self.dial(peer, devices=DEVICES[:1])
            step(client)
            client.kill()
            self.assertEqual((other.fetch_turn(1), other.fetch_turn(2)), (1, 1), step.__name__)
        self.assert_nothing_is_held(peer, connections=1)
        harness.wait_until(lambda: resources() == left, "what was there before")
        for key in range(2 * SLOTS):
            self.assertEqual(other.fetch_turn(key), 1)

    def test_whose_rails_go_on_when_its_connection_is_gone_spoils_no_blob(self):
        peer = self.serve_cache("--no-swap", swap=())
        other = self.put_some(peer)
        for _ in range(3):
            client = self.dial(peer, devices=DEVICES[:1])
            self.assertEqual(client.write_forever(client.alloc(99), b"\xAA" * BLOB), "writing")
            client.socket.close()
            self.assert_nothing_is_held(peer, connections=1)
            for turn in range(2):
                for key in range(SLOTS + 2):
                    other.put_turn(key, turn)
                for key in range(SLOTS + 2):
                    self.assertIn(other.fetch_turn(key), (turn, None))
            said = client.process.stdout.readline()
            self.assertIn("failed", said)
            client.kill()
        note(f"its WRITEs: {said.strip()}")

    def test_of_the_peer_is_seen_and_what_was_on_disk_is_found_again(self):
        peer = self.serve_cache("--swap-keep")
        client = self.dial(peer)
        for key in range(MANY):
            client.put_turn(key, 1)
        for key in range(0, MANY, 3):
            client.put_turn(key, 2)
        peer.signal(signal.SIGKILL)
        peer.wait()
        self.assertTrue(client.is_closed())
        with self.assertRaises(WorkRequestFailed):
            client.read_range(0, BLOB)
        client.kill()

        peer = self.serve_cache("--swap-keep")
        client = self.dial(peer)
        found = {key: client.fetch_turn(key) for key in range(MANY)}
        note(f"{MANY - list(found.values()).count(None)} of {MANY} blobs found again")
        self.assertTrue(any(found.values()))
        for key, turn in found.items():
            self.assertIn(turn, (None, 1 if key % 3 else 2))
        for key in range(MANY):
            client.put_turn(key, 3)
        client.close()
        peer.signal(signal.SIGTERM)
        self.assertEqual(peer.wait(), 0)
        client = self.dial(self.serve_cache("--swap-keep"), devices=DEVICES[:1])
        self.assertEqual({client.fetch_turn(key) for key in range(MANY)}, {3})

    def test_a_drain_tells_clients_of_rails_that_the_peer_goes(self):
        peer = self.serve_cache("--drain", "1")
        client = self.dial(peer)
        client.put_turn(1, 1)
        peer.signal(signal.SIGTERM)
        self.assertTrue(client.is_closed())
        self.assertEqual(peer.wait(), 0)


class Library(Cache):
    """The library's client: what is posted for its blobs, exactly, and how fast they go."""

    DEPTH = 16

    def counts(self, peer, *words):
        return json.loads(output(program("cache_counts"), *words, "%s:%d" % peer.address))

    def test_a_blob_is_one_work_request_and_rails_share_them_evenly(self):
        peer = self.serve_cache()
        for rails, n in (("rxe0", 1), ("auto", 2)):
            words = ("--rails", rails, "--depth", str(self.DEPTH * n), "--blob", str(64 * KIB), "--rounds", "2")
            done = {"put": self.counts(peer, *words)["put"], "get": self.counts(peer, *words, "--get")["get"]}
            for what, posted in ((what, done[what]["rails"]) for what in done):
                note(f"{what} of {32 * n} blobs, rails {rails}: {posted}")
                self.assertEqual([rail["work_requests"] for rail in posted], [2 * self.DEPTH] * n)
                self.assertEqual([rail["bytes"] for rail in posted], [2 * self.DEPTH * 64 * KIB] * n)
                self.assertLessEqual(sum(rail["outstanding_max"] for rail in posted), self.DEPTH * n)

    def test_throughput_beside_ib_write_bw_and_ib_read_bw(self):
        peer = self.serve_cache()
        rivals, ours, theirs = {"put": "ib_write_bw", "get": "ib_read_bw"}, {}, {}
        for side in ("ours", "theirs", "theirs", "ours"):
            if side == "ours":
                done = self.counts(peer, "--rails", "rxe0", "--depth", str(self.DEPTH), "--blob", str(MIB),
                                   "--rounds", "2")
                for what in rivals:
                    ours.setdefault(what, []).append(done[what]["bytes"] / done[what]["seconds"] / 1e6)
            else:
                for what, rival in rivals.items():
                    words = ("-s", str(MIB), "-n", str(2 * self.DEPTH), "-t", str(self.DEPTH))
                    theirs.setdefault(what, []).append(perftest_rate(DEVICES[:1], *words, rival=rival))
        for what, rival in rivals.items():
            ratio = figures.median(ours[what]) / figures.median(theirs[what])
            itself = max(theirs[what]) / min(theirs[what])
            note(f"{what} of 1 MiB, {self.DEPTH} at once: {ratio:.2f} of {rival} ({figures.median(ours[what]):.0f} and "
                 f"{figures.median(theirs[what]):.0f} MB/s; {rival} differs from itself by {itself:.2f})")
            self.assertGreaterEqual(ratio * itself, 0.7)
