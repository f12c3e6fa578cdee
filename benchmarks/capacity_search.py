"""Measure the duration and the error of capacity searches on simulated machines whose capacity varies.

The table has one row per spread of the capacity, with or without a first guess. The spread is the standard deviation
of the logarithm of a lognormal capacity. A row shows the median and the largest number of trials and seconds per
search, and the error. The error is the root mean square distance from the middle of the bounds to the true capacity. At
the true capacity, half of all trials drop more than 1 % of the messages. The duration depends on the rule that stops
the search. The error depends on the spread. Another benchmark, benchmarks/capacity_drift.py, tests capacity intervals.
The benchmark measures no real machine, prints the same numbers each time, and takes half a minute of CPU time.
"""

from functools import partial

import numpy as np

from sipsched.measure.bracketing import Trial, find_capacity
from sipsched.plan.config import load_config
from sipsched.plan.loads import Capacity

SEED = 1
SEARCHES = 200
CAPACITY_CPS = 2000
SPREADS = (0.0, 0.02, 0.05, 0.1)
GUESSES = {"no guess": None, "a guess 10 % off": 1.1, "a guess twice as high": 2.0}
GOAL = Capacity(0.01, 0.02)
AROUND_TRIAL_S = 3.0
"""Seconds per trial, in addition to its load, in which the proxy starts and warms up."""


def offered(rng: np.random.Generator, spread: float, cps: int, duration_s: float) -> Trial:
    """Simulate a trial at a load of `cps`, on a machine whose capacity is sampled anew for each trial."""
    capacity_cps = CAPACITY_CPS * np.exp(spread * rng.standard_normal())
    messages = round(6 * cps * duration_s)
    refused = round(messages * max(0.0, 1 - capacity_cps / cps))
    return Trial(cps, duration_s, messages - refused, refused)


def main() -> None:
    search = load_config().search
    print(f"{SEARCHES} searches per row, until bounds are {100 * GOAL.relative_width:g} % apart:")
    for spread in SPREADS:
        for name, guess in GUESSES.items():
            rng = np.random.default_rng(SEED)
            offer = partial(offered, rng, spread)
            counts, errors = [], []
            truth = CAPACITY_CPS / (1 - GOAL.limit)
            for _ in range(SEARCHES):
                guess_cps = (
                    None if guess is None else guess * truth * np.exp(0.05 * rng.standard_normal())
                )
                result = find_capacity(offer, GOAL, search, guess_cps)
                assert result.lower_cps is not None and result.upper_cps is not None
                counts.append(len(result.trials))
                errors.append(np.log(np.sqrt(result.lower_cps * result.upper_cps) / truth))
            seconds = np.array(counts) * (search.trial_s + AROUND_TRIAL_S)
            print(
                f"  capacity varies by {100 * spread:g} %, {name}: {np.median(counts):.0f} trials "
                f"(at most {max(counts)}), {np.median(seconds):.0f} s (at most {seconds.max():.0f}); error "
                f"{100 * np.sqrt(np.mean(np.square(errors))):.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
