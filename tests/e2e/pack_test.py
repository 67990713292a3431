"""penstock pack: checkpoints into stores, compared byte for byte with a slow reference of a record's layout."""

import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from harness import PENSTOCK, read_file, write_file

from make_checkpoint import BROKEN, Checkpoint, make_checkpoint  # beside the tests' other tools
import make_store

DATA = os.environ.get("PENSTOCK_TEST_DATA",
                      os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared", "data"))
PROJECTIONS = "gate", "up", "down"
MEASURED = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def transposed(body, rows, cols):
    return b"".join(body[c::cols] for c in range(cols)) if rows else b""


def records_of(checkpoint):
    """(MoE layer, expert) -> the record's bytes, for all that the checkpoint has."""
    tensors, layers, experts = {}, set(), set()
    for shard in checkpoint.shards_of():
        for tensor in shard:
            if m := re.fullmatch(r".*\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.(\w+)", tensor.name):
                tensors[int(m[1]), int(m[2]), m[3], m[4]] = tensor
                layers.add(int(m[1]))
                experts.add(int(m[2]))
    sizes = make_store.Store(inter=checkpoint.inter, hidden=checkpoint.hidden, group=checkpoint.group)
    records = {}
    for dense, layer in enumerate(sorted(layers)):
        for expert in experts:
            number = lambda p, kind: struct.unpack("<f", tensors[layer, expert, p, kind].body)[0]
            inputs = [number(p, "input_global_scale") if (layer, expert, p, "input_global_scale") in tensors else None
                      for p in PROJECTIONS]
            out = bytearray(sizes.stride)
            struct.pack_into("<8I6f", out, 0, 0x58505254, 1, dense, expert, checkpoint.inter, checkpoint.hidden,
                             checkpoint.group, sum(1 << i for i in range(3) if inputs[i] is not None),
                             *(1 / number(p, "weight_global_scale") for p in PROJECTIONS), *(i or 0.0 for i in inputs))
            for part, at in enumerate(sizes.offsets[:-1]):
                tensor = tensors[layer, expert, PROJECTIONS[part // 2], ("weight_packed", "weight_scale")[part % 2]]
                out[at:at + len(tensor.body)] = transposed(tensor.body, *tensor.shape)
            records[dense, expert] = bytes(out)
    return records


class PackTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="penstock-pack-")
        self.addCleanup(shutil.rmtree, self.root)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def make(self, name="checkpoint", **how):
        make_checkpoint(self.path(name), **how)
        return Checkpoint(**how)

    def pack(self, *words, status=0, checkpoint="checkpoint", store="store", **how):
        done = subprocess.run([PENSTOCK, "pack", self.path(checkpoint), "-o", self.path(store), *words],
                              capture_output=True, text=True, timeout=120, check=False, **how)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def manifest(self, store="store"):
        return json.loads(read_file(self.path(store, "manifest.json")))

    def assert_store_is(self, records, store="store"):
        manifest = self.manifest(store)
        stride, experts = manifest["record_stride"], manifest["num_experts"]
        self.assertEqual(manifest["num_moe_layers"] * experts, len(records))
        for layer in range(manifest["num_moe_layers"]):
            body = read_file(make_store.layer_path(self.path(store), layer))
            self.assertEqual(len(body), stride * experts)
            for expert in range(experts):
                self.assertTrue(body[expert * stride:][:stride] == records[layer, expert], f"record {layer}, {expert}")
        names = {"manifest.json", *(f"experts_{layer:05}.xpr" for layer in range(manifest["num_moe_layers"]))}
        self.assertEqual(set(os.listdir(self.path(store))), names)

    def files(self, store="store"):
        return {name: (os.stat(self.path(store, name)).st_ino, read_file(self.path(store, name)))
                for name in os.listdir(self.path(store)) if name.endswith(".xpr")}


class Packing(PackTest):
    def test_records_are_what_the_reference_says(self):
        for how in ({}, {"inter": 48, "hidden": 176, "layers": 2}, {"scatter": True, "shards": 3},
                    {"input_scales": "none", "layers": 1}, {"input_scales": "all", "experts": 1}):
            with self.subTest(how):
                shutil.rmtree(self.path("checkpoint"), ignore_errors=True)
                shutil.rmtree(self.path("store"), ignore_errors=True)
                checkpoint = self.make(**how)
                self.pack("--verify", "all")
                self.assert_store_is(records_of(checkpoint))

    def test_a_real_models_names(self):
        index = os.path.join(DATA, "qwen3.5-25b-a3b-index", "model.safetensors.index.json.gz")
        if not os.path.exists(index):
            self.skipTest("no index of a real model")
        make_checkpoint(self.path("checkpoint"), index=index, layers=40, experts=2)
        self.pack("--verify", "all")
        self.assertEqual(self.manifest()["num_moe_layers"], 40)

    def test_layers_that_are_dense_have_no_number_in_the_store(self):
        checkpoint = self.make(broken="dense-layer")
        self.pack()
        self.assertEqual(self.manifest()["moe_layer_to_model_layer"], [0, 2, 3])
        self.assert_store_is(records_of(checkpoint))

    def test_the_first_layers_alone(self):
        records = records_of(self.make())
        self.pack("--layers", "2")
        self.assert_store_is({key: record for key, record in records.items() if key[0] < 2})
        self.assertRegex(self.pack("--layers", "5", status=1, store="other").stderr, "has 4 MoE layers, not 5")

    def test_one_thread_and_many_write_the_same(self):
        records = records_of(self.make(experts=7))
        for jobs in "1", "2", "16":
            self.pack("-j", jobs, store=jobs)
            self.assert_store_is(records, store=jobs)

    def test_memory_does_not_grow_with_the_model(self):
        self.make(inter=512, hidden=2048, layers=6, experts=16, input_scales="none")
        # A small process starts it: until exec a child counts its parent's memory as its own.
        done = subprocess.run([sys.executable, "-c", MEASURED, PENSTOCK, "pack", self.path("checkpoint"), "-o",
                               self.path("store"), "--verify", "all", "-q"], capture_output=True, text=True, check=True)
        self.assertEqual(self.manifest()["record_stride"], 1773568)
        self.assertLess(int(done.stdout.splitlines()[-1]), 64 << 10)  # KiB; all records are 162 MiB


class Interruptions(PackTest):
    def test_a_signal_leaves_what_can_be_gone_on_with(self):
        checkpoint = self.make(inter=512, hidden=2048, layers=4, experts=12)
        process = subprocess.Popen([PENSTOCK, "pack", self.path("checkpoint"), "-o", self.path("store"), "-j", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = make_store.layer_path(self.path("store"), 0)
        while not os.path.exists(first) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, words)
        self.assertRegex(words, "interrupted; the same command goes on")
        self.assertFalse(os.path.exists(self.path("store", "manifest.json")))
        kept = {name: inode for name, (inode, _) in self.files().items()}
        self.assertIn("experts_00000.xpr", kept)
        self.assertRegex(self.pack("--verify", "all").stdout, "there before; 48 records verified")
        after = {name: inode for name, (inode, _) in self.files().items()}
        self.assertEqual({name: after[name] for name in kept}, kept)
        self.assertEqual(self.manifest()["num_experts"], checkpoint.experts)

    def test_a_record_that_reads_back_wrong_is_named_and_packed_anew(self):
        self.make(inter=512, hidden=2048, layers=3, experts=6)
        self.kill_after_the_first_layer()
        plan = read_file(self.path("store", ".penstock-pack.json"))
        self.pack("--verify", "0")
        right = {name: body for name, (_, body) in self.files().items()}

        # All layers are there, and the manifest is not yet: the state in which they are verified.
        os.unlink(self.path("store", "manifest.json"))
        write_file(self.path("store", ".penstock-pack.json"), plan)
        with open(make_store.layer_path(self.path("store"), 1), "r+b") as layer:
            sizes = make_store.Store(inter=512, hidden=2048)
            layer.seek(4 * sizes.stride + sizes.offsets[3] + 100)
            byte = layer.read(1)[0]
            layer.seek(-1, os.SEEK_CUR)
            layer.write(bytes([byte ^ 1]))
        self.assertRegex(self.pack("--verify", "all", status=1).stderr,
                         r"experts_00001.xpr: layer 1: expert 4: up.scale is not what the checkpoint has")
        self.assertFalse(os.path.exists(self.path("store", "manifest.json")))
        self.assertRegex(self.pack("--verify", "all").stdout, "2 layers there before; 18 records verified")
        self.assertTrue({name: body for name, (_, body) in self.files().items()} == right)

    def kill_after_the_first_layer(self):
        with subprocess.Popen([PENSTOCK, "pack", self.path("checkpoint"), "-o", self.path("store"), "-j", "1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not os.path.exists(make_store.layer_path(self.path("store"), 0)) and process.poll() is None:
                time.sleep(0.001)
            process.kill()
        self.assertFalse(os.path.exists(self.path("store", "manifest.json")), "it was done before it could be killed")

    def test_another_checkpoint_or_geometry_is_refused(self):
        self.make(inter=512, hidden=2048, layers=3, experts=8)
        self.make("other", inter=512, hidden=2048, layers=3, experts=8, seed=2)
        self.kill_after_the_first_layer()
        write_file(self.path("checkpoint", "README.md"), b"not packed, and free to change")
        self.assertRegex(self.pack(status=1, checkpoint="other").stderr, "holds layers of another checkpoint")
        self.assertRegex(self.pack("--layers", "2", status=1).stderr, "another number of layers")
        self.pack()
        self.assertRegex(self.pack(status=1).stderr, "is a finished store")


class Refusals(PackTest):
    WORDS = {
        "missing-expert": r"layer 1: expert 1: \S+gate_proj.weight_packed: no shard has it",
        "missing-tensor": r"layer 1: expert 0: \S+up_proj.weight_scale: no shard has it",
        "sizes": r"safetensors: layer 1: expert 0: \S+up_proj.weight_packed: shape \[64, 32\]",
        "scale-size": r"safetensors: layer 1: expert 0: \S+up_proj.weight_scale: shape \[32, 8\]",
        "dtype": r"safetensors: layer 1: expert 0: \S+up_proj.weight_packed: dtype I8, not U8",
        "twice": r"experts.0.up_proj.weight_packed and \S+experts.00.up_proj.weight_packed are one tensor",
        "zero-scale": r"safetensors: layer 1: expert 0: \S+up_proj.weight_global_scale: a scale of 0",
        "inf-scale": r"safetensors: layer 1: expert 0: \S+up_proj.weight_global_scale: a scale of inf",
        "nan-scale": r"safetensors: layer 1: expert 0: \S+up_proj.weight_global_scale: a scale of nan",
        "layer-without-experts": r"layer 1 has a router \(mlp.gate\) and no experts",
        "no-experts": r"no layer has experts",
        "missing-shard": r"safetensors",
        "cut-shard": r"safetensors",
    }

    def test_each_is_said_by_name(self):
        self.assertEqual(set(self.WORDS) | {"dense-layer"}, set(BROKEN))
        for broken, words in self.WORDS.items():
            with self.subTest(broken):
                shutil.rmtree(self.path("checkpoint"), ignore_errors=True)
                self.make(broken=broken)
                self.assertRegex(self.pack(status=1, store=broken).stderr, words)
                self.assertFalse(os.path.exists(self.path(broken, "manifest.json")))

    def test_a_store_inside_the_checkpoint(self):
        self.make()
        for store in "checkpoint/store", "checkpoint":
            self.assertRegex(self.pack(status=1, store=store).stderr, "inside the checkpoint")
        self.assertRegex(self.pack(status=1, store=".").stderr, "checkpoint lies inside")

    def test_a_checkpoint_that_is_written_to_meanwhile(self):
        self.make(inter=512, hidden=2048, layers=3, experts=8)
        process = subprocess.Popen([PENSTOCK, "pack", self.path("checkpoint"), "-o", self.path("store"), "-j", "1"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not os.path.exists(self.path("store", ".penstock-pack.json")) and process.poll() is None:
            time.sleep(0.001)  # then the shards are open, and no layer is there yet
        shard = self.path("checkpoint", "model-00001-of-00004.safetensors")
        with open(shard, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
        _, words = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, words)
        self.assertRegex(words, "00001-of-00004.safetensors was written to meanwhile.*remove it, and pack again")
        self.assertFalse(os.path.exists(self.path("store", "manifest.json")))
        self.assertRegex(self.pack(status=1).stderr, "another state of this one")
        shutil.rmtree(self.path("store"))
        self.pack("--verify", "all")

    def test_a_full_disk_is_said_and_what_fitted_is_kept(self):
        self.make(inter=64, hidden=128)
        os.mkdir(self.path("small"))
        options = lambda size: ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path("small")]
        if subprocess.run(options("160k"), capture_output=True, check=False).returncode != 0:
            self.skipTest("a tmpfs of our own needs root")
        self.addCleanup(subprocess.run, ["umount", self.path("small")], check=False)
        said = self.pack(status=1, store="small/store").stderr
        self.assertRegex(said, r"small/store: experts_00002.xpr.tmp: 65536 bytes: No space left on device")
        self.assertFalse(os.path.exists(self.path("small", "store", "manifest.json")))
        self.assertEqual(len(self.files("small/store")), 2)
        subprocess.run(["mount", "-o", "remount,size=4m", self.path("small")], check=True)
        self.assertRegex(self.pack("--verify", "all", store="small/store").stdout, "; 2 layers there before; 16 ")

    def test_a_limit_on_files_sizes(self):
        self.make(inter=64, hidden=128)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        self.assertRegex(self.pack(status=1, preexec_fn=limit).stderr, "experts_00000.xpr.*: .*[Ff]ile too large")
        self.pack("--verify", "all")


if __name__ == "__main__":
    unittest.main()
