"""Throughput beside ib_read_bw in the same boot, loosely, since the processor is emulated and shared."""

import statistics

from lab import MIB, OneHost, model, note
from rail_read import RailRead, perftest_rate

PAIRS = 7


class SpeedModel(OneHost):
    def setUp(self):
        super().setUp()
        self.model = model("speed", total_bytes=33 * MIB, n_tensors=4, n_shards=1)
        self.peer = self.serve(self.model)
        self.peer.wait_for_log("speed: registered")


class BesidePerftest(SpeedModel):
    def assert_keeps_up(self, what, devices, words, rival):
        """Alternated: ours, theirs, theirs, ours, ours, ... By how much theirs differs from itself, ours may too."""
        ours, theirs = [], []
        with RailRead(self.peer, self.model, "--rails", ",".join(devices)) as client:
            client.read(words)  # first touch
            for i in range(PAIRS):
                for side in ("ours", "theirs")[::-1 if i % 2 else 1]:
                    if side == "ours":
                        ours.append(client.rate(words))
                    else:
                        theirs.append(perftest_rate(devices, *rival))
        ratios = [a / b for a, b in zip(ours, theirs)]
        itself = [max(a, b) / min(a, b) for a, b in zip(theirs, theirs[1:])]
        ratio = statistics.median(ratios)
        note(f"{what}: {ratio:.2f} of ib_read_bw ({min(ratios):.2f} to {max(ratios):.2f}, {PAIRS} pairs; medians "
             f"{statistics.median(ours):.0f} and {statistics.median(theirs):.0f} MB/s; ib_read_bw differs from itself by "
             f"{statistics.median(itself):.2f}, {max(itself):.2f} at most)")
        self.assertGreaterEqual(ratio * statistics.median(itself), 0.7)
