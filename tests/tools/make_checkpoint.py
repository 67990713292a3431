#!/usr/bin/env python3
"""Makes a mixture-of-experts checkpoint in compressed-tensors NVFP4 naming, as `penstock pack` reads it: the same bytes
for the same arguments, without any library.

    make_checkpoint.py DIR [--index FILE] [--layers N] [--experts N] [--inter N] [--hidden N] [--group N] [--shards N]
                       [--input-scales all|some|none] [--scatter] [--broken WHAT] [--seed N]

Names and their spread over shards are a real model's: those of FILE, a model.safetensors.index.json (or .json.gz), else
built in, of the same form. Sizes are small and to be chosen. Every `...proj.weight` of an expert, and of the shared
expert beside them, becomes weight_packed, weight_scale, weight_global_scale and input_global_scale; what else a layer
has (norms, attention, the router) is there as small BF16 tensors."""

import argparse
import collections
import gzip
import json
import math
import os
import random
import re
import struct

EXPERT = re.compile(r"(.*)\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight")
SHARED = re.compile(r".*\.mlp\.shared_expert\.(gate|up|down)_proj\.weight")
LAYER = re.compile(r"(.*)\.layers\.(\d+)\.")

BROKEN = {
    "missing-expert": "expert 1 of the second layer is not there",
    "missing-tensor": "a weight_scale is not there",
    "sizes": "one up_proj is larger than the others",
    "scale-size": "one weight_scale has another group size",
    "dtype": "one weight_packed is I8",
    "twice": "one weight_packed is there a second time, its expert's number written with a zero in front",
    "zero-scale": "one weight_global_scale is 0",
    "inf-scale": "one weight_global_scale is infinite",
    "nan-scale": "one weight_global_scale is no number",
    "layer-without-experts": "the second layer has a router and no expert",
    "dense-layer": "the second layer is no MoE layer (which is no mistake)",
    "no-experts": "no layer has any",
    "missing-shard": "the index names a shard that is not there",
    "cut-shard": "the last shard ends early",
}

Tensor = collections.namedtuple("Tensor", "name dtype shape body")


def builtin_index(layers=40, experts=180, shards=10):
    """The structure of Qwen3.5-25B-A3B: name -> shard number, from 0."""
    prefix = "model.language_model"
    linear = [f"linear_attn.{n}" for n in ("A_log", "conv1d.weight", "dt_bias", "in_proj_a.weight", "in_proj_b.weight",
                                           "in_proj_qkv.weight", "in_proj_z.weight", "norm.weight", "out_proj.weight")]
    full = [f"self_attn.{n}.weight" for n in ("k_norm", "k_proj", "o_proj", "q_norm", "q_proj", "v_proj")]
    names = {"lm_head.weight": 0, f"{prefix}.embed_tokens.weight": 0, f"{prefix}.norm.weight": shards - 1}
    for layer in range(layers):
        shard = layer * shards // layers
        rest = ["input_layernorm.weight", "mlp.gate.weight", "mlp.shared_expert_gate.weight",
                "post_attention_layernorm.weight", *(full if layer % 4 == 3 else linear)]
        for n in ("down_proj", "gate_proj", "up_proj"):
            rest.append(f"mlp.shared_expert.{n}.weight")
            rest += [f"mlp.experts.{e}.{n}.weight" for e in range(experts)]
        names.update({f"{prefix}.layers.{layer}.{n}": shard for n in rest})
    return names


