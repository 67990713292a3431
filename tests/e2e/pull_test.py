"""penstock pull and ls, against a peer in Python that can be told to misbehave."""

import functools
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import fake_peer
from fake_peer import CHUNK, DIGESTS, FakePeer, Model, safetensors

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
MIB = 1 << 20


@functools.lru_cache(8)
def random_bytes(n, seed=1):
    return random.Random(seed).randbytes(n)


def small_model(version="v1", seed=1, **manifest):
    """5 chunks and a bit in one shard, and three other files."""
    body = random_bytes(5 * CHUNK + 12345, seed)
    tensors = {"big": ("U8", [len(body)], body), "layers.0.a": ("U8", [3], b"abc"), "layers.1.a": ("U8", [2, 2], b"defg")}
    return Model({"model.safetensors": safetensors(tensors)},
                 {"config.json": b"{}", "1_Pooling/config.json": b"[1]", "empty.txt": b""}, version, **manifest)


def tiny_model():
    return Model({"model.safetensors": safetensors({"w": ("U8", [3], b"abc")})}, {"config.json": b"{}"})


class PullTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.cwd = self.directory.name

    def run_penstock(self, *words, **more):
        return subprocess.run([PENSTOCK, *words], cwd=self.cwd, capture_output=True, text=True, timeout=120, **more)

    def pull(self, peer, *words, status=0, **more):
        done = self.run_penstock("pull", peer.address, "fake", "--json", *words, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        done.json = json.loads(done.stdout) if done.stdout else None
        return done

    def read(self, name):
        with open(os.path.join(self.cwd, name), "rb") as f:
            return f.read()

    def names(self, directory="fake"):
        root = os.path.join(self.cwd, directory)
        return sorted(os.path.relpath(os.path.join(at, f), root) for at, _, files in os.walk(root) for f in files)

    def assert_pulled(self, model, directory="fake"):
        everything = {**model.shards, **model.files}
        self.assertEqual(self.names(directory), sorted(everything))
        for name, body in everything.items():
            self.assertTrue(self.read(os.path.join(directory, name)) == body, name + " differs")

    def assert_nothing_half_written(self, model, directory="fake"):
        for name in self.names(directory):
            self.assertTrue(name.startswith(".penstock-pull"), name)

    def interrupted(self, model, stop_after=3 * CHUNK + MIB, at_stop=None, *words, status=1):
        """A pull that the peer cuts short after three chunks. One connection: the chunks come in order."""
        with FakePeer(model, stop_after=stop_after, at_stop=at_stop) as peer:
            return self.pull(peer, "-j", "1", *words, status=status)


class WholeModels(PullTest):
    def test_every_file_arrives_byte_for_byte_under_its_own_name(self):
        model = small_model()
        with FakePeer(model, fake_peer.digests_of) as peer:
            summary = self.pull(peer).json
        self.assert_pulled(model)
        self.assertEqual(summary["verified"], True)
        self.assertEqual(summary["fetched"], sum(map(len, model.bodies)))
        self.assertEqual(summary["model_version"], "v1")
        self.assertEqual(summary["transport"], "tcp")

    def test_a_peer_without_digests_gives_what_is_not_verified(self):
        model = small_model()
        with FakePeer(model) as peer:
            self.assertEqual(self.pull(peer).json["verified"], "no digests")
            self.assertEqual(self.pull(peer, "--no-verify").json["verified"], False)
            plain = self.run_penstock("pull", peer.address, "fake")
        self.assertIn("not verified", plain.stdout)

    def test_several_connections_join_and_the_manifest_is_fetched_once(self):
        model = small_model()
        with FakePeer(model) as peer:
            summary = self.pull(peer, "-j", "3").json
            hellos = sorted(peer.hellos)
        self.assertEqual(hellos[0], "fake")
        self.assertTrue(all(h == "penstock:join v1 fake" for h in hellos[1:]), hellos)
        self.assertGreaterEqual(len(hellos), 2)
        self.assertEqual(summary["fetched"], summary["bytes"])
        self.assert_pulled(model)

    def test_a_model_without_a_version_is_pulled_through_one_connection(self):
        model = small_model(version=None)
        with FakePeer(model) as peer:
            self.pull(peer, "-j", "4")
            self.assertEqual(peer.hellos, ["fake"])
        self.assert_pulled(model)

    def test_a_repeated_pull_fetches_nothing(self):
        model = small_model()
        with FakePeer(model, fake_peer.digests_of) as peer:
            self.pull(peer)
            peer.requests.clear()
            summary = self.pull(peer).json
            self.assertEqual(peer.fetched_bytes(), 0)
        self.assertEqual((summary["fetched"], summary["verified"]), (0, True))
        self.assert_pulled(model)

    def test_verbose_says_what_there_is_and_what_was_done(self):
        model = Model({"model.safetensors": safetensors({"a": ("U8", [3], b"abc")})}, version="v7")
        with FakePeer(model, fake_peer.digests_of) as peer:
            done = self.run_penstock("pull", peer.address, "fake", "-v", "-j", "1")
            again = self.run_penstock("pull", peer.address, "fake", "-v", "-j", "1")
        self.assertIn("penstock: /models/fake, version v7: 1 file, 75 B\n", done.stderr)
        self.assertIn("penstock: model.safetensors: done, 75 B\n", done.stderr)
        self.assertRegex(done.stdout, r"^fake: 1 file, 75 B; fetched 75 bytes .*, verified\n1 connection over TCP\n$")
        self.assertIn("0 of 1 chunk resumed; 1 file kept", again.stderr)

    def test_a_file_that_was_changed_here_is_fetched_again(self):
        model = small_model()
        with FakePeer(model, fake_peer.digests_of) as peer:
            self.pull(peer)
            with open(os.path.join(self.cwd, "fake/model.safetensors"), "r+b") as f:
                f.seek(2 * CHUNK)
                f.write(b"other")
            summary = self.pull(peer).json
        self.assertEqual(summary["fetched"], len(model.bodies[0]))
        self.assert_pulled(model)


class Transports(PullTest):
    def test_rdma_that_is_not_there_is_an_error_and_auto_says_why_it_is_tcp(self):
        with FakePeer(tiny_model()) as peer:
            rdma = self.run_penstock("pull", peer.address, "fake", "--transport", "rdma", "--rail", "none")
            auto = self.pull(peer, "-v", "--transport", "auto", "--rail", "none")
            tcp = self.pull(peer, "--transport", "tcp")
        self.assertEqual(rdma.returncode, 1)
        self.assertEqual(rdma.stderr, "penstock: RDMA is turned off (rails: none)\n")
        self.assertIn("penstock: over TCP: RDMA is turned off (rails: none)\n", auto.stderr)
        self.assertEqual((auto.json["transport"], auto.json["rails"]), ("tcp", []))
        self.assertIn("turned off", auto.json["transport_why"])
        self.assertIsNone(tcp.json["transport_why"])

    @unittest.skipIf(os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"),
                     "this machine has RDMA devices")
    def test_a_machine_without_devices_says_so(self):
        free = {k: v for k, v in os.environ.items() if k != "PENSTOCK_TRANSPORT"}
        with FakePeer(tiny_model()) as peer:
            rdma = self.run_penstock("pull", peer.address, "fake", "--transport", "rdma")
            auto = self.pull(peer, "-v", env=free)
            named = self.pull(peer, "--rail", "mlx5_7", "-v", env=free)
            plain = {rails: self.run_penstock("pull", peer.address, "fake", "-o", rails.replace(":", "-"), "--rail", rails,
                                              env=free) for rails in ("mlx5_7", "none", "auto:2")}
        self.assertEqual(rdma.returncode, 1)
        self.assertRegex(rdma.stderr, "^penstock: .*(device|libibverbs)")
        self.assertRegex(auto.stderr, "penstock: over TCP: .*(device|libibverbs)")
        self.assertRegex(named.stderr, "penstock: over TCP: .*")
        # Nobody falls back from rails that were named without being told.
        self.assertRegex(plain["mlx5_7"].stdout, "(?m)^not over the rails that were named: .")
        self.assertNotIn("named", plain["none"].stdout + plain["auto:2"].stdout)

    def test_the_environment_says_what_the_command_line_does_not(self):
        def pull(*words, **environment):
            return self.run_penstock("pull", peer.address, "fake", *words, env={**os.environ, **environment})

        with FakePeer(tiny_model()) as peer:
            bogus = pull(PENSTOCK_TRANSPORT="roce")
            told = pull("--transport", "tcp", PENSTOCK_TRANSPORT="roce")
            rails = pull("--transport", "rdma", PENSTOCK_RAILS="mlx5_0:zz")
            none = pull("-v", PENSTOCK_TRANSPORT="auto", PENSTOCK_RAILS="none")
        self.assertEqual(bogus.returncode, 2)
        self.assertIn("PENSTOCK_TRANSPORT takes auto, rdma or tcp, not roce", bogus.stderr)
        self.assertEqual(told.returncode, 0)
        self.assertEqual(rails.returncode, 2)
        self.assertRegex(rails.stderr, "^penstock pull: PENSTOCK_RAILS: .*zz")
        self.assertIn("over TCP: RDMA is turned off", none.stderr)

    def test_listing_asks_for_no_rails(self):
        with FakePeer(tiny_model()) as peer:
            for words in ((peer.address,), (peer.address, "fake")):
                listed = self.run_penstock("ls", *words, env={**os.environ, "PENSTOCK_TRANSPORT": "rdma",
                                                              "PENSTOCK_RAILS": "none"})
                self.assertEqual(listed.returncode, 0, listed.stderr)

    def test_words_that_are_no_transport_or_rail_are_refused(self):
        with FakePeer(tiny_model()) as peer:
            for words, said in ((("--transport", "ib"), "--transport takes auto, rdma or tcp, not ib"),
                                (("--rail", "mlx5_0:zz"), "--rail: .*zz"),
                                (("--rail", "mlx5_0@x"), "--rail: .*x"),
                                (("--rail", "mlx5_0@8"), r"--rail: .*0 to 7"),
                                (("--rail", "none", "--rail", "mlx5_0"), "--rail: .*none")):
                done = self.run_penstock("pull", peer.address, "fake", *words)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, said)


