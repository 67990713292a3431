"""Many clients of one cache at once, over TCP: those that share keys, die at any step, fall silent, or never read. No
one ever sees bytes that were not put, or that were replaced before (docs/protocol.md 2 and 3)."""

import random
import struct
from concurrent.futures import ThreadPoolExecutor

import harness
from cache_blobs import History, blob
from cache_wire import (ALLOC, BLOB, EXISTS, FETCH, GET, KIB, MIB, OK, PUT, READ, REMOVE, WRITE, CacheTest, TcpClient,
                        header, statistics, vanish)

KEYS = 24
SLOTS = 12
CLIENTS = 6
STEPS = 120


def closed(client):
    client.socket.close()


class Shared(CacheTest):
    """Each client does what it likes with keys that all have, twice as many as there are slots."""

    def step(self, client, history, dice, turn):
        """Returns the client to go on with."""
        key, what = dice.randrange(KEYS), dice.random()
        if what < 0.35:
            body = blob(key, turn, BLOB)
            history.change(key, turn, lambda: client.put(key, body) == OK)
        elif what < 0.42:
            history.change(key, None, lambda: client.ask_for(REMOVE, key) == OK)
        elif what < 0.5:
            history.read(key, lambda: client.fetch_turn(key) if client.exists(key) else None)
        elif what < 0.55:  # dies inside a PUT, which then nobody may see
            request = client.put_request(key, blob(key, turn, BLOB))
            client.send(request[:dice.randrange(1, len(request))])
            dice.choice((closed, vanish))(client)
            return TcpClient(client.address, arena_bytes=SLOTS * BLOB)
        elif what < 0.6:  # and inside a FETCH
            client.send(client.request(FETCH, key) * dice.randrange(1, 9))
            dice.choice((closed, vanish))(client)
            return TcpClient(client.address, arena_bytes=SLOTS * BLOB)
        else:
            history.read(key, lambda: client.fetch_turn(key))
        return client

    def live(self, address, history, number):
        dice = random.Random(number)
        client = TcpClient(address, arena_bytes=SLOTS * BLOB)
        for i in range(STEPS):
            client = self.step(client, history, dice, number * STEPS + i)
        client.socket.close()

    def assert_all_is_explained(self, peer, may_forget):
        history = History()
        with ThreadPoolExecutor(CLIENTS) as pool:
            lives = [pool.submit(self.live, peer.address, history, i) for i in range(CLIENTS)]
            for life in lives:
                life.result()
        last = self.connect(peer, arena_bytes=SLOTS * BLOB)
        for key in range(KEYS):
            history.read(key, lambda: last.fetch_turn(key))
        self.assertGreater(history.judge(may_forget), CLIENTS * STEPS // 10)
        self.assert_arena(peer, reserved=0, pinned=0, connections=1, errors=0)

    def test_what_is_read_is_whole_and_the_latest(self):
        self.assert_all_is_explained(self.serve_cache(), may_forget=False)

    def test_and_so_it_is_where_what_is_evicted_is_gone(self):
        self.assert_all_is_explained(self.serve_cache("--no-swap", swap=()), may_forget=True)

    def test_and_so_it_is_where_the_disk_keeps_it(self):
        self.assert_all_is_explained(self.serve_cache("--swap-keep"), may_forget=False)


class Deaths(CacheTest):
    def cuts(self):
        """Of a PUT: inside and after the op byte, the key and the body."""
        return (1, 5, 9, 10, 9 + BLOB // 2, 9 + BLOB - 1)

    def test_inside_a_put_the_old_blob_stays_and_nothing_is_left(self):
        peer = self.serve_cache()
        other = self.connect(peer)
        other.put_turn(1, 1)
        for cut in self.cuts():
            for how in (closed, vanish):
                for key in (1, 2):
                    client = self.connect(peer)
                    client.send(client.put_request(key, blob(key, 9, BLOB))[:cut])
                    how(client)
        self.assert_arena(peer, connections=1, reserved=0, pinned=0, resident=1, puts=1)
        self.assertEqual((other.fetch_turn(1), other.fetch_turn(2)), (1, None))

    def test_after_a_put_it_is_there_all_of_it_or_nothing(self):
        peer = self.serve_cache()
        for key in range(20):
            client = self.connect(peer)
            client.send(client.put_request(key, blob(key, 1, BLOB)))
            (closed, vanish)[key % 2](client)
        self.assert_arena(peer, connections=0, reserved=0, pinned=0)
        other = self.connect(peer)
        for key in range(20):
            self.assertIn(other.fetch_turn(key), (None, 1))
        client = self.connect(peer)
        client.put_turn(30, 1)  # answered
        vanish(client)
        self.assertEqual(other.fetch_turn(30), 1)

    def test_inside_a_fetch_nothing_stays_pinned(self):
        peer = self.serve_cache()
        other = self.connect(peer)
        for key in range(32):
            other.put_turn(key, 1)
        for key in range(32):
            for cut, taken in ((1, 0), (5, 0), (9, 0), (9, 1), (9, BLOB // 2), (9, BLOB)):
                client = self.connect(peer)
                client.send(client.request(FETCH, key)[:cut])
                client.read(taken)
                (closed, vanish)[key % 2](client)
        self.assert_arena(peer, connections=1, reserved=0, pinned=0)
        for key in range(32):
            self.assertEqual(other.fetch_turn(key), 1)

    def test_in_the_handshake_nothing_is_left(self):
        peer = self.serve_cache()
        whole = header() + b"\0"
        for cut in range(len(whole) + 1):
            client = self.connect(peer, connected=False)
            client.send(whole[:cut])
            (closed, vanish)[cut % 2](client)
        self.assert_lives(peer)
        harness.wait_until(lambda: all(a["connections"] == 0 for a in statistics(peer.address)["arenas"]), "no one")

    def test_with_many_requests_on_their_way_nothing_is_left(self):
        peer = self.serve_cache()
        other = self.connect(peer)
        for _ in range(10):
            client = self.connect(peer)
            client.own(1)
            client.send(b"".join(client.put_request(key, blob(key, 1, BLOB)) + client.request(FETCH, key)
                                 for key in range(16)))
            vanish(client)
        self.assert_arena(peer, connections=1, reserved=0, pinned=0)
        self.assertEqual([other.fetch(key) for key in range(16)], [None] * 16, "they were owned")


class Silence(CacheTest):
    def serve_impatiently(self, scale=0.01):
        return self.serve_cache("--deadline-scale", str(scale))

    def test_of_who_says_nothing_or_stops_in_the_header(self):
        peer = self.serve_impatiently()
        for words in (b"", header()[:1], header()[:24]):
            client = self.connect(peer, connected=False)
            client.send(words)
            self.assertTrue(client.is_closed())
        peer.wait_for_log(r"client \S+: closed, .*no byte came in 0\.1 s")

    def test_of_who_does_not_say_how_many_rails(self):
        peer = self.serve_impatiently(0.001)
        client = self.connect(peer, connected=False)
        client.send(header())
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"client \S+: closed, .*0\.3 s")

    def test_inside_a_request_gives_back_what_it_held(self):
        peer = self.serve_impatiently()
        other = self.connect(peer)
        other.put_turn(1, 1)
        silent = [self.connect(peer) for _ in range(5)]
        for client, cut in zip(silent, (1, 5, 9, 10, 9 + BLOB // 2)):
            client.send(client.put_request(1, blob(1, 2, BLOB))[:cut])
        for client in silent:
            self.assertTrue(client.is_closed())
        self.assert_arena(peer, connections=1, reserved=0, pinned=0)
        self.assertEqual(other.fetch_turn(1), 1)
        peer.wait_for_log(r"client \S+: closed.*no byte came in 0\.3 s", times=5)

    def test_between_requests_is_allowed(self):
        peer = self.serve_impatiently()
        idle = self.connect(peer)
        for _ in range(2):
            stopped = self.connect(peer)  # and for longer than any deadline inside a message
            stopped.send(b"\x10")
            self.assertTrue(stopped.is_closed())
        self.assertIsNone(idle.fetch(1))

    def test_of_one_does_not_keep_others_waiting(self):
        peer = self.serve_impatiently(1)
        silent = self.connect(peer)
        silent.send(silent.put_request(1, blob(1, 1, BLOB))[:100])
        other = self.connect(peer)
        for turn in range(2, 40):
            other.put_turn(1, turn)
            self.assertEqual(other.fetch_turn(1), turn)
        silent.send(silent.put_request(1, blob(1, 1, BLOB))[100:])
        self.assertEqual(silent.read(1), OK)
        self.assertEqual(other.fetch_turn(1), 1)


HELD_MAX = 32 * MIB  # far below what such clients send if they may; huge pages make small things of a process 2 MiB each


class NeverReading(CacheTest):
    def test_a_client_that_asks_and_never_reads_is_dropped(self):
        peer = self.serve_cache("--deadline-scale", "0.01")
        client = self.connect(peer, blob_bytes=MIB, arena_bytes=4 * MIB)
        client.put_turn(1)
        client.send(client.request(FETCH, 1) * 256)
        self.assert_lives(peer)
        peer.wait_for_log(r"client \S+: closed inside a cache request: the client takes no bytes")
        with TcpClient(peer.address, blob_bytes=MIB, arena_bytes=4 * MIB) as other:
            self.assertEqual(other.fetch_turn(1), 0)
        harness.wait_until(lambda: statistics(peer.address)["arenas"][0]["pinned"] == 0, "no pin")

    def test_what_it_has_asked_for_is_not_held_in_memory_and_others_go_on(self):
        peer = self.serve_cache()
        client, other = self.connect(peer), self.connect(peer)
        other.put_turn(1)
        before = peer.memory()
        client.socket.setblocking(False)
        try:
            while True:  # until the peer reads no more
                client.socket.send(client.request(FETCH, 1) * 256)
        except BlockingIOError:
            pass
        for key in range(2, 40):
            other.put_turn(key)
            self.assertEqual(other.fetch_turn(key), 0)
        other.remove(1)
        self.assertLess(peer.memory() - before, HELD_MAX)

    def test_nor_are_small_replies(self):
        peer = self.serve_cache()
        client = self.connect(peer)
        before = peer.memory()
        client.socket.setblocking(False)
        try:
            while True:
                client.socket.send(client.request(EXISTS, 1) * 4096)
        except BlockingIOError:
            pass
        self.assert_lives(peer)
        self.assertLess(peer.memory() - before, HELD_MAX)


class Crowds(CacheTest):
    def test_two_hundred_clients_at_once(self):
        peer = self.serve_cache()
        clients = [self.connect(peer, arena_bytes=256 * BLOB) for _ in range(200)]  # a slot for each
        for key, client in enumerate(clients):
            client.send(client.put_request(key, blob(key, 1, BLOB)) + client.request(FETCH, key))
        for key, client in enumerate(clients):
            self.assertEqual(client.read(1), OK)
            self.assertEqual(client.take(), blob(key, 1, BLOB))
        self.assert_arena(peer, connections=200, reserved=0, puts=200, hits=200, errors=0)
        for key, client in enumerate(clients):
            client.send(client.request(FETCH, 199 - key))
        for key, client in enumerate(clients):
            self.assertEqual(client.take(), blob(199 - key, 1, BLOB))
            (closed, vanish)[key % 2](client)
        self.assert_arena(peer, connections=0, pinned=0)

    def test_one_above_the_limit_is_closed(self):
        peer = self.serve_cache("--max-connections", "2")
        first, _ = self.connect(peer), self.connect(peer)
        third = self.connect(peer, connected=False)
        third.send(header() + b"\0")
        self.assertTrue(third.is_closed())
        peer.wait_for_log("refused: too many connections.*--max-connections")
        first.put_turn(1)
        self.assertEqual(first.fetch_turn(1), 0)


class Garbage(CacheTest):
    def test_a_thousand_random_requests_never_harm_anybody(self):
        peer = self.serve_cache()
        other = self.connect(peer)
        other.put_turn(77, 1)
        dice = random.Random(5)
        ops = (ALLOC, GET, REMOVE, PUT, FETCH, WRITE, READ, EXISTS, 0x21, 0x22, 0x23, 0x24, 0x7F, 0x99)
        for _ in range(60):
            client = self.connect(peer)
            requests = b"".join(struct.pack("<BQ", dice.choice(ops), dice.choice((0, 1, 5, 1 << 40))) +
                                dice.randbytes(dice.choice((0, 0, 0, 4, 20 * KIB))) for _ in range(20))
            try:
                client.send(requests)
            except OSError:
                pass
            vanish(client)
        self.assertEqual(other.fetch_turn(77), 1)
        self.assert_arena(peer, connections=1, reserved=0, pinned=0)


if __name__ == "__main__":
    harness.main()
