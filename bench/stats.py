"""What a gate is decided by.

Two things are compared in pairs, taken one after the other, each pair in the other order than the last (ABBA), because
the machine drifts. Beside each pair the rival runs once more: what separates the rival from itself is no property of
ours. A gate is met when the median of the ratios is, give or take that spread, which below 1 is of the gate's own
size: a rival that is a twentieth slower makes any ratio to it a twentieth larger. A gate above 1 gets no more for it."""

from statistics import median

LEAST = "at least"
MOST = "at most"

# Where the rival differs from itself by more than this, only a median that is clear of the gate by the whole spread
# says anything: else a machine that is busy enough would pass every gate.
TOO_NOISY = 0.15


def spread(self_ratios):
    """How far from 1 a ratio of two identical things typically lies: the median of the distances."""
    return median(abs(r - 1.0) for r in self_ratios)


def decide(name, ratios, self_ratios, gate, sense):
    """One gate's result. `met` allows for the spread, `met_outright` does not."""
    middle, apart = median(ratios), spread(self_ratios)
    slack = apart * min(gate, 1.0)
    if sense == LEAST:
        margin = middle - gate
    elif sense == MOST:
        margin = gate - middle
    else:
        raise ValueError(f"neither {LEAST} nor {MOST}: {sense}")
    noisy = apart > TOO_NOISY
    met = margin >= (slack if noisy else -slack)
    return {
        "name": name,
        "gate": gate,
        "sense": sense,
        "median": round(middle, 4),
        "ratios": [round(r, 4) for r in ratios],
        "rival_against_itself": [round(r, 4) for r in self_ratios],
        "spread": round(apart, 4),
        "met": met,
        "met_outright": margin >= 0,
        "too_noisy": noisy,
    }


def order(things, pair):
    """The order to run things in: as given in even pairs, reversed in odd ones."""
    return list(things) if pair % 2 == 0 else list(reversed(things))
