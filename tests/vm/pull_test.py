"""`penstock pull` over real rails, on one host."""

import json
import os
import signal
import time

from lab import (DEVICES, DISK, MIB, OneHost, Pull, cpu_seconds, hardware_counter, harness, memory_kib, model, note,
                 resources, shards_of)
from session import TCP, Session

QUIET = ("--no-warm", "--no-digests")  # a peer whose processor time is its clients'


class PullTest(OneHost):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(lambda: self.assertEqual(resources(), self.before, "RDMA objects left behind"))
        self.model = model("m", total_bytes=24 * MIB, n_shards=3)

    def serve(self, *options):
        peer = super().serve(self.model, options=options)
        if "none" not in options:
            peer.wait_for_log("m: registered 3 shards")
        return peer

    def summary(self, peer, *words, **options):
        """Of a pull that went well."""
        done = self.pull(peer, "m", "--json", "-q", *words, **options)
        self.assert_same(done, self.model)
        return json.loads(done.said.splitlines()[-1])

    def fails(self, peer, pattern, *words, **options):
        done = Pull(peer.address, "m", *words, **options).wait()
        self.assertEqual(done.status, 1, done.said)
        self.assertRegex(done.said, pattern)
        note(done.said.strip().splitlines()[-1])
        return done


class OverRails(PullTest):
    def test_the_peer_does_nothing_while_bytes_move(self):
        peer = self.serve(*QUIET)
        with open(shards_of(self.model)[0], "rb") as f:
            shard = f.read()
        for words, options in (("1 rail", {"rails": "rxe0"}), ("2 rails", {}), ("TCP", {"transport": TCP})):
            with Session(peer, "m", **options) as session:
                session.read(1)  # everything is connected and registered
                before, began = cpu_seconds(peer.process.pid), time.monotonic()
                for _ in range(3):
                    got = session.read()
                spent, took = cpu_seconds(peer.process.pid) - before, time.monotonic() - began
                self.assertEqual(got, shard)
            note(f"{words}: {3 * len(shard) / 1e6:.0f} MB in {took:.2f} s, in which the peer spent {spent:.2f} s of CPU")
            if words != "TCP":
                self.assertLessEqual(spent, 0.02)

    def test_one_rail_and_two_bring_every_byte(self):
        peer = self.serve()
        for rails in ("rxe0", "rxe0,rxe1"):
            done = self.summary(peer, "--transport", "rdma", env={"PENSTOCK_RAILS": rails})
            self.assertEqual(done["transport"], "rdma")
            self.assertEqual([rail["device"] for rail in done["rails"]], rails.split(","))

    def test_two_rails_share_the_bytes_evenly(self):
        done = self.summary(self.serve(), "--transport", "rdma")
        first, second = (rail["bytes"] for rail in done["rails"])
        note(f"{first} bytes and {second}")
        self.assertAlmostEqual(first / second, 1, delta=0.1)

    def test_what_each_rail_is_and_why_is_said(self):
        done = self.pull(self.serve(), "m", "-v")
        for i, device in enumerate(DEVICES):
            self.assertRegex(done.said, rf"rail {i}: {device} port 1, GID 1 ::ffff:10\.77\.{i}\.1, to the peer's rail "
                                        rf"{i}, MTU 4096, .* Gb/s, \d+ READs \(.+\)")

    def test_digests_verify_what_came_by_rdma(self):
        peer = self.serve()
        harness.wait_until(lambda: self.summary(peer, "--transport", "rdma")["verified"] is True, "digests")


class Choices(PullTest):
    def devices(self, peer, *words, **options):
        return [rail["device"] for rail in self.summary(peer, "--transport", "rdma", *words, **options)["rails"]]

    def test_rails_are_as_they_are_asked_for(self):
        peer = self.serve()
        self.assertEqual(self.devices(peer, "--rail", "rxe1"), ["rxe1"])
        self.assertEqual(self.devices(peer, "--rail", "rxe1:10.77.1.1"), ["rxe1"])
        self.assertEqual(self.devices(peer, "--rail", "rxe0:1@0"), ["rxe0"])
        self.assertEqual(self.devices(peer, "--rail", "auto:1"), ["rxe0"])
        self.assertEqual(self.devices(peer, "--rail", "rxe1@1", "--rail", "rxe0@0"), ["rxe1", "rxe0"])
        self.assertEqual(self.devices(peer, env={"PENSTOCK_RAILS": "rxe1"}), ["rxe1"])

    def test_rails_that_are_not_there_are_refused_in_words(self):
        peer = self.serve()
        self.fails(peer, "rxe7", "--transport", "rdma", "--rail", "rxe7")
        self.fails(peer, "GID", "--transport", "rdma", "--rail", "rxe0:10.9.9.9")
        self.fails(peer, "rail 5", "--transport", "rdma", "--rail", "rxe0@5")

    def test_a_peer_with_fewer_rails_serves_with_those(self):
        self.assertEqual(self.devices(self.serve("--rail", "rxe1")), ["rxe1"])

    def test_auto_falls_back_to_tcp_and_says_why_and_rdma_does_not(self):
        peer = self.serve("--rail", "none")
        done = self.summary(peer)
        self.assertEqual(done["transport"], "tcp")
        note("why TCP: " + done["transport_why"])
        self.fails(peer, "RDMA|rail", "--transport", "rdma")
        self.fails(peer, "RDMA|rail", env={"PENSTOCK_TRANSPORT": "rdma"})

    def test_none_is_tcp_at_the_client(self):
        self.assertEqual(self.summary(self.serve(), "--rail", "none")["transport"], "tcp")


