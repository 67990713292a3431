"""What the end-to-end tests of the peer share: models on disk, a running `penstock serve`, and a client that speaks raw
bytes (docs/protocol.md 1.5, 2.1 and 2.5).

Nothing here sleeps: who waits, waits for a byte, a line of the log or the end of a process."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from fake_peer import safetensors  # noqa: E402
from make_model import make_model  # noqa: E402

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
PATIENCE = 20  # seconds that nothing here should ever need

MODE_TCP, MODE_VERBS = b"\0", b"\1"
STATUS_OK, STATUS_ERR = 0, 1
DIGESTS, END = 0xFFFFFFFE, 0xFFFFFFFF


def write_file(path, body):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(body)


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def one_tensor(body, name="w"):
    return safetensors({name: ("U8", [len(body)], body)})


class Peer:
    """A `penstock serve` on a port of its own, run by the command `before` it where there is one. Its log is read as it
    comes."""

    def __init__(self, *words, listen=("127.0.0.1:0",), cache, before=()):
        command = [*before, PENSTOCK, "serve", "--journal", "no", *words]
        for name in listen:
            command += ["--listen-weights", name]
        environment = dict(os.environ, XDG_CACHE_HOME=cache)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, errors="replace", env=environment)
        self.log, self.ended, self.news = [], False, threading.Condition()
        self.reader = threading.Thread(target=self._read_log)
        self.reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            with self.news:
                self.log.append(line.rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def wait_for_log(self, pattern, times=1):
        """The match of a line, once there are that many."""
        def found():
            return [m for m in (re.search(pattern, line) for line in self.log) if m]
        with self.news:
            self.news.wait_for(lambda: len(found()) >= times or self.ended, PATIENCE)
            if len(found()) < times:
                raise AssertionError(f"no {pattern!r} in the log:\n" + "\n".join(self.log))
            return found()[times - 1]

    def addresses(self, n=1, tier="weights"):
        """(host, port) of the first n listeners of a tier."""
        found = []
        for i in range(n):
            text = self.wait_for_log(rf"listening for {tier} on (\S+)", i + 1).group(1)
            host, port = text.rsplit(":", 1)
            found.append((host.strip("[]"), int(port)))
        return found

    def memory(self):
        """Resident bytes, and proof of life."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """The exit status; the whole log is there."""
        status = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return status

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stderr.close()


class Client:
    """One connection, and what a client says over it."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, body):
        self.socket.sendall(body)

    def read(self, n):
        body = bytearray()
        while len(body) < n:
            piece = self.socket.recv(min(n - len(body), 1 << 20))
            if not piece:
                raise EOFError(f"closed after {len(body)} of {n} bytes")
            body += piece
        return bytes(body)

    def is_closed(self):
        """Waits for the peer to close, which it must do without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def read_json(self):
        (length,) = struct.unpack("<I", self.read(4))
        return json.loads(self.read(length))

    def ask(self, text):
        text = text.encode() if isinstance(text, str) else text
        self.send(struct.pack("<I", len(text)) + text)

    def manifest(self, model):
        self.ask(model)
        return self.read_json()

    def open(self, model):
        """Up to the first request of a range."""
        manifest = self.manifest(model)
        self.send(MODE_TCP)
        return manifest

    @staticmethod
    def request(file, offset, length):
        return struct.pack("<IQQ", file, offset, length)

    def status(self):
        return self.read(1)[0]

    def range(self, file, offset, length):
        """The bytes, or None where the peer says that there are none such."""
        self.send(self.request(file, offset, length))
        return self.read(length) if self.status() == STATUS_OK else None

    def digests(self, file, first=0):
        self.send(self.request(DIGESTS, file, first))
        if self.status() != STATUS_OK:
            return None
        (n,) = struct.unpack("<I", self.read(4))
        return [self.read(16) for _ in range(n)]


def wait_until(condition, what):
    """For what leaves no trace to wait for: asks again and again."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain for " + what)


class PeerTest(unittest.TestCase):
    """A directory to put models in, and peers that are gone when the test is."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = os.path.realpath(directory.name)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def small_model(self, name="m", body=b"0123456789", **files):
        """One shard of one tensor; returns the shard's path."""
        shard = self.path(name, "model.safetensors")
        write_file(shard, one_tensor(body))
        for file, content in files.items():
            write_file(self.path(name, file.replace("__", ".")), content)
        return shard

    def start(self, *words, listen=("127.0.0.1:0",), before=()):
        """Without waiting: for peers that are not to come up."""
        peer = Peer(*words, listen=listen, cache=self.path("cache"), before=before)
        self.addCleanup(peer.stop)
        return peer

    def serve(self, *directories, options=(), listen=("127.0.0.1:0",), before=()):
        """A peer of these directories that can be connected to."""
        words = [w for d in directories for w in ("--weights", d)]
        peer = self.start(*words, *options, listen=listen, before=before)
        peer.address = peer.addresses(len(listen))[0]
        return peer

    def connect(self, peer):
        client = Client(peer.address)
        self.addCleanup(client.socket.close)
        return client

    def assert_serves(self, peer, model="m"):
        """The peer lives, and new clients get what they ask for."""
        with Client(peer.address) as client:
            manifest = client.open(model)
            self.assertEqual(len(client.range(0, 0, 8)), 8)
            return manifest

    def assert_refuses_to_start(self, pattern, *words, listen=("127.0.0.1:0",)):
        peer = self.start(*words, listen=listen)
        self.assertEqual(peer.wait(), 1)
        self.assertRegex("\n".join(peer.log), pattern)


def main():
    unittest.main(verbosity=2)
