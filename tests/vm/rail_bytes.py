"""A client that writes the rail handshake by hand (docs/protocol.md 1.3, 1.5 and 2.7). It connects no QP of its own:
for what a peer makes of its bytes that is enough."""

import struct

from lab import harness

ANY_RAIL = 0xFF


class RailClient(harness.Client):
    def step1(self, n_rails):
        """Frozen: a number."""
        self.send(harness.MODE_VERBS + bytes([n_rails]))

    def choose(self, *wishes):
        """(peer rail, path MTU, READs) of each; returns the peer's answer, likewise."""
        self.send(harness.MODE_VERBS + bytes([0x80 | len(wishes)]) + b"".join(bytes(wish) for wish in wishes))
        return [tuple(self.read(3)) for _ in wishes]

    def step2(self):
        """Of each rail the peer's (qpn, psn, gid, [(base, rkey) of each shard])."""
        rails = []
        for _ in range(self.read(1)[0]):
            qpn, psn, gid, n = struct.unpack("<II16sI", self.read(28))
            rails.append((qpn, psn, gid, [struct.unpack("<QI", self.read(12)) for _ in range(n)]))
        return rails

    def step3(self, *gids, said=None):
        """A client's QPs, which do not exist, at these GIDs."""
        params = b"".join(struct.pack("<II16s", 0x77 + i, 0x123456, gid) for i, gid in enumerate(gids))
        self.send(bytes([len(gids) if said is None else said]) + params)

    def connect_rails(self, *gids):
        """All of it, frozen; returns the peer's rails."""
        self.step1(len(gids))
        rails = self.step2()
        self.step3(*gids)
        ack = self.read(1)[0]
        if ack != harness.STATUS_OK:
            raise AssertionError(f"ack {ack}")
        return rails


def mapped(address):
    """The GID of an IPv4 address."""
    return bytes(10) + b"\xff\xff" + bytes(int(part) for part in address.split("."))
