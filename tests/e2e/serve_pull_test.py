"""Both ends, as a user meets them: penstock serve on one side, penstock ls and pull on the other."""

import json
import os
import subprocess

import harness
from harness import PENSTOCK

MIB = 1 << 20


class ServeAndPull(harness.PeerTest):
    def setUp(self):
        super().setUp()
        harness.make_model(self.path("m"), total_bytes=24 * MIB)
        self.peer = self.serve(self.path("m"), listen=["127.0.0.1:0"])
        self.name = "%s:%d" % self.peer.address

    def penstock(self, *words, status=0):
        done = subprocess.run([PENSTOCK, *words], cwd=self.root, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def files(self, root):
        return {os.path.relpath(os.path.join(at, f), root): harness.read_file(os.path.join(at, f))
                for at, _, names in os.walk(root) for f in names if not f.startswith(".")}

    def test_a_pulled_model_is_the_served_one_byte_for_byte_and_verified(self):
        done = self.penstock("pull", self.name, "m", "-o", "copy", "--json")
        self.assertTrue(self.files(self.path("copy")) == self.files(self.path("m")))
        self.assertEqual(json.loads(done.stdout)["verified"], True)

    def test_one_connection_is_enough(self):
        self.penstock("pull", self.name, "m", "-o", "copy", "-j", "1", "--no-verify")
        self.assertTrue(self.files(self.path("copy")) == self.files(self.path("m")))

    def test_models_and_tensors_are_listed(self):
        self.assertIn("m", self.penstock("ls", self.name).stdout)
        listed = self.penstock("ls", self.name, "m").stdout
        self.assertIn("model.layers.39.weight", listed)

    def test_a_model_that_is_not_staged_is_answered_with_what_there_is(self):
        done = self.penstock("pull", self.name, "missing", status=1)
        self.assertRegex(done.stderr, r"missing[^\n]*\bm\b")

    def test_a_closed_port_says_what_to_do(self):
        self.assertEqual(self.peer.stop(), 0)
        done = self.penstock("pull", self.name, "m", status=1)
        self.assertIn(self.name, done.stderr)
        self.assertIn("penstock serve", done.stderr)

    def test_a_peer_that_does_not_exist(self):
        done = self.penstock("ls", "no-such-peer.invalid", status=1)
        self.assertIn("no-such-peer.invalid does not resolve", done.stderr)


if __name__ == "__main__":
    harness.main()
