"""Count how often the interval of a paired search contains the true ratio of two capacities.

The benchmark measures nothing. It performs paired searches (`sipsched.measure.paired_search`) on sampled machines whose
speed varies, and also counts how often the intervals of two searches overlap.
"""

import argparse
import math
from dataclasses import dataclass

import numpy as np

from sipsched.analysis.capacity_ratios import handled_loads, times
from sipsched.analysis.intervals import Interval
from sipsched.measure.bracketing import Trial
from sipsched.measure.paired_search import find_ratios
from sipsched.measure.serving import MESSAGES_A_CALL
from sipsched.plan.loads import Capacity, Search

CAPACITIES = (1500.0, 2400.0)
ROUND_S = 14.0


@dataclass
class SampledMachine:
    """A machine whose speed changes from trial to trial, with two systems of known capacities."""

    rng: np.random.Generator
    wander: float
    log_speed: float = 0.0
    time_s: float = 0.0

    def offer(self, system: int, cps: int, duration_s: float) -> Trial:
        """Sample the result of a trial of a system at a load of `cps`."""
        self.time_s += ROUND_S / len(CAPACITIES)
        self.log_speed = 0.99 * self.log_speed + self.wander * self.rng.standard_normal()
        luck = 0.05 * self.rng.standard_normal()
        capacity = CAPACITIES[system] * math.exp(self.log_speed + luck)
        messages = int(self.rng.poisson(MESSAGES_A_CALL * cps * duration_s))
        refused = round(messages * max(0.0, 1 - capacity / cps))
        received = messages - refused
        handled = received / MESSAGES_A_CALL / duration_s
        return Trial(cps, duration_s, received, refused, carried_cps=handled)

    def search(self, goal: Capacity, limit_s: float) -> Interval:
        """Perform a search, and return the ratio that it finds."""
        settings = Search(300, 9000, goal.relative_width, 3.0, 3.0, limit_s)
        seed = int(self.rng.integers(2**31))
        found = find_ratios(self.offer, 2, goal, settings, 1500, lambda: self.time_s, seed)
        pairs = [found.trials[place : place + 2] for place in range(0, len(found.trials), 2)]
        return times(handled_loads(pairs, goal.limit), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=100, help="pairs of sampled searches")
    parser.add_argument("--limit-s", type=float, default=600, help="time limit of a search in s")
    parser.add_argument("--half-width", type=float, default=0.05, help="goal of a search")
    options = parser.parse_args()
    goal, truth = Capacity(0.01, options.half_width), CAPACITIES[1] / CAPACITIES[0]
    for wander in (0.0, 0.02, 0.05):
        rng = np.random.default_rng(1)
        found = [
            SampledMachine(rng, wander).search(goal, options.limit_s)
            for _ in range(2 * options.searches)
        ]
        covered = np.mean([each.low <= truth <= each.high for each in found])
        half = np.mean([math.log(each.high / each.low) / 2 for each in found])
        pairs = zip(found[::2], found[1::2], strict=True)
        agree = np.mean([one.low <= two.high and two.low <= one.high for one, two in pairs])
        print(
            f"speed changes by {100 * wander:g} % per trial: coverage {100 * covered:.1f} %, half-width "
            f"{100 * half:.1f} %, {np.mean([each.n for each in found]):.0f} rounds, two searches agree in "
            f"{100 * agree:.0f} % of {options.searches} pairs",
            flush=True,
        )


if __name__ == "__main__":
    main()