def read_index(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        weight_map = json.load(f)["weight_map"]
    numbers = {name: i for i, name in enumerate(sorted(set(weight_map.values())))}
    return {name: numbers[shard] for name, shard in weight_map.items()}


class Checkpoint:
    """What is asked for, and how a tensor of it looks."""

    def __init__(self, index=None, layers=4, experts=4, inter=32, hidden=64, group=16, shards=4, input_scales="some",
                 scatter=False, broken=None, seed=1):
        self.names = read_index(index) if index else builtin_index()
        self.layers, self.experts, self.shards = layers, experts, shards
        self.inter, self.hidden, self.group = inter, hidden, group
        self.input_scales, self.scatter, self.broken, self.seed = input_scales, scatter, broken, seed

    def random(self, name):
        return random.Random(f"{self.seed} {name}")

    def has_input_scale(self, layer, expert, projection):
        if self.input_scales == "some":
            return (layer + expert + ("gate", "up", "down").index(projection)) % 3 != 0
        return self.input_scales == "all"

    def global_scale(self, name, first):
        """Of the first projection: what was asked to be broken."""
        if first and self.broken in ("zero-scale", "inf-scale", "nan-scale"):
            return {"zero-scale": 0.0, "inf-scale": math.inf, "nan-scale": math.nan}[self.broken]
        return self.random(name).randrange(1, 1 << 20) / 256

    def quantised(self, base, projection, layer, expert, first):
        """The tensors of one projection: [N, K], two values a byte. first: this is the one to break."""
        n, k = (self.hidden, self.inter) if projection == "down" else (self.inter, self.hidden)
        group = self.group
        if first and self.broken == "sizes":
            n *= 2
        if first and self.broken == "scale-size":
            group //= 2
        packed_type = "I8" if first and self.broken == "dtype" else "U8"
        name = base + "_packed"
        yield Tensor(name, packed_type, [n, k // 2], self.random(name).randbytes(n * k // 2))
        if first and self.broken == "twice":
            yield Tensor(name.replace(".experts.", ".experts.0"), packed_type, [n, k // 2], bytes(n * k // 2))
        name = base + "_scale"
        if not (first and self.broken == "missing-tensor"):
            yield Tensor(name, "F8_E4M3", [n, k // group], self.random(name).randbytes(n * k // group))
        name = base + "_global_scale"
        yield Tensor(name, "F32", [1], struct.pack("<f", self.global_scale(name, first)))
        if expert is None or self.has_input_scale(layer, expert, projection):
            name = base[:-len("weight")] + "input_global_scale"
            yield Tensor(name, "F32", [1], struct.pack("<f", self.random(name).randrange(1, 1 << 20) / 512))

    def left_out(self, layer, expert):
        if self.broken == "no-experts" or (self.broken in ("layer-without-experts", "dense-layer") and layer == 1):
            return True
        return self.broken == "missing-expert" and layer == 1 and expert == 1

    def tensors(self, name):
        """What becomes of one name of the index."""
        layer = int(m[2]) if (m := LAYER.match(name)) else 0
        if layer >= self.layers:
            return
        if m := EXPERT.fullmatch(name):
            expert, projection = int(m[3]), m[4]
            if expert < self.experts and not self.left_out(layer, expert):
                first = (layer, expert, projection) == (min(1, self.layers - 1), 0, "up")
                yield from self.quantised(name, projection, layer, expert, first)
        elif m := SHARED.fullmatch(name):
            yield from self.quantised(name, m[1], layer, None, False)
        elif not (self.broken == "dense-layer" and layer == 1 and ".mlp.gate." in name):
            yield Tensor(name, "BF16", [8, 4], self.random(name).randbytes(64))

    def more_experts(self):
        """The names that the index would have with as many experts as were asked for."""
        last = {}
        for name, shard in self.names.items():
            if m := EXPERT.fullmatch(name):
                key = (m[1], int(m[2]), m[4])
                last[key] = max(last.get(key, (-1, 0)), (int(m[3]), shard))
        for (prefix, layer, projection), (most, shard) in last.items():
            for expert in range(most + 1, self.experts):
                self.names[f"{prefix}.layers.{layer}.mlp.experts.{expert}.{projection}_proj.weight"] = shard

    def shards_of(self):
        """The tensors of each shard that is not empty, in the order of the index's shards."""
        self.more_experts()
        of_index, n = collections.defaultdict(list), 0
        for name, shard in sorted(self.names.items()):
            for tensor in self.tensors(name):
                of_index[n % self.shards if self.scatter else shard].append(tensor)
                n += 1
        # What is left of the index's shards, dealt anew so that there are as many as were asked for.
        every = [tensor for shard in sorted(of_index) for tensor in of_index[shard]]
        if self.scatter or len(of_index) == self.shards:
            return [of_index[shard] for shard in sorted(of_index)]
        per = -(-len(every) // self.shards)
        return [every[at:at + per] for at in range(0, len(every), per)]

    def write(self, directory):
        os.makedirs(directory, exist_ok=True)
        shards, weight_map, total = self.shards_of(), {}, 0
        for i, tensors in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            weight_map.update({tensor.name: file for tensor in tensors})
            total += sum(len(tensor.body) for tensor in tensors)
            write_shard(os.path.join(directory, file), tensors)
        last = os.path.join(directory, file)
        if self.broken == "missing-shard":
            os.unlink(last)
        if self.broken == "cut-shard":
            os.truncate(last, os.path.getsize(last) - 1)
        with open(os.path.join(directory, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)
            out.write("\n")


def write_shard(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape,
                               "data_offsets": [at, at + len(tensor.body)]}
        at += len(tensor.body)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for tensor in tensors:
            out.write(tensor.body)


def make_checkpoint(directory, **how):
    Checkpoint(**how).write(directory)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="WHAT is one of:\n" + "\n".join(f"  {what:<22} {words}" for what, words in BROKEN.items()))
    parser.add_argument("directory")
    parser.add_argument("--index", help="a model.safetensors.index.json or .json.gz")
    for name, default in (("layers", 4), ("experts", 4), ("inter", 32), ("hidden", 64), ("group", 16), ("shards", 4),
                          ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--input-scales", choices=("all", "some", "none"), default="some")
    parser.add_argument("--scatter", action="store_true", help="deal the tensors over the shards one by one")
    parser.add_argument("--broken", choices=BROKEN, metavar="WHAT")
    how = vars(parser.parse_args())
    make_checkpoint(how.pop("directory"), **how)


if __name__ == "__main__":
    main()
