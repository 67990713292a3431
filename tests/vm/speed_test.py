"""What is posted for a list of ranges, exactly; and one rail's throughput beside ib_read_bw."""

from beside_perftest import BesidePerftest, SpeedModel
from lab import DEVICES, MIB, note
from rail_read import read_once

WIRE_READS = 16  # outstanding at least, where there is so much to do
DEPTH = 256      # and posted at most


class Counts(SpeedModel):
    def assert_even(self, rails):
        """Bytes a rail, within 5 %."""
        share = sum(rail["bytes"] for rail in rails) / len(rails)
        for rail in rails:
            self.assertAlmostEqual(rail["bytes"] / share, 1, delta=0.05)

    def counts(self, rails, words):
        done = read_once(self.peer, self.model, rails, words)
        for i, rail in enumerate(done["rails"]):
            note(f"{words}, rail {i} of {len(done['rails'])}: " + ", ".join(f"{k} {v}" for k, v in rail.items()))
        self.assertEqual(sum(rail["bytes"] for rail in done["rails"]), done["bytes"])
        self.assert_even(done["rails"])
        return done["rails"]

    def test_what_touches_is_one_range_and_a_long_one_is_cut_by_the_mebibyte(self):
        for words in (f"whole {16 * MIB}", f"order 4096 {16 * MIB}"):
            for rails in ("rxe0", "auto"):
                each = self.counts(rails, words)
                self.assertEqual([rail["work_requests"] for rail in each], [16 / len(each)] * len(each))
                self.assertEqual([rail["doorbells"] for rail in each], [1] * len(each))
                self.assertEqual([rail["outstanding_max"] for rail in each], [16 / len(each)] * len(each))

    def test_what_does_not_touch_is_a_work_request_each_in_few_doorbells_and_deep_queues(self):
        pieces = 1024
        for rails in ("rxe0", "auto"):
            each = self.counts(rails, f"scattered 4096 {4096 * pieces}")
            self.assertEqual(sum(rail["work_requests"] for rail in each), pieces)
            for rail in each:
                self.assertLessEqual(rail["doorbells"], rail["work_requests"] / WIRE_READS)
                self.assertLessEqual(rail["completions"], rail["work_requests"] / 4, "few are signaled")
                self.assertGreaterEqual(rail["outstanding_mean"], 2 * WIRE_READS)
                self.assertLessEqual(rail["outstanding_max"], DEPTH)


class OneRail(BesidePerftest):
    def test_one_rail_contiguous(self):
        self.assert_keeps_up("16 MiB, 1 rail", DEVICES[:1], f"whole {16 * MIB}", ("-s", str(MIB), "-n", "16"))

    def test_small_tensors_in_file_order(self):
        self.assert_keeps_up("4 KiB in file order, 1 rail", DEVICES[:1], f"order 4096 {4 * MIB}",
                             ("-s", "4096", "-n", "1024"))
