#!/usr/bin/env python3
"""penstock inspect: stores, safetensors files and model directories, whole and broken. Where there is a folder with
real files, $PENSTOCK_TEST_DATA or ../shared/data beside the repository, on those as well."""

import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from fake_peer import safetensors  # noqa: E402
from make_checkpoint import make_checkpoint, read_index  # noqa: E402
from make_store import layer_path, make_store  # noqa: E402

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
DATA = os.environ.get("PENSTOCK_TEST_DATA",
                      os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared", "data"))


def run(*words):
    return subprocess.run([PENSTOCK, "inspect", *words], capture_output=True, text=True, timeout=60)


class Inspect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *words):
        return os.path.join(self.folder, *words)

    def json(self, *words):
        result = run(*words, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def text(self, *words):
        result = run(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, words, *arguments, status=1):
        result = run(*arguments)
        self.assertEqual(result.returncode, status)
        self.assertEqual(result.stdout, "")
        self.assertIn(words, result.stderr)


class Stores(Inspect):
    def test_geometry_parts_and_layers(self):
        store = make_store(self.path("store"), layers=3, experts=5, inter=64, hidden=128)
        found = self.json(self.path("store"))
        self.assertEqual(found["kind"], "store")
        self.assertEqual(found["bytes"], 3 * 5 * store.stride)
        self.assertEqual(found["geometry"]["record_stride"], store.stride)
        self.assertEqual(found["geometry"]["payload_bytes"], sum(store.lengths))
        self.assertEqual([(p["offset"], p["bytes"]) for p in found["parts"]], list(zip(store.offsets, store.lengths)))
        self.assertEqual(found["parts"][0]["shape"], [64, 64])
        self.assertEqual(found["parts"][5], {"name": "down.scale", "offset": store.offsets[5],
                                             "bytes": store.lengths[5], "shape": [4, 128]})
        for layer, row in enumerate(found["layers"]):
            scales = [s for e in range(5) for s in store.scale2(layer, e)]
            self.assertEqual((row["layer"], row["model_layer"], row["experts"]), (layer, layer + 1, 5))
            self.assertEqual(row["file"], f"experts_{layer:05}.xpr")
            self.assertEqual(row["input_scales"], [3, 5, 3])
            self.assertEqual(row["scale2"], [float(f"{min(scales):.6g}"), float(f"{max(scales):.6g}")])

    def test_the_protocols_check_value(self):
        make_store(self.path("store"), layers=1, experts=1, inter=512, hidden=2048)
        text = self.text(self.path("store"))
        self.assertIn("record: 1773568 bytes, 1769472 of them payload", text)
        self.assertRegex(text, r"(?m)^down.scale +1704192 +65536  \[32,2048\]$")
        self.assertRegex(text, r"(?m)^ +0 +1  experts_00000.xpr +1.69 MiB  1/1/1 ")

    def test_the_version_is_the_one_that_a_peer_would_give(self):
        make_store(self.path("store"))
        version = self.json(self.path("store"))["model_version"]
        self.assertEqual(version, self.json(self.path("store") + "/")["model_version"])
        os.utime(layer_path(self.path("store"), 1), (1, 1))
        self.assertNotEqual(version, self.json(self.path("store"))["model_version"])

    def test_what_is_broken_is_named(self):
        store = make_store(self.path("store"))
        path = self.path("store")
        with open(layer_path(path, 1), "r+b") as f:
            f.seek(3 * store.stride)
            f.write(store.header(1, 2))
        self.refused("experts_00001.xpr: layer 1, expert 3: record expert: 2, not 3", path)
        os.truncate(layer_path(path, 2), 4 * store.stride)
        self.refused(f"experts_00002.xpr: {4 * store.stride} bytes, but 5 records", path)
        os.unlink(layer_path(path, 2))
        self.refused("experts_00002.xpr: No such file", path)
        with open(os.path.join(path, "manifest.json"), "w", encoding="utf-8") as f:
            json.dump({**store.manifest(), "record_stride": 4096}, f)
        self.refused(f"manifest.json: manifest: record_stride: 4096, but the sizes make {store.stride}", path)
        os.unlink(os.path.join(path, "manifest.json"))
        self.refused("no manifest.json: not an expert store", path)
        with open(os.path.join(path, ".penstock-pack.json"), "w", encoding="utf-8"):
            pass
        self.refused("no manifest.json: packing has not finished", path)

    def test_links_that_lead_outside_are_followed_where_that_is_asked_for(self):
        store = make_store(self.path("store"))
        os.rename(layer_path(self.path("store"), 1), self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), layer_path(self.path("store"), 1))
        self.refused("experts_00001.xpr: a link that leads outside", self.path("store"))
        self.assertEqual(self.json(self.path("store"), "--follow-links")["geometry"]["record_stride"], store.stride)
        make_checkpoint(self.path("model"), shards=1)
        shard = self.path("model", "model-00001-of-00001.safetensors")
        os.rename(shard, self.path("shard"))
        os.symlink(self.path("shard"), shard)
        self.refused("a link that leads outside", self.path("model"))
        self.assertEqual(len(self.json(self.path("model"), "--follow-links")["shards"]), 1)

    def test_a_layers_file_leads_to_its_directory(self):
        make_store(self.path("store"))
        self.refused("inspect the store's directory", layer_path(self.path("store"), 0))


