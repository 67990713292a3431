#!/usr/bin/env python3
"""The whole public client API, called from Python against a peer written in Python.

    api_test.py LIBPENSTOCK.SO PENSTOCK [unittest arguments]

and, for what both have to agree on, against `penstock serve`."""

import ctypes as c
import os
import re
import select
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import fake_peer
import penstock_ctypes as pen

LIB = PENSTOCK = None
WEIGHT = bytes(range(240))
MODEL = fake_peer.Model(
    {"model.safetensors": fake_peer.safetensors({
        "w": ("U8", [4, 60], WEIGHT), "norm": ("F32", [3], bytes(12)), "scalar": ("I64", [], bytes(8))})},
    {"config.json": b"{}", "1_Pooling/config.json": b"{ }", "../outside": b"no"})


class RealPeer:
    """penstock serve, with MODEL in a directory of its own."""

    def __init__(self, test):
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        self.directory = directory.name
        for name, body in {**MODEL.shards, "config.json": b"{}"}.items():
            self.write(name, body)
        self.process = subprocess.Popen(
            [PENSTOCK, "serve", "--weights", "fake=" + self.directory, "--listen-weights", "127.0.0.1:0"],
            stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        for line in self.process.stderr:
            listening = re.search(r"listening for weights on (\S+)", line)
            if listening:
                self.address = listening.group(1)
                break

    def write(self, name, body):
        with open(os.path.join(self.directory, name + ".new"), "wb") as f:
            f.write(body)
        os.rename(f.name, os.path.join(self.directory, name))

    def end(self):
        self.process.terminate()
        self.process.communicate()


class Session:
    def __init__(self, peer, catalogue=None, **options):
        self.session, self.error = c.c_void_p(), pen.Error()
        code = LIB.penstock_weights_open(peer.address.encode(), b"fake", catalogue, pen.Options(**options),
                                         c.byref(self.session), self.error)
        if code:
            raise OSError(code, self.error.message.decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.penstock_session_free(self.session)

    def catalogue(self):
        return LIB.penstock_session_catalogue(self.session)

    def region(self, buffer):
        region = c.c_uint32()
        memory = pen.Memory(address=c.addressof(buffer), len_bytes=c.sizeof(buffer))
        assert LIB.penstock_register(self.session, memory, region, self.error) == 0, self.error.message
        return region.value

    def submit(self, region, ranges, user=None):
        op = c.c_uint64()
        array = (pen.Range * len(ranges))(*ranges)
        code = LIB.penstock_submit(self.session, pen.Read(ranges=array, count=len(ranges), region=region, user=user),
                                   op, self.error)
        assert code == 0, self.error.message
        return op.value

    def poll_until_done(self):
        """As an event loop would: the fd, the timeout, and poll."""
        out, n = (pen.Completion * 4)(), c.c_size_t()
        while True:
            state = LIB.penstock_poll(self.session, out, 4, n)
            if n.value:
                return state, out[: n.value]
            timeout = LIB.penstock_timeout_ns(self.session)
            select.select([LIB.penstock_fd(self.session)], [], [], None if timeout < 0 else timeout / 1e9)


class Api(unittest.TestCase):
    def setUp(self):
        self.peer = fake_peer.FakePeer(MODEL, digests=lambda body: [bytes([7] * 16)])
        self.addCleanup(self.peer.die)

    def test_every_function_of_the_headers_is_here(self):
        include = os.path.join(HERE, "..", "..", "include", "penstock")
        declared = set()
        for name in ("penstock.h", "experts.h", "lora.h", "cache.h", "kv.h", "snapshot.h",
                     "error.h"):
            with open(os.path.join(include, name)) as f:
                text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
            for statement in text.split(";"):
                if "PENSTOCK_API" in statement and "#define" not in statement.split("PENSTOCK_API")[0][-80:]:
                    declared.update(re.findall(r"\b(penstock_\w+)\(", statement))
        self.assertEqual(declared, set(pen.FUNCTIONS))

    def test_versions_and_names(self):
        self.assertRegex(LIB.penstock_version(), rb"^\d+\.\d+\.\d+$")
        self.assertEqual(LIB.penstock_error_name(pen.ESTALE), b"PENSTOCK_ESTALE")
        self.assertEqual(LIB.penstock_error_class(pen.ESTALE), 2)

    def test_the_catalogue_outlives_its_session(self):
        with Session(self.peer) as s:
            catalogue = s.catalogue()
        LIB.penstock_catalogue_ref(catalogue)
        LIB.penstock_catalogue_unref(catalogue)
        self.assertEqual(LIB.penstock_catalogue_model_id(catalogue), b"/models/fake")
        self.assertEqual(LIB.penstock_catalogue_version(catalogue), b"v1")
        self.assertEqual([LIB.penstock_catalogue_tensors(catalogue), LIB.penstock_catalogue_shards(catalogue),
                          LIB.penstock_catalogue_files(catalogue), LIB.penstock_catalogue_skipped(catalogue)],
                         [3, 1, 3, 1])
        t = LIB.penstock_catalogue_find(catalogue, b"w").contents
        self.assertEqual((t.dtype, t.rank, t.shape[: t.rank], t.len_bytes, t.shard, t.extra),
                         (b"U8", 2, [4, 60], 240, 0, 0))
        self.assertFalse(LIB.penstock_catalogue_find(catalogue, b"nope"))
        self.assertFalse(LIB.penstock_catalogue_tensor(catalogue, 3))
        self.assertEqual(LIB.penstock_catalogue_tensor(catalogue, 0).contents.name, b"w")
        self.assertEqual([LIB.penstock_catalogue_file(catalogue, i).contents.name for i in range(4)],
                         [b"model.safetensors", b"config.json", b"1_Pooling/config.json", None])
        self.assertFalse(LIB.penstock_catalogue_file(catalogue, 4))
        LIB.penstock_catalogue_unref(catalogue)

    def test_a_slice_of_columns_lands_packed(self):
        with Session(self.peer) as s:
            catalogue, needed, error = s.catalogue(), c.c_size_t(), pen.Error()
            t = LIB.penstock_catalogue_find(catalogue, b"w")
            ranges = (pen.Range * 4)()
            self.assertEqual(LIB.penstock_tensor_slice(t, 1, 20, 10, 0, None, 0, needed, error), 0)
            self.assertEqual(needed.value, 4)
            self.assertEqual(LIB.penstock_tensor_slice(t, 1, 20, 10, 0, ranges, 4, needed, error), 0)
            self.assertEqual(LIB.penstock_tensor_slice(t, 2, 0, 1, 0, None, 0, needed, error), pen.EINVAL)
            buffer = c.create_string_buffer(40)
            array = pen.Read(ranges=ranges, count=4, region=s.region(buffer))
            self.assertEqual(LIB.penstock_read_wait(s.session, array, s.error), 0, s.error.message)
            self.assertEqual(buffer.raw, b"".join(WEIGHT[r * 60 + 20 : r * 60 + 30] for r in range(4)))
            LIB.penstock_catalogue_unref(catalogue)

    def test_reads_in_an_event_loop(self):
        with Session(self.peer) as s:
            t = LIB.penstock_catalogue_find(s.catalogue(), b"w").contents
            buffer = c.create_string_buffer(1000)
            region = s.region(buffer)
            op = s.submit(region, [pen.Range(t.offset_bytes, 240, 100, 0), pen.Range(0, 2, 0, 1)], user=42)
            state, done = s.poll_until_done()
            self.assertEqual(state, 0)
            self.assertEqual([(d.op, d.user, d.code, d.landed_bytes) for d in done], [(op, 42, 0, 242)])
            self.assertEqual(buffer.raw[100:340] + buffer.raw[:2], WEIGHT + b"{}")
            self.assertFalse(LIB.penstock_op_error(s.session, op))
            self.assertEqual(LIB.penstock_unregister(s.session, region, s.error), 0)
            self.assertEqual(LIB.penstock_unregister(s.session, region, s.error), pen.EINVAL)

    def test_starting_without_waiting(self):
        session, op, completion = c.c_void_p(), c.c_uint64(), pen.Completion()
        error = pen.Error()
        self.assertEqual(LIB.penstock_weights_start(self.peer.address.encode(), b"fake", None, None, c.byref(session),
                                                    op, error), 0)
        self.assertIsNone(LIB.penstock_session_catalogue(session))
        self.assertEqual(LIB.penstock_wait(session, op, completion, error), 0, error.message)
        self.assertEqual(completion.op, op.value)
        LIB.penstock_session_free(session)

    def test_digests(self):
        with Session(self.peer) as s:
            out, op, completion = c.create_string_buffer(64), c.c_uint64(), pen.Completion()
            ask = pen.Digests(out=c.addressof(out), max=4)
            self.assertEqual(LIB.penstock_submit_digests(s.session, ask, op, s.error), 0, s.error.message)
            self.assertEqual(LIB.penstock_wait(s.session, op, completion, s.error), 0, s.error.message)
            self.assertEqual((completion.landed_bytes, out.raw[:17]), (16, bytes([7] * 16 + [0])))

    def test_cancel(self):
        with Session(self.peer) as s:
            buffer = c.create_string_buffer(100)
            op = s.submit(s.region(buffer), [pen.Range(0, 100, 0, 0)])
            self.assertEqual(LIB.penstock_cancel(s.session, op), 0)
            self.assertEqual(LIB.penstock_cancel(s.session, op), pen.ENOTFOUND)
            _, done = s.poll_until_done()
            self.assertEqual([(d.op, d.code) for d in done], [(op, pen.ECANCELED)])
            self.assertEqual(LIB.penstock_op_error(s.session, op).contents.message, b"canceled")

    def test_a_join_reuses_the_catalogue(self):
        with Session(self.peer) as first:
            catalogue = first.catalogue()
        with Session(self.peer, catalogue) as s:
            buffer = c.create_string_buffer(10)
            s.submit(s.region(buffer), [pen.Range(0, 10, 0, 0)])
            _, done = s.poll_until_done()
            self.assertEqual(done[0].code, 0)
        self.assertEqual(self.peer.hellos, ["fake", "penstock:join v1 fake"])
        self.peer.model = fake_peer.Model(MODEL.shards, MODEL.files, version="v2")
        with self.assertRaises(OSError) as e:
            Session(self.peer, catalogue)
        self.assertEqual(e.exception.errno, pen.ESTALE)
        LIB.penstock_catalogue_unref(catalogue)

    def test_a_refused_range_names_file_and_range(self):
        self.peer.refuse = lambda file, offset: offset == 8
        with Session(self.peer) as s:
            buffer = c.create_string_buffer(10)
            op = s.submit(s.region(buffer), [pen.Range(8, 10, 0, 0)])
            state, done = s.poll_until_done()
            self.assertEqual((state, done[0].code), (0, pen.EREFUSED))
            self.assertIn(b"10 bytes at 8 of model.safetensors", LIB.penstock_op_error(s.session, op).contents.message)

    def test_a_peer_that_dies(self):
        with Session(self.peer) as s:
            buffer = c.create_string_buffer(10)
            region = s.region(buffer)
            self.peer.stop_after = 4
            op = s.submit(region, [pen.Range(8, 10, 0, 0)])
            state, done = s.poll_until_done()
            self.assertEqual((state, done[0].op, done[0].code), (pen.ECLOSED, op, pen.ECLOSED))
            array = (pen.Range * 1)(pen.Range(0, 1, 0, 0))
            again = LIB.penstock_submit(s.session, pen.Read(ranges=array, count=1, region=region), c.c_uint64(),
                                        s.error)
            self.assertEqual(again, pen.EDEAD)

    def test_a_peer_that_freezes(self):
        self.peer.stop_after, self.peer.at_stop = 4, fake_peer.freeze
        with Session(self.peer, reply_timeout_ns=50_000_000) as s:
            buffer = c.create_string_buffer(10)
            s.submit(s.region(buffer), [pen.Range(8, 10, 0, 0)])
            state, done = s.poll_until_done()
            self.assertEqual((state, done[0].code), (pen.ETIMEOUT, pen.ETIMEOUT))

    def test_models(self):
        models, error = c.c_void_p(), pen.Error()
        self.assertEqual(LIB.penstock_models_get(self.peer.address.encode(), None, c.byref(models), error), 0)
        self.assertEqual(LIB.penstock_models_count(models), 1)
        m = LIB.penstock_models_at(models, 0).contents
        self.assertEqual((m.id, m.version, m.shards, m.tensors, m.files), (b"fake", b"v1", 1, 3, 3))
        self.assertFalse(LIB.penstock_models_at(models, 1))
        LIB.penstock_models_free(models)

    def test_without_rails_it_is_tcp_and_says_why(self):
        with self.assertRaises(OSError) as e:
            Session(self.peer, transport=1, rails=b"none")
        self.assertEqual(e.exception.errno, pen.EUNSUPPORTED)
        with Session(self.peer, rails=b"none") as s:
            self.assertEqual(LIB.penstock_session_transport(s.session), 2)
            self.assertIn(b"none", LIB.penstock_session_transport_why(s.session))
            self.assertIsNone(LIB.penstock_session_bounce_why(s.session))
            self.assertEqual(LIB.penstock_session_rails(s.session), 0)
            self.assertEqual(LIB.penstock_session_rail(s.session, 0, pen.RailInfo()), pen.EINVAL)
            device, region, op = pen.Memory(where=1, len_bytes=1, dmabuf_fd=0), c.c_uint32(), c.c_uint64()
            self.assertEqual(LIB.penstock_register(s.session, device, region, s.error), 0)
            read = pen.Read(ranges=c.pointer(pen.Range(8, 1, 0, 0)), count=1, region=region.value)
            self.assertEqual(LIB.penstock_submit(s.session, read, op, s.error), pen.EUNSUPPORTED)
            self.assertIn(b"DEVICE", s.error.message)

    def test_rails_that_make_no_sense_are_refused(self):
        for options in ({"rails": b"rxe0:zz"}, {"rail_deadline_ns": -1}, {"transport": 3}):
            with self.assertRaises(OSError) as e:
                Session(self.peer, **options)
            self.assertEqual(e.exception.errno, pen.EINVAL)

    def test_nobody_is_there(self):
        self.peer.die()
        with self.assertRaises(OSError) as e:
            Session(self.peer)
        self.assertEqual(e.exception.errno, pen.EUNREACHABLE)


class AgainstPenstockServe(unittest.TestCase):
    def setUp(self):
        self.peer = RealPeer(self)

    def test_scattered_ranges_land_where_they_belong(self):
        body = MODEL.shards["model.safetensors"]
        with Session(self.peer) as s:
            buffer = c.create_string_buffer(2 * len(body))
            region = s.region(buffer)
            scattered = [pen.Range(at, min(7, len(body) - at), at, 0) for at in range(0, len(body), 7)][::-1]
            s.submit(region, scattered)
            s.submit(region, [pen.Range(0, 2, len(body), 1)])
            done = []
            while len(done) < 2:
                done += s.poll_until_done()[1]
            self.assertEqual([d.code for d in done], [0, 0])
            self.assertEqual(buffer.raw[: len(body) + 2], body + b"{}")

    def test_digests_come_in_time(self):
        with Session(self.peer) as s:
            out, op, completion = c.create_string_buffer(16), c.c_uint64(), pen.Completion()
            deadline = time.monotonic() + 20
            while completion.landed_bytes == 0 and time.monotonic() < deadline:
                ask = pen.Digests(out=c.addressof(out), max=1)
                self.assertEqual(LIB.penstock_submit_digests(s.session, ask, op, s.error), 0)
                self.assertEqual(LIB.penstock_wait(s.session, op, completion, s.error), 0, s.error.message)
            self.assertNotEqual(out.raw, bytes(16))

    def test_a_model_it_does_not_have(self):
        session, error = c.c_void_p(), pen.Error()
        code = LIB.penstock_weights_open(self.peer.address.encode(), b"nope", None, None, c.byref(session), error)
        self.assertEqual(code, pen.ENOTFOUND)
        self.assertIn(b"has no model 'nope'; it has: fake", error.message)

    def test_joins_until_the_model_is_replaced(self):
        with Session(self.peer) as s:
            catalogue = s.catalogue()
        with Session(self.peer, catalogue):
            pass
        self.peer.write("model.safetensors", fake_peer.safetensors({"w": ("U8", [1], b"1")}))
        deadline = time.monotonic() + 20
        code = None
        while code is None and time.monotonic() < deadline:
            try:
                with Session(self.peer, catalogue):
                    time.sleep(0.1)
            except OSError as e:
                code = e.errno
        self.assertEqual(code, pen.ESTALE)
        LIB.penstock_catalogue_unref(catalogue)


if __name__ == "__main__":
    LIB, PENSTOCK = pen.load(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
