"""A cache peer in Python that can be told to misbehave (docs/protocol.md 1.6, 2.2, 2.3 and 2.6): it has the TCP data
plane alone, keeps every blob, and counts."""

import json
import socket
import struct
import threading

MAGIC = 0x5041474500000002
PUT, FETCH, REMOVE, EXISTS, OWN, WIDE, FEATURES = 0x10, 0x11, 4, 0x20, 0x23, 0x24, 0x7F
OK, MISS, ERR = b"\0", b"\1", b"\2"
KINDS = ("ssm", "kv")
ALL = 0b1101  # features: EXISTS, OWN and WIDE


class FakeCache:
    """refuse: keys that are answered with ST_ERR. damage(key, blob) -> blob. stop_after: blobs sent or taken, after
    which every connection and the port are closed, in the middle of the next one. statistics: the text of the
    answer (None: its own), or False for a peer that has none."""

    def __init__(self, features=ALL, refuse=(), damage=None, stop_after=None, statistics=None):
        self.features, self.refuse, self.damage, self.stop_after = features, set(refuse), damage, stop_after
        self.statistics = statistics
        self.arenas = {}  # (kind, blob_bytes) -> arena
        self.blobs, self.owned = {}, []  # (kind, blob_bytes, key) -> bytes
        self.moved, self.requests, self.connections = 0, [], []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.die()

    def die(self):
        """As a killed process."""
        for s in self.listener, *self.connections:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def arena(self, kind, blob_bytes, arena_bytes):
        with self.lock:
            return self.arenas.setdefault((kind, blob_bytes), {
                "kind": KINDS[kind], "blob_bytes": blob_bytes, "arena_bytes": arena_bytes,
                "slots": arena_bytes // blob_bytes, "resident": 0, "on_disk": 0, "reserved": 0, "pinned": 0,
                "connections": 0, "hits": 0, "misses": 0, "puts": 0, "spills": 0, "faults": 0, "drops": 0, "errors": 0})

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
        got = bytearray()
        while len(got) < n:
            piece = c.recv(min(n - len(got), 1 << 20))
            if not piece:
                raise ConnectionError
            got += piece
        return bytes(got)

    def _serve(self, c):
        try:
            magic, kind, arena_bytes, blob_bytes = struct.unpack("<QBQQ", self._take(c, 25))
            assert magic == MAGIC
            if kind == 0xFF:
                self._say(c)
            elif self._take(c, 1) == b"\0":
                c.sendall(b"\0\0")
                Connection(self, c, kind, self.arena(kind, blob_bytes, arena_bytes)).serve()
        except (OSError, ConnectionError):
            pass
        c.close()

    def _say(self, c):
        if self.statistics is False:
            return
        text = self.statistics or json.dumps({
            "version": 1, "memory": {"used": sum(a["arena_bytes"] for a in self.arenas.values()), "cap": 1 << 40},
            "swap": {"used": 0, "cap": 0}, "arenas": list(self.arenas.values()), "rails": []})
        c.sendall(struct.pack("<I", len(text)) + text.encode())


class Connection:
    def __init__(self, peer, c, kind, arena):
        self.peer, self.c, self.kind, self.arena = peer, c, kind, arena
        self.wide, self.owns = False, False

    def serve(self):
        while True:
            op = self.peer._take(self.c, 1)[0]
            value = struct.unpack("<Q", self.peer._take(self.c, 8))[0]
            if op == FEATURES:
                self.c.sendall(OK + struct.pack("<Q", self.peer.features))
            elif op == WIDE or op == OWN:
                self.wide, self.owns = (value == 1, self.owns) if op == WIDE else (self.wide, value == 1)
                self.c.sendall(OK)
            else:
                high = struct.unpack("<Q", self.peer._take(self.c, 8))[0] if self.wide else 0
                self._answer(op, high << 64 | value)

    def _answer(self, op, key):
        peer, size = self.peer, self.arena["blob_bytes"]
        place = (self.kind, size, key)
        stops = op in (PUT, FETCH) and peer.moved == peer.stop_after
        peer.moved += op in (PUT, FETCH)
        body = peer._take(self.c, size // 2 if stops else size) if op == PUT else None
        if stops and op == FETCH:
            self.c.sendall(OK + bytes(size // 2))
        if stops:
            peer.die()
            raise ConnectionError
        with peer.lock:
            peer.requests.append((op, key))
            found = peer.blobs.get(place)
            if key in peer.refuse:
                self.c.sendall(ERR)
                return
            if op == PUT:
                peer.blobs[place] = body
                peer.owned += [place] if self.owns else []
                self.arena["puts"] += 1
            elif op == REMOVE:
                peer.blobs.pop(place, None)
            elif op == FETCH:
                self.arena["misses" if found is None else "hits"] += 1
            self.arena["resident"] = sum(p[:2] == place[:2] for p in peer.blobs)
        if op in (PUT, REMOVE):
            self.c.sendall(OK)
        elif found is None:
            self.c.sendall(MISS)
        elif op == EXISTS:
            self.c.sendall(OK)
        else:
            self.c.sendall(OK + (peer.damage(key, found) if peer.damage else found))
