"""What a search for a capacity costs and finds, on synthetic machines that carry more or less from trial to trial.

Shows, by how much a machine varies (lognormal, standard deviation of the logs) and with a guess or without: trials and
seconds a search (median, and the longest of all), how far the middle of its bounds is from the load at which half of
all trials drop 1 % (root mean square), and how often the 95 % interval of its trials holds that load.
How to read it: the time is the stopping rule's; the error is what a machine's own variation leaves.
Nothing is measured: the numbers are the same each time. It takes half a minute of CPU.
"""

from functools import partial

import numpy as np

from sipsched.analysis.search import search_interval
from sipsched.measure.crossing_search import Trial, find_capacity
from sipsched.plan.config import Capacity, load_config

SEED = 1
SEARCHES = 200
CARRIES_CPS = 2000
SPREADS = (0.0, 0.02, 0.05, 0.1)
GUESSES = {"no guess": None, "a guess 10 % off": 1.1, "a guess twice as high": 2.0}
GOAL = Capacity(0.01, 0.02)
AROUND_TRIAL_S = 3.0
"""What a trial takes beside its load: a proxy is started for it and warmed up."""


def offered(rng: np.random.Generator, spread: float, cps: int, duration_s: float) -> Trial:
    """Offer a load to a machine that carries as much as it happens to in this trial."""
    carried = CARRIES_CPS * np.exp(spread * rng.standard_normal())
    messages = round(6 * cps * duration_s)
    refused = round(messages * max(0.0, 1 - carried / cps))
    return Trial(cps, duration_s, messages - refused, refused)


def main() -> None:
    search = load_config().search
    print(f"searches for a capacity to {100 * GOAL.relative_width:g} %, {SEARCHES} each:")
    for spread in SPREADS:
        for name, guess in GUESSES.items():
            rng = np.random.default_rng(SEED)
            offer = partial(offered, rng, spread)
            counts, errors, held = [], [], 0
            truth = CARRIES_CPS / (1 - GOAL.limit)
            for _ in range(SEARCHES):
                off = (
                    None if guess is None else guess * truth * np.exp(0.05 * rng.standard_normal())
                )
                found = find_capacity(offer, GOAL, search, off)
                assert found.lower_cps is not None and found.upper_cps is not None
                told = search_interval(found.trials, GOAL.limit)
                counts.append(len(found.trials))
                errors.append(np.log(np.sqrt(found.lower_cps * found.upper_cps) / truth))
                held += told.low <= truth <= told.high
            seconds = np.array(counts) * (search.trial_s + AROUND_TRIAL_S)
            print(
                f"  varies by {100 * spread:g} %, {name}: {np.median(counts):.0f} trials "
                f"(most {max(counts)}), {np.median(seconds):.0f} s (most {seconds.max():.0f}); error "
                f"{100 * np.sqrt(np.mean(np.square(errors))):.1f} %, interval holds {100 * held / SEARCHES:.0f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
