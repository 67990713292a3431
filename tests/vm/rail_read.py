"""programs/rail_read.c and its rival, ib_read_bw, and what else of perftest is one."""

import json
import re
import subprocess

from lab import PATIENCE, listening, program, shards_of

PERFTEST_PORT = 18515
TRIES = 12


class RailRead:
    """Connected to a peer, and reads a list at a time."""

    def __init__(self, peer, directory, *words):
        command = [program("rail_read"), *words, "%s:%d" % peer.address, directory.rpartition("/")[2],
                   shards_of(directory)[0]]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE)

    def read(self, words):
        """What it says of one list: "whole BYTES", "order PIECE BYTES" or "scattered PIECE BYTES"."""
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"rail_read ended with exit status {self.process.wait(PATIENCE)}")
        return json.loads(line)

    def rate(self, words):
        """MB/s."""
        done = self.read(words)
        return done["bytes"] / done["seconds"] / 1e6


def read_once(peer, directory, rails, words):
    """With counters that no other list has touched."""
    with RailRead(peer, directory, "--rails", rails) as client:
        return client.read(words)


def perftest(devices, *words, rival="ib_read_bw"):
    """What clients of it say on these devices of one host at once."""
    def start(i, device, *address):
        command = [rival, "-d", device, "-x", "1", "-F", "-p", str(PERFTEST_PORT + i), *words, *address]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    servers = [start(i, device) for i, device in enumerate(devices)]
    for i in range(len(devices)):
        listening(PERFTEST_PORT + i)
    clients = [start(i, device, "127.0.0.1") for i, device in enumerate(devices)]
    said = [process.communicate(timeout=PATIENCE)[0] for process in clients + servers]
    return said[:len(clients)]


def perftest_rate(devices, *words, rival="ib_read_bw"):
    """MB/s of it, in all. It has none where it could not find out how fast the processor's clock is."""
    for _ in range(TRIES):
        said = perftest(devices, *words, rival=rival)
        rates = [re.search(r"^ *\d+ +\d+ +[\d.]+ +([\d.]+) ", text, re.M) for text in said]
        if all(rate and float(rate[1]) > 0 for rate in rates):
            return sum(float(rate[1]) for rate in rates)
    raise AssertionError(f"{rival} brought no figure in {TRIES} tries:\n" + "\n".join(said))
