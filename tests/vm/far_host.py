"""On the peer's host, of two: runs what the tests on the client's host ask for, over the link that is not a rail.
XML-RPC, a request at a time."""

import os
import signal
import subprocess
import sys
import tempfile
from xmlrpc.server import SimpleXMLRPCServer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from make_model import make_model  # noqa: E402

HOST, PORT = "10.77.2.1", 9000


class Agent:
    def __init__(self):
        self.processes = {}  # pid: (process, file of its output)

    def run(self, words, seconds):
        """[exit status, output] of a command that ends by itself."""
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
        return [done.returncode, done.stdout.decode(errors="replace")]

    def start(self, words):
        """The pid of a command that goes on."""
        output = tempfile.TemporaryFile()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.processes[process.pid] = (process, output)
        return process.pid

    def output(self, pid):
        """All that it has said."""
        output = self.processes[pid][1]
        return os.pread(output.fileno(), 1 << 24, 0).decode(errors="replace")

    def stop(self, pid, number=signal.SIGTERM):
        """Ends it, and returns its exit status."""
        process = self.processes[pid][0]
        process.send_signal(number)
        return process.wait(30)

    def make_model(self, directory, options):
        make_model(directory, **options)
        return True

    def read(self, path):
        with open(path, encoding="utf-8") as f:
            return f.read()

    def die(self):
        """The whole host, at once, and as soon as this is answered: nobody is told. Not in order (`o`): after that the
        client's ibv_destroy_qp has been seen to wait in rdma_rxe for longer than a test does; why is not known."""
        self.start(["sh", "-c", "sleep 0.2; echo b >/proc/sysrq-trigger"])
        return True


if __name__ == "__main__":
    with SimpleXMLRPCServer(("", PORT), allow_none=True, logRequests=False) as server:
        server.register_introspection_functions()
        server.register_instance(Agent())
        server.serve_forever()
