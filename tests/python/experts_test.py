#!/usr/bin/env python3
"""The client API for experts, called from Python against a peer written in Python.

    experts_test.py LIBPENSTOCK.SO [unittest arguments]"""

import ctypes as c
import os
import select
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "tools")]
import penstock_ctypes as pen
from fake_experts import FakeExperts
from make_store import Store

LIB = None
STORE = Store(layers=2, experts=7)


class Experts(unittest.TestCase):
    def setUp(self):
        self.session = None

    def tearDown(self):
        LIB.penstock_session_free(self.session)

    def open(self, peer, version=None, slots=4, memory=None, stride=0):
        session, error = pen.P(), pen.Error()
        code = LIB.penstock_experts_open(peer.address.encode(), version, None, c.byref(session), c.byref(error))
        self.assertEqual(code, pen.OK, error.message)
        self.session = session
        arena = pen.ExpertArena(slots=slots, memory=memory, stride_bytes=stride)
        self.assertEqual(LIB.penstock_experts_arena(session, c.byref(arena), c.byref(error)), pen.OK, error.message)
        return session

    def submit(self, layer, expert, slot, priority=pen.NOW):
        op = pen.OP()
        fetch = pen.Fetch(layer=layer, expert=expert, slot=slot, priority=priority, user=slot + 1)
        self.assertEqual(LIB.penstock_submit_fetch(self.session, c.byref(fetch), c.byref(op), None), pen.OK)
        return op.value

    def poll(self):
        """Completions, waited for on the fd as an event loop would."""
        out, done = (pen.Completion * 16)(), c.c_size_t()
        while True:
            state = LIB.penstock_poll(self.session, out, 16, c.byref(done))
            if done.value or state:
                return [(x.op, x.user, x.code, x.landed_bytes) for x in out[: done.value]]
            ns = LIB.penstock_timeout_ns(self.session)
            ready = select.select([LIB.penstock_fd(self.session)], [], [], None if ns < 0 else min(ns / 1e9 + 0.001, 20))
            self.assertTrue(ready[0] or ns < 20e9)

    def assert_record(self, slot, layer, expert):
        at, g = pen.Expert(), pen.ExpertGeometry()
        self.assertEqual(LIB.penstock_expert_at(self.session, slot, c.byref(at)), pen.OK)
        self.assertEqual(LIB.penstock_experts_geometry(self.session, c.byref(g)), pen.OK)
        self.assertEqual((at.layer, at.expert), (layer, expert))
        for i in range(6):
            self.assertEqual(c.string_at(at.parts[i], g.part_bytes[i]), STORE.part(layer, expert, i))
            self.assertEqual(at.parts[i] % g.sub_align, 0)
        self.assertEqual(tuple(at.scale2), STORE.scale2(layer, expert))
        scales = STORE.input_scale(layer, expert)
        self.assertEqual(tuple(at.input_scale), tuple(s or 0.0 for s in scales))
        self.assertEqual(at.input_scale_flags, sum(1 << i for i in range(3) if scales[i] is not None))

    def test_the_geometry_is_the_stores(self):
        with FakeExperts(STORE, version="v1") as peer:
            self.open(peer, b"v1")
            g = pen.ExpertGeometry()
            self.assertEqual(LIB.penstock_experts_geometry(self.session, c.byref(g)), pen.OK)
            self.assertEqual(g.model_version, b"v1")
            self.assertEqual((g.layers, g.experts, g.inter, g.hidden, g.group_size),
                             (STORE.layers, STORE.experts, STORE.inter, STORE.hidden, STORE.group))
            self.assertEqual(g.model_layers[:2], [1, 2])
            self.assertEqual(g.record_stride, STORE.stride)
            self.assertEqual(tuple(g.part_offset), STORE.offsets[:-1])
            self.assertEqual(tuple(g.part_bytes), STORE.lengths)

    def test_many_fetches_are_polled_for(self):
        with FakeExperts(STORE) as peer:
            self.open(peer, slots=7)
            ops = [self.submit(1, e, 6 - e) for e in range(7)]
            done = []
            while len(done) < 7:
                done += self.poll()
            self.assertEqual(done, [(ops[e], 7 - e, pen.OK, STORE.stride) for e in range(7)])
            for e in range(7):
                self.assert_record(6 - e, 1, e)
            self.assertEqual(peer.modes, [b"\0"])

    def test_records_land_in_memory_of_the_callers(self):
        stride = STORE.stride + 8192
        own = c.create_string_buffer(b"\xAA" * (3 * stride), 3 * stride)
        memory = pen.Memory(address=c.addressof(own), len_bytes=3 * stride)
        with FakeExperts(STORE) as peer:
            self.open(peer, slots=3, memory=c.pointer(memory), stride=stride)
            for slot in 0, 2:
                fetch = pen.Fetch(layer=0, expert=slot, slot=slot)
                self.assertEqual(LIB.penstock_fetch_wait(self.session, c.byref(fetch), None), pen.OK)
        for slot in 0, 2:
            self.assertEqual(own.raw[slot * stride : slot * stride + STORE.stride], STORE.record(0, slot))
        self.assertEqual(own.raw[stride : 2 * stride], b"\xAA" * stride)  # nothing else was touched
        self.assertEqual(own.raw[STORE.stride : stride], b"\xAA" * 8192)

    def test_refused_cancelled_and_lost_fetches_have_their_codes(self):
        with FakeExperts(STORE, refuse=lambda layer, expert: expert == 3) as peer:
            self.open(peer)
            error = pen.Error()
            fetch = pen.Fetch(layer=0, expert=3)
            self.assertEqual(LIB.penstock_fetch_wait(self.session, c.byref(fetch), c.byref(error)), pen.EREFUSED)
            self.assertIn(b"refused layer 0, expert 3", error.message)
            op = self.submit(0, 1, 0)
            self.assertEqual(LIB.penstock_cancel(self.session, op), pen.OK)
            self.assertEqual(LIB.penstock_wait(self.session, op, None, None), pen.ECANCELED)
            op = self.submit(0, 2, 0)
            self.assertEqual(LIB.penstock_wait(self.session, op, None, None), pen.OK)
            self.assert_record(0, 0, 2)
            peer.die()
            op = self.submit(0, 2, 0)
            self.assertEqual(LIB.penstock_wait(self.session, op, None, c.byref(error)), pen.ECLOSED)
            self.assertEqual(LIB.penstock_fetch_wait(self.session, c.byref(fetch), c.byref(error)), pen.EDEAD)

    def test_what_is_wanted_now_overtakes_guesses(self):
        store = Store(layers=2, experts=40, inter=512, hidden=1024)  # of a size that few guesses are under way
        with FakeExperts(store) as peer:
            session = self.open(peer, slots=41)
            for e in range(40):
                self.submit(0, e, e, pen.GUESS)
            self.submit(1, 5, 40)
            landed = []
            while len(landed) < 41:
                landed += [user - 1 for _, user, code, _ in self.poll() if code == pen.OK]
            self.assertEqual(landed[0], 40)
            self.assertEqual(peer.requests[0], (1, 5))
            self.assertEqual(session, self.session)

    def test_bad_arguments_are_refused(self):
        with FakeExperts(STORE) as peer:
            self.open(peer, slots=2)
            for fields in ({"layer": 2}, {"expert": 7}, {"slot": 2}, {"priority": 2}, {"timeout_ns": -1}):
                op, error = pen.OP(), pen.Error()
                fetch = pen.Fetch(**fields)
                self.assertEqual(LIB.penstock_submit_fetch(self.session, c.byref(fetch), c.byref(op), c.byref(error)),
                                 pen.EINVAL, fields)
                self.assertTrue(error.message)
            fetch = pen.Fetch()
            fetch.size = 4
            self.assertEqual(LIB.penstock_fetch_wait(self.session, c.byref(fetch), None), pen.EINVAL)
            self.assertEqual(peer.requests, [])


if __name__ == "__main__":
    LIB = pen.load(sys.argv.pop(1))
    unittest.main()
