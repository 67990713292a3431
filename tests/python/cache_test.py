#!/usr/bin/env python3
"""The cache's clients by the public API, against `penstock serve --cache`: prefixes, KV blocks, snapshots.

    cache_test.py LIBPENSTOCK.SO PENSTOCK [unittest arguments]"""

import ctypes as c
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import penstock_ctypes as pen

LIB = PENSTOCK = None
PUT, GET, EXISTS, REMOVE = range(4)
SSM, KV = 0, 1
BLOB = 65536


def words(error):
    return error.message.decode()


class Session:
    """opened(session pointer, error) opens it, with a region of len_bytes."""

    def __init__(self, opened, len_bytes):
        self.pointer, self.error = pen.P(), pen.Error()
        code = opened(c.byref(self.pointer), c.byref(self.error))
        if code:
            raise AssertionError(words(self.error))
        self.memory = c.create_string_buffer(len_bytes)
        self.region = c.c_uint32()
        memory = pen.Memory(address=c.addressof(self.memory), len_bytes=len_bytes)
        assert LIB.penstock_register(self.pointer, memory, self.region, None) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.penstock_session_free(self.pointer)

    def run(self, call, work):
        return call(self.pointer, work, c.byref(self.error))

    def fill(self, at, body):
        c.memmove(c.addressof(self.memory) + at, body, len(body))

    def bytes(self, at, n):
        return self.memory.raw[at : at + n]


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.peer = subprocess.Popen(
            [PENSTOCK, "serve", "--cache", "--listen-cache", "127.0.0.1:0", "--swap-dir", cls.directory.name],
            stderr=subprocess.PIPE, text=True)
        for line in cls.peer.stderr:
            listening = re.search(r"listening for (?:the )?cache on (\S+)", line)
            if listening:
                cls.address = listening.group(1).encode()
                break

    @classmethod
    def tearDownClass(cls):
        cls.peer.terminate()
        cls.peer.communicate()
        cls.directory.cleanup()

    def open_cache(self, len_bytes=BLOB, **fields):
        fields = {"kind": KV, "blob_bytes": BLOB, "arena_bytes": 8 * BLOB, **fields}
        cache = pen.Cache(**fields)
        return Session(lambda s, e: LIB.penstock_cache_open(self.address, cache, None, s, e), len_bytes)

    def layout(self, **fields):
        layout = pen.KvLayout(**{"elem_bytes": 2, "block_size": 16, "head_dim": 130, "layers": 4, "blocks": 6,
                                 "kv_heads": 2, **fields})
        self.assertEqual(LIB.penstock_kv_layout_compute(layout, None), 0)
        return layout

    def open_kv(self, layout, **fields):
        kv = pen.Kv(layout=c.pointer(layout), fingerprint=7, **fields)
        return Session(lambda s, e: LIB.penstock_kv_open(self.address, kv, None, s, e),
                       layout.layers * layout.blocks * layout.block_bytes)

    def kv_blocks(self, session, action, names, at=None):
        blocks = (pen.KvBlock * len(names))()
        for i, (layer, block) in enumerate(names):
            blocks[i] = pen.KvBlock(layer=layer, block=block, at_bytes=at[i] if at else 0)
        work = pen.KvBlocks(action=action, region=session.region.value, blocks=blocks, count=len(names))
        return session.run(LIB.penstock_kv_blocks_wait, work), [b.code for b in blocks]

    # ---- prefixes ----

    def test_a_prefix_ends_at_the_first_block_that_is_not_there(self):
        keys = (pen.Key * 5)(*[pen.Key(low=i, high=~i & 0xFF) for i in range(5)])
        found = c.c_uint64(9)
        with self.open_cache(wide=1) as session:
            def prefix():
                self.assertEqual(LIB.penstock_prefix_wait(session.pointer, keys, 5, found, None), 0)
                return found.value
            self.assertEqual(prefix(), 0)
            for have in ([0, 1, 2, 4], [3]):
                blobs = (pen.Blob * len(have))(*[pen.Blob(key_low=i, key_high=~i & 0xFF) for i in have])
                work = pen.Blobs(action=PUT, region=session.region.value, blobs=blobs, count=len(have))
                self.assertEqual(session.run(LIB.penstock_blobs_wait, work), 0)
                self.assertEqual(prefix(), 3 if have[0] == 0 else 5)

    def test_a_part_of_a_blob_lands_alone(self):
        with self.open_cache() as session:
            session.fill(0, bytes(range(256)) * (BLOB // 256))
            blob = pen.Blob(key_low=77)
            work = pen.Blobs(action=PUT, region=session.region.value, blobs=c.pointer(blob), count=1)
            self.assertEqual(session.run(LIB.penstock_blobs_wait, work), 0)
            session.fill(0, bytes(BLOB))
            blob.at_bytes, blob.from_bytes, blob.len_bytes = 10, 3, 5
            work.action = GET
            self.assertEqual(session.run(LIB.penstock_blobs_wait, work), 0)
            self.assertEqual(session.bytes(0, 20), bytes(10) + bytes([3, 4, 5, 6, 7]) + bytes(5))

    # ---- KV ----

    def test_kv_blocks_outgrow_the_arena_and_are_shared_by_their_salt(self):
        layout = self.layout()
        names = [(layer, block) for layer in range(4) for block in range(6)]
        at = [i * layout.block_bytes for i in range(24)]
        bodies = [bytes([i]) * layout.block_bytes for i in range(24)]
        with self.open_kv(layout, salt=5, arena_bytes=4 * layout.block_bytes) as one:
            for place, body in zip(at, bodies):
                one.fill(place, body)
            self.assertEqual(self.kv_blocks(one, PUT, names, at)[0], 0)
        with self.open_kv(layout, salt=5, arena_bytes=4 * layout.block_bytes) as other:
            self.assertEqual(self.kv_blocks(other, GET, names, at)[0], 0)
            self.assertEqual([other.bytes(place, layout.block_bytes) for place in at], bodies)
            self.assertEqual(self.kv_blocks(other, REMOVE, names[2:4])[0], 0)
            code, codes = self.kv_blocks(other, GET, names[:5], at[:5])
            self.assertEqual((code, codes), (pen.ENOTFOUND, [0, 0, pen.ENOTFOUND, pen.ENOTFOUND, 0]))
            self.assertIn("has not got block 2 of layer 0 (a miss; 2 of 5 blocks)", words(other.error))

    def test_a_stripe_is_the_part_of_its_block_that_the_layout_says(self):
        layout = self.layout(head_dim=128)
        for raw in (0, 1):
            with self.open_kv(layout, salt=6, raw=raw) as session:
                stripes = [bytes([i + 1]) * layout.stripe_stride for i in range(4)]
                session.fill(0, b"".join(stripes))
                self.assertEqual(self.kv_blocks(session, PUT, [(3, 5)])[0], 0)
                for kv in range(2):
                    for head in range(2):
                        stripe = pen.KvStripe(layer=3, block=5, kv=kv, head=head, at_bytes=100)
                        work = pen.KvStripes(region=session.region.value, stripes=c.pointer(stripe), count=1)
                        session.fill(0, bytes(2 * layout.stripe_bytes))
                        self.assertEqual(session.run(LIB.penstock_kv_stripes_wait, work), 0)
                        self.assertEqual(session.bytes(0, layout.stripe_bytes + 101),
                                         bytes(100) + stripes[2 * kv + head][: layout.stripe_bytes] + bytes(1))

    def test_blocks_under_a_random_salt_end_with_their_session(self):
        layout, info = self.layout(), pen.KvInfo()
        with self.open_kv(layout, random_salt=1) as one:
            self.assertEqual(LIB.penstock_kv_about(one.pointer, info), 0)
            self.assertEqual((info.owned, info.block_bytes), (1, layout.block_bytes))
            self.assertEqual(self.kv_blocks(one, PUT, [(0, 0)])[0], 0)
            with self.open_kv(layout, salt=info.salt) as beside:
                self.assertEqual(self.kv_blocks(beside, EXISTS, [(0, 0)])[0], 0)
            with self.open_kv(layout, random_salt=1) as stranger:
                self.assertEqual(self.kv_blocks(stranger, EXISTS, [(0, 0)])[0], pen.ENOTFOUND)
        with self.open_kv(layout, salt=info.salt) as after:
            while self.kv_blocks(after, EXISTS, [(0, 0)])[0] != pen.ENOTFOUND:
                pass  # until the peer has seen that session end

    # ---- snapshots ----

    def snapshots(self, session, action, keys, at):
        items = (pen.Snapshot * len(keys))(*[pen.Snapshot(key=k, at_bytes=a) for k, a in zip(keys, at)])
        work = pen.Snapshots(action=action, region=session.region.value, snapshots=items, count=len(keys))
        return session.run(LIB.penstock_snapshots_wait, work), [i.code for i in items]

    def open_snapshots(self, **fields):
        arena = pen.SnapshotArena(blob_bytes=3 * 4096, arena_bytes=4 * 3 * 4096, **fields)
        return Session(lambda s, e: LIB.penstock_snapshots_open(self.address, arena, None, s, e), 4 * 3 * 4096)

    def test_snapshots_are_found_in_their_namespace_alone(self):
        with self.open_snapshots(namespace_id=1) as session:
            session.fill(0, b"a" * 12288 + b"b" * 12288)
            self.assertEqual(self.snapshots(session, PUT, [1, 2], [0, 12288])[0], 0)
            self.assertEqual(self.snapshots(session, GET, [2, 1], [24576, 36864])[0], 0)
            self.assertEqual(session.bytes(24576, 24576), b"b" * 12288 + b"a" * 12288)
        with self.open_snapshots(namespace_id=2) as other:
            self.assertEqual(self.snapshots(other, GET, [1], [0])[0], pen.ENOTFOUND)
            self.assertIn("has not got snapshot 1", words(other.error))

    def test_in_a_raw_arena_a_snapshots_key_is_its_slot(self):
        with self.open_snapshots(raw=1) as session:
            session.fill(0, b"x" * 12288)
            self.assertEqual(self.snapshots(session, PUT, [3], [0])[0], 0)
            self.assertEqual(self.snapshots(session, GET, [2, 3], [0, 12288])[0], 0)
            self.assertEqual(session.bytes(0, 24576), bytes(12288) + b"x" * 12288)
            self.assertEqual(self.snapshots(session, GET, [4], [0])[0], pen.EINVAL)


if __name__ == "__main__":
    LIB, PENSTOCK = pen.load(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
