"""Two hosts whose links and hosts fail in the middle of a transfer, and what passes between them."""

import json
import subprocess
import time

from lab import DEVICES, MIB, PATIENCE, Pull, TwoHosts, hardware_counter, harness, note, output, shards_of
from session import Session

DEADLINE = 5  # s: of a rail that has work and completes none
SLOW = "netem rate 32mbit limit 100000"  # the model takes 4 s over both rails, and whoever cuts them a tenth of that


def words_of(pull):
    """Why it failed."""
    return next((line for line in pull.said.splitlines() if "weight peer" in line), pull.said)


class Faults(TwoHosts):
    def setUp(self):
        self.directory = self.model("m", total_bytes=32 * MIB, n_shards=2)
        self.peer = self.serve(self.directory)
        self.peer.wait_for_log("m: registered")
        self.addCleanup(self.links_up)

    def links_up(self):
        for i in range(2):
            self.link(i, "up", here=True)
            self.link(i, "up", here=False)
        harness.wait_until(lambda: all("ACTIVE" in text for text in self.port_states()), "ports that are up")

    def link(self, i, state, here):
        command = ("ip", "link", "set", f"eth{i}", state)
        output(*command) if here else self.there(*command)

    def pace(self, words):
        """Of what the peer sends on either rail."""
        for i in range(2):
            self.there("tc", "qdisc", "replace", "dev", f"eth{i}", "root", *words.split())

    def port_states(self):
        path = "/sys/class/infiniband/{}/ports/1/state"
        for device in DEVICES:
            yield output("cat", path.format(device))
            yield self.far_host.read(path.format(device))

    def begin(self, *words):
        """A pull of which both rails have brought something, and that has seconds to go."""
        self.pace(SLOW)
        self.addCleanup(self.pace, "pfifo")
        before = [hardware_counter(device, "rcvd_pkts") for device in DEVICES]
        pull = Pull(self.peer.address, "m", "--transport", "rdma", "--json", "-j", "1", *words)
        harness.wait_until(lambda: all(hardware_counter(device, "rcvd_pkts") > n + 200
                                       for device, n in zip(DEVICES, before)), "bytes on both rails")
        return pull

    def assert_right_over_one_rail(self, pull, failed):
        pull.wait()
        self.assertEqual(pull.status, 0, pull.said)
        self.assert_same(pull, self.directory)
        rails = {rail["device"]: rail for rail in json.loads(pull.said.splitlines()[-1])["rails"]}
        note(f"{pull.seconds:.1f} s; {failed}: {rails[failed]['failure']}")
        self.assertEqual([device for device in DEVICES if rails[device]["failures"]], [failed])

    def assert_no_rail_is_left(self, pull, began):
        pull.wait()
        took = time.monotonic() - began
        note(f"after {took:.1f} s: {words_of(pull)}")
        self.assertEqual(pull.status, 1, pull.said)
        self.assertIn("no rail is left", words_of(pull))
        self.assertLess(took, 3 * DEADLINE)


class Wire(Faults):
    def test_what_passes_on_a_rail_are_rdma_read_requests(self):
        with subprocess.Popen(["tshark", "-l", "-i", "eth0", "-f", "udp port 4791", "-a", "packets:100"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as tshark:
            while "Capture started" not in tshark.stderr.readline():
                self.assertIsNone(tshark.poll())
            self.pull(self.peer, "m", "--transport", "rdma")
            said, _ = tshark.communicate(timeout=PATIENCE)
        asked = [line for line in said.splitlines() if "RC RDMA Read Request" in line]
        note(f"{len(asked)} of {len(said.splitlines())} packets: {' '.join((asked or ['none'])[0].split())}")
        self.assertTrue(asked, said)
        self.assertTrue(all("10.77.0.2 → 10.77.0.1" in line for line in asked))

    def test_ends_with_different_mtus_take_the_smaller_at_both(self):
        self.addCleanup(output, "ip", "link", "set", "eth0", "mtu", "4400")
        self.addCleanup(self.there, "ip", "link", "set", "eth1", "mtu", "4400")
        output("ip", "link", "set", "eth0", "mtu", "1500")
        self.there("ip", "link", "set", "eth1", "mtu", "2200")
        peer = self.serve(self.directory)  # which then looks at its ports
        with Session(peer, "m") as session:
            with open(shards_of(self.directory)[0], "rb") as f:
                self.assertEqual(session.read(), f.read())
            self.assertEqual([rail.mtu_bytes for rail in session.rails()], [1024, 2048])
        note(peer.wait_for_log(r"reads m by RDMA over 2 rails: 0 rxe0, MTU 1024, .*; 1 rxe1, MTU 2048, .*").group(0))


class Links(Faults):
    def test_a_link_down_here_in_the_middle_leaves_the_pull_right_on_the_other_rail(self):
        pull = self.begin()
        self.link(1, "down", here=True)
        self.assert_right_over_one_rail(pull, "rxe1")

    def test_a_link_down_at_the_peer_in_the_middle_likewise(self):
        pull = self.begin()
        self.link(0, "down", here=False)
        self.assert_right_over_one_rail(pull, "rxe0")

    def test_a_rail_that_failed_is_built_anew_for_the_next_transfer(self):
        with open(shards_of(self.directory)[0], "rb") as f:
            shard = f.read()
        with Session(self.peer, "m") as session:
            self.assertEqual(session.read(), shard)
            self.link(1, "down", here=True)
            self.assertEqual(session.read(), shard)
            self.assertEqual([rail.up for rail in session.rails()], [1, 0])
            self.links_up()
            deadline = time.monotonic() + PATIENCE
            while [rail.up for rail in session.rails()] != [1, 1]:
                self.assertLess(time.monotonic(), deadline)
                self.assertEqual(session.read(), shard)
            before = session.rails()[1].bytes
            self.assertEqual(session.read(), shard)
            self.assertGreater(session.rails()[1].bytes, before)
            note(f"rail 1 failed {session.rails()[1].failures} time(s): {session.rails()[1].failure.decode()}")

    def test_a_session_that_has_nothing_to_do_lets_its_caller_sleep(self):
        with Session(self.peer, "m") as session:
            for _ in range(20):
                session.read(256 << 10)
                harness.wait_until(session.is_quiet, "nothing to be read from the session's fd")

    def test_both_links_down_are_an_error_in_time(self):
        pull = self.begin()
        for i in range(2):
            self.link(i, "down", here=False)
        began = time.monotonic()
        self.assert_no_rail_is_left(pull, began)


class Hosts(Faults):
    def links_up(self):
        pass

    def doCleanups(self):
        return True  # of a host that is gone nothing can be cleaned up

    def test_a_host_that_dies_in_the_middle_is_an_error_in_time(self):
        pull = self.begin()
        self.far_host.die()
        began = time.monotonic()
        self.assert_no_rail_is_left(pull, began)