class Weights(Inspect):
    def test_a_checkpoint_by_shard_dtype_and_layer(self):
        make_checkpoint(self.path("model"), layers=3, experts=5, shards=2)
        found = self.json(self.path("model"))
        self.assertEqual(found["kind"], "safetensors")
        self.assertEqual(len(found["shards"]), 2)
        self.assertEqual([d["dtype"] for d in found["dtypes"]], ["BF16", "F32", "F8_E4M3", "U8"])
        self.assertEqual([(layer["name"], layer["number"], layer["experts"]) for layer in found["layers"]],
                         [(f"model.language_model.layers.{i}", i, 5) for i in range(3)])
        for key in ("tensors", "bytes"):
            total = found[key]
            self.assertEqual(sum(s[key] for s in found["shards"]), total)
            self.assertEqual(sum(d[key] for d in found["dtypes"]), total)
            self.assertEqual(sum(la[key] for la in found["layers"]) + found["outside_layers"][key], total)
        self.assertEqual(found["outside_layers"]["tensors"], 3)
        self.assertRegex(self.text(self.path("model")), r"(?m)^model.language_model.layers.2 +\d+ .* +5$")

    def test_layers_are_sorted_by_number(self):
        make_checkpoint(self.path("model"), layers=12, experts=1)
        self.assertEqual([la["number"] for la in self.json(self.path("model"))["layers"]], list(range(12)))

    def test_tensors_are_listed_on_request(self):
        body = safetensors({"a.0.w": ("F32", [2, 3], bytes(24)), "b": ("I64", [], bytes(8))})
        with open(self.path("one.safetensors"), "wb") as f:
            f.write(body)
        found = self.json(self.path("one.safetensors"), "--tensors")
        header = 8 + struct.unpack("<Q", body[:8])[0]
        rows = {row.pop("name"): row for row in found["list"]}
        self.assertEqual(rows["a.0.w"], {"dtype": "F32", "shape": [2, 3], "bytes": 24, "shard": "one.safetensors",
                                         "offset": header + (0 if rows["a.0.w"]["offset"] == header else 8)})
        self.assertEqual((rows["b"]["dtype"], rows["b"]["shape"], rows["b"]["bytes"]), ("I64", [], 8))
        self.assertNotIn("list", self.json(self.path("one.safetensors")))
        self.assertRegex(self.text(self.path("one.safetensors"), "--tensors"), r"(?m)^a\.0\.w +F32 +24  \[2,3\]$")

    def test_numbers_that_are_no_component_make_no_layer(self):
        names = ["fc1.weight", "0abc.weight", "h1.2x", "7.weight", "a.18446744073709551616.w"]
        with open(self.path("f.safetensors"), "wb") as f:
            f.write(safetensors({name: ("U8", [1], b"x") for name in names}))
        found = self.json(self.path("f.safetensors"))
        self.assertEqual([(la["name"], la["tensors"]) for la in found["layers"]], [("7", 1)])
        self.assertEqual(found["outside_layers"]["tensors"], 4)

    def test_what_is_broken_is_named(self):
        for broken, words in (("missing-shard", "No such file"), ("cut-shard", "data_offsets: end 1 bytes past")):
            make_checkpoint(self.path(broken), broken=broken)
            self.refused(words, self.path(broken))
        with open(self.path("text"), "w", encoding="utf-8") as f:
            f.write("no safetensors file at all")
        self.refused("text: header: ", self.path("text"))
        self.refused("nowhere: No such file", self.path("nowhere"))
        os.mkdir(self.path("empty"))
        self.refused("stage " + os.path.realpath(self.path("empty")), self.path("empty"))
        os.mkfifo(self.path("fifo"))
        self.refused("neither a file nor a directory", self.path("fifo"))

    def test_command_lines_that_make_no_sense(self):
        make_store(self.path("store"))
        self.refused("usage: penstock inspect", status=2)
        self.refused("usage: penstock inspect", "a", "b", status=2)
        self.refused("--tensors is for models", self.path("store"), "--tensors", status=2)


@unittest.skipUnless(os.path.isdir(DATA), "no folder with real files")
class RealFiles(Inspect):
    def test_every_real_file_adds_up(self):
        files = glob.glob(os.path.join(DATA, "**", "*.safetensors"), recursive=True)
        self.assertTrue(files)
        for path in files:
            with self.subTest(path), open(path, "rb") as f:
                header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
                header.pop("__metadata__", None)
                found = self.json(path, "--tensors")
                self.assertEqual({row["name"]: (row["dtype"], row["shape"]) for row in found["list"]},
                                 {name: (t["dtype"], t["shape"]) for name, t in header.items()})
                self.assertEqual(self.json(os.path.dirname(path))["tensors"], len(header))

    def test_a_real_models_structure(self):
        for index in glob.glob(os.path.join(DATA, "**", "*.index.json.gz"), recursive=True):
            with self.subTest(index):
                names = read_index(index)
                layers = {int(m[1]) for m in map(re.compile(r".*\.layers\.(\d+)\.").match, names) if m}
                make_checkpoint(self.path("model"), index=index, layers=len(layers), experts=2)
                found = self.json(self.path("model"))
                self.assertEqual([la["number"] for la in found["layers"]], sorted(layers))
                self.assertEqual({la["experts"] for la in found["layers"]}, {2})

    def test_the_built_in_names_are_those_of_the_real_index(self):
        for index in glob.glob(os.path.join(DATA, "**", "*.index.json.gz"), recursive=True):
            make_checkpoint(self.path("real"), index=index, layers=8, experts=3)
            make_checkpoint(self.path("made"), layers=8, experts=3)
            real, made = (self.json(self.path(d), "--tensors")["list"] for d in ("real", "made"))
            self.assertEqual({t["name"] for t in real}, {t["name"] for t in made})


if __name__ == "__main__":
    unittest.main()
