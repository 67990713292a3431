"""PEFT adapters to be landed, and what a slot holds once one has: docs/protocol.md 1.5, said again as slowly and
plainly as can be. Nothing here is taken from the library."""

import json
import os
import random
import struct

KNOWN = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj", "linear_attn.out_proj"]
SIZE = {"F32": 4, "F16": 2, "BF16": 2}

# Bits where conversions go wrong: zeros, subnormals, the smallest and largest values, infinities, NaNs with all sorts
# of payloads, ties to even and to odd and their neighbours.
F32_EDGES = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x00008000, 0x00008001, 0x00018000, 0x7F7FFFFF,
             0xFF7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001, 0x7F80FFFF, 0x7FC00000,
             0xFFFFFFFF, 0x7FBFFFFF, 0x3F800000, 0x3F808000, 0x3F808001, 0x3F807FFF, 0x3F818000, 0x3F817FFF, 0x3F818001]
F16_EDGES = [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x0200, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0xFC01, 0x7DFF,
             0x7E00, 0xFFFF, 0x3C00, 0x3C04, 0x3C0C, 0x3C05, 0x3C03, 0x0003, 0x0005, 0x0183]
BF16_EDGES = [0, 0x8000, 1, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF, 0x3F80]


# ---- conversion, one value at a time ----

def bf16_of_f32(bits):
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    upper, rest = bits >> 16, bits & 0xFFFF
    if exponent == 0xFF and fraction != 0:
        return upper | 0x40
    if rest > 0x8000 or (rest == 0x8000 and upper % 2 == 1):
        upper += 1
    return upper


def f32_of_f16(bits):
    """Exactly; the payload of a NaN is kept."""
    sign, exponent, fraction = bits >> 15, bits >> 10 & 0x1F, bits & 0x3FF
    if exponent == 0x1F:
        return sign << 31 | 0xFF << 23 | fraction << 13
    value = (fraction / 1024 * 2.0 ** -14) if exponent == 0 else (1 + fraction / 1024) * 2.0 ** (exponent - 15)
    (positive,) = struct.unpack("<I", struct.pack("<f", value))
    return sign << 31 | positive


def values(dtype, body):
    """A tensor's values as BF16 bits."""
    if dtype == "F32":
        return [bf16_of_f32(v) for (v,) in struct.iter_unpack("<I", body)]
    if dtype == "F16":
        return [bf16_of_f32(f32_of_f16(v)) for (v,) in struct.iter_unpack("<H", body)]
    assert dtype == "BF16"
    return [v for (v,) in struct.iter_unpack("<H", body)]


# ---- a slot ----

def place(name):
    """(layer, module, matrix), or None for a tensor without a layer."""
    for matrix in "AB":
        end = f".lora_{matrix}.weight"
        if not name.endswith(end):
            continue
        parts = name[: -len(end)].split(".")
        for i, part in enumerate(parts):
            if part and all(c in "0123456789" for c in part):
                return int(part), ".".join(parts[i + 1:]), matrix
    return None


def order(module):
    return (KNOWN.index(module) if module in KNOWN else len(KNOWN), module.encode())


def slot_of(tensors, max_rank, slot_bytes=None):
    """tensors: {name: (dtype, shape, bytes)}. Returns the slot and {(layer, module): (offset of A, offset of B)}."""
    found = {}
    for name, tensor in tensors.items():
        where = place(name)
        if where:
            layer, module, matrix = where
            found.setdefault((layer, module), {})[matrix] = tensor
    slot, offsets = bytearray(), {}
    for layer, module in sorted(found, key=lambda key: (key[0], order(key[1]))):
        (a_dtype, (rank, n_in), a), (b_dtype, (n_out, _), b) = (found[layer, module][m] for m in "AB")
        a, b = values(a_dtype, a), values(b_dtype, b)
        a_at = len(slot)
        for row in range(max_rank):
            for column in range(n_in):
                slot += struct.pack("<H", a[row * n_in + column] if row < rank else 0)
        offsets[layer, module] = (a_at, len(slot))
        for row in range(n_out):
            for column in range(max_rank):
                slot += struct.pack("<H", b[row * rank + column] if column < rank else 0)
    if slot_bytes is not None:
        slot += bytes(slot_bytes - len(slot))
    return bytes(slot), offsets


# ---- adapters ----

def matrix(rng, dtype, rows, columns):
    """Random bits with the edges among them."""
    edges = {"F32": F32_EDGES, "F16": F16_EDGES, "BF16": BF16_EDGES}[dtype]
    n, bits = rows * columns, 8 * SIZE[dtype]
    picked = [rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(bits) for _ in range(n)]
    for i, edge in enumerate(edges[:n]):
        picked[i] = edge
    return dtype, [rows, columns], struct.pack(f"<{n}{'I' if dtype == 'F32' else 'H'}", *picked)


def pair(rng, dtype, layer, module, n_in, n_out, rank, prefix="base_model.model.model.layers"):
    stem = f"{prefix}.{layer}.{module}"
    return {f"{stem}.lora_A.weight": matrix(rng, dtype, rank, n_in),
            f"{stem}.lora_B.weight": matrix(rng, dtype, n_out, rank)}


def adapter(dtype="F32", layers=(0, 1), modules=KNOWN, rank=3, seed=1):
    """Tensors of an adapter in an order that is not the slot's, with sizes that differ by module."""
    rng = random.Random(seed)
    tensors = {}
    for layer in layers:
        for i, module in enumerate(modules):
            tensors.update(pair(rng, dtype, layer, module, 8 + i, 24 - i, rank))
    names = list(tensors)
    rng.shuffle(names)
    return {name: tensors[name] for name in names}


def config(rank=3, alpha=6, **more):
    """As PEFT writes it."""
    return {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", "fan_in_fan_out": False,
            "init_lora_weights": True, "lora_dropout": 0.05, "target_modules": [m.split(".")[-1] for m in KNOWN],
            "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": None, "use_dora": False, "use_rslora": False,
            "layer_replication": None, "megatron_config": None, "megatron_core": "megatron.core", "loftq_config": {},
            "task_type": "CAUSAL_LM", **more}


def read_safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items() if name != "__metadata__"}


def write_adapter(directory, body, settings):
    """body: the bytes of the safetensors file."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "adapter_model.safetensors"), "wb") as out:
        out.write(body)
    with open(os.path.join(directory, "adapter_config.json"), "w", encoding="utf-8") as out:
        json.dump(settings, out)
