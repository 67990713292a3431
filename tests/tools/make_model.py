#!/usr/bin/env python3
"""Makes a directory of safetensors to serve and pull: the same bytes for the same arguments, without any library.

    make_model.py DIR [--bytes N] [--shards N] [--tensors N] [--seed N] [--single]

The tensors are of several dtypes, empty and scalar ones among them; beside the shards lie an index, config.json,
tokenizer.json and a file in a folder of its own, as a loader would want them."""

import argparse
import json
import os
import random
import struct

DTYPES = [("BF16", 2), ("F32", 4), ("F16", 2), ("F8_E4M3", 1), ("I64", 8), ("U8", 1), ("BOOL", 1)]
MIB = 1 << 20


def shape_of(n_elements):
    """Two dimensions where they come out even."""
    return [n_elements // 64, 64] if n_elements and n_elements % 64 == 0 else [n_elements]


def plan(total_bytes, n_tensors):
    """(name, dtype, shape, bytes) of each tensor: n_tensors that share total_bytes, an empty one and a scalar."""
    tensors = [("model.empty", "F32", [0, 16], 0), ("model.scalar", "F32", [], 4)]
    for i in range(n_tensors):
        dtype, size = DTYPES[i % len(DTYPES)]
        n_elements = max(1, total_bytes // n_tensors // size)
        tensors.append((f"model.layers.{i}.weight", dtype, shape_of(n_elements), n_elements * size))
    return tensors


def write_shard(path, tensors, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, n_bytes in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        while at > 0:
            out.write(rng.randbytes(min(at, MIB)))
            at -= min(at, MIB)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")


def make_model(directory, total_bytes=64 * MIB, n_shards=3, n_tensors=40, seed=1, single=False):
    os.makedirs(os.path.join(directory, "1_Pooling"), exist_ok=True)
    rng = random.Random(seed)
    tensors = plan(total_bytes, n_tensors)
    if single:
        write_shard(os.path.join(directory, "model.safetensors"), tensors, rng)
    else:
        weight_map = {}
        for i in range(n_shards):
            shard = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
            mine = tensors[i::n_shards]
            write_shard(os.path.join(directory, shard), mine, rng)
            weight_map.update({name: shard for name, *_ in mine})
        write_json(os.path.join(directory, "model.safetensors.index.json"),
                   {"metadata": {"total_size": sum(t[3] for t in tensors)}, "weight_map": weight_map})
    write_json(os.path.join(directory, "config.json"), {"architectures": ["Demo"], "num_hidden_layers": n_tensors})
    write_json(os.path.join(directory, "tokenizer.json"), {"version": "1.0", "model": {"vocab": {"a": 0, "b": 1}}})
    write_json(os.path.join(directory, "1_Pooling", "config.json"), {"pooling_mode_mean_tokens": True})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--bytes", type=int, default=64 * MIB, help="of all tensors, about (64 MiB)")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--tensors", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--single", action="store_true", help="one model.safetensors, no index")
    args = parser.parse_args()
    make_model(args.directory, args.bytes, args.shards, args.tensors, args.seed, args.single)


if __name__ == "__main__":
    main()
