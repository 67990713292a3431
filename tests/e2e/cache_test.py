"""The cache over TCP: what each request is answered, in both modes (docs/protocol.md 1.6, 2.2, 2.3 and 2.6)."""

import struct

import harness
from cache_blobs import blob
from cache_wire import (ALLOC, ARENA, BIT_EXISTS, BIT_MGET, BIT_OWN, BIT_WIDE, BLOB, BYE, COMMIT, ERR, EXISTS, FETCH,
                        GET, KIB, KV, MGET, MIB, MISS, OK, OWN, PAGING_MAGIC_V1, PUT, READ, RELEASE, REMOVE, SSM, WIDE,
                        WRITE, CacheTest, arena_of, header, statistics)

FAR = (1 << 64) - 1


class Paging(CacheTest):
    def setUp(self):
        super().setUp()
        self.peer = self.serve_cache()

    def test_what_was_put_is_fetched_by_everybody(self):
        first, second = self.connect(self.peer), self.connect(self.peer)
        for key in (0, 1, FAR):
            self.assertIsNone(second.fetch(key))
            first.put_turn(key, 5)
            self.assertEqual(second.fetch_turn(key), 5)
        second.put_turn(1, 6)
        self.assertEqual(first.fetch_turn(1), 6)
        first.remove(1)
        first.remove(1)  # of what is not there
        self.assertIsNone(second.fetch(1))

    def test_exists_is_a_status(self):
        client = self.connect(self.peer)
        self.assertFalse(client.exists(3))
        client.put_turn(3)
        self.assertTrue(client.exists(3))
        client.remove(3)
        self.assertFalse(client.exists(3))

    def test_arenas_of_other_kinds_and_sizes_have_keys_of_their_own(self):
        clients = [self.connect(self.peer, kind=kind, blob_bytes=size)
                   for kind in (KV, SSM) for size in (BLOB, 2 * BLOB)]
        for turn, client in enumerate(clients):
            client.put_turn(9, turn)
        self.assertEqual([client.fetch_turn(9) for client in clients], [0, 1, 2, 3])

    def test_who_joins_gets_the_arena_that_is_there_whatever_size_it_asks_for(self):
        self.connect(self.peer).put_turn(1, 1)
        self.assertEqual(self.connect(self.peer, arena_bytes=64 * ARENA).fetch_turn(1), 1)
        self.assertEqual(arena_of(self.peer.address)["arena_bytes"], ARENA)

    def test_requests_take_effect_in_the_order_sent(self):
        client = self.connect(self.peer)
        one, two = blob(1, 1, BLOB), blob(1, 2, BLOB)
        fetch = client.request(FETCH, 1)
        client.send(fetch + client.put_request(1, one) + fetch + client.request(EXISTS, 1) +
                    client.put_request(1, two) + fetch + client.request(REMOVE, 1) + fetch + client.request(EXISTS, 1))
        self.assertIsNone(client.take())
        self.assertEqual(client.read(1), OK)
        self.assertEqual(client.take(), one)
        self.assertEqual(client.read(2), OK + OK)
        self.assertEqual(client.take(), two)
        self.assertEqual(client.read(1), OK)
        self.assertIsNone(client.take())
        self.assertEqual(client.read(1), MISS)

    def test_and_so_they_do_among_blobs_that_are_on_disk(self):
        client = self.connect(self.peer)
        for key in range(40):
            client.put_turn(key, 1)
        keys = range(0, 40, 3)
        client.send(b"".join(client.request(FETCH, key) + client.put_request(key, blob(key, 2, BLOB)) +
                             client.request(FETCH, key) for key in keys[:5]))
        for key in keys[:5]:
            self.assertEqual(client.take(), blob(key, 1, BLOB))
            self.assertEqual(client.read(1), OK)
            self.assertEqual(client.take(), blob(key, 2, BLOB))
        client.send(b"".join(client.request(FETCH, key) + client.request(REMOVE, key) + client.request(FETCH, key)
                             for key in keys))
        for key in keys:
            self.assertEqual(client.take(), blob(key, 2 if key in keys[:5] else 1, BLOB))
            self.assertEqual(client.read(1), OK)
            self.assertIsNone(client.take())

    def test_requests_may_come_with_the_header_and_in_pieces(self):
        client = self.connect(self.peer, connected=False, blob_bytes=4 * KIB)
        body = blob(7, 1, 4 * KIB)
        whole = header(blob_bytes=4 * KIB) + b"\0" + client.put_request(7, body) + client.request(FETCH, 7)
        for at in (*range(0, 40), 60, 4000, 4100):
            client.send(whole[at:at + 1] if at < 39 else b"")
        client.send(whole[39:4100])
        client.send(whole[4100:])
        self.assertEqual(client.read(3), b"\0\0" + OK)
        self.assertEqual(client.take(), body)

    def test_bye_ends_the_connection_with_and_without_its_key(self):
        for request in (b"\0", struct.pack("<BQ", BYE, 1)):
            client = self.connect(self.peer)
            client.put_turn(1)
            client.send(client.request(FETCH, 1) + request)
            self.assertEqual(client.take(), blob(1, 0, BLOB))
            self.assertTrue(client.is_closed())

    def test_a_slot_is_never_handed_out(self):
        client = self.connect(self.peer)
        client.put_turn(1)
        for op in (ALLOC, COMMIT, GET):
            self.assertEqual(client.ask_for(op, 1), ERR)
        for op in (MGET, RELEASE):
            for n in (1, 2, 1024):
                client.send(client.list_request(op, [1] * n))
                self.assertEqual(client.read(1), ERR)
        self.assertEqual(client.fetch_turn(1), 0)
        self.assert_arena(self.peer, reserved=0, pinned=0, resident=1)

    def test_lists_of_none_and_of_too_many_close(self):
        for op in (MGET, RELEASE):
            for n in (0, 1025, 0xFFFFFFFF):
                client = self.connect(self.peer)
                client.send(struct.pack("<BI", op, n))
                self.assertTrue(client.is_closed(), f"op {op}, {n} keys")
        self.assert_lives(self.peer)

    def test_what_is_not_known_closes(self):
        for op in (5, 0x0F, 0x14, 0x25, 0x7E, 0x80, 0xFF):
            client = self.connect(self.peer)
            client.send(client.request(FETCH, 1) + client.request(op))
            self.assertIsNone(client.take())
            self.assertTrue(client.is_closed(), f"op {op}")
        self.assert_lives(self.peer)

    def test_requests_of_raw_mode_are_refused_with_all_that_they_carry(self):
        client = self.connect(self.peer)
        for body in (b"", b"x", bytes(200 * KIB)):
            self.assertEqual(client.write(0, body), ERR)
        for length in (0, 1, 1 << 26):
            self.assertIsNone(client.read_range(0, length))
        client.put_turn(1, 1)
        self.assertEqual(client.fetch_turn(1), 1)

    def test_a_body_above_its_bound_closes(self):
        client = self.connect(self.peer)
        client.send(struct.pack("<BQI", WRITE, 0, (1 << 26) + 1))
        self.assertTrue(client.is_closed())
        self.assert_lives(self.peer)

    def test_many_requests_may_be_on_their_way(self):
        client = self.connect(self.peer, blob_bytes=4 * KIB, arena_bytes=32 * KIB)
        client.send(b"".join(client.put_request(key, blob(key, 1, 4 * KIB)) for key in range(200)))
        self.assertEqual(client.read(200), OK * 200)
        client.send(b"".join(client.request(FETCH, key) for key in range(200)))
        for key in range(200):
            self.assertEqual(client.take(), blob(key, 1, 4 * KIB))


