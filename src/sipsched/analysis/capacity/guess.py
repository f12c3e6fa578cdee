"""A guess of an unknown capacity from known capacities. A search for the capacity starts at the guessed load."""

import math
from collections.abc import Mapping

from sipsched.analysis.capacity.scaling import TooFewPointsError, fit_scaling
from sipsched.plan.crossover import is_comparison
from sipsched.plan.run import Crossings, Point


def guess_cps(point: Point, crossings: Crossings) -> float | None:
    """Guess the capacity (cps) of a point (a setting to search) from the known capacities of other points.

    The guess starts from the known capacity of the nearest point with the same testbed and SUT. The nearest point has
    the most similar numbers of cores and threads. Among equally near points, a point with the same mode is preferred.
    If capacities for two or more numbers of cores are known, Amdahl's law scales the capacity to another number of
    cores (`scaling.fit_scaling`, fitted to the largest capacity per number of cores). Otherwise the capacity is assumed
    proportional to the cores. More threads than cores are assumed to add no capacity.

    Returns
    -------
    float or None
        Calls per second; None if no capacity of the SUT on the testbed is known.
    """
    known = {
        other: math.sqrt(lower * upper)
        for other, (lower, upper) in crossings.items()
        if (other.testbed, other.sut) == (point.testbed, point.sut)
        and not is_comparison(other.mode)
    }
    if not known:
        return None

    def distance(other: Point) -> tuple[float, bool]:
        cores, threads = other.cores / point.cores, other.threads / point.threads
        return abs(math.log(cores)) + abs(math.log(threads)), other.mode != point.mode

    near = min(known, key=distance)
    return known[near] * _carries(point, known) / _carries(near, known)


def _carries(point: Point, known: Mapping[Point, float]) -> float:
    """Return a number that grows with the expected capacity of a point. Only ratios between two points have a meaning.

    The number comes from a scaling law for the known capacities. If too few capacities are known, the number is the
    number of usable cores.
    """
    used = float(min(point.cores, point.threads))
    best: dict[int, float] = {}
    for other, cps in known.items():
        cores = min(other.cores, other.threads)
        best[cores] = max(best.get(cores, 0.0), cps)
    try:
        law = fit_scaling([*best], [*best.values()], contention_only=True, resamples=0)
    except TooFewPointsError:
        return used
    return law.curve(used)
