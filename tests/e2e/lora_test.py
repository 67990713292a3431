"""penstock lora: adapters from a peer into a slot, compared byte for byte with a slow reference (tests/tools)."""

import json
import math
import os
import random
import stat
import subprocess
import unittest

import fake_peer
import harness
from fake_experts import FakeExperts
from fake_peer import FakePeer, Model
from harness import PENSTOCK, read_file, safetensors, write_file

import adapters  # beside the tests' other tools, which harness knows the way to
from make_store import Store

DATA = os.environ.get("PENSTOCK_TEST_DATA",
                      os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared", "data"))
REAL = os.path.join(DATA, "peft-gpt2-lora")
ONE = "base_model.model.model.layers.0.self_attn.q_proj"


class LoraTest(harness.PeerTest):
    def penstock(self, *words, status=0, **environment):
        done = subprocess.run([PENSTOCK, *words], cwd=self.root, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def lora(self, address, adapter, max_rank, *words):
        return json.loads(self.penstock("lora", address, adapter, "--max-rank", str(max_rank), "--json", *words).stdout)

    def serve_adapter(self, tensors, settings, name="a"):
        adapters.write_adapter(self.path(name), safetensors(tensors), settings)
        return "%s:%d" % self.serve(self.path(name)).address

    def assert_lands(self, address, name, tensors, max_rank):
        summary = self.lora(address, name, max_rank, "-o", "slot.bin")
        slot, offsets = adapters.slot_of(tensors, max_rank)
        self.assertEqual(summary["slot_bytes"], len(slot))
        self.assertEqual([((e["layer"], e["module"]), (e["a"]["offset"], e["b"]["offset"])) for e in summary["entries"]],
                         list(offsets.items()))
        self.assertTrue(read_file(self.path("slot.bin")) == slot)
        return summary

    def assert_refused(self, pattern, tensors, settings, max_rank=8):
        """Said by name, and what had the slot's name before still has it."""
        write_file(self.path("slot.bin"), b"as it was")
        with FakePeer(Model({"adapter_model.safetensors": safetensors(tensors)},
                            {"adapter_config.json": json.dumps(settings).encode()})) as peer:
            done = self.penstock("lora", peer.address, "fake", "--max-rank", str(max_rank), "-o", "slot.bin", status=1)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(read_file(self.path("slot.bin")), b"as it was")
        self.assertEqual(os.listdir(self.root), ["slot.bin"])


class Landing(LoraTest):
    def test_each_dtype_lands_as_the_reference_says(self):
        for dtype in "F32", "F16", "BF16":
            with self.subTest(dtype):
                tensors = adapters.adapter(dtype, layers=(0, 2, 10, 1))
                address = self.serve_adapter(tensors, adapters.config(), dtype)
                for max_rank in 3, 8:
                    summary = self.assert_lands(address, dtype, tensors, max_rank)
                    self.assertEqual({e["scale"] for e in summary["entries"]}, {2.0})
                    self.assertEqual(summary["left_out"], [])

    def test_modules_beside_the_eight_follow_by_their_bytes(self):
        modules = ["z.last", *adapters.KNOWN[::-1], "attn.c_attn", "mlp.experts.10.up_proj", "mlp.experts.7.up_proj"]
        tensors = adapters.adapter("F16", layers=(3,), modules=modules, rank=2)
        tensors.update(adapters.pair(random.Random(2), "F32", 0, "attn", 5, 4, 2, "transformer.h"))
        tensors["base_model.model.score.weight"] = ("I64", [1], bytes(8))
        tensors["base_model.model.lm_head.lora_A.weight"] = adapters.matrix(random.Random(3), "F32", 2, 5)
        address = self.serve_adapter(tensors, adapters.config(rank=2))
        summary = self.assert_lands(address, "a", tensors, 4)
        self.assertEqual([e["module"] for e in summary["entries"]],
                         ["attn", *adapters.KNOWN, "attn.c_attn", "mlp.experts.10.up_proj", "mlp.experts.7.up_proj",
                          "z.last"])
        self.assertEqual(sorted(summary["left_out"]),
                         ["base_model.model.lm_head.lora_A.weight", "base_model.model.score.weight"])
        table = self.penstock("lora", address, "a", "--max-rank", "4").stdout
        self.assertIn("left out, since it has no layer: base_model.model.score.weight", table)

    def test_ranks_and_scales_by_pattern(self):
        rng, tensors = random.Random(1), {}
        ranks = {(0, "self_attn.q_proj"): 5, (1, "self_attn.q_proj"): 2, (0, "mlp.up_proj"): 4, (1, "mlp.up_proj"): 4}
        for (layer, module), rank in ranks.items():
            tensors.update(adapters.pair(rng, "F32", layer, module, 6, 7, rank))
        settings = adapters.config(rank=4, alpha=8, rank_pattern={"layers.0.self_attn.q_proj": 5, "q_proj": 2},
                                   alpha_pattern={r".*\.(0|7)\.mlp\.\w+": 10})
        for rslora in False, True:
            address = self.serve_adapter(tensors, {**settings, "use_rslora": rslora}, f"rs{rslora}")
            summary = self.assert_lands(address, f"rs{rslora}", tensors, 6)
            for e in summary["entries"]:
                key = e["layer"], e["module"]
                alpha = 10 if key == (0, "mlp.up_proj") else 8
                self.assertEqual(e["rank"], ranks[key])
                self.assertEqual(e["scale"], alpha / (math.sqrt(ranks[key]) if rslora else ranks[key]))

    def test_a_wide_matrix_lands_row_by_row(self):
        tensors = adapters.pair(random.Random(1), "F32", 0, "mlp.up_proj", 1, 3, 4200)
        address = self.serve_adapter(tensors, adapters.config(rank=4200))
        self.assert_lands(address, "a", tensors, 4201)

    def test_without_an_output_nothing_is_pulled(self):
        with FakePeer(Model({"adapter_model.safetensors": safetensors(adapters.adapter())},
                            {"adapter_config.json": json.dumps(adapters.config()).encode()})) as peer:
            summary = self.lora(peer.address, "fake", 8)
            self.assertEqual({file for file, *_ in peer.requests}, {1})
        self.assertEqual((summary["output"], len(summary["entries"])), (None, 16))

    def test_a_config_of_the_users_where_the_peer_has_none(self):
        tensors = adapters.adapter()
        with FakePeer(Model({"adapter_model.safetensors": safetensors(tensors)})) as peer:
            done = self.penstock("lora", peer.address, "fake", "--max-rank", "8", status=1)
            self.assertIn("adapter_config.json", done.stderr)
            write_file(self.path("mine.json"), json.dumps(adapters.config()).encode())
            self.lora(peer.address, "fake", 8, "--config", "mine.json", "-o", "slot.bin")
        self.assertTrue(read_file(self.path("slot.bin")) == adapters.slot_of(tensors, 8)[0])

    @unittest.skipUnless(os.path.isdir(REAL), "no real adapter (PENSTOCK_TEST_DATA)")
    def test_a_real_adapter(self):
        tensors = adapters.read_safetensors(os.path.join(REAL, "adapter_model.safetensors"))
        address = "%s:%d" % self.serve(REAL).address
        summary = self.assert_lands(address, os.path.basename(REAL), tensors, 16)
        self.assertEqual([(e["layer"], e["module"], e["scale"]) for e in summary["entries"]],
                         [(n, "attn.c_attn", 1.0) for n in range(12)])
        self.assertEqual(summary["left_out"], ["base_model.model.score.weight"])
        self.assertEqual(summary["fan_in_fan_out"], True)


class Failures(LoraTest):
    model = Model({"adapter_model.safetensors": safetensors(adapters.adapter())},
                  {"adapter_config.json": json.dumps(adapters.config()).encode()})

    def test_a_peer_that_dies_leaves_the_file_as_it_was(self):
        write_file(self.path("slot.bin"), b"as it was")
        half = len(self.model.bodies[0]) // 2
        for at_stop in None, fake_peer.freeze:
            with FakePeer(self.model, stop_after=half, at_stop=at_stop) as peer:
                done = self.penstock("lora", peer.address, "fake", "--max-rank", "8", "-o", "slot.bin", "--timeout", "1",
                                     status=1)
                self.assertIn(peer.address, done.stderr)
            self.assertEqual(read_file(self.path("slot.bin")), b"as it was")
            self.assertEqual(os.listdir(self.root), ["slot.bin"])

    def test_an_output_that_cannot_be_written_is_named(self):
        with FakePeer(self.model) as peer:
            done = self.penstock("lora", peer.address, "fake", "--max-rank", "8", "-o", "missing/slot.bin", status=1)
        self.assertIn("missing/slot.bin: can't be written", done.stderr)

    def test_an_output_that_is_a_pipe_is_written_to_and_not_replaced(self):
        os.mkfifo(self.path("pipe"))
        end = os.open(self.path("pipe"), os.O_RDWR | os.O_NONBLOCK)  # the slot fits in the pipe's buffer
        try:
            with FakePeer(self.model) as peer:
                self.lora(peer.address, "fake", 8, "-o", "pipe")
            self.assertEqual(os.read(end, 1 << 20), adapters.slot_of(adapters.adapter(), 8)[0])
        finally:
            os.close(end)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_an_expert_peer_is_taken_for_what_it_is(self):
        with FakeExperts(Store(layers=1, experts=2)) as peer:
            done = self.penstock("lora", peer.address, "fake", "--max-rank", "8", status=1)
        self.assertIn("does it serve weights on this port?", done.stderr)

    def test_a_model_that_is_no_adapter(self):
        with FakePeer(Model({"m.safetensors": harness.one_tensor(b"x")}, {"config.json": b"{}"})) as peer:
            done = self.penstock("lora", peer.address, "fake", "--max-rank", "8", status=1)
        self.assertIn("it is no PEFT adapter", done.stderr)


class Refusals(LoraTest):
    def setUp(self):
        super().setUp()
        self.tensors = adapters.adapter(layers=(0,), modules=["self_attn.q_proj"])

    def test_a_rank_above_max_rank(self):
        self.assert_refused(r"layers\.0\.self_attn\.q_proj\.lora_A.*rank is 3, above .* max_rank of 2", self.tensors,
                            adapters.config(), max_rank=2)

    def test_one_matrix_without_the_other(self):
        for one, other in "AB", "BA":
            alone = {n: t for n, t in self.tensors.items() if f"lora_{one}" in n}
            self.assert_refused(rf"{ONE}\.lora_{one}\.weight.*no lora_{other}", alone, adapters.config())

    def test_shapes_that_disagree(self):
        self.tensors[f"{ONE}.lora_B.weight"] = ("F32", [7, 2], bytes(56))
        self.assert_refused(r"lora_A.*lora_B.*3 rows, but 2 columns", self.tensors, adapters.config())

    def test_a_rank_that_is_not_the_configs(self):
        self.assert_refused(r"lora_A.*rank is 3, and 4 by adapter_config.json", self.tensors, adapters.config(rank=4))

    def test_another_dtype(self):
        self.tensors[f"{ONE}.lora_A.weight"] = ("F64", [3, 8], bytes(192))
        self.assert_refused(r"lora_A.*dtype F64", self.tensors, adapters.config())

    def test_two_tensors_for_one_place(self):
        twin = {n.replace("model.model.", "model.other."): t for n, t in self.tensors.items()}
        self.assert_refused("two for one place", {**self.tensors, **twin}, adapters.config())

    def test_dora_by_config_and_by_tensors(self):
        self.assert_refused("use_dora.*DoRA", self.tensors, adapters.config(use_dora=True))
        self.tensors[f"{ONE}.lora_magnitude_vector"] = ("F32", [7], bytes(28))
        self.assert_refused(r"q_proj\.lora_magnitude_vector.*DoRA", self.tensors, adapters.config())

    def test_fields_that_change_the_meaning(self):
        for settings in ({"bias": "all"}, {"lora_bias": True}, {"layer_replication": [[0, 4], [2, 5]]},
                         {"init_lora_weights": "pissa"}, {"megatron_config": {"a": 1}}, {"use_something_new": True},
                         {"trainable_token_indices": [1]}, {"peft_type": "IA3"}, {"rank_pattern": {"(?i)q_proj": 3}}):
            with self.subTest(settings):
                self.assert_refused(next(iter(settings)), self.tensors, adapters.config(**settings))

    def test_a_weight_of_a_layer_that_is_no_lora_matrix(self):
        self.tensors["base_model.model.model.layers.0.mlp.gate.weight"] = ("F32", [1], bytes(4))
        self.assert_refused(r"layers\.0\.mlp\.gate\.weight.*neither", self.tensors, adapters.config())


class Usage(LoraTest):
    def test_a_command_line_that_makes_no_sense(self):
        for words in ([], ["peer", "a"], ["peer", "--max-rank", "8"], ["peer", "a", "--max-rank", "0"],
                      ["peer", "a", "--max-rank", "8x"], ["peer", "a", "--max-rank", "8", "-o", ""],
                      ["peer", "a", "--max-rank", "8", "--transport", "mail"]):
            with self.subTest(words):
                self.assertIn("penstock lora --help", self.penstock("lora", *words, status=2).stderr)

    def test_an_environment_that_makes_no_sense(self):
        for name, value in ("PENSTOCK_TRANSPORT", "mail"), ("PENSTOCK_RAILS", "mlx5_0:zz"):
            got = self.penstock("lora", "127.0.0.1:1", "a", "--max-rank", "8", status=2, **{name: value})
            self.assertIn(name, got.stderr)

    def test_help(self):
        self.assertIn("--max-rank R", self.penstock("lora", "--help").stdout)


if __name__ == "__main__":
    harness.main()