class Features(CacheTest):
    def setUp(self):
        super().setUp()
        self.peer = self.serve_cache()

    def test_bits(self):
        client = self.connect(self.peer)
        self.assertEqual(client.features(), BIT_EXISTS | BIT_OWN | BIT_WIDE)
        self.assertEqual(client.features() & BIT_MGET, 0)
        raw = self.connect(self.peer, blob_bytes=0)
        self.assertEqual(raw.features(), 0)

    def test_another_question_is_an_error(self):
        client = self.connect(self.peer)
        for value in (0, 2, FAR):
            client.send(client.value_request(0x7F, value))
            self.assertEqual(client.read(1), ERR)
        self.assertEqual(client.features(), BIT_EXISTS | BIT_OWN | BIT_WIDE)

    def test_values_that_are_none_are_refused(self):
        client = self.connect(self.peer)
        for value in (2, FAR):
            self.assertEqual((client.own(value), client.wide(value)), (ERR, ERR))
        client.put_turn(1, 1)
        self.assertEqual(client.fetch_turn(1), 1)

    def test_wide_keys_are_told_apart_by_their_upper_half_and_narrow_ones_have_none(self):
        narrow, wide = self.connect(self.peer), self.connect(self.peer)
        self.assertEqual(wide.wide(1), OK)
        narrow.put_turn(5, 1)
        self.assertEqual(wide.fetch_turn(5), 1)
        wide.put_turn(5 | 1 << 64, 2)
        wide.put_turn(5 | FAR << 64, 3)
        self.assertEqual([wide.fetch_turn(5 | high << 64) for high in (0, 1, FAR, 2)], [1, 2, 3, None])
        self.assertEqual(narrow.fetch_turn(5), 1)
        wide.remove(5 | 1 << 64)
        self.assertEqual([wide.exists(5 | high << 64) for high in (0, 1, FAR)], [True, False, True])
        self.assertEqual(wide.wide(0), OK)
        self.assertEqual(wide.fetch_turn(5), 1)

    def test_wide_takes_effect_in_its_turn(self):
        client = self.connect(self.peer)
        first = client.put_request(1, blob(1, 1, BLOB)) + client.value_request(WIDE, 1)
        client.is_wide = True
        second = client.request(FETCH, 1) + client.request(FETCH, 1 | 7 << 64) + client.value_request(OWN, 0)
        second += client.value_request(0x7F, 1) + client.list_request(MGET, [1, 2]) + client.value_request(WIDE, 0)
        client.is_wide = False
        client.send(first + second + client.request(FETCH, 1))
        self.assertEqual(client.read(2), OK + OK)
        self.assertEqual(client.take(), blob(1, 1, BLOB))
        self.assertIsNone(client.take())
        self.assertEqual(client.read(2 + 8 + 2)[0:2], OK + OK)
        self.assertEqual(client.take(), blob(1, 1, BLOB))

    def test_what_is_owned_goes_with_its_connection_and_what_was_replaced_does_not(self):
        owner, other = self.connect(self.peer), self.connect(self.peer)
        owner.put_turn(1, 1)
        self.assertEqual(owner.own(1), OK)
        for key in (2, 3, 4):
            owner.put_turn(key, 1)
        self.assertEqual(owner.own(0), OK)
        owner.put_turn(5, 1)
        other.put_turn(3, 2)
        owner.put_turn(4, 2)  # no longer owned
        self.assertEqual([other.fetch_turn(key) for key in range(1, 6)], [1, 1, 2, 2, 1])
        owner.socket.close()
        harness.wait_until(lambda: other.fetch(2) is None, "the end of what was owned")
        self.assertEqual([other.fetch_turn(key) for key in range(1, 6)], [1, None, 2, 2, 1])


