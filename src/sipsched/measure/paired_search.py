"""The search for the ratios of several capacities, with trials of all systems during the same minutes.

A round has one trial of each system, in random order, so slow changes of the machine's speed hardly affect a ratio.
Each trial overloads its system: the next trial of a system offers the load that the system handled, divided by 1 minus
`AIM`. docs/methodology/scaling.md describes the method.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from sipsched.errors import LostError, TransientError
from sipsched.measure.bracketing import Bracket, Clock, Trial
from sipsched.plan.loads import Capacity, Search
from sipsched.records.crossing import overloads_all

AIM = 0.3
"""Intended overload of the next trial, at which the trial drops messages even if the machine becomes 30 % faster."""
STEP = 1.25
"""Factor by which the load rises after a trial without an overload, and falls after a disturbed trial."""
FEWEST_ROUNDS = 8
"""A search ends before its time limit only after so many rounds, because the scatter of fewer rounds is uncertain."""
MOST_FAILURES = 5
"""Number of failed trials of a system, one after another, after which the search fails."""
ALPHA = 0.05
"""Probability that an interval misses the ratio. With several ratios, all intervals together miss so rarely."""

OfferTo = Callable[[int, int, float], Trial]
"""A function that performs a trial of a system at a load. The function raises a TransientError for a disturbed trial.

The arguments are the system's position in the comparison, the load in calls per second, and the duration in seconds.
The function sets `Trial.carried_cps`.
"""


def find_ratios(
    offer: OfferTo,
    systems: int,
    goal: Capacity,
    search: Search,
    first_cps: float,
    now: Clock,
    seed: int = 1,
) -> Bracket:
    """Perform rounds of trials, until the ratios of the systems' capacities are precise enough or the time is over.

    Parameters
    ----------
    systems
        Number of compared systems, at least two.
    goal
        The limit of the drop rate, and as `relative_width` half of the width of the intervals.
    search
        Range of loads, duration of a trial, and time limit.
    first_cps
        Load of the first trial of each system.
    now
        The clock that counts the search's time limit.
    seed
        Seed of the random orders.

    Returns
    -------
    Bracket
        The trials of all rounds, and the lowest and the highest load that was offered.

    Raises
    ------
    TransientError
        In no round within the time limit, every system was overloaded. Or the trials of a system failed several times.
    """
    rng = random.Random(seed)  # noqa: S311 - orders of trials are no secret
    began = now()
    loads = [_within(first_cps, search)] * systems
    rounds: list[list[Trial]] = []
    longest_s, begun, failures = 0.0, 0, [0] * systems
    while (start := now()) + longest_s < began + search.limit_s and not _precise(rounds, goal):
        trials: dict[int, Trial] = {}
        begun += 1
        for system in rng.sample(range(systems), systems):
            try:
                trials[system] = offer(system, loads[system], search.trial_s)
            except LostError:
                raise
            except TransientError as error:
                failures[system] += 1
                if failures[system] == MOST_FAILURES:
                    raise TransientError(
                        f"{MOST_FAILURES} trials failed, the last: {error}"
                    ) from error
                # the load may have been too high for any call
                loads[system] = _within(loads[system] / STEP, search)
                continue
            failures[system] = 0
            loads[system] = _next_load(trials[system], goal.limit, search)
        # A round without a trial of each system is not recorded, but its number is not used again.
        if len(trials) == systems:
            rounds.append([replace(trials[system], round=begun) for system in range(systems)])
        longest_s = max(longest_s, now() - start)
    if not any(overloads_all(each, goal.limit) for each in rounds):
        raise TransientError(
            f"search for ratios of capacities: within {search.limit_s:g} s (search.limit_s), no round overloaded all "
            f"systems; the load could rise to {search.highest_cps} cps (search.highest_cps)"
        )
    made = tuple(itertools.chain.from_iterable(rounds))
    offered = sorted(trial.cps for trial in made)
    return Bracket(offered[0], offered[-1], made, in_time=_precise(rounds, goal))


def _next_load(trial: Trial, limit: float, search: Search) -> int:
    handled_cps = trial.carried_cps or 0.0
    load = handled_cps / (1 - AIM) if trial.pdr > limit else trial.cps * STEP
    return _within(load, search)


def _within(cps: float, search: Search) -> int:
    """Return the load of the search's range that is nearest to a load."""
    return round(min(max(cps, search.lowest_cps), search.highest_cps))


def _precise(rounds: Sequence[Sequence[Trial]], goal: Capacity) -> bool:
    """Return True if all ratios have small standard errors, computed from the rounds that count."""
    logs = [
        [math.log(trial.carried_cps or math.nan) for trial in trials]
        for trials in rounds
        if overloads_all(trials, goal.limit)
    ]
    alpha = ALPHA / max(1, len(rounds[0]) - 1) if rounds else ALPHA
    # The test of the analysis flips the signs of the rounds, so its smallest p-value is 2 / 2^rounds.
    if len(logs) < max(FEWEST_ROUNDS, math.log2(2 / alpha) + 1):
        return False
    first, *others = zip(*logs, strict=True)
    ratios = ([b - a for a, b in zip(first, other, strict=True)] for other in others)
    errors = (statistics.stdev(ratio) / math.sqrt(len(ratio)) for ratio in ratios)
    reach = _student(1 - alpha / 2, len(logs) - 1)
    return all(reach * error <= goal.relative_width for error in errors)


def _student(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution, by the expansion in Abramowitz and Stegun, 26.7.5."""
    z = statistics.NormalDist().inv_cdf(probability)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2
