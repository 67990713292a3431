"""Clients that speak the frozen protocol and know nothing of ours, against our peer: programs/raw_client.c, on bare
libibverbs."""

import signal
import subprocess

from lab import DEVICES, MIB, OneHost, cpu_seconds, harness, memory_kib, model, note, program, resources, shards_of

REFUSED, FAILED = 3, 4  # raw_client's exit statuses


class RawClient:
    def __init__(self, peer, name, *words, devices=DEVICES, files=()):
        rails = [word for device in devices for word in ("--device", device)]
        shards = [word for i, path in enumerate(files) for word in ("--file", f"{i}={path}")]
        host, port = peer.address
        self.process = subprocess.Popen([program("raw_client"), *rails, *shards, *words, host, str(port), name],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)

    def wait(self):
        self.said, _ = self.process.communicate(timeout=60)
        return self.process.returncode

    def wait_for(self, line):
        while self.process.stdout.readline().strip() != line:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended and never said {line!r}")


class FrozenClients(OneHost):
    def setUp(self):
        super().setUp()
        self.before = resources()
        self.addCleanup(lambda: self.assertEqual(resources(), self.before))
        self.model = model("frozen", total_bytes=16 * MIB, n_shards=2)
        self.peer = self.serve(self.model)
        self.peer.wait_for_log("frozen: registered 2 shards")
        self.registered = resources()

    def client(self, *words, **options):
        return RawClient(self.peer, "frozen", *words, files=shards_of(self.model), **options)

    def assert_reads(self, *words, **options):
        client = self.client(*words, **options)
        self.assertEqual(client.wait(), 0, client.said)

    def assert_nothing_is_left(self):
        harness.wait_until(lambda: resources() == self.registered, f"{self.registered}, not {resources()}")

    def test_one_rail_and_two_bring_every_byte_while_the_peer_does_nothing(self):
        for devices in (DEVICES[:1], DEVICES):
            before = cpu_seconds(self.peer.process.pid)
            client = self.client("--wait", devices=devices)
            client.wait_for("waiting")
            spent = cpu_seconds(self.peer.process.pid) - before
            note(f"{len(devices)} rail(s), 16 MiB: {spent:.2f} s of the peer's CPU, handshake and all")
            self.assertLessEqual(spent, 0.2)
            client.process.kill()
            client.wait()
            self.assert_nothing_is_left()

    def test_ranges_may_begin_and_end_anywhere(self):
        self.assert_reads("--range", "1:1", "--range", f"{MIB - 3}:7", "--range", "4095:4098", "--range", f"5:{MIB}")

    def test_a_key_that_opens_nothing_ends_that_clients_rail_and_no_other(self):
        other = self.client("--forever")
        other.wait_for("reading")
        wrong = self.client("--wrong-rkey")
        self.assertEqual(wrong.wait(), FAILED, wrong.said)
        self.assertIn("status 10", wrong.said)  # IBV_WC_REM_ACCESS_ERR
        self.assertIsNone(other.process.poll())
        other.process.kill()
        self.assertEqual(other.wait(), -signal.SIGKILL, other.said)
        self.assert_reads()

    def test_nothing_can_be_written(self):
        client = self.client("--write")
        self.assertEqual(client.wait(), FAILED, client.said)
        self.assert_reads()

    def test_an_identity_that_nothing_leads_to_gets_no_bytes(self):
        client = self.client("--wrong-gid")
        self.assertEqual(client.wait(), FAILED, client.said)
        self.assert_nothing_is_left()
        self.assert_reads()

    def test_counts_of_rails_that_cannot_be_are_refused(self):
        for words in (("--rails", "0"), ("--rails", "9"), ("--rails", "2", "--rails-again", "1")):
            client = self.client(*words)
            self.assertEqual(client.wait(), REFUSED, client.said)
        self.assert_nothing_is_left()

    def test_a_client_killed_in_the_middle_leaves_nothing(self):
        memory = {what: memory_kib(self.peer.process.pid, what) for what in ("VmRSS", "VmPin", "VmLck")}
        for _ in range(5):
            client = self.client("--forever")
            client.wait_for("reading")
            self.assertNotEqual(resources(), self.registered)
            client.process.kill()
            client.wait()
        self.assert_nothing_is_left()
        after = {what: memory_kib(self.peer.process.pid, what) for what in memory}
        note(f"the peer's memory in KiB before and after five killed clients: {memory}, {after}")
        self.assertEqual(after["VmPin"], memory["VmPin"])
        self.assertLess(after["VmRSS"] - memory["VmRSS"], 512)

    def test_every_step_can_be_the_last_for_one_that_closes_and_for_one_that_is_killed(self):
        for step in ("request", "manifest", "mode", "step1", "step2", "step3", "ack"):
            client = self.client("--stop-after", step)
            self.assertEqual(client.wait(), 0, f"{step}: {client.said}")
            client = self.client("--stop-after", step, "--wait")
            client.wait_for("waiting")
            client.process.kill()
            client.wait()
        self.assert_nothing_is_left()
        self.assert_reads()


class ReadWrite(OneHost):
    """The dialect of the cache tiers, on our rail set, before there is one of them."""

    def setUp(self):
        super().setUp()
        self.peer = subprocess.Popen([program("rw_peer")], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.peer.stdout.close)
        self.addCleanup(self.peer.wait, 60)
        self.addCleanup(self.peer.terminate)
        self.port = self.peer.stdout.readline().split()[-1]

    def client(self, *words, devices=DEVICES):
        """(exit status, what it said)"""
        rails = [word for device in devices for word in ("--device", device)]
        done = subprocess.run([program("raw_client"), "--read-write", *rails, *words, "127.0.0.1", self.port],
                              stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    def test_what_is_written_over_one_rail_is_read_over_the_other(self):
        for devices in (DEVICES[:1], DEVICES):
            status, said = self.client(devices=devices)
            self.assertEqual(status, 0, said)

    def test_what_is_wrong_is_refused_and_harms_nobody_else(self):
        for words, wanted in ((("--wrong-rkey",), FAILED), (("--rails", "0"), REFUSED), (("--rails", "9"), REFUSED),
                              (("--rails-again", "1"), REFUSED)):
            status, said = self.client(*words)
            self.assertEqual(status, wanted, said)
        status, said = self.client()
        self.assertEqual(status, 0, said)