class Raw(CacheTest):
    def setUp(self):
        super().setUp()
        self.peer = self.serve_cache(swap=())

    def test_an_arena_is_of_the_connections_own_and_starts_with_zeros(self):
        first = self.connect(self.peer, blob_bytes=0, arena_bytes=100001)
        self.assertEqual(first.read_range(0, 100001), bytes(100001))
        self.assertEqual(first.write(99999, b"ab"), OK)
        self.assertEqual(first.write(0, b"c" * 5000), OK)
        second = self.connect(self.peer, blob_bytes=0, arena_bytes=100001)
        self.assertEqual(second.read_range(0, 100001), bytes(100001))
        self.assertEqual(first.read_range(0, 100001), b"c" * 5000 + bytes(94999) + b"ab")

    def test_ranges_that_are_empty_or_leave_the_arena_are_refused(self):
        client = self.connect(self.peer, blob_bytes=0, arena_bytes=10000)
        for offset, length in ((0, 0), (9999, 2), (10000, 1), (FAR, 1), (FAR, 2), (1 << 63, 9000), (0, 10001)):
            self.assertEqual(client.write(offset, bytes(length)), ERR, (offset, length))
            self.assertIsNone(client.read_range(offset, length), (offset, length))
        self.assertEqual(client.read_range(0, 10000), bytes(10000))

    def test_requests_take_effect_in_the_order_sent(self):
        client = self.connect(self.peer, blob_bytes=0, arena_bytes=MIB)
        read = struct.pack("<BQI", READ, 5, 3)
        client.send(read + b"".join(struct.pack("<BQI", WRITE, 5, 3) + word + read for word in (b"one", b"two")))
        self.assertEqual(client.read(4 + 5 + 5), OK + bytes(3) + OK + OK + b"one" + OK + OK + b"two")

    def test_requests_of_paging_mode_are_refused_with_all_that_they_carry(self):
        client = self.connect(self.peer, blob_bytes=0)
        for op in (ALLOC, COMMIT, GET, REMOVE, PUT, FETCH, EXISTS):
            self.assertEqual(client.ask_for(op, 1), ERR, op)
        for op in (MGET, RELEASE):
            client.send(client.list_request(op, [1, 2, 3]))
            self.assertEqual(client.read(1), ERR)
        self.assertEqual((client.own(1), client.wide(1)), (ERR, ERR))
        client.is_wide = False
        self.assertEqual(client.write(0, b"abc"), OK)
        self.assertEqual(client.read_range(1, 2), b"bc")

    def test_the_memory_comes_back_when_the_connection_ends(self):
        peer = self.serve_cache("--max-memory", "1M", swap=())
        for turn in range(3):
            client = self.connect(peer, blob_bytes=0, arena_bytes=900 * KIB)
            self.assertEqual(client.read_range(899 * KIB, KIB), bytes(KIB))
            self.assertEqual(client.write(899 * KIB, b"x" * KIB), OK)
            client.socket.close()
            harness.wait_until(lambda: statistics(peer.address)["memory"]["used"] == 0, "memory given back")


