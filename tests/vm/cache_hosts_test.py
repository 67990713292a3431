"""A client of the cache whose host falls silent: no end of its connection ever comes."""

import time

from lab import RemotePeer, TwoHosts, harness, note, output

from cache_blobs import blob
from cache_rails import RailsClient, WorkRequestFailed
from cache_wire import BLOB, TcpClient, arena_of

RAIL_LINK = "10.77.1.1"  # the peer's end of the link that goes down


class SilentHost(TwoHosts):
    def test_gives_back_what_it_held_once_its_rails_can_touch_it_no_more(self):
        peer = RemotePeer(self.far_host, ["--cache", "--no-swap", "--deadline-scale", "0.1"], "cache", "0.0.0.0")
        self.addCleanup(peer.stop)
        silent = RailsClient((RAIL_LINK, peer.address[1]), devices=["rxe1"])
        self.addCleanup(silent.kill)
        other = TcpClient(peer.address)
        self.addCleanup(other.socket.close)
        silent.put_turn(1, 1)
        silent.own(1)
        silent.put_turn(2, 1)
        slot = silent.alloc(3)
        silent.write(slot, blob(3, 1, BLOB)[:BLOB // 2])
        silent.get(1)
        found = arena_of(peer.address)
        self.assertEqual((found["reserved"], found["pinned"], found["connections"]), (1, 1, 2))

        self.addCleanup(output, "ip", "link", "set", "eth1", "up")
        output("ip", "link", "set", "eth1", "down")
        began = time.monotonic()
        other.put_turn(4, 1)
        self.assertEqual([other.fetch_turn(key) for key in (1, 3, 4)], [1, None, 1], "others go on")
        harness.wait_until(lambda: arena_of(peer.address)["connections"] == 1, "the end of the silent one")
        note(f"given up after {time.monotonic() - began:.1f} s")
        found = arena_of(peer.address)
        self.assertEqual((found["reserved"], found["pinned"]), (0, 0))
        self.assertEqual([other.fetch_turn(key) for key in (1, 2, 3)], [1, None, None])

        output("ip", "link", "set", "eth1", "up")
        for key in range(10, 30):
            other.put_turn(key, 1)
        with self.assertRaises(WorkRequestFailed):
            silent.write(slot, blob(3, 2, BLOB))  # it has come back, and does not know
        for key in range(23, 30):
            self.assertEqual(other.fetch_turn(key), 1)
