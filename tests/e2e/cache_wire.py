"""A client of the cache that writes the protocol by hand (docs/protocol.md 1.6, 2.2, 2.3 and 2.6), and what the tests
of the cache share."""

import os
import socket
import struct

import harness
from cache_blobs import blob, turn_of

PAGING_MAGIC_V1, PAGING_MAGIC = 0x5041474500000001, 0x5041474500000002
SSM, KV, STATISTICS = 0, 1, 0xFF

BYE, ALLOC, COMMIT, GET, REMOVE = range(5)
PUT, FETCH, WRITE, READ = 0x10, 0x11, 0x12, 0x13
EXISTS, MGET, RELEASE, OWN, WIDE, FEATURES = 0x20, 0x21, 0x22, 0x23, 0x24, 0x7F
OK, MISS, ERR = b"\0", b"\1", b"\2"  # ST_*

BIT_EXISTS, BIT_MGET, BIT_OWN, BIT_WIDE = 1, 2, 4, 8

KIB, MIB = 1 << 10, 1 << 20
BLOB = 16 * KIB
ARENA = 8 * BLOB

def header(kind=KV, arena_bytes=ARENA, blob_bytes=BLOB, magic=PAGING_MAGIC):
    return struct.pack("<QBQQ", magic, kind, arena_bytes, blob_bytes)


class CacheClient(harness.Client):
    """What both transports have in common. Requests that are sent by themselves (`send(client.get(7))`) may be
    pipelined; the calls below wait for their answers."""

    def __init__(self, address, kind=KV, arena_bytes=ARENA, blob_bytes=BLOB):
        super().__init__(address)
        self.address = address
        self.kind, self.arena_bytes, self.blob_bytes, self.is_wide = kind, arena_bytes, blob_bytes, False

    def request(self, op, key=0):
        if self.is_wide:
            return struct.pack("<BQQ", op, key % (1 << 64), key >> 64)
        return struct.pack("<BQ", op, key)

    def value_request(self, op, value):
        """Of FEATURES, OWN and WIDE, whose values never become wide."""
        return struct.pack("<BQ", op, value)

    def list_request(self, op, keys):
        return struct.pack("<BI", op, len(keys)) + b"".join(self.request(0, key)[1:] for key in keys)

    def ask_for(self, op, key=0):
        """The status of a request whose reply is one byte."""
        self.send(self.request(op, key))
        return self.read(1)

    def features(self):
        self.send(self.value_request(FEATURES, 1))
        status = self.read(1)
        return struct.unpack("<Q", self.read(8))[0] if status == OK else None

    def exists(self, key):
        return {OK: True, MISS: False}[self.ask_for(EXISTS, key)]

    def remove(self, key):
        self.expect(self.ask_for(REMOVE, key))

    def own(self, value):
        self.send(self.value_request(OWN, value))
        return self.read(1)

    def wide(self, value):
        self.send(self.value_request(WIDE, value))
        status = self.read(1)
        if status == OK:
            self.is_wide = bool(value)
        return status

    @staticmethod
    def expect(status, wanted=OK):
        if status != wanted:
            raise AssertionError(f"status {status[0]}, not {wanted[0]}")


class TcpClient(CacheClient):
    """Of the TCP data plane (2.2)."""

    def __init__(self, address, *, connected=True, **options):
        super().__init__(address, **options)
        if connected:
            self.send(header(self.kind, self.arena_bytes, self.blob_bytes) + b"\0")
            if self.read(2) != b"\0\0":
                raise AssertionError("no [u8 0][u8 STATUS_OK]")

    def put_request(self, key, body):
        return self.request(PUT, key) + body

    def put(self, key, body):
        self.send(self.put_request(key, body))
        return self.read(1)

    def put_turn(self, key, turn=0):
        self.expect(self.put(key, blob(key, turn, self.blob_bytes)))

    def take(self):
        """The reply to a FETCH: bytes, or None for a miss."""
        status = self.read(1)
        if status == MISS:
            return None
        self.expect(status)
        return self.read(self.blob_bytes)

    def fetch(self, key):
        self.send(self.request(FETCH, key))
        return self.take()

    def fetch_turn(self, key):
        """Of a blob that is whole; None for a miss."""
        body = self.fetch(key)
        return None if body is None else turn_of(body, key)

    # ---- raw mode ----

    def write(self, offset, body):
        self.send(struct.pack("<BQI", WRITE, offset, len(body)) + body)
        return self.read(1)

    def read_range(self, offset, length):
        """The bytes, or None where the peer says that there are none such."""
        self.send(struct.pack("<BQI", READ, offset, length))
        return self.read(length) if self.read(1) == OK else None


def vanish(client):
    """Closes as a process that is killed with bytes unread, or as one whose host has crashed and come back."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def statistics(address):
    with harness.Client(address) as client:
        client.send(header(STATISTICS, 0, 0))
        found = client.read_json()
        if not client.is_closed():
            raise AssertionError("more than one message of statistics")
        return found


def arena_of(address, kind=KV, blob_bytes=BLOB):
    """The statistics of one arena."""
    name = {KV: "kv", SSM: "ssm"}[kind]
    for arena in statistics(address)["arenas"]:
        if (arena["kind"], arena["blob_bytes"]) == (name, blob_bytes):
            return arena
    raise AssertionError(f"no {name} arena of {blob_bytes}-byte blobs: {statistics(address)}")


class CacheTest(harness.PeerTest):
    """Peers with a swap directory of the test's own, unless it says otherwise."""

    def serve_cache(self, *options, swap=("--swap-dir", None), before=()):
        words = [word or self.swap_directory() for word in swap]
        peer = self.start("--cache", "--listen-cache", "127.0.0.1:0", *words, *options, listen=(), before=before)
        peer.address = peer.addresses(tier="cache")[0]
        return peer

    def swap_directory(self):
        path = self.path("swap")
        os.makedirs(path, exist_ok=True)
        return path

    def connect(self, peer, **options):
        client = TcpClient(peer.address, **options)
        self.addCleanup(client.socket.close)
        return client

    def assert_lives(self, peer):
        with TcpClient(peer.address, kind=SSM, blob_bytes=4096, arena_bytes=4096) as client:
            client.put_turn(1, 2)
            self.assertEqual(client.fetch_turn(1), 2)

    def assert_arena(self, peer, **figures):
        """Once they are so: connections end, and blobs are spilled, a little later than clients see."""
        def found():
            arena = arena_of(peer.address)
            return {name: arena[name] for name in figures}
        try:
            harness.wait_until(lambda: found() == figures, figures)
        except AssertionError:
            self.assertEqual(found(), figures)
