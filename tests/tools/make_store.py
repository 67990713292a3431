#!/usr/bin/env python3
"""Makes an expert store (docs/protocol.md 1.4) directly, without a checkpoint or any library: the same bytes for the same
arguments. Each part of each record has contents of its own, which record() gives again.

    make_store.py DIR [--layers N] [--experts N] [--inter N] [--hidden N] [--group N] [--seed N]"""

import argparse
import dataclasses
import json
import os
import random
import struct

MAGIC, VERSION, HEADER_BYTES = 0x58505254, 1, 256
PARTS = ("gate.packed", "gate.scale", "up.packed", "up.scale", "down.packed", "down.scale")


def up_to(n, step):
    return -(-n // step) * step


@dataclasses.dataclass(frozen=True)
class Store:
    layers: int = 3
    experts: int = 5
    inter: int = 64
    hidden: int = 128
    group: int = 16
    seed: int = 1
    sub_align: int = 256
    fs_block: int = 4096

    @property
    def lengths(self):
        """Bytes of the six parts."""
        values = self.inter * self.hidden
        return (values // 2, values // self.group) * 3

    @property
    def offsets(self):
        """Of the six parts in a record, and where the last one ends."""
        out, at = [], HEADER_BYTES
        for length in self.lengths:
            out.append(up_to(at, self.sub_align))
            at = out[-1] + length
        return (*out, at)

    @property
    def raw_bytes(self):
        return up_to(self.offsets[-1], self.sub_align)

    @property
    def stride(self):
        return up_to(self.raw_bytes, self.fs_block)

    def part(self, layer, expert, i):
        return random.Random(f"{self.seed} {layer} {expert} {PARTS[i]}").randbytes(self.lengths[i])

    def scale2(self, layer, expert):
        """Of gate, up and down: exact in 32 bits."""
        return tuple((1 + layer * 1000 + expert + i / 4) / 1024 for i in range(3))

    def input_scale(self, layer, expert):
        """The same; None where a projection has none: odd experts have one for up alone."""
        return tuple(2.0 + i + layer if expert % 2 == 0 or i == 1 else None for i in range(3))

    def header(self, layer, expert):
        scales = self.input_scale(layer, expert)
        flags = sum(1 << i for i in range(3) if scales[i] is not None)
        head = struct.pack("<8I6f", MAGIC, VERSION, layer, expert, self.inter, self.hidden, self.group, flags,
                           *self.scale2(layer, expert), *(s or 0.0 for s in scales))
        return head + bytes(HEADER_BYTES - len(head))

    def record(self, layer, expert):
        """All record_stride bytes of it."""
        out = bytearray(self.stride)
        out[:HEADER_BYTES] = self.header(layer, expert)
        for i, at in enumerate(self.offsets[:-1]):
            out[at:at + self.lengths[i]] = self.part(layer, expert, i)
        return bytes(out)

    def manifest(self):
        return {
            "version": 1, "num_moe_layers": self.layers, "num_experts": self.experts, "inter": self.inter,
            "hidden": self.hidden, "group_size": self.group, "sub_align": self.sub_align,
            "fs_block_size": self.fs_block, "record_stride": self.stride, "record_raw_bytes": self.raw_bytes,
            "file_template": "experts_{:05}.xpr",
            "moe_layer_to_model_layer": [layer + 1 for layer in range(self.layers)],  # as if layer 0 were dense
        }

    def write(self, directory):
        os.makedirs(directory, exist_ok=True)
        for layer in range(self.layers):
            with open(layer_path(directory, layer), "wb") as out:
                for expert in range(self.experts):
                    out.write(self.record(layer, expert))
        with open(os.path.join(directory, "manifest.json"), "w", encoding="utf-8") as out:
            json.dump(self.manifest(), out, indent=2)
            out.write("\n")


def layer_path(directory, layer):
    return os.path.join(directory, f"experts_{layer:05}.xpr")


def make_store(directory, **sizes):
    """Writes the store and returns it, to compare with what comes over the wire: `make_store(d, layers=2).record(1, 3)`."""
    store = Store(**sizes)
    store.write(directory)
    return store


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    for field in ("layers", "experts", "inter", "hidden", "group", "seed"):
        parser.add_argument("--" + field, type=int, default=getattr(Store, field))
    sizes = vars(parser.parse_args())
    make_store(sizes.pop("directory"), **sizes)


if __name__ == "__main__":
    main()
