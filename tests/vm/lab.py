"""In the guest: what the tests share. Peers here or on the other host, pulls, and what the kernel knows of RDMA."""

import filecmp
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
import xmlrpc.client

HERE = os.path.dirname(os.path.abspath(__file__))


def for_everybody(path):
    """A copy that users without privileges can reach, wherever the tree was built."""
    copy = "/run/penstock-for-everybody"
    if not os.path.exists(copy):
        shutil.copyfile(path, copy + ".new")
        os.chmod(copy + ".new", 0o755)
        os.rename(copy + ".new", copy)
    return copy


BUILT = os.environ["PENSTOCK"]  # what the other host runs
os.environ["PENSTOCK"] = for_everybody(BUILT)
sys.path += [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "tools")]

import harness  # noqa: E402
from far_host import HOST, PORT  # noqa: E402
from make_model import make_model  # noqa: E402

PENSTOCK, BUILD = os.environ["PENSTOCK"], os.environ["PENSTOCK_BUILD"]
DISK = "/run/disk"
PATIENCE = harness.PATIENCE = 60  # s: everything is slow here
DEVICES = ["rxe0", "rxe1"]
MIB = 1 << 20


def note(words):
    """A figure, or what else is good to see beside the results."""
    print(words, flush=True)


def output(*words, seconds=PATIENCE):
    """Of a command that succeeds."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def listening(port):
    """Waits until somebody here listens on it."""
    def found():
        with open("/proc/net/tcp", encoding="ascii") as v4, open("/proc/net/tcp6", encoding="ascii") as v6:
            return re.search(rf":{port:04X} \S+ 0A ", v4.read() + v6.read())
    harness.wait_until(found, f"a listener on port {port}")


def program(name):
    """The path of one of programs/, or of bench/."""
    for folder in ("tests/vm/programs", "bench"):
        path = os.path.join(BUILD, folder, name)
        if os.path.exists(path):
            return path
    raise AssertionError(f"{name} is not built in {BUILD} (PENSTOCK_BUILD)")


# ---- models ----

def model(name, **options):
    """The path of one on the disk, made when it is first asked for."""
    path = os.path.join(DISK, name)
    if not os.path.exists(path):
        make_model(path, **options)
    return path


def files_of(directory):
    return sorted(os.path.relpath(os.path.join(at, name), directory)
                  for at, _, names in os.walk(directory) for name in names if not name.startswith("."))


def shards_of(directory):
    """Paths, in the order of their numbers."""
    return [os.path.join(directory, name) for name in files_of(directory) if name.endswith(".safetensors")]


# ---- clients ----

class Pull:
    """`penstock pull` under way, into a directory that goes with the test."""

    def __init__(self, address, name, *words, before=(), env=None):
        self.directory = os.path.join(DISK, f"pulled-{os.getpid()}-{time.monotonic_ns()}")
        self.began = time.monotonic()
        command = [*before, PENSTOCK, "pull", "%s:%d" % address, name, "-o", self.directory, *words]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **(env or {})))

    def wait(self, seconds=PATIENCE):
        """Itself, with its exit status, all that it said, and how long it took."""
        try:
            self.said, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.said, _ = self.process.communicate()
            raise AssertionError(f"still pulling after {seconds} s:\n{self.said}") from None
        self.seconds = time.monotonic() - self.began
        self.status = self.process.returncode
        return self

    def differences(self, source):
        """Names of files that are not there as they should be."""
        names = files_of(source)
        same, *others = filecmp.cmpfiles(source, self.directory, names, shallow=False)
        return sorted(sum(others, [])) + sorted(set(files_of(self.directory)) - set(names))


# ---- what the kernel knows ----

def cpu_seconds(pid):
    """Of all threads of a process, in user and kernel mode."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid, what):
    """VmRSS, VmPin, VmLck... of /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(rf"^{what}:\s+(\d+) kB", f.read(), re.M)[1])


def resources():
    """{device: {"qp": 2, "mr": 3, ...}}: RDMA objects that exist, whoever owns them."""
    return {d["ifname"]: {k: v for k, v in d.items() if k in ("pd", "cq", "qp", "mr", "cm_id")}
            for d in json.loads(output("rdma", "-j", "resource"))}


def hardware_counter(device, name):
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}", encoding="ascii") as f:
        return int(f.read())


# ---- tests ----

def remove_pulled():
    for directory in glob.glob(os.path.join(DISK, "pulled-*")):
        shutil.rmtree(directory)


class OneHost(harness.PeerTest):
    """Peers and clients here."""

    def tearDown(self):
        remove_pulled()

    def pull(self, peer, name, *words, **options):
        """One that is right, or the test fails."""
        done = Pull(peer.address, name, *words, **options).wait()
        self.assertEqual(done.status, 0, done.said)
        return done

    def assert_same(self, pulled, source):
        self.assertEqual(pulled.differences(source), [], pulled.said)


class RemotePeer:
    """`penstock serve` on the other host."""

    def __init__(self, far_host, words, tier="weights", listen=HOST):
        self.far_host = far_host
        self.pid = far_host.start([BUILT, "serve", "--journal", "no", f"--listen-{tier}", listen + ":0", *words])
        port = self.wait_for_log(rf"listening for {tier} on \S+:(\d+)").group(1)
        self.address = (HOST, int(port))

    def wait_for_log(self, pattern, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while True:
            log = self.far_host.output(self.pid)
            found = re.search(pattern, log)
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern!r} in the log:\n{log}")
            time.sleep(0.1)

    def stop(self):
        return self.far_host.stop(self.pid)


class TwoHosts(unittest.TestCase):
    """Clients here, peers on the other host."""

    def tearDown(self):
        remove_pulled()

    @classmethod
    def setUpClass(cls):
        cls.far_host = xmlrpc.client.ServerProxy(f"http://{HOST}:{PORT}", allow_none=True)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                cls.far_host.system.listMethods()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def there(self, *words, seconds=PATIENCE):
        """The output of a command on the peer's host."""
        status, text = self.far_host.run(list(words), seconds)
        self.assertEqual(status, 0, text)
        return text

    def serve(self, directory, *words):
        peer = RemotePeer(self.far_host, ["--weights", directory, *words])
        self.addCleanup(peer.stop)
        return peer

    def model(self, name, **options):
        """The same on both hosts."""
        self.far_host.make_model(os.path.join(DISK, name), options)
        return model(name, **options)

    pull, assert_same = OneHost.pull, OneHost.assert_same
