"""Directories that are served, and those that are not: links, the Hugging Face cache, broken files."""

import os

import harness


class Links(harness.PeerTest):
    def test_a_shard_that_is_a_link_out_of_the_directory_is_not_served(self):
        outside = self.small_model("outside")
        os.makedirs(self.path("m"))
        os.symlink(outside, self.path("m/model.safetensors"))
        self.assert_refuses_to_start(r"model\.safetensors.*link", "--weights", self.path("m"))
        self.assert_serves(self.serve(self.path("m"), options=("--follow-links",)))

    def test_another_file_that_is_a_link_out_of_the_directory_is_left_out_with_a_warning(self):
        self.small_model("m", config__json=b"{}")
        harness.write_file(self.path("secret"), b"s")
        os.symlink(self.path("secret"), self.path("m/tokenizer.json"))
        os.symlink("config.json", self.path("m/generation_config.json"))
        peer = self.serve(self.path("m"))
        names = [f["name"] for f in self.assert_serves(peer)["files"]]
        self.assertEqual(sorted(names), ["config.json", "generation_config.json"])
        peer.wait_for_log(r"tokenizer\.json")

    def test_a_directory_of_the_hugging_face_cache(self):
        repository = self.path("hub/models--org--name")
        snapshot = os.path.join(repository, "snapshots/abc123")
        os.makedirs(snapshot)
        body = harness.one_tensor(b"weights")
        for name, blob, content in [("model.safetensors", "b1", body), ("config.json", "b2", b"{}")]:
            harness.write_file(os.path.join(repository, "blobs", blob), content)
            os.symlink("../../blobs/" + blob, os.path.join(snapshot, name))
        harness.write_file(self.path("outside"), b"s")
        os.symlink(self.path("outside"), os.path.join(snapshot, "other.json"))
        peer = self.serve(snapshot)
        client = self.connect(peer)
        manifest = client.open("org/name")
        self.assertEqual([f["name"] for f in manifest["files"]], ["config.json"])
        self.assertEqual(client.range(0, 0, len(body)), body)


class BrokenModels(harness.PeerTest):
    def refuses(self, body, pattern):
        harness.write_file(self.path("m/model.safetensors"), body)
        self.assert_refuses_to_start(pattern, "--weights", self.path("m"))

    def test_files_that_are_not_safetensors_are_named(self):
        self.refuses(b"", r"stage \S+/m: model\.safetensors")
        self.refuses(b"1234567", r"stage \S+/m: model\.safetensors")
        self.refuses(b"\xff" * 64, r"stage \S+/m: model\.safetensors")
        self.refuses((2).to_bytes(8, "little") + b"[]", r"stage \S+/m: model\.safetensors")

    def test_a_tensor_that_leaves_its_file_is_named(self):
        self.refuses(harness.safetensors({"my.tensor": ("U8", [9], b"123456789")})[:-1],
                     r"stage \S+/m: model\.safetensors.*my\.tensor")

    def test_a_tensor_whose_length_is_wrong_is_named(self):
        self.refuses(harness.safetensors({"my.tensor": ("F32", [2], b"1234567")}), r"stage \S+/m: model\.safetensors.*my\.tensor")

    def test_no_model_there(self):
        self.assert_refuses_to_start(r"nowhere.*No such file", "--weights", self.path("nowhere"))
        os.makedirs(self.path("empty"))
        self.assert_refuses_to_start(r"empty", "--weights", self.path("empty"))

    def test_weights_in_a_second_format_are_not_served(self):
        self.small_model("m", **{"pytorch_model__bin": b"x", "config__json": b"{}", "m__gguf": b"x"})
        names = [f["name"] for f in self.assert_serves(self.serve(self.path("m")))["files"]]
        self.assertEqual(names, ["config.json"])


class Models(harness.PeerTest):
    def test_shards_and_files_of_a_whole_directory(self):
        harness.make_model(self.path("m"), total_bytes=1 << 20)
        peer = self.serve(self.path("m"))
        client = self.connect(peer)
        manifest = client.open("m")
        self.assertEqual(manifest["shard_files"], [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)])
        names = manifest["shard_files"] + [f["name"] for f in manifest["files"]]
        self.assertIn("1_Pooling/config.json", names)
        for i, name in enumerate(names):
            body = harness.read_file(self.path("m", name))
            self.assertTrue(client.range(i, 0, len(body)) == body, name)


if __name__ == "__main__":
    harness.main()
