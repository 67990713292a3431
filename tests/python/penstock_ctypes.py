"""libpenstock through ctypes: the headers of include/penstock, but for wire.h, declaration by declaration."""

import ctypes as c

OK, EINVAL, ENOTFOUND, EREFUSED, ECANCELED, EUNSUPPORTED = 0, -101, -104, -105, -106, -107
EUNREACHABLE, ECLOSED, ETIMEOUT, ESTALE, EDEAD = -201, -202, -204, -206, -301


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("sys_errno", c.c_int), ("wc_status", c.c_int), ("message", c.c_char * 500)]


class Sized(c.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.size = c.sizeof(self)


class Options(Sized):
    _fields_ = [("size", c.c_size_t), ("transport", c.c_int), ("connect_timeout_ns", c.c_int64),
                ("manifest_timeout_ns", c.c_int64), ("reply_timeout_ns", c.c_int64), ("rails", c.c_char_p),
                ("rail_deadline_ns", c.c_int64), ("rails_timeout_ns", c.c_int64),
                ("congestion", c.c_char_p)]


class Memory(Sized):
    _fields_ = [("size", c.c_size_t), ("address", c.c_void_p), ("len_bytes", c.c_uint64), ("where", c.c_int),
                ("dmabuf_fd", c.c_int), ("offset_bytes", c.c_uint64)]


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_char_p), ("shape", c.POINTER(c.c_uint64)), ("rank", c.c_uint64),
                ("len_bytes", c.c_uint64), ("offset_bytes", c.c_uint64), ("shard", c.c_uint32), ("extra", c.c_uint32)]


class File(c.Structure):
    _fields_ = [("name", c.c_char_p), ("len_bytes", c.c_uint64)]


class Range(c.Structure):
    _fields_ = [("offset_bytes", c.c_uint64), ("len_bytes", c.c_uint64), ("dst_bytes", c.c_uint64),
                ("file", c.c_uint32)]