class Refusals(CacheTest):
    def assert_refused(self, peer, words, reason):
        client = self.connect(peer, connected=False)
        client.send(words + b"\0")
        self.assertTrue(client.is_closed(), reason)
        peer.wait_for_log("client .*refused.*: .*" + reason)

    def test_headers_that_cannot_be_are_closed_and_the_log_says_why(self):
        peer = self.serve_cache()
        self.assert_refused(peer, header(magic=PAGING_MAGIC_V1), "version 1")
        self.assert_refused(peer, header(magic=0x4748), "magic")
        self.assert_refused(peer, header(kind=2), "kind: 2")
        self.assert_refused(peer, header(kind=0xFE), "kind: 254")
        self.assert_refused(peer, header(arena_bytes=0), "arena size: 0")
        self.assert_refused(peer, header(arena_bytes=(1 << 42) + BLOB), "arena size: 4398046527488")
        self.assert_refused(peer, header(arena_bytes=BLOB + 4096), "size 20480 is not a multiple of the blob size 16384")
        self.assert_refused(peer, header(arena_bytes=3000, blob_bytes=1000), "multiple of 4096")
        self.assert_lives(peer)

    def test_paging_without_a_swap_directory_is_refused_with_what_to_do(self):
        peer = self.serve_cache(swap=())
        self.assert_refused(peer, header(), "--swap-dir")

    def test_what_is_above_the_ceiling_is_refused_with_who_uses_it(self):
        peer = self.serve_cache("--max-memory", "200K")
        self.connect(peer)
        self.assert_refused(peer, header(SSM), "--max-memory")
        self.assert_refused(peer, header(SSM, 200 * KIB + 1, 0), "--max-memory")
        self.assertEqual(self.connect(peer, arena_bytes=MIB).fetch(1), None)  # joins

    def test_rails_are_refused_where_there_are_none(self):
        peer = self.serve_cache("--rail", "none")
        for step1 in (b"\1", b"\x08", b"\x7F", b"\x81\xFF\3\x10"):
            client = self.connect(peer, connected=False)
            client.send(header() + step1)
            self.assertTrue(client.is_closed())
        peer.wait_for_log("closed: it asked for RDMA, which is not here")
        self.assert_lives(peer)


