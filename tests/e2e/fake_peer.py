"""A weight peer in Python that can be told to misbehave: to lie, to stall, to die, or to have a model replaced.

It speaks docs/protocol.md 1.5, 2.1, 2.4 and 2.5 over TCP, as far as penstock's client uses them."""

import ctypes
import json
import socket
import struct
import threading

DIGESTS = 0xFFFFFFFE
CLOSE = 0xFFFFFFFF
CHUNK = 16 << 20


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _xxhash():
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = _Hash128
    library.XXH3_64bits.restype = ctypes.c_uint64
    for call in library.XXH3_128bits, library.XXH3_64bits:
        call.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


_XXHASH = _xxhash()


def digests_of(body):
    """The digests of protocol 2.1 for a file."""
    digests = []
    for at in range(0, len(body), CHUNK):
        piece = body[at : at + CHUNK]
        hash = _XXHASH.XXH3_128bits(piece, len(piece))
        digests.append(struct.pack(">QQ", hash.high, hash.low))
    return digests


def line_sum(words):
    """The checksum that a line of a pull's journal ends with."""
    words = words.encode()
    return "%08x" % (_XXHASH.XXH3_64bits(words, len(words)) & 0xFFFFFFFF)


def safetensors(tensors):
    """The bytes of a safetensors file. tensors: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, body) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Model:
    """Shards and files in memory: {name: bytes}. Every field of the manifest can be overridden."""

    def __init__(self, shards, files=None, version="v1", tensors=None, **manifest):
        self.shards, self.files, self.version = dict(shards), dict(files or {}), version
        self.bodies = list(self.shards.values()) + list(self.files.values())
        self.tensors = tensors if tensors is not None else self._read_tensors()
        self.overrides = manifest

    def _read_tensors(self):
        found = []
        for index, body in enumerate(self.shards.values()):
            if len(body) < 8:
                continue
            (length,) = struct.unpack("<Q", body[:8])
            if length > len(body) - 8:
                continue
            for name, t in json.loads(body[8 : 8 + length]).items():
                begin, end = t["data_offsets"]
                found.append({"name": name, "dtype": t["dtype"], "shape": t["shape"],
                              "offset_in_shard": 8 + length + begin, "len": end - begin, "shard_index": index,
                              "extra": False})
        return found

    def manifest(self):
        m = {"version": 1, "model_id": "/models/fake", "shard_files": list(self.shards),
             "shard_lens": [len(b) for b in self.shards.values()], "tensors": self.tensors}
        if self.version:
            m["model_version"] = self.version
        m["files"] = [{"name": n, "len": len(b)} for n, b in self.files.items()]
        m.update(self.overrides)
        return m


class FakePeer:
    """Serves one model. digests: None (keeps none) or a function body -> list of 16-byte digests.

    stop_after: bytes of data sent in all, after which it calls at_stop(peer, connection) (default: die).
    damage: a function (file, offset, data, nth) -> data applied to each reply."""

    def __init__(self, model, digests=None, stop_after=None, at_stop=None, damage=None, refuse=None):
        self.model, self.digests = model, digests
        self.stop_after, self.at_stop, self.damage, self.refuse = stop_after, at_stop, damage, refuse
        self.sent = 0
        self.requests = []  # (file, offset, len)
        self.hellos = []
        self.lock = threading.Lock()
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.die()

    def die(self):
        """As a killed process: the port and every connection are closed."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for c in list(self.connections):
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            c.close()

    def fetched_bytes(self):
        return sum(n for f, _, n in self.requests if f not in (DIGESTS, CLOSE))

    def _accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(c)
            threading.Thread(target=self._serve, args=(c,), daemon=True).start()

    @staticmethod
    def _take(c, n):
        got = b""
        while len(got) < n:
            piece = c.recv(n - len(got))
            if not piece:
                raise ConnectionError
            got += piece
        return got

    @staticmethod
    def _send_json(c, value):
        text = json.dumps(value, separators=(",", ":")).encode()
        c.sendall(struct.pack("<I", len(text)) + text)

    def _serve(self, c):
        try:
            (n,) = struct.unpack("<I", self._take(c, 4))
            hello = self._take(c, n).decode()
            self.hellos.append(hello)
            model = self.model
            if hello == "penstock:models":
                self._send_json(c, {"version": 1, "models": [{
                    "id": "fake", "shards": len(model.shards), "tensors": len(model.tensors),
                    "bytes": sum(map(len, model.shards.values())), "files": len(model.files),
                    "model_version": model.version or ""}], "rails": []})
                c.close()
                return
            if hello.startswith("penstock:join "):
                version = hello.split(" ")[1]
                if version != model.version:
                    self._send_json(c, {"version": 1, "error": "the model has another version by now"})
                    c.close()
                    return
                self._send_json(c, {"version": 1, "model_version": version})
            else:
                self._send_json(c, model.manifest())
            if self._take(c, 1) != b"\0":
                c.close()
                return
            while self._answer(c, model):
                pass
        except (OSError, ConnectionError):
            pass
        finally:
            c.close()

    def _answer(self, c, model):
        file, offset, length = struct.unpack("<IQQ", self._take(c, 20))
        with self.lock:
            self.requests.append((file, offset, length))
            nth = sum(1 for r in self.requests if r == (file, offset, length))
        if file == CLOSE:
            return False
        if file == DIGESTS:
            if self.digests is None or offset >= len(model.bodies):
                c.sendall(b"\1")
            else:
                some = self.digests(model.bodies[offset])[length:]
                c.sendall(b"\0" + struct.pack("<I", len(some)) + b"".join(some))
            return True
        if file >= len(model.bodies) or offset + length > len(model.bodies[file]) or length == 0:
            c.sendall(b"\1")
            return True
        if self.refuse and self.refuse(file, offset):
            c.sendall(b"\1")
            return True
        data = model.bodies[file][offset : offset + length]
        if self.damage:
            data = self.damage(file, offset, data, nth)
        with self.lock:
            stopping = self.stop_after is not None and self.sent + length > self.stop_after
            if stopping:
                data = data[: max(0, self.stop_after - self.sent)]
            self.sent += len(data)
        c.sendall(b"\0" + data)
        if stopping:
            (self.at_stop or FakePeer._die_at_stop)(self, c)
            return False
        return True

    def _die_at_stop(self, connection):
        # Closing with requests unread would be a reset, which takes back what was sent and not yet read.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
        self.die()


def freeze(peer, connection):
    """at_stop: the peer is there, and says nothing any more."""
    threading.Event().wait(600)
