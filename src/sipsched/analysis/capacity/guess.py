"""Where a search for a capacity begins: what is known of other points, carried over by the capacity model."""

import math
from collections.abc import Mapping

import numpy as np

from sipsched.analysis.capacity.scaling import TooFewPointsError, contention_model
from sipsched.plan.config import Crossings, Point


def guess_cps(point: Point, found: Crossings) -> float | None:
    """Guess what a point carries.

    From the nearest point of its testbed and SUT whose crossing is known, by the ratio of cores and of threads, of the
    same mode if there is one as near. From one number of cores to another it is carried over by Amdahl's law
    (`scaling.contention_model`) fitted to the most that each carries, where two numbers
    of cores are known; else in proportion. Threads beyond the cores are taken to carry nothing more.

    Parameters
    ----------
    point
        Whose capacity is to be searched.
    found
        What searches have found so far.

    Returns
    -------
    float or None
        Calls per second; None if nothing is known of its SUT on its testbed.
    """
    known = {
        other: math.sqrt(lower * upper)
        for other, (lower, upper) in found.items()
        if (other.testbed, other.sut) == (point.testbed, point.sut)
    }
    if not known:
        return None

    def distance(other: Point) -> tuple[float, bool]:
        cores, threads = other.cores / point.cores, other.threads / point.threads
        return abs(math.log(cores)) + abs(math.log(threads)), other.mode != point.mode

    near = min(known, key=distance)
    return known[near] * _carries(point, known) / _carries(near, known)


def _carries(point: Point, known: Mapping[Point, float]) -> float:
    """Say what a point carries, in a unit of its own: by the cores that its threads can use."""
    used = float(min(point.cores, point.threads))
    best: dict[int, float] = {}
    for other, cps in known.items():
        cores = min(other.cores, other.threads)
        best[cores] = max(best.get(cores, 0.0), cps)
    try:
        law = contention_model(np.array([*best], float), np.array([*best.values()]))
    except TooFewPointsError:
        return used
    return law(used)
