"""A client of the cache over verbs that writes the frozen protocol by hand (docs/protocol.md 1.3, 1.6, and 2.3 where it
is asked for): the bytes here, the rails in programs/raw_rails.c."""

import mmap
import os
import struct
import subprocess
import tempfile

from lab import DEVICES, harness, program

from cache_blobs import blob, turn_of
from cache_wire import ALLOC, COMMIT, GET, MGET, MIB, MISS, OK, RELEASE, CacheClient, header

SERVER_RECORD = struct.Struct("<II16sQI")  # CacheServerParams


class WorkRequestFailed(Exception):
    pass


class RailsClient(CacheClient):
    """Connected when it is made, or as far as a step of the handshake."""

    STEPS = ("header", "step1", "step2", "step3", "ack")

    def __init__(self, address, devices=DEVICES, memory_bytes=MIB, stop_after="ack", **options):
        self.file = tempfile.NamedTemporaryFile(dir="/dev/shm")
        os.truncate(self.file.name, memory_bytes)
        self.memory = mmap.mmap(self.file.fileno(), memory_bytes)
        self.process = subprocess.Popen([program("raw_rails"), self.file.name, str(memory_bytes), *devices],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline().split()
        if said[:1] != ["rails"]:
            raise AssertionError(" ".join(said))
        self.identities, self.devices, self.n = said[1:], devices, len(devices)
        super().__init__(address, **options)
        for step in self.STEPS[:self.STEPS.index(stop_after) + 1]:
            getattr(self, "_" + step)()

    # ---- the handshake ----

    def _header(self):
        self.send(header(self.kind, self.arena_bytes, self.blob_bytes))

    def _step1(self):
        """Frozen: the first rails. Others can only be wished for (2.7)."""
        if self.devices == DEVICES[:self.n]:
            self.send(bytes([self.n]))
            return
        wishes = [bytes([DEVICES.index(device), 5, 16]) for device in self.devices]
        self.send(bytes([0x80 | self.n]) + b"".join(wishes))
        if [self.read(3)[0] for _ in wishes] != [wish[0] for wish in wishes]:
            raise AssertionError("other rails than were wished for")

    def _step2(self):
        if self.read(1)[0] != self.n:
            raise AssertionError("another number of rails")
        self.rails = [SERVER_RECORD.unpack(self.read(SERVER_RECORD.size)) for _ in range(self.n)]
        self.base = self.rails[0][3]

    def _step3(self):
        self.send(bytes([self.n]) + bytes.fromhex("".join(self.identities)))

    def _ack(self):
        self.command("connect", *(struct.pack("<II16s", *rail[:3]).hex() for rail in self.rails))
        if self.read(1) != b"\0":
            raise AssertionError("refused")

    # ---- rails ----

    def tell(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def command(self, *words):
        """What it answers, where that is no failure."""
        self.tell(*words)
        said = self.process.stdout.readline().strip()
        if said.startswith("failed") or not said:
            raise WorkRequestFailed(said)
        return said

    def range(self, rail, offset, length, local=0):
        return rail, local, self.base + offset, self.rails[rail][4], length

    def move(self, what, offset, length):
        """An equal piece over each rail."""
        piece = length // self.n
        for rail in range(self.n):
            at = rail * piece
            self.command(what, *self.range(rail, offset + at, piece if rail + 1 < self.n else length - at, at))

    def write(self, offset, body):
        self.memory[:len(body)] = body
        self.move("write", offset, len(body))

    def read_range(self, offset, length):
        self.memory[:length] = bytes(length)
        self.move("read", offset, length)
        return self.memory[:length]

    def write_forever(self, offset, body):
        """Over rail 0, until the process is killed or a WRITE fails."""
        self.memory[:len(body)] = body
        return self.command("write-forever", *self.range(0, offset, len(body)))

    # ---- requests ----

    def slot(self):
        """The reply to ALLOC or GET: an offset, or the status."""
        status = self.read(1)
        return struct.unpack("<Q", self.read(8))[0] if status == OK else status

    def alloc(self, key):
        self.send(self.request(ALLOC, key))
        return self.slot()

    def get(self, key):
        self.send(self.request(GET, key))
        return self.slot()

    def mget(self, keys):
        self.send(self.list_request(MGET, keys))
        return [self.slot() for _ in keys]

    def release(self, keys):
        self.send(self.list_request(RELEASE, keys))
        self.expect(self.read(1))

    def commit(self, key):
        return self.ask_for(COMMIT, key)

    def put(self, key, body):
        """The status, as of a PUT over TCP."""
        offset = self.alloc(key)
        if isinstance(offset, bytes):
            return offset
        self.write(offset, body)
        return self.commit(key)

    def put_turn(self, key, turn=0):
        self.expect(self.put(key, blob(key, turn, self.blob_bytes)))

    def fetch(self, key):
        offset = self.get(key)
        if offset == MISS:
            return None
        if isinstance(offset, bytes):
            raise AssertionError(f"status {offset[0]}")
        return self.read_range(offset, self.blob_bytes)

    def fetch_turn(self, key):
        body = self.fetch(key)
        return None if body is None else turn_of(body, key)

    # ---- ends ----

    def close(self):
        """As a client that leaves: rails, then the connection."""
        self.process.stdin.close()
        self.process.wait(harness.PATIENCE)
        self.socket.close()
        self.forget()

    def kill(self):
        """As SIGKILL leaves it: rails and connection at once."""
        self.process.kill()
        self.socket.close()
        self.process.wait(harness.PATIENCE)
        self.forget()

    def forget(self):
        for end in (self.process.stdin, self.process.stdout):
            try:
                end.close()
            except BrokenPipeError:
                pass
        self.memory.close()
        self.file.close()
