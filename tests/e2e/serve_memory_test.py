"""--max-memory: a model above the ceiling is refused before its manifest, and the peer goes on."""

import os

import harness

KIB = 1 << 10


class MemoryCeiling(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model("small", body=bytes(10 * KIB))
        self.small_model("big", body=bytes(100 * KIB))

    def test_a_directory_that_does_not_fit_ends_the_start(self):
        self.assert_refuses_to_start(
            r"big: big needs 100\.\d\d KiB of memory, and of the 64\.00 KiB that --max-memory allows 0 B are in use",
            "--weights", self.path("big"), "--max-memory", "64K")

    def test_a_path_that_does_not_fit_is_closed_before_the_manifest_and_the_log_says_why(self):
        peer = self.serve(self.path("small"), options=("--allow-any-path", "--max-memory", "64K"))
        client = self.connect(peer)
        client.ask(self.path("big"))
        self.assertTrue(client.is_closed())
        peer.wait_for_log(r"refused: .*big needs .* 10\.\d\d KiB are in use \(small 10\.\d\d KiB\)")
        self.assert_serves(peer, "small")

    def test_who_joins_is_told_in_words(self):
        peer = self.serve(self.path("small"), options=("--allow-any-path", "--max-memory", "64K"))
        client = self.connect(peer)
        client.ask("penstock:join v1 " + self.path("big"))
        self.assertIn("--max-memory", client.read_json()["error"])
        self.assertTrue(client.is_closed())

    def test_what_fits_is_served_again_and_again(self):
        """Each version of the model is given back when nobody has it any more: else the third would not fit."""
        peer = self.serve(self.path("small"), options=("--max-memory", "25K"))

        def is_served():  # once the last one's connection has ended
            try:
                self.assert_serves(peer, "small")
                return True
            except (EOFError, ConnectionResetError):
                return False
        for i in range(5):
            os.unlink(self.path("small", "model.safetensors"))
            self.small_model("small", body=bytes([i]) * (10 * KIB))
            harness.wait_until(is_served, "room for a new version")

    def test_a_size_that_is_none_is_refused(self):
        for size in ("0", "lots", "1.5G", "12KB", "-1"):
            peer = self.start("--weights", self.path("small"), "--max-memory", size)
            self.assertEqual(peer.wait(), 2)
            self.assertIn("a size is wanted", peer.log[0])


if __name__ == "__main__":
    harness.main()