class Interruptions(PullTest):
    def test_a_pull_whose_peer_died_resumes_with_what_is_missing(self):
        model = small_model()
        failed = self.interrupted(model)
        self.assertIn("run the same command again to resume", failed.stderr)
        self.assert_nothing_half_written(model)
        with FakePeer(model, fake_peer.digests_of) as peer:
            summary = self.pull(peer).json
            self.assertEqual(peer.fetched_bytes(), len(model.bodies[0]) - 3 * CHUNK + 5)
        self.assertEqual(summary["resumed"], 3 * CHUNK)
        self.assertEqual(summary["verified"], True)
        self.assert_pulled(model)

    def test_a_frozen_peer_is_given_up_in_time(self):
        model = small_model()
        failed = self.interrupted(model, 3 * CHUNK + MIB, fake_peer.freeze, "--timeout", "1")
        self.assertRegex(failed.stderr, r"127\.0\.0\.1:\d+: .*not a byte for 1.0 s")
        self.assertIn("run the same command again to resume", failed.stderr)
        self.assert_nothing_half_written(model)

    def stopped_by(self, signal_number):
        """A puller that gets a signal while the peer says nothing any more, three chunks on."""
        model, words = small_model(), ["pull", "-j", "1"]
        with FakePeer(model, stop_after=3 * CHUNK + MIB, at_stop=fake_peer.freeze) as peer:
            puller = subprocess.Popen([PENSTOCK, *words, peer.address, "fake"], cwd=self.cwd, stderr=subprocess.PIPE,
                                      text=True)
            journal = os.path.join(self.cwd, "fake/.penstock-pull")
            self.wait_until(lambda: os.path.exists(journal) and self.read(journal).count(b"chunk ") == 3)
            puller.send_signal(signal_number)
            words = puller.communicate(timeout=20)[1]
        self.assert_nothing_half_written(model)
        with FakePeer(model) as peer:
            self.assertEqual(self.pull(peer).json["resumed"], 3 * CHUNK)
        self.assert_pulled(model)
        return puller.returncode, words

    def wait_until(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come to that")
            time.sleep(0.02)

    def test_kill_9_leaves_what_the_next_pull_resumes(self):
        self.assertEqual(self.stopped_by(signal.SIGKILL)[0], -signal.SIGKILL)

    def test_control_c_ends_with_130_and_resumes(self):
        status, words = self.stopped_by(signal.SIGINT)
        self.assertEqual(status, 130)
        self.assertIn("interrupted", words)

    def test_sigterm_resumes_as_well(self):
        self.assertEqual(self.stopped_by(signal.SIGTERM)[0], 130)

    def test_another_version_starts_over_by_itself(self):
        self.interrupted(small_model("v1"))
        model = small_model("v2", seed=2)
        with FakePeer(model) as peer:
            done = self.pull(peer)
        self.assertIn("starting over", done.stderr)
        self.assertEqual(done.json["resumed"], 0)
        self.assert_pulled(model)

    def test_a_model_replaced_in_the_middle_starts_over_by_itself(self):
        old, new = small_model("v1"), small_model("v2", seed=2)

        def replace(peer, connection):
            peer.model, peer.stop_after = new, None

        with FakePeer(old, stop_after=3 * CHUNK + MIB, at_stop=replace) as peer:
            done = self.pull(peer, "-j", "1")
        self.assertIn("changed on the peer", done.stderr)
        self.assertEqual(done.json["model_version"], "v2")
        self.assert_pulled(new)

    def test_a_connection_that_breaks_is_replaced(self):
        model = small_model()

        def go_on(peer, connection):
            peer.stop_after = None

        with FakePeer(model, stop_after=3 * CHUNK + MIB, at_stop=go_on) as peer:
            self.pull(peer, "-j", "1")
            self.assertEqual(len(peer.hellos), 2)
        self.assert_pulled(model)

    def test_a_peer_that_speaks_only_verbs_is_said_to(self):
        class VerbsPeer(FakePeer):
            def _answer(self, c, model):
                return False
        with VerbsPeer(small_model(version=None)) as peer:
            failed = self.pull(peer, status=1)
        self.assertRegex(failed.stderr, r"^penstock: weight peer \S+: closed the connection after the mode byte for TCP; "
                                        r"does it speak only verbs\?\n")

    def test_a_damaged_journal_starts_over(self):
        model = small_model()
        self.interrupted(model)
        path = os.path.join(self.cwd, "fake/.penstock-pull")
        text = bytearray(self.read(path))
        text[len(text) // 2] ^= 1
        with open(path, "wb") as f:
            f.write(text)
        with FakePeer(model) as peer:
            done = self.pull(peer)
        self.assertIn("damaged", done.stderr)
        self.assertEqual(done.json["resumed"], 0)
        self.assert_pulled(model)

    def test_after_another_boot_only_chunks_that_hash_right_are_believed(self):
        model = small_model()
        self.interrupted(model)
        path = os.path.join(self.cwd, "fake/.penstock-pull")
        with open("/proc/sys/kernel/random/boot_id") as f:
            boot = f.read().strip()
        lines = self.read(path).decode().splitlines()
        other = "boot " + "0" * len(boot)
        lines = [other + " " + fake_peer.line_sum(other) if l.startswith("boot ") else l for l in lines]
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        shard = next(n for n in self.names() if self.size(n) == len(model.bodies[0]))
        with open(os.path.join(self.cwd, "fake", shard), "r+b") as f:
            f.seek(CHUNK)
            f.write(b"\0" * 4096)  # as a page that never reached the disk
        with FakePeer(model) as peer:
            done = self.pull(peer)
            self.assertEqual(peer.fetched_bytes(), len(model.bodies[0]) - 2 * CHUNK + 5)
        self.assert_pulled(model)

    def size(self, name):
        return os.path.getsize(os.path.join(self.cwd, "fake", name))

    def test_without_a_version_only_digests_vouch_for_an_interrupted_pull(self):
        model = small_model(version=None)
        self.interrupted(model)
        with FakePeer(model, fake_peer.digests_of, stop_after=MIB) as peer:
            self.pull(peer, status=1)
        with FakePeer(model, fake_peer.digests_of) as peer:
            self.assertEqual(self.pull(peer).json["verified"], True)
            self.assertLess(peer.fetched_bytes(), len(model.bodies[0]) - 2 * CHUNK)
        self.assert_pulled(model)

    def test_without_a_version_and_digests_everything_is_fetched_again(self):
        old, new = small_model(version=None), small_model(version=None, seed=2)
        self.interrupted(old)
        with FakePeer(new) as peer:
            self.pull(peer)
            self.assertEqual(peer.fetched_bytes(), sum(map(len, new.bodies)))
        self.assert_pulled(new)

    def test_a_second_pull_into_the_same_directory_is_refused(self):
        model = small_model()
        with FakePeer(model, stop_after=3 * CHUNK, at_stop=fake_peer.freeze) as peer:
            first = subprocess.Popen([PENSTOCK, "pull", peer.address, "fake"], cwd=self.cwd,
                                     stderr=subprocess.DEVNULL)
            self.wait_until(lambda: peer.sent > 0)
            with FakePeer(model) as other:
                second = self.pull(other, status=1)
            first.kill()
            first.wait()
        self.assertIn("another pull is writing there", second.stderr)


class Damage(PullTest):
    def test_a_chunk_damaged_on_its_way_is_asked_for_again(self):
        model = small_model()

        def damage(file, offset, data, nth):
            return b"\xff" * len(data) if file == 0 and offset == 2 * CHUNK and nth == 1 else data

        with FakePeer(model, fake_peer.digests_of, damage=damage) as peer:
            summary = self.pull(peer).json
        self.assertEqual(summary["verified"], True)
        self.assertEqual(summary["damaged_chunks"], 1)
        self.assertEqual(summary["fetched"], summary["bytes"] + CHUNK)
        self.assert_pulled(model)

    def test_a_chunk_that_never_matches_is_an_error_that_names_it(self):
        model = small_model()

        def damage(file, offset, data, nth):
            return b"\xff" * len(data) if file == 0 and offset == 2 * CHUNK else data

        with FakePeer(model, fake_peer.digests_of, damage=damage) as peer:
            failed = self.pull(peer, status=1)
        self.assertRegex(failed.stderr, r"model\.safetensors: chunk 2 .*never matched")
        self.assert_nothing_half_written(model)

    def test_digests_that_the_peer_is_still_computing_are_waited_for(self):
        model, asked = small_model(), []

        def slow(body):
            asked.append(len(body))
            return fake_peer.digests_of(body)[: len(asked) // 3]

        with FakePeer(model, slow) as peer:
            summary = self.pull(peer).json
        self.assertEqual(summary["verified"], True)
        self.assertGreater(len(asked), 5)
        self.assert_pulled(model)


class Safety(PullTest):
    def test_hostile_shard_names_are_refused_and_nothing_is_written(self):
        for name in ["../evil", "/tmp/evil", "a/b", "..", ".", "", ".penstock-pull", ".penstock-pull.0", "a\nb"]:
            with self.subTest(name=name):
                model = Model({"model.safetensors": b"x" * 100}, shard_files=[name], tensors=[])
                with FakePeer(model) as peer:
                    self.pull(peer, status=1)
                self.assertEqual(os.listdir(self.cwd), [])

    def test_a_shard_name_twice_is_refused(self):
        model = Model({"a": b"1", "b": b"2"}, shard_files=["a", "a"], tensors=[])
        with FakePeer(model) as peer:
            self.pull(peer, status=1)
        self.assertEqual(os.listdir(self.cwd), [])

    def test_hostile_names_of_other_files_are_left_out(self):
        names = ["../evil", "/evil", "a/../../evil", "./x", "a//b", "", "good.txt", "good.txt", "good.txt/below",
                 ".penstock-pull", "sub/.penstock-pull.1", "tab\there", "model.safetensors"]
        model = Model({"model.safetensors": b"x" * 100}, {"%d" % i: b"!" for i in range(len(names))}, tensors=[])
        model.overrides["files"] = [{"name": n, "len": 1} for n in names]
        with FakePeer(model) as peer:
            done = self.pull(peer)
        self.assertIn("left out 12 files", done.stderr)
        self.assertEqual(self.names(), ["good.txt", "model.safetensors"])
        self.assertEqual(os.listdir(self.cwd), ["fake"])

    def test_links_in_the_target_are_not_written_through(self):
        model = small_model()
        outside = tempfile.TemporaryDirectory()
        self.addCleanup(outside.cleanup)
        secret = os.path.join(outside.name, "secret")
        with open(secret, "w") as f:
            f.write("untouched")
        for lying, follows in [("model.safetensors", True), (".penstock-pull.0", True), (".penstock-pull", False),
                               ("1_Pooling", False)]:
            with self.subTest(lying=lying):
                directory = "to-" + lying.replace(".", "")
                os.mkdir(os.path.join(self.cwd, directory))
                target = outside.name if lying == "1_Pooling" else secret
                os.symlink(target, os.path.join(self.cwd, directory, lying))
                with FakePeer(model) as peer:
                    # A link that has a file's own name is replaced; one that would have to be followed is refused.
                    self.pull(peer, "-o", directory, status=0 if follows else 1)
                self.assertEqual(os.listdir(outside.name), ["secret"])
                with open(secret) as f:
                    self.assertEqual(f.read(), "untouched")
                if follows:
                    self.assert_pulled(model, directory)

    def test_numbers_of_a_hostile_manifest_are_refused(self):
        for lens in [[2**63], [2**64 - 1], [-1], [1e300], []]:
            with self.subTest(lens=lens):
                model = Model({"model.safetensors": b"x"}, tensors=[], shard_lens=lens)
                with FakePeer(model) as peer:
                    self.pull(peer, status=1)
                self.assertEqual(self.names(), [])

    def test_a_model_named_dots_needs_a_directory(self):
        with FakePeer(small_model()) as peer:
            done = self.run_penstock("pull", peer.address, "a/..")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-o", done.stderr)


class Disks(PullTest):
    def test_a_model_larger_than_the_disk_is_refused_before_the_first_byte(self):
        model = Model({"model.safetensors": b"x"}, tensors=[], shard_lens=[1 << 60])
        with FakePeer(model) as peer:
            failed = self.pull(peer, status=1)
            self.assertEqual(peer.fetched_bytes(), 0)
        self.assertRegex(failed.stderr, r"no space: .*1152921504606846976 bytes\) needed, .* free")
        self.assertEqual(self.names(), [])

    def test_a_limit_on_the_size_of_files_is_an_error_with_words(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

        with FakePeer(small_model()) as peer:
            failed = self.pull(peer, status=1, preexec_fn=limit)
            self.assertEqual(peer.fetched_bytes(), 0)
        self.assertIn("File too large", failed.stderr)
        self.assertEqual(self.names(), [])

    def test_a_full_tmpfs_is_named_with_what_is_free(self):
        os.mkdir(os.path.join(self.cwd, "small"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "small"], cwd=self.cwd,
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("a tmpfs of our own needs root")
        self.addCleanup(subprocess.run, ["umount", os.path.join(self.cwd, "small")])
        with FakePeer(small_model()) as peer:
            failed = self.pull(peer, "-o", "small", status=1)
        self.assertRegex(failed.stderr, r"small: no space: .* needed, 8\.00 MiB .*free")
        self.assertEqual(self.names("small"), [])


class Tensors(PullTest):
    def read_safetensors(self, name):
        body = self.read(name)
        length = int.from_bytes(body[:8], "little")
        self.assertEqual((8 + length) % 8, 0)
        header = json.loads(body[8 : 8 + length])
        data = body[8 + length :]
        self.assertEqual(max(t["data_offsets"][1] for t in header.values()), len(data))
        return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}

    def test_matching_tensors_of_all_shards_make_one_valid_file(self):
        one = {"x.%d" % i: ("BF16", [i], random_bytes(2 * i, i)) for i in range(400)}
        two = {"y.big": ("F32", [5 * MIB], random_bytes(20 * MIB)), "y.none": ("F32", [0], b""),
               "z\"\\é": ("U8", [1], b"!")}
        with FakePeer(Model({"a.safetensors": safetensors(one), "b.safetensors": safetensors(two)})) as peer:
            done = self.pull(peer, "--tensors", "x.*[02468]", "--tensors", "[yz]*")
        want = {n: t for n, t in {**one, **two}.items() if n[0] in "yz" or int(n[2:]) % 2 == 0}
        self.assertEqual(self.read_safetensors("fake.safetensors"), want)
        self.assertEqual(os.listdir(self.cwd), ["fake.safetensors"])
        self.assertEqual(done.json["verified"], False)

    def test_the_output_can_be_a_directory_or_a_file(self):
        with FakePeer(small_model()) as peer:
            self.pull(peer, "--tensors", "layers.0.*", "-o", "some/where")
            self.pull(peer, "--tensors", "layers.0.*", "-o", "else/one.safetensors")
        for name in ["some/where/fake.safetensors", "else/one.safetensors"]:
            self.assertEqual(self.read_safetensors(name), {"layers.0.a": ("U8", [3], b"abc")})

    def test_no_match_says_so(self):
        with FakePeer(small_model()) as peer:
            failed = self.pull(peer, "--tensors", "nothing.*", status=1)
        self.assertIn("no tensor of the model matches nothing.*", failed.stderr)
        self.assertEqual(os.listdir(self.cwd), [])


class Listing(PullTest):
    def test_models_as_a_table_and_as_json(self):
        with FakePeer(small_model()) as peer:
            table = self.run_penstock("ls", peer.address)
            rows = json.loads(self.run_penstock("ls", peer.address, "--json").stdout)
        self.assertRegex(table.stdout, r"(?m)^MODEL +SHARDS +TENSORS +FILES +SIZE$")
        self.assertRegex(table.stdout, r"(?m)^fake +1 +3 +3 +80\.01 MiB$")
        self.assertEqual(rows["models"][0]["tensors"], 3)

    def test_tensors_as_a_table_and_as_json(self):
        with FakePeer(small_model()) as peer:
            table = self.run_penstock("ls", peer.address, "fake").stdout
            rows = json.loads(self.run_penstock("ls", peer.address, "fake", "--json").stdout)
        self.assertRegex(table, r"(?m)^layers\.1\.a +U8 +\[2,2\] +4 +model\.safetensors$")
        self.assertEqual([t["name"] for t in rows["tensors"]], ["big", "layers.0.a", "layers.1.a"])
        self.assertEqual(rows["tensors"][2]["shape"], [2, 2])
        self.assertEqual(rows["shards"][0]["name"], "model.safetensors")

    def test_a_peer_that_takes_its_time_is_said_to_be_waited_for(self):
        class SlowPeer(FakePeer):
            def _serve(self, c):
                threading.Event().wait(1.5)
                super()._serve(c)
        with SlowPeer(small_model()) as peer:
            self.assertIn(f"waiting for {peer.address} to list its models...", self.run_penstock("ls", peer.address).stderr)
            waiting = f"waiting for {peer.address} to stage fake..."
            self.assertIn(waiting, self.run_penstock("ls", peer.address, "fake").stderr)
            self.assertIn(waiting, self.pull(peer, "-j", "1", "--transport", "tcp").stderr)
            self.assertIn("to stage fake, or to register it for RDMA...", self.pull(peer, "-j", "1").stderr)
            self.assertEqual(self.pull(peer, "-j", "1", "-q").stderr, "")

    def test_a_peer_that_is_stopped_before_it_answers_is_said_to_be(self):
        class StoppedPeer(FakePeer):
            def _serve(self, c):
                self._take(c, 4 + len("penstock:models"))
                c.close()
        with StoppedPeer(small_model()) as peer:
            failed = self.run_penstock("ls", peer.address)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("closed without an answer: was it stopped?", failed.stderr)

    def test_a_name_cannot_move_the_cursor(self):
        model = Model({"s": safetensors({"a\x1b[2Jb": ("U8", [1], b"1")})})
        with FakePeer(model) as peer:
            table = self.run_penstock("ls", peer.address, "fake").stdout
        self.assertNotIn("\x1b", table)
        self.assertIn("a\\x1b[2Jb", table)


class Usage(PullTest):
    def test_wrong_words_are_status_2_and_help_is_0(self):
        for words in [["pull"], ["pull", "x"], ["pull", "a", "b", "-j", "0"], ["pull", "a", "b", "--nonsense"], ["ls"],
                      ["ls", "a", "b", "c"], ["nonsense"]]:
            self.assertEqual(self.run_penstock(*words).returncode, 2, words)
        for words in [["--help"], ["pull", "--help"], ["ls", "--help"]]:
            done = self.run_penstock(*words)
            self.assertEqual(done.returncode, 0)
            self.assertIn("usage: penstock", done.stdout)

    def test_a_closed_port_is_named(self):
        peer = FakePeer(small_model())
        peer.die()
        failed = self.pull(peer, status=1)
        self.assertIn(peer.address, failed.stderr)
        self.assertIn("refused", failed.stderr)

    def test_a_number_of_connections_does_not_wrap_around(self):
        self.assertEqual(self.run_penstock("pull", "a", "b", "-j", str(2**32 + 2)).returncode, 2)

    def test_a_directory_whose_path_is_too_long_is_refused(self):
        with FakePeer(tiny_model()) as peer:
            failed = self.pull(peer, "-o", "a/" * 2100, status=1)
        self.assertIn("too long", failed.stderr)
        self.assertEqual(os.listdir(self.cwd), [])

    def test_a_directory_that_is_not_utf_8_leaves_the_summary_json(self):
        with FakePeer(tiny_model()) as peer:
            done = self.pull(peer, "-o", b"out\xff")
        self.assertEqual(done.json["output"], "out\ufffd")

    def test_closed_standard_streams_are_not_mistaken_for_files(self):
        model = tiny_model()
        command = 'exec "$0" pull "$1" fake <&- >&- 2>&-'
        with FakePeer(model) as peer:
            done = subprocess.run(["sh", "-c", command, PENSTOCK, peer.address], cwd=self.cwd, timeout=120)
        self.assertEqual(done.returncode, 0)
        self.assert_pulled(model)

    def test_output_that_cannot_be_written_is_a_failure_with_words(self):
        with FakePeer(tiny_model()) as peer, open("/dev/full", "w") as full:
            for words in [["--help"], ["--version"], ["pull", "--help"], ["ls", peer.address]]:
                done = subprocess.run([PENSTOCK, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(done.returncode, 1, words)
                self.assertIn("standard output can't be written", done.stderr)

    def test_a_peer_that_never_says_a_word_is_given_up_in_time(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            for words in [["pull", address, "m"], ["ls", address], ["ls", address, "m"]]:
                done = self.run_penstock(*words, "--timeout", "1")
                self.assertEqual(done.returncode, 1, words)
                self.assertIn("not a byte for 1.0 s", done.stderr)
        self.assertEqual(self.run_penstock("ls", "x", "--timeout", "0").returncode, 2)

    def test_more_files_than_may_be_open_say_what_to_raise(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        model = tiny_model()
        model.files = {"f%d" % i: b"x" for i in range(64)}
        model.bodies = list(model.shards.values()) + list(model.files.values())
        with FakePeer(model) as peer:
            failed = self.pull(peer, status=1, preexec_fn=limit)
        self.assertIn("ulimit -n", failed.stderr)


if __name__ == "__main__":
    unittest.main()