class Limits(PullTest):
    def limited(self, kib):
        """Without the privilege that memlock limits do not bind."""
        return ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all",
                "sh", "-c", f'ulimit -l {kib} && exec "$0" "$@"')

    def setUp(self):
        super().setUp()
        os.chmod(DISK, 0o777)  # whoever is nobody pulls there

    def test_memory_that_cannot_be_locked_is_copied_into_and_said_to_be(self):
        done = self.summary(self.serve(), "--transport", "rdma", "-j", "1", before=self.limited(3 << 10))
        self.assertEqual(done["transport"], "rdma")
        note(f"why it was copied: {done['copied_why']}")
        self.assertIn("memlock", done["copied_why"])

    def test_a_limit_that_lets_nothing_be_locked_leaves_tcp_and_is_an_error_with_rdma(self):
        peer = self.serve()
        done = self.summary(peer, before=self.limited(64))
        self.assertEqual(done["transport"], "tcp")
        note("why TCP: " + done["transport_why"])
        self.fails(peer, "memlock", "--transport", "rdma", before=self.limited(64))


class Endings(PullTest):
    def begun(self, peer, *words):
        """A pull stopped in the middle."""
        before = hardware_counter("rxe0", "sent_pkts")
        pull = Pull(peer.address, "m", "--transport", "rdma", "-j", "1", *words)
        harness.wait_until(lambda: hardware_counter("rxe0", "sent_pkts") > before + 500, "2 MB of a pull")
        pull.process.send_signal(signal.SIGSTOP)
        self.assertIsNone(pull.process.poll())
        return pull

    def assert_says_that_it_has_gone(self, pull):
        pull.wait()
        note(pull.said.strip().splitlines()[-1])
        self.assertEqual(pull.status, 1, pull.said)
        self.assertRegex(pull.said, "gone")

    def test_a_client_killed_in_the_middle_leaves_the_peer_as_it_was(self):
        peer = self.serve()
        idle, memory = resources(), {w: memory_kib(peer.process.pid, w) for w in ("VmPin", "VmRSS")}
        for _ in range(3):
            pull = self.begun(peer)
            pull.process.kill()
            pull.wait()
        harness.wait_until(lambda: resources() == idle, f"{idle}, not {resources()}")
        after = {w: memory_kib(peer.process.pid, w) for w in memory}
        note(f"the peer's memory in KiB, before and after three killed pulls: {memory}, {after}")
        self.assertEqual(after["VmPin"], memory["VmPin"])
        self.assert_same(self.pull(peer, "m"), self.model)

    def test_a_peer_that_stops_is_said_to_have_gone_and_not_a_bad_rail(self):
        peer = self.serve("--drain", "1")
        pull = self.begun(peer)
        peer.signal(signal.SIGTERM)
        peer.wait()
        pull.process.send_signal(signal.SIGCONT)
        self.assert_says_that_it_has_gone(pull)

    def test_a_peer_killed_in_the_middle_likewise(self):
        peer = self.serve()
        pull = self.begun(peer)
        pull.process.send_signal(signal.SIGCONT)
        peer.process.kill()
        self.assert_says_that_it_has_gone(pull)

    def test_a_pull_that_was_interrupted_goes_on(self):
        peer = self.serve()
        pull = self.begun(peer)
        pull.process.send_signal(signal.SIGINT)
        pull.process.send_signal(signal.SIGCONT)
        self.assertNotEqual(pull.wait().status, 0)
        again = Pull(peer.address, "m", "--transport", "rdma", "--json", "-o", pull.directory).wait()
        self.assertEqual(again.status, 0, again.said)
        self.assertEqual(pull.differences(self.model), [])
        note(f"went on after {json.loads(again.said.splitlines()[-1])['resumed']} bytes")

    def test_fifty_sessions_one_after_another_leave_nothing_at_either_end(self):
        small = model("small", total_bytes=MIB // 4, single=True)  # the allocator keeps what long shards took
        peer, sizes = OneHost.serve(self, small), []
        peer.wait_for_log("small: registered")
        idle = resources()
        for i in range(50):
            with Session(peer, "small") as session:
                session.read()
            if i in (9, 49):
                sizes.append({"peer": memory_kib(peer.process.pid, "VmRSS"), "client": memory_kib("self", "VmRSS")})
        harness.wait_until(lambda: resources() == idle, f"{idle}, not {resources()}")
        note(f"resident KiB after 10 and after 50: {sizes}")
        for end in sizes[0]:
            self.assertLess(sizes[1][end] - sizes[0][end], 1024)
