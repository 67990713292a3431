"""An expert peer in Python that can be told to misbehave (docs/protocol.md 1.4): by default one of the frozen protocol,
which gives no model_version and speaks TCP as well as verbs, of which this one knows only TCP."""

import json
import socket
import struct
import threading

SHUTDOWN = 0xFFFFFFFF


class FakeExperts:
    """Serves a make_store.Store from memory. refuse(layer, expert): answered with STATUS_ERR. damage(layer, expert,
    record) -> record. stop_after: records, after which every connection and the port are closed, in the middle of the
    next one. manifest: fields that override the store's."""

    def __init__(self, store, version=None, refuse=None, damage=None, stop_after=None, manifest=None, silent=False):
        self.store, self.refuse, self.damage, self.stop_after = store, refuse, damage, stop_after
        self.manifest = dict(store.manifest(), **(manifest or {}))
        if version:
            self.manifest["model_version"] = version
        self.silent = silent
        self.requests, self.modes, self.connections, self.sent = [], [], [], 0
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

    def _accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
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

    def _serve(self, c):
        try:
            if self.silent:
                c.close()
                return
            text = json.dumps(self.manifest, separators=(",", ":")).encode()
            c.sendall(struct.pack("<I", len(text)) + text)
            self.modes.append(self._take(c, 1))
            if self.modes[-1] == b"\0":
                while self._answer(c):
                    pass
        except (OSError, ConnectionError):
            pass
        c.close()

    def _answer(self, c):
        layer, expert = struct.unpack("<II", self._take(c, 8))
        if (layer, expert) == (SHUTDOWN, SHUTDOWN):
            return False
        self.requests.append((layer, expert))
        if layer >= self.store.layers or expert >= self.store.experts or (self.refuse and self.refuse(layer, expert)):
            c.sendall(b"\1")
            return True
        record = self.store.record(layer, expert)
        if self.damage:
            record = self.damage(layer, expert, record)
        if self.sent == self.stop_after:
            c.sendall(b"\0" + record[: len(record) // 2])
            self.die()
            return False
        c.sendall(b"\0" + record)
        self.sent += 1
        return True
