"""Two hosts with 3 ms on every rail, either way: what keeping many READs outstanding is for."""

from lab import MIB, TwoHosts, note, output
from rail_read import RailRead

ROUNDS = (3, 10)  # at least, and at most where what else runs on this machine gets in the way
TIMES = {"sixteen": 8, "agreed": 12, "order": 30}  # as fast as one outstanding


class Distance(TwoHosts):
    def delay(self, words):
        for i in range(2):
            command = ("tc", "qdisc", "replace", "dev", f"eth{i}", "root", *words.split())
            output(*command)
            self.there(*command)

    def setUp(self):
        self.directory = self.model("far", total_bytes=17 * MIB, n_tensors=4, n_shards=1)
        self.peer = self.serve(self.directory)
        self.peer.wait_for_log("far: registered")
        self.delay("netem delay 3ms limit 100000")
        self.addCleanup(self.delay, "pfifo")

    def connect(self, *words):
        return RailRead(self.peer, self.directory, "--rails", "rxe0", *words)

    def test_many_outstanding_are_many_times_one(self):
        scattered, in_order = f"scattered 4096 {MIB}", f"order 4096 {8 * MIB}"
        rates = {"one": [], "sixteen": [], "agreed": [], "order": []}
        times = {}
        with self.connect("--outstanding", "1") as one, self.connect("--reads", "16") as sixteen, \
                self.connect() as agreed:
            for done in range(1, ROUNDS[1] + 1):
                rates["one"].append(one.rate(f"scattered 4096 {MIB // 4}"))
                rates["sixteen"].append(sixteen.rate(scattered))
                rates["agreed"].append(agreed.rate(scattered))
                rates["order"].append(agreed.rate(in_order))
                times = {name: max(rates[name]) / max(rates["one"]) for name in TIMES}
                if done >= ROUNDS[0] and all(times[name] >= TIMES[name] for name in TIMES):
                    break
        note(f"3 ms away, 1 rail, 4 KiB scattered, one outstanding: {max(rates['one']):.2f} MB/s, the best of {done}")
        for name, words in (("sixteen", "scattered, 16 READs on the wire"),
                            ("agreed", "scattered, as many as both ends can"), ("order", "in file order")):
            note(f"3 ms away, 1 rail, 4 KiB {words}: {max(rates[name]):.2f} MB/s, {times[name]:.1f} times that")
        for name, least in TIMES.items():
            self.assertGreaterEqual(times[name], least, rates)
