"""Our client at peers of the frozen protocol that know nothing of ours (programs/raw_peer.c, on bare libibverbs): right
ones, and wrong ones."""

import json
import os
import select
import struct
import subprocess
import time

from lab import DEVICES, MIB, PATIENCE, OneHost, Pull, harness, model, note, program, resources, shards_of


def manifest_of(directory):
    """As a peer of the frozen protocol has it: no version, no other files."""
    shards, tensors = shards_of(directory), []
    for i, shard in enumerate(shards):
        with open(shard, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            first, end = tensor["data_offsets"]
            tensors.append({"name": name, "dtype": tensor["dtype"], "shape": tensor["shape"],
                            "offset_in_shard": 8 + length + first, "len": end - first, "shard_index": i,
                            "extra": False})
    return {"version": 1, "model_id": directory, "shard_files": [os.path.basename(s) for s in shards],
            "shard_lens": [os.path.getsize(s) for s in shards], "tensors": tensors}


class RawPeer:
    """programs/raw_peer.c; the lines in which it says what its clients do are taken one by one."""

    def __init__(self, test, *words):
        self.process = subprocess.Popen([program("raw_peer"), *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, bufsize=0)
        test.addCleanup(self.process.stdout.close)
        test.addCleanup(self.process.wait, PATIENCE)
        test.addCleanup(self.process.kill)
        self.said = []
        self.address = ("127.0.0.1", int(self.wait_for("listening on ")))

    def wait_for(self, beginning):
        """The rest of the next line that begins so."""
        deadline = time.monotonic() + PATIENCE
        while select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            line = self.process.stdout.readline().decode().rstrip()  # whole lines are written, each at once
            self.said.append(line)
            if line.startswith(beginning):
                return line[len(beginning):].strip()
            if not line:
                break
        raise AssertionError(f"no {beginning!r} in {self.said}")


class FrozenPeers(OneHost):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(self.wait_for_resources)  # runs last: peers are gone by then
        self.model = model("two-shards", total_bytes=4 * MIB, n_shards=2)
        with open(self.path("manifest.json"), "w", encoding="utf-8") as out:
            json.dump(manifest_of(self.model), out, separators=(",", ":"))

    def wait_for_resources(self):
        harness.wait_until(lambda: resources() == self.before, f"{self.before}, not {resources()}")

    def raw_peer(self, *words, devices=DEVICES):
        rails = [word for device in devices for word in ("--device", device)]
        return RawPeer(self, *rails, *words, "--manifest", self.path("manifest.json"), "two-shards",
                       *shards_of(self.model))

    def try_pull(self, peer, *words):
        return Pull(peer.address, "two-shards", *words).wait()

    def assert_shards_are_right(self, pulled):
        self.assertEqual(pulled.status, 0, pulled.said)
        for shard in shards_of(self.model):
            name = os.path.basename(shard)
            self.assertEqual(harness.read_file(os.path.join(pulled.directory, name)), harness.read_file(shard), name)

    def test_a_pull_over_two_rails_is_right(self):
        for transport in ("auto", "rdma"):
            peer = self.raw_peer()
            self.assert_shards_are_right(self.try_pull(peer, "--transport", transport))
            self.assertEqual(peer.wait_for("rails "), "2")
            peer.wait_for("connected")
            peer.wait_for("closed: by the client")
        self.wait_for_resources()

    def test_a_peer_with_fewer_rails_is_asked_again_for_fewer(self):
        peer = self.raw_peer(devices=DEVICES[:1])
        self.assert_shards_are_right(self.try_pull(peer))
        peer.wait_for("connected")
        self.assertIn("rails 2", peer.said)
        self.assertIn("rails 1", peer.said)

    def test_a_peer_of_rdma_alone_is_not_asked_for_tcp(self):
        peer = self.raw_peer()
        pulled = self.try_pull(peer, "--transport", "tcp")
        self.assertNotEqual(pulled.status, 0, pulled.said)
        self.assertEqual(peer.wait_for("mode "), "0")

    def test_what_such_a_peer_does_wrong_is_said(self):
        for words, said in ((["--wrong-rkey"], "remote access error"),
                            (["--wrong-gid"], "transport retry counter exceeded"),
                            (["--regions", "1"], "1 .*region|region.* 1"),
                            (["--grant", "1"], "framed 1 rails but client negotiated 2"),
                            (["--grant", "0"], "implausible server rail count: 0"),
                            (["--grant", "9"], "implausible server rail count: 9"),
                            (["--ack", "7"], r"refused connection \(ack 7\)"),
                            (["--close-after", "step2"], "closed"),
                            (["--close-after", "step3"], "closed")):
            pulled = self.try_pull(self.raw_peer(*words))
            note(f"{' '.join(words)} ({pulled.seconds:.1f} s): {pulled.said.strip()}")
            self.assertNotEqual(pulled.status, 0, words)
            self.assertRegex(pulled.said, said)
        self.wait_for_resources()

    def test_a_peer_that_drops_its_rails_and_says_nothing_is_an_error_in_time(self):
        pulled = self.try_pull(self.raw_peer("--drop-after", "0"))
        self.assertNotEqual(pulled.status, 0, pulled.said)
        note(f"rails that answer no more ({pulled.seconds:.1f} s): {pulled.said.strip()}")
        self.assertLess(pulled.seconds, 30)