class Statistics(CacheTest):
    def test_a_peer_that_nobody_uses_has_no_arenas(self):
        peer = self.serve_cache("--rail", "none", "--max-memory", "3M", "--swap-cap", "1G")
        self.assertEqual(statistics(peer.address),
                         {"version": 1, "memory": {"used": 0, "cap": 3 * MIB}, "swap": {"used": 0, "cap": 1 << 30},
                          "arenas": [], "rails": []})

    def test_caps_that_are_none_are_0_and_the_default_is_50_GiB(self):
        self.assertEqual(statistics(self.serve_cache().address)["swap"], {"used": 0, "cap": 50 << 30})
        peer = self.serve_cache("--swap-cap", "0", swap=("--swap-dir", self.root))
        self.assertEqual(statistics(peer.address)["swap"], {"used": 0, "cap": 0})
        self.assertEqual(statistics(peer.address)["memory"]["cap"], 0)

    def test_every_figure_is_what_was_done(self):
        peer = self.serve_cache()
        first, second = self.connect(peer, arena_bytes=64 * BLOB), self.connect(peer)
        for key in range(5):
            first.put_turn(key)
        first.put_turn(0, 2)
        for key in (0, 1, 2, 7, 8):
            second.fetch(key)
        second.exists(9)
        second.remove(1)
        arena = arena_of(peer.address)
        self.assertEqual(list(arena), ["kind", "blob_bytes", "arena_bytes", "slots", "resident", "on_disk", "reserved",
                                       "pinned", "connections", "hits", "misses", "puts", "spills", "faults", "drops",
                                       "errors"])
        self.assertEqual(arena, {"kind": "kv", "blob_bytes": BLOB, "arena_bytes": 64 * BLOB, "slots": 64, "resident": 4,
                                 "on_disk": 0, "reserved": 0, "pinned": 0, "connections": 2, "hits": 3, "misses": 2,
                                 "puts": 6, "spills": 0, "faults": 0, "drops": 0, "errors": 0})
        self.assertEqual(statistics(peer.address)["memory"]["used"], 64 * BLOB)
        first.socket.close()
        self.assert_arena(peer, connections=1)

    def test_raw_arenas_count_as_memory_alone(self):
        peer = self.serve_cache()
        self.connect(peer, blob_bytes=0, arena_bytes=5 * 4096)
        found = statistics(peer.address)
        self.assertEqual((found["arenas"], found["memory"]["used"]), ([], 5 * 4096))


class Usage(CacheTest):
    def assert_usage(self, pattern, *words):
        peer = self.start(*words, listen=())
        self.assertEqual(peer.wait(), 2)
        self.assertRegex("\n".join(peer.log), pattern)

    def test_options_of_the_cache_want_the_cache(self):
        directory = self.swap_directory()
        self.small_model()
        for words in (("--listen-cache", "127.0.0.1:0"), ("--swap-dir", directory), ("--no-swap",), ("--swap-keep",),
                      ("--swap-cap", "1G"), ("--swap-cap-kv", "1G"), ("--swap-cap-ssm", "1G"), ("--ttl-kv", "10"),
                      ("--ttl-ssm", "10"), ("--arena-idle", "10")):
            self.assert_usage("--cache", "--weights", self.path("m"), *words)

    def test_a_swap_directory_and_none_contradict_each_other(self):
        self.assert_usage("--no-swap", "--cache", "--no-swap", "--swap-dir", self.swap_directory())


if __name__ == "__main__":
    harness.main()
