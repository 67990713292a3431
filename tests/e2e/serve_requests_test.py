"""Model requests (docs/protocol.md 1.5) and those that begin with penstock: (2.5)."""

import os
import struct

import harness


class ModelRequests(harness.PeerTest):
    def setUp(self):
        super().setUp()
        self.small_model("models/m")
        self.small_model("models/other", body=b"xyz", config__json=b"{}")
        self.peer = self.serve(self.path("models/m"), "name=" + self.path("models/other"))

    def ask(self, text):
        client = self.connect(self.peer)
        client.ask(text)
        return client

    def test_the_list_of_models(self):
        client = self.ask("penstock:models")
        answer = client.read_json()
        self.assertTrue(client.is_closed())
        m, other = sorted(answer["models"], key=lambda model: model["id"])
        self.assertEqual((answer["version"], m["id"], m["shards"], m["tensors"], m["files"]), (1, "m", 1, 1, 0))
        self.assertEqual((other["id"], other["files"]), ("name", 1))
        self.assertEqual(m["bytes"], os.stat(self.path("models/m/model.safetensors")).st_size)
        self.assertEqual(m["model_version"], self.ask("m").read_json()["model_version"])

    def test_a_model_by_its_path_its_last_component_or_its_name(self):
        where = self.path("models/other")
        for text in [where, where + "//", where.replace("/models/", "//models/./"), "other", "name"]:
            self.assertEqual(self.ask(text).read_json()["model_id"], where, text)

    def test_a_model_that_is_not_staged_is_closed_and_the_log_says_what_to_do(self):
        for text in ["missing", self.path("models"), self.path("models/m/.."), "/etc", "models/m"]:
            self.assertTrue(self.ask(text).is_closed(), text)
        self.peer.wait_for_log("refused: model missing is not staged here: stage its directory with --weights; "
                               "staged are: m, name")
        self.peer.wait_for_log("refused: model /etc is not staged here: .*--allow-any-path")

    def test_any_path_is_staged_where_the_operator_allows_it(self):
        peer = self.serve(self.path("models/m"), options=("--allow-any-path",))
        client = self.connect(peer)
        self.assertEqual(client.manifest(self.path("models/other"))["model_id"], self.path("models/other"))

    def test_implausible_lengths_are_closed(self):
        for length in [0, 8193, 0xFFFFFFFF]:
            client = self.connect(self.peer)
            client.send(struct.pack("<I", length))
            self.assertTrue(client.is_closed())
            self.peer.wait_for_log(f"implausible model request length: {length}")

    def test_the_longest_request_is_read(self):
        self.assertTrue(self.ask("x" * 8192).is_closed())
        self.assert_serves(self.peer)

    def test_what_a_stranger_sends_cannot_forge_a_line_of_the_log(self):
        self.assertTrue(self.ask("x\npenstock: all is well\x1b[0m").is_closed())
        self.peer.wait_for_log(r"x\\x0apenstock: all is well\\x1b")

    def test_further_connections_join(self):
        version = self.ask("m").read_json()["model_version"]
        client = self.ask(f"penstock:join {version} m")
        self.assertEqual(client.read_json(), {"version": 1, "model_version": version})
        client.send(harness.MODE_TCP)
        self.assertEqual(len(client.range(0, 0, 8)), 8)

    def test_a_name_that_is_not_utf_8_is_refused(self):
        peer = self.start("--weights", b"na\xffme=" + self.path("m").encode())
        self.assertEqual(peer.wait(), 2)
        self.assertRegex("\n".join(peer.log), "not a name that clients could ask for")

    def test_refusals_in_words(self):
        version = self.ask("m").read_json()["model_version"]
        for text, words in [("penstock:join another m", "another version"), (f"penstock:join {version} no", "no"),
                            (f"penstock:join {version} name", "another version"), ("penstock:join", ""),
                            ("penstock:nonsense", "")]:
            client = self.ask(text)
            answer = client.read_json()
            self.assertEqual(set(answer), {"version", "error"})
            self.assertIn(words, answer["error"])
            self.assertTrue(client.is_closed())


if __name__ == "__main__":
    harness.main()
