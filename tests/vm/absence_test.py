"""What there is to say, and to do, where RDMA is not to be had: both ends go on over TCP."""

import os

from lab import MIB, OneHost, Pull, model, note, output

AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all")


def library():
    """Where libibverbs lies, behind its links."""
    line = next(line for line in output("ldconfig", "-p").splitlines() if "libibverbs.so.1 " in line)
    return os.path.realpath(line.split("=> ")[1])


class Absence(OneHost):
    def setUp(self):
        super().setUp()
        self.model = model("two-shards", total_bytes=4 * MIB, n_shards=2)

    def hide(self, path):
        """Puts something empty in its place."""
        if os.path.isdir(path):
            output("mount", "-t", "tmpfs", "none", path)
        else:
            output("mount", "--bind", "/dev/null", path)
        self.addCleanup(output, "umount", path)

    def assert_said_by_both(self, words):
        """By a peer that serves nevertheless, and a client that pulls nevertheless, but not with --transport rdma."""
        peer = self.serve(self.model)
        said = peer.wait_for_log("no RDMA, clients are served over TCP only: (.*)").group(1)
        note(said)
        self.assertIn(words, said)
        pulled = self.pull(peer, "two-shards", "-v")
        self.assert_same(pulled, self.model)
        self.assertIn(words, pulled.said)
        refused = Pull(peer.address, "two-shards", "--transport", "rdma").wait()
        self.assertNotEqual(refused.status, 0, refused.said)
        self.assertIn(words, refused.said)

    def test_without_libibverbs(self):
        self.hide(library())
        self.assert_said_by_both("apt install libibverbs1 ibverbs-providers")

    def test_without_drivers(self):
        self.hide("/etc/libibverbs.d")
        self.assert_said_by_both("libibverbs has no driver for it (apt install ibverbs-providers)")

    def test_without_device_nodes_as_in_a_container(self):
        self.hide("/dev/infiniband")
        self.assert_said_by_both("--device=/dev/infiniband")

    def test_without_an_active_port(self):
        for interface in ("rail0", "rail1"):
            output("ip", "link", "set", interface, "down")
            self.addCleanup(output, "ip", "link", "set", interface, "up")
        self.assert_said_by_both("is DOWN")

    def test_without_the_right_to_open_them(self):
        for i in (0, 1):
            node = f"/dev/infiniband/uverbs{i}"
            self.addCleanup(os.chmod, node, os.stat(node).st_mode)
            os.chmod(node, 0o600)
        peer = self.serve(self.model, before=AS_NOBODY)
        said = peer.wait_for_log("no RDMA, clients are served over TCP only: (.*)").group(1)
        note(said)
        self.assertIn("which this user must be able to read and write", said)
        self.assert_serves(peer, "two-shards")
