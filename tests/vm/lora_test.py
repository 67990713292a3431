"""`penstock lora` over real rails."""

import json
import subprocess

from lab import OneHost, harness

import adapters  # of tests/tools, which harness knows the way to


class OverRails(OneHost):
    def land(self, address, *words):
        """What it says, and the slot."""
        slot = self.path("slot.bin")
        done = subprocess.run([harness.PENSTOCK, "lora", address, "a", "--max-rank", "8", "-o", slot, "--json", *words],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), harness.read_file(slot)

    def test_an_adapter_lands_as_the_reference_says(self):
        tensors = adapters.adapter("F16", layers=range(4))
        adapters.write_adapter(self.path("a"), harness.safetensors(tensors), adapters.config())
        peer = self.serve(self.path("a"))
        right, _ = adapters.slot_of(tensors, 8)
        for words, transport in (("--transport", "rdma"), "rdma"), (("--transport", "tcp"), "tcp"):
            said, slot = self.land("%s:%d" % peer.address, *words)
            self.assertEqual(said["transport"], transport)
            self.assertEqual(slot, right)
