#!/usr/bin/env python3
"""The client API for adapters, called from Python against a peer written in Python.

    lora_test.py LIBPENSTOCK.SO [unittest arguments]"""

import ctypes as c
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "tools")]
import adapters
import penstock_ctypes as pen
from fake_peer import FakePeer, Model, safetensors

LIB = None
TENSORS = adapters.adapter("F32", layers=(0, 1), modules=["self_attn.q_proj", "mlp.up_proj"])
MODEL = Model({"adapter_model.safetensors": safetensors(TENSORS)},
              {"adapter_config.json": json.dumps(adapters.config()).encode()})


class Lora(unittest.TestCase):
    def open(self, peer, **options):
        session, lora, error = pen.P(), pen.P(), pen.Error()
        code = LIB.penstock_weights_open(peer.address.encode(), b"fake", None, None, c.byref(session), error)
        self.assertEqual(code, pen.OK, error.message)
        self.addCleanup(LIB.penstock_session_free, session)
        code = LIB.penstock_lora_open(session, pen.LoraOptions(max_rank=5, **options), c.byref(lora), error)
        self.assertEqual(code, pen.OK, error.message)
        self.addCleanup(LIB.penstock_lora_free, lora)
        return session, lora

    def land(self, session, lora, buffer):
        memory = pen.Memory(address=c.addressof(buffer), len_bytes=len(buffer))
        return LIB.penstock_lora_land_wait(session, lora, pen.LoraLanding(slot=c.pointer(memory)), pen.Error())

    def test_a_slot_is_as_the_reference_says(self):
        with FakePeer(MODEL) as peer:
            session, lora = self.open(peer)
            info = pen.LoraInfo()
            self.assertEqual(LIB.penstock_lora_about(lora, info), pen.OK)
            right, offsets = adapters.slot_of(TENSORS, 5, info.slot_bytes + 10)
            self.assertEqual((info.slot_bytes + 10, info.entries), (len(right), 4))
            buffer = c.create_string_buffer(b"\xa5" * len(right), len(right))
            self.assertEqual(self.land(session, lora, buffer), pen.OK)
            self.assertEqual(buffer.raw, right)
            for i, ((layer, module), (a, b)) in enumerate(offsets.items()):
                e = LIB.penstock_lora_at(lora, i).contents
                self.assertEqual((e.layer, e.module, e.a_offset_bytes, e.b_offset_bytes, e.rank, e.scale),
                                 (layer, module.encode(), a, b, 3, 2.0))

    def test_a_pools_layout_leaves_zeros_where_the_adapter_has_nothing(self):
        sizes = {"self_attn.q_proj": (8, 24), "mlp.up_proj": (9, 23), "mlp.down_proj": (4, 4)}
        places = [pen.LoraPlace(m.encode(), layer, *s) for layer in (1, 0) for m, s in sizes.items()]
        with FakePeer(MODEL) as peer:
            session, lora = self.open(peer, places=(pen.LoraPlace * 6)(*places), n_places=6)
            plain, offsets = adapters.slot_of(TENSORS, 5)
            right = b""
            for layer in 0, 1:
                begin = offsets[layer, "self_attn.q_proj"][0]
                right += plain[begin:begin + 2 * 5 * (8 + 24 + 9 + 23)] + bytes(2 * 5 * (4 + 4))
            buffer = c.create_string_buffer(b"\xa5" * len(right), len(right))
            self.assertEqual(self.land(session, lora, buffer), pen.OK)
            self.assertEqual(buffer.raw, right)

    def test_a_peer_that_dies_leaves_the_slot_as_it_was(self):
        with FakePeer(MODEL, stop_after=len(MODEL.bodies[1]) + 500) as peer:
            session, lora = self.open(peer)
            buffer = c.create_string_buffer(b"\xa5" * 5000, 5000)
            self.assertEqual(self.land(session, lora, buffer), pen.ECLOSED)
            self.assertEqual(buffer.raw, b"\xa5" * 5000)


if __name__ == "__main__":
    LIB = pen.load(sys.argv.pop(1))
    unittest.main()