class Read(Sized):
    _fields_ = [("size", c.c_size_t), ("ranges", c.POINTER(Range)), ("count", c.c_uint64), ("region", c.c_uint32),
                ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class Digests(Sized):
    _fields_ = [("size", c.c_size_t), ("out", c.c_void_p), ("first_chunk", c.c_uint64), ("max", c.c_uint64),
                ("file", c.c_uint32), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class RailInfo(Sized):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("gid", c.c_char_p), ("why", c.c_char_p),
                ("failure", c.c_char_p), ("port", c.c_uint32), ("gid_index", c.c_uint32), ("peer_rail", c.c_uint32),
                ("mtu_bytes", c.c_uint32), ("reads", c.c_uint32), ("up", c.c_int), ("gbps", c.c_double),
                ("bytes", c.c_uint64), ("failures", c.c_uint64)]


class Completion(c.Structure):
    _fields_ = [("op", c.c_uint64), ("user", c.c_void_p), ("code", c.c_int), ("landed_bytes", c.c_uint64)]


class Model(c.Structure):
    _fields_ = [("id", c.c_char_p), ("version", c.c_char_p), ("shards", c.c_uint64), ("tensors", c.c_uint64),
                ("files", c.c_uint64), ("bytes", c.c_uint64)]


class ExpertGeometry(Sized):
    _fields_ = [("size", c.c_size_t), ("model_version", c.c_char_p), ("model_layers", c.POINTER(c.c_uint32)),
                ("layers", c.c_uint32), ("experts", c.c_uint32), ("inter", c.c_uint32), ("hidden", c.c_uint32),
                ("group_size", c.c_uint32), ("sub_align", c.c_uint32), ("record_stride", c.c_uint64),
                ("part_offset", c.c_uint64 * 6), ("part_bytes", c.c_uint64 * 6)]


class ExpertArena(Sized):
    _fields_ = [("size", c.c_size_t), ("memory", c.POINTER(Memory)), ("slots", c.c_uint64),
                ("stride_bytes", c.c_uint64)]


class Fetch(Sized):
    _fields_ = [("size", c.c_size_t), ("slot", c.c_uint64), ("layer", c.c_uint32), ("expert", c.c_uint32),
                ("priority", c.c_int), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class Expert(Sized):
    _fields_ = [("size", c.c_size_t), ("layer", c.c_uint32), ("expert", c.c_uint32), ("parts", c.c_void_p * 6),
                ("scale2", c.c_float * 3), ("input_scale", c.c_float * 3), ("input_scale_flags", c.c_uint32)]


NOW, GUESS = 0, 1
class LoraPlace(c.Structure):
    _fields_ = [("module", c.c_char_p), ("layer", c.c_uint64), ("n_in", c.c_uint64), ("n_out", c.c_uint64)]


class LoraOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("max_rank", c.c_uint64), ("places", c.POINTER(LoraPlace)),
                ("n_places", c.c_uint64), ("config", c.c_char_p), ("config_len_bytes", c.c_uint64),
                ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class LoraEntry(c.Structure):
    _fields_ = [("module", c.c_char_p), ("layer", c.c_uint64), ("n_in", c.c_uint64), ("n_out", c.c_uint64),
                ("rank", c.c_uint64), ("scale", c.c_double), ("a_offset_bytes", c.c_uint64),
                ("a_len_bytes", c.c_uint64), ("b_offset_bytes", c.c_uint64), ("b_len_bytes", c.c_uint64)]


class LoraInfo(Sized):
    _fields_ = [("size", c.c_size_t), ("slot_bytes", c.c_uint64), ("pull_bytes", c.c_uint64), ("max_rank", c.c_uint64),
                ("entries", c.c_uint64), ("left_out", c.c_uint64), ("rslora", c.c_int), ("fan_in_fan_out", c.c_int)]


class LoraLanding(Sized):
    _fields_ = [("size", c.c_size_t), ("slot", c.POINTER(Memory)), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class Cache(Sized):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int), ("blob_bytes", c.c_uint64), ("arena_bytes", c.c_uint64),
                ("wide", c.c_int), ("own", c.c_int)]


class Key(c.Structure):
    _fields_ = [("low", c.c_uint64), ("high", c.c_uint64)]


class Blob(c.Structure):
    _fields_ = [("key_low", c.c_uint64), ("key_high", c.c_uint64), ("at_bytes", c.c_uint64),
                ("from_bytes", c.c_uint64), ("len_bytes", c.c_uint64), ("code", c.c_int)]


class Blobs(Sized):
    _fields_ = [("size", c.c_size_t), ("action", c.c_int), ("region", c.c_uint32), ("blobs", c.POINTER(Blob)),
                ("count", c.c_uint64), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class Prefix(Sized):
    _fields_ = [("size", c.c_size_t), ("keys", c.POINTER(Key)), ("count", c.c_uint64),
                ("found", c.POINTER(c.c_uint64)), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class KvLayout(Sized):
    _fields_ = [(name, c.c_size_t if name == "size" else c.c_uint64) for name in (
        "size", "elem_bytes", "block_size", "head_dim", "layers", "blocks", "kv_heads", "fs_block_bytes",
        "stripe_bytes", "stripe_stride", "block_bytes", "total_bytes")]


class Kv(Sized):
    _fields_ = [("size", c.c_size_t), ("layout", c.POINTER(KvLayout)), ("fingerprint", c.c_uint64),
                ("salt", c.c_uint64), ("random_salt", c.c_int), ("raw", c.c_int), ("arena_bytes", c.c_uint64)]


class KvInfo(Sized):
    _fields_ = [("size", c.c_size_t), ("block_bytes", c.c_uint64), ("stripe_bytes", c.c_uint64),
                ("stripe_stride", c.c_uint64), ("arena_bytes", c.c_uint64), ("salt", c.c_uint64),
                ("namespace_id", c.c_uint64), ("owned", c.c_int)]


class KvBlock(c.Structure):
    _fields_ = [("layer", c.c_uint64), ("block", c.c_uint64), ("at_bytes", c.c_uint64), ("code", c.c_int)]


class KvBlocks(Sized):
    _fields_ = [("size", c.c_size_t), ("action", c.c_int), ("region", c.c_uint32), ("blocks", c.POINTER(KvBlock)),
                ("count", c.c_uint64), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class KvStripe(c.Structure):
    _fields_ = [("layer", c.c_uint64), ("block", c.c_uint64), ("kv", c.c_uint32), ("head", c.c_uint32),
                ("at_bytes", c.c_uint64), ("code", c.c_int)]


class KvStripes(Sized):
    _fields_ = [("size", c.c_size_t), ("region", c.c_uint32), ("stripes", c.POINTER(KvStripe)),
                ("count", c.c_uint64), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class SnapshotArena(Sized):
    _fields_ = [("size", c.c_size_t), ("blob_bytes", c.c_uint64), ("arena_bytes", c.c_uint64),
                ("namespace_id", c.c_uint64), ("raw", c.c_int), ("own", c.c_int), ("chunk_bytes", c.c_uint64),
                ("depth", c.c_uint32)]


class Snapshot(c.Structure):
    _fields_ = [("key", c.c_uint64), ("at_bytes", c.c_uint64), ("code", c.c_int)]


class Snapshots(Sized):
    _fields_ = [("size", c.c_size_t), ("action", c.c_int), ("region", c.c_uint32),
                ("snapshots", c.POINTER(Snapshot)), ("count", c.c_uint64), ("timeout_ns", c.c_int64),
                ("user", c.c_void_p)]


class RawRange(c.Structure):
    _fields_ = [("offset_bytes", c.c_uint64), ("len_bytes", c.c_uint64), ("at_bytes", c.c_uint64)]


class Raw(Sized):
    _fields_ = [("size", c.c_size_t), ("write", c.c_int), ("region", c.c_uint32), ("ranges", c.POINTER(RawRange)),
                ("count", c.c_uint64), ("timeout_ns", c.c_int64), ("user", c.c_void_p)]


class CacheArena(c.Structure):
    _fields_ = [("kind", c.c_int), *((name, c.c_uint64) for name in (
        "blob_bytes", "arena_bytes", "slots", "resident", "on_disk", "reserved", "pinned", "connections", "hits",
        "misses", "puts", "spills", "faults", "drops", "errors"))]


class CacheTotals(c.Structure):
    _fields_ = [(name, c.c_uint64) for name in ("memory_used", "memory_cap", "swap_used", "swap_cap")]


P, STR, ERR, OP = c.c_void_p, c.c_char_p, c.POINTER(Error), c.c_uint64

FUNCTIONS = {
    "penstock_error_class": (c.c_int, [c.c_int]),
    "penstock_error_name": (STR, [c.c_int]),
    "penstock_version": (STR, []),
    "penstock_catalogue_ref": (None, [P]),
    "penstock_catalogue_unref": (None, [P]),
    "penstock_catalogue_model_id": (STR, [P]),
    "penstock_catalogue_version": (STR, [P]),
    "penstock_catalogue_tensors": (c.c_size_t, [P]),
    "penstock_catalogue_shards": (c.c_size_t, [P]),
    "penstock_catalogue_files": (c.c_size_t, [P]),
    "penstock_catalogue_skipped": (c.c_size_t, [P]),
    "penstock_catalogue_tensor": (c.POINTER(Tensor), [P, c.c_size_t]),
    "penstock_catalogue_file": (c.POINTER(File), [P, c.c_size_t]),
    "penstock_catalogue_find": (c.POINTER(Tensor), [P, STR]),
    "penstock_tensor_slice": (c.c_int, [c.POINTER(Tensor), c.c_size_t, c.c_uint64, c.c_uint64, c.c_uint64,
                                        c.POINTER(Range), c.c_size_t, c.POINTER(c.c_size_t), ERR]),
    "penstock_weights_start": (c.c_int, [STR, STR, P, c.POINTER(Options), c.POINTER(P), c.POINTER(OP), ERR]),
    "penstock_weights_open": (c.c_int, [STR, STR, P, c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_session_catalogue": (P, [P]),
    "penstock_session_free": (None, [P]),
    "penstock_session_transport": (c.c_int, [P]),
    "penstock_session_transport_why": (STR, [P]),
    "penstock_session_bounce_why": (STR, [P]),
    "penstock_session_rails": (c.c_size_t, [P]),
    "penstock_session_rail": (c.c_int, [P, c.c_size_t, c.POINTER(RailInfo)]),
    "penstock_register": (c.c_int, [P, c.POINTER(Memory), c.POINTER(c.c_uint32), ERR]),
    "penstock_unregister": (c.c_int, [P, c.c_uint32, ERR]),
    "penstock_submit": (c.c_int, [P, c.POINTER(Read), c.POINTER(OP), ERR]),
    "penstock_submit_digests": (c.c_int, [P, c.POINTER(Digests), c.POINTER(OP), ERR]),
    "penstock_cancel": (c.c_int, [P, OP]),
    "penstock_fd": (c.c_int, [P]),
    "penstock_timeout_ns": (c.c_int64, [P]),
    "penstock_poll": (c.c_int, [P, c.POINTER(Completion), c.c_size_t, c.POINTER(c.c_size_t)]),
    "penstock_op_error": (ERR, [P, OP]),
    "penstock_wait": (c.c_int, [P, OP, c.POINTER(Completion), ERR]),
    "penstock_read_wait": (c.c_int, [P, c.POINTER(Read), ERR]),
    "penstock_experts_start": (c.c_int, [STR, STR, c.POINTER(Options), c.POINTER(P), c.POINTER(OP), ERR]),
    "penstock_experts_open": (c.c_int, [STR, STR, c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_experts_geometry": (c.c_int, [P, c.POINTER(ExpertGeometry)]),
    "penstock_experts_arena": (c.c_int, [P, c.POINTER(ExpertArena), ERR]),
    "penstock_submit_fetch": (c.c_int, [P, c.POINTER(Fetch), c.POINTER(OP), ERR]),
    "penstock_fetch_wait": (c.c_int, [P, c.POINTER(Fetch), ERR]),
    "penstock_fetch_promote": (c.c_int, [P, OP]),
    "penstock_expert_at": (c.c_int, [P, c.c_uint64, c.POINTER(Expert)]),
    "penstock_lora_start": (c.c_int, [P, c.POINTER(LoraOptions), c.POINTER(P), c.POINTER(OP), ERR]),
    "penstock_lora_open": (c.c_int, [P, c.POINTER(LoraOptions), c.POINTER(P), ERR]),
    "penstock_lora_free": (None, [P]),
    "penstock_lora_about": (c.c_int, [P, c.POINTER(LoraInfo)]),
    "penstock_lora_at": (c.POINTER(LoraEntry), [P, c.c_size_t]),
    "penstock_lora_left_out": (STR, [P, c.c_size_t]),
    "penstock_lora_land": (c.c_int, [P, P, c.POINTER(LoraLanding), c.POINTER(OP), ERR]),
    "penstock_lora_land_wait": (c.c_int, [P, P, c.POINTER(LoraLanding), ERR]),
    "penstock_cache_start": (c.c_int, [STR, c.POINTER(Cache), c.POINTER(Options), c.POINTER(P), c.POINTER(OP), ERR]),
    "penstock_cache_open": (c.c_int, [STR, c.POINTER(Cache), c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_submit_blobs": (c.c_int, [P, c.POINTER(Blobs), c.POINTER(OP), ERR]),
    "penstock_blobs_wait": (c.c_int, [P, c.POINTER(Blobs), ERR]),
    "penstock_blobs_prefix": (c.c_uint64, [c.POINTER(Blob), c.c_uint64]),
    "penstock_submit_prefix": (c.c_int, [P, c.POINTER(Prefix), c.POINTER(OP), ERR]),
    "penstock_prefix_wait": (c.c_int, [P, c.POINTER(Key), c.c_uint64, c.POINTER(c.c_uint64), ERR]),
    "penstock_submit_raw": (c.c_int, [P, c.POINTER(Raw), c.POINTER(OP), ERR]),
    "penstock_raw_wait": (c.c_int, [P, c.POINTER(Raw), ERR]),
    "penstock_cache_stats_get": (c.c_int, [STR, c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_cache_stats_totals": (c.POINTER(CacheTotals), [P]),
    "penstock_cache_stats_arenas": (c.c_size_t, [P]),
    "penstock_cache_stats_arena": (c.POINTER(CacheArena), [P, c.c_size_t]),
    "penstock_cache_stats_json": (STR, [P]),
    "penstock_cache_stats_free": (None, [P]),
    "penstock_kv_layout_compute": (c.c_int, [c.POINTER(KvLayout), ERR]),
    "penstock_kv_stripe_id": (c.c_int, [c.POINTER(KvLayout), c.POINTER(KvStripe), c.POINTER(c.c_uint64), ERR]),
    "penstock_kv_namespace": (c.c_int, [c.POINTER(KvLayout), c.c_uint64, c.c_uint64, c.POINTER(c.c_uint64), ERR]),
    "penstock_kv_wire_key": (c.c_uint64, [c.c_uint64, c.c_uint64]),
    "penstock_kv_start": (c.c_int, [STR, c.POINTER(Kv), c.POINTER(Options), c.POINTER(P), c.POINTER(OP), ERR]),
    "penstock_kv_open": (c.c_int, [STR, c.POINTER(Kv), c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_kv_about": (c.c_int, [P, c.POINTER(KvInfo)]),
    "penstock_submit_kv_blocks": (c.c_int, [P, c.POINTER(KvBlocks), c.POINTER(OP), ERR]),
    "penstock_kv_blocks_wait": (c.c_int, [P, c.POINTER(KvBlocks), ERR]),
    "penstock_submit_kv_stripes": (c.c_int, [P, c.POINTER(KvStripes), c.POINTER(OP), ERR]),
    "penstock_kv_stripes_wait": (c.c_int, [P, c.POINTER(KvStripes), ERR]),
    "penstock_snapshots_start": (c.c_int, [STR, c.POINTER(SnapshotArena), c.POINTER(Options), c.POINTER(P),
                                           c.POINTER(OP), ERR]),
    "penstock_snapshots_open": (c.c_int, [STR, c.POINTER(SnapshotArena), c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_submit_snapshots": (c.c_int, [P, c.POINTER(Snapshots), c.POINTER(OP), ERR]),
    "penstock_snapshots_wait": (c.c_int, [P, c.POINTER(Snapshots), ERR]),
    "penstock_snapshot_wire_key": (c.c_uint64, [c.c_uint64, c.c_uint64]),
    "penstock_models_get": (c.c_int, [STR, c.POINTER(Options), c.POINTER(P), ERR]),
    "penstock_models_count": (c.c_size_t, [P]),
    "penstock_models_at": (c.POINTER(Model), [P, c.c_size_t]),
    "penstock_models_free": (None, [P]),
}


def load(path):
    lib = c.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
