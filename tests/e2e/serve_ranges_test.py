"""Requests of ranges (docs/protocol.md 2.1): bytes, refusals, order."""

import random
import struct

import harness
from harness import DIGESTS, END, STATUS_ERR, STATUS_OK

MIB = 1 << 20


class Ranges(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.shard = harness.read_file(self.small_model(body=random.Random(1).randbytes(3 * MIB),
                                                        config__json=b'{"a":1}', empty__txt=b""))
        self.peer = self.serve(self.path("m"))
        self.client = self.connect(self.peer)
        self.manifest = self.client.open("m")

    def test_any_range_of_a_shard(self):
        for offset, length in [(0, 1), (0, len(self.shard)), (len(self.shard) - 1, 1), (4095, 2), (1, 2 * MIB)]:
            self.assertTrue(self.client.range(0, offset, length) == self.shard[offset:offset + length])

    def test_other_files_come_after_the_shards(self):
        names = [f["name"] for f in self.manifest["files"]]
        self.assertEqual(sorted(names), ["config.json", "empty.txt"])
        self.assertEqual(self.client.range(1 + names.index("config.json"), 0, 7), b'{"a":1}')
        self.assertIsNone(self.client.range(1 + names.index("empty.txt"), 0, 1))

    def test_what_is_refused_is_a_status_and_the_connection_goes_on(self):
        size = len(self.shard)
        for file, offset, length in [(0, 0, 0), (0, size, 1), (0, size - 1, 2), (0, 0, size + 1), (0, 0, (64 * MIB) + 1),
                                     (0, 2**64 - 1, 2), (0, 2, 2**64 - 1), (3, 0, 1), (0xFFFFFFFD, 0, 1),
                                     (DIGESTS, 3, 0), (DIGESTS, 0, 1), (DIGESTS, 2**64 - 1, 0)]:
            self.client.send(self.client.request(file, offset, length))
            self.assertEqual(self.client.status(), STATUS_ERR, (file, offset, length))
        self.assertEqual(self.client.range(0, 0, 8), self.shard[:8])

    def test_hundreds_of_requests_at_once_are_answered_in_order(self):
        rng = random.Random(2)
        ranges = []
        for i in range(256):
            length = rng.choice([1, 100, 8192, 24 * 1024, 60000])
            ranges.append((rng.randrange(len(self.shard) - length), length if i % 10 else 0))
        self.client.send(b"".join(self.client.request(0, *r) for r in ranges))
        for offset, length in ranges:
            self.assertEqual(self.client.status(), STATUS_OK if length else STATUS_ERR)
            self.assertTrue(self.client.read(length) == self.shard[offset:offset + length])

    def test_requests_may_come_in_pieces(self):
        body = b"".join(self.client.request(0, i, 8) for i in range(10))
        for i in range(0, len(body), 7):
            self.client.send(body[i:i + 7])
        for i in range(10):
            self.assertEqual(self.client.status(), STATUS_OK)
            self.assertEqual(self.client.read(8), self.shard[i:i + 8])

    def test_the_end_is_the_peers_close_after_all_that_was_asked_for(self):
        self.client.send(self.client.request(0, 0, len(self.shard)) + self.client.request(END, 0, 0) +
                         self.client.request(0, 0, 8))
        self.assertEqual(self.client.status(), STATUS_OK)
        self.assertTrue(self.client.read(len(self.shard)) == self.shard)
        self.assertTrue(self.client.is_closed())

    def test_digests_come_when_they_are_known(self):
        harness.wait_until(lambda: self.client.digests(0), "a digest")
        (digest,) = self.client.digests(0)
        names = [f["name"] for f in self.manifest["files"]]
        # Two peers, or one that starts again, say the same of the same bytes.
        again = self.connect(self.serve(self.path("m")))
        again.open("m")
        harness.wait_until(lambda: again.digests(0), "a digest")
        self.assertEqual(again.digests(0), [digest])
        self.assertIsNone(self.client.digests(1 + names.index("empty.txt")))

    def test_a_peer_that_keeps_no_digests_says_so(self):
        client = self.connect(self.serve(self.path("m"), options=("--no-digests",)))
        client.open("m")
        self.assertIsNone(client.digests(0))

    def test_a_tensor_lies_where_the_manifest_says(self):
        (tensor,) = self.manifest["tensors"]
        (header,) = struct.unpack("<Q", self.shard[:8])
        self.assertEqual(tensor["offset_in_shard"], 8 + header)
        self.assertTrue(self.client.range(tensor["shard_index"], tensor["offset_in_shard"], tensor["len"]) ==
                        self.shard[8 + header:])


if __name__ == "__main__":
    harness.main()
