"""Files that change under a peer: replaced, rewritten, cut short while they are served or hashed."""

import os

import harness
from harness import STATUS_ERR, STATUS_OK

MIB = 1 << 20


class ChangedFiles(harness.PeerTest):
    def replace(self, shard, body):
        """As downloads do: a new file gets the old one's name."""
        harness.write_file(shard + ".new", harness.one_tensor(body))
        os.rename(shard + ".new", shard)

    def test_a_replaced_model_is_staged_anew_and_old_connections_keep_the_old_bytes(self):
        shard = self.small_model(body=b"old bytes")
        peer = self.serve(self.path("m"))
        before = self.connect(peer)
        old = before.open("m")
        self.replace(shard, b"bytes that are new")
        after = self.connect(peer)
        new = after.open("m")
        self.assertNotEqual(old["model_version"], new["model_version"])
        for client, manifest, body in [(before, old, b"old bytes"), (after, new, b"bytes that are new")]:
            (t,) = manifest["tensors"]
            self.assertEqual(client.range(0, t["offset_in_shard"], t["len"]), body)
        joins = self.connect(peer)
        joins.ask(f"penstock:join {old['model_version']} m")
        self.assertIn("another version", joins.read_json()["error"])

    def test_a_file_rewritten_in_place_closes_its_connections(self):
        shard = self.small_model(body=bytes(MIB))
        peer = self.serve(self.path("m"))
        client = self.connect(peer)
        old = client.open("m")
        with open(shard, "r+b") as f:
            f.seek(-4, os.SEEK_END)
            f.write(b"news")
        self.assertTrue(client.is_closed())
        peer.wait_for_log("changed in place: its connections are closed")
        self.assertNotEqual(self.assert_serves(peer)["model_version"], old["model_version"])

    def test_a_model_that_breaks_is_refused_and_served_again_when_it_is_mended(self):
        shard = self.small_model()
        peer = self.serve(self.path("m"))
        good = harness.read_file(shard)
        harness.write_file(shard + ".new", good[:20])
        os.rename(shard + ".new", shard)
        client = self.connect(peer)
        client.ask("m")
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"refused: .*model\.safetensors")
        harness.write_file(shard + ".new", good)
        os.rename(shard + ".new", shard)
        self.assert_serves(peer)

    def cut(self, length):
        """A model of 4 MiB, of which length is left; its peer, and a connection from before."""
        shard = self.small_model(body=bytes(4 * MIB))
        peer = self.serve(self.path("m"), options=("--no-digests", "--no-warm"))
        client = self.connect(peer)
        client.open("m")
        os.truncate(shard, length)
        return peer, client

    def refused_then_closed(self, peer, client, n):
        self.assertEqual([client.status() for _ in range(n)], [STATUS_ERR] * n)
        peer.wait_for_log(r"refused a range: m: model\.safetensors was cut short while it was served")
        with self.assertRaises((EOFError, ConnectionResetError)):
            client.read(1)  # the watch closes it: its files are not those of its manifest
        self.connect(peer)  # the peer lives

    def test_long_ranges_of_a_shard_cut_short_are_refused(self):
        peer, client = self.cut(MIB)
        client.send(client.request(0, 0, 4 * MIB))
        self.refused_then_closed(peer, client, 1)

    def test_short_ranges_of_a_shard_cut_short_are_refused(self):
        peer, client = self.cut(MIB)
        client.send(b"".join(client.request(0, 2 * MIB + 8192 * i, 4096) for i in range(20)))
        self.refused_then_closed(peer, client, 20)

    def test_the_page_that_the_cut_goes_through_is_not_made_up_with_zeros(self):
        peer, client = self.cut(MIB + 100)
        client.send(client.request(0, MIB, 200))
        self.refused_then_closed(peer, client, 1)

    def test_what_is_left_of_a_shard_is_served_until_the_peer_looks(self):
        _, client = self.cut(MIB)
        client.send(client.request(0, 0, 1000))
        self.assertEqual(client.status(), STATUS_OK)
        client.read(1000)

    def test_a_shard_cut_short_while_it_is_hashed_leaves_the_peer_alive(self):
        whole = harness.one_tensor(b"")
        shard = self.path("m", "model.safetensors")
        size = 1 << 30  # a hole: it takes no disk, and a while to hash
        header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
        harness.write_file(shard, len(header).to_bytes(8, "little") + header)
        os.truncate(shard, 8 + len(header) + size)
        self.small_model("n", body=whole)
        peer = self.serve(self.path("m"), self.path("n"), options=("--no-warm",))
        client = self.connect(peer)
        client.open("m")
        harness.wait_until(lambda: client.digests(0), "the first digest")
        os.truncate(shard, 100)
        peer.wait_for_log(r"no more digests of model\.safetensors|files of m")
        self.assert_serves(peer, "n")


if __name__ == "__main__":
    harness.main()
