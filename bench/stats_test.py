import unittest

import stats


class Spread(unittest.TestCase):
    def test_is_how_far_from_one_a_ratio_of_equals_typically_lies(self):
        self.assertAlmostEqual(stats.spread([0.9, 1.0, 1.02, 1.05, 3.0]), 0.05)

    def test_sees_a_rival_that_is_always_faster_the_second_time(self):
        self.assertAlmostEqual(stats.spread([1.1, 1.1, 1.1]), 0.1)


class Decide(unittest.TestCase):
    def decide(self, ratio, self_ratio, gate, sense):
        return stats.decide("x", [0.0, ratio, 9.0], [self_ratio], gate, sense)

    def test_takes_the_median_and_not_the_mean_or_the_best(self):
        self.assertEqual(self.decide(0.95, 1.0, 1.0, stats.LEAST)["median"], 0.95)

    def test_at_least_is_met_on_the_line_and_within_the_spread_below_it(self):
        on_the_line = self.decide(1.0, 1.0, 1.0, stats.LEAST)
        self.assertTrue(on_the_line["met"] and on_the_line["met_outright"])
        below = self.decide(0.95, 1.06, 1.0, stats.LEAST)
        self.assertTrue(below["met"])
        self.assertFalse(below["met_outright"])
        self.assertFalse(self.decide(0.95, 1.04, 1.0, stats.LEAST)["met"])

    def test_the_spread_is_of_the_gates_size_and_above_1_no_larger(self):
        self.assertTrue(self.decide(3.96, 1.05, 4.0, stats.LEAST)["met"])
        self.assertFalse(self.decide(3.94, 1.05, 4.0, stats.LEAST)["met"])
        self.assertFalse(self.decide(0.46, 1.05, 0.5, stats.LEAST)["met"])
        self.assertTrue(self.decide(0.48, 1.05, 0.5, stats.LEAST)["met"])

    def test_at_most_is_the_mirror_image(self):
        self.assertTrue(self.decide(1.1, 1.0, 1.1, stats.MOST)["met_outright"])
        above = self.decide(1.15, 0.94, 1.1, stats.MOST)
        self.assertTrue(above["met"])
        self.assertFalse(above["met_outright"])
        self.assertFalse(self.decide(1.15, 0.96, 1.1, stats.MOST)["met"])

    def test_a_machine_too_noisy_to_tell_passes_only_what_is_clear_of_the_gate(self):
        near = self.decide(1.1, 1.2, 1.0, stats.LEAST)
        self.assertTrue(near["too_noisy"])
        self.assertFalse(near["met"])
        self.assertTrue(self.decide(1.3, 1.2, 1.0, stats.LEAST)["met"])
        self.assertTrue(self.decide(0.7, 1.2, 1.0, stats.MOST)["met"])

    def test_refuses_a_sense_that_it_does_not_know(self):
        with self.assertRaises(ValueError):
            self.decide(1.0, 1.0, 1.0, "about")


class Order(unittest.TestCase):
    def test_turns_round_from_pair_to_pair(self):
        self.assertEqual([stats.order("ab", i) for i in range(3)], [["a", "b"], ["b", "a"], ["a", "b"]])


if __name__ == "__main__":
    unittest.main()
