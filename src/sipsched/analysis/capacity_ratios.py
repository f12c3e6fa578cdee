"""The ratios of the capacities of several systems, from the trials of a paired search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sipsched.analysis.crossover import effect
from sipsched.analysis.intervals import Interval
from sipsched.plan.crossover import Instance, compared, instance_of
from sipsched.plan.modes import DEFAULT, split_name
from sipsched.records.crossing import RoundTrial, SearchRecord, overloads_all

PAIRED = "paired trials"
"""The method of the intervals of paired searches."""


@dataclass(frozen=True)
class ComparedSystem:
    """A system of a paired search.

    Attributes
    ----------
    mode
        Scheduler mode, without the overrides of the instance.
    instance
        SUT, workers, cores and receive buffer.
    handled_cps
        Median of the loads in calls per second that the system handled in the rounds that count; NaN without such a
        round.
    """

    mode: str
    instance: Instance
    handled_cps: float


@dataclass(frozen=True)
class CapacityRatio:
    """The capacity of a system, divided by the capacity of the reference in the same paired search.

    Attributes
    ----------
    ratio
        Mean over the rounds that count, on the log scale; `n` is their number. The intervals of all ratios of a search
        hold simultaneously.
    """

    search: SearchRecord
    reference: ComparedSystem
    other: ComparedSystem
    ratio: Interval


def ratios(search: SearchRecord) -> list[CapacityRatio]:
    """Return the ratio of each system of a paired search to the first system, which is the reference.

    Raises
    ------
    StableError
        The record is damaged (see `SearchRecord.rounds`).
    """
    point, names = search.point, compared(search.point.mode)
    handled = handled_loads(search.rounds, search.goal.limit if search.goal else np.nan)
    systems = []
    for column, name in enumerate(names):
        base, other, rest = split_name(name)
        instance = instance_of(other, point.sut, point.threads, point.cores)
        known = handled[:, column][~np.isnan(handled[:, column])]
        middle = float(np.median(known)) if known.size else np.nan
        systems.append(ComparedSystem("+".join((base, *rest)), instance, middle))
    return [
        CapacityRatio(search, systems[0], systems[column], times(handled, column, len(names) - 1))
        for column in range(1, len(names))
    ]


def handled_loads(rounds: Sequence[Sequence[RoundTrial]], limit: float) -> npt.NDArray[np.float64]:
    """Return the loads that the systems handled, shape (round, system); NaN for rounds that do not count."""
    handled = np.array([[trial.carried_cps for trial in trials] for trials in rounds], float)
    handled[[not overloads_all(trials, limit) for trials in rounds]] = np.nan
    return handled


def times(handled: npt.NDArray[np.float64], other: int, tests: int = 1) -> Interval:
    """Return the ratio of a system's handled loads to those of the first system, with an interval.

    Parameters
    ----------
    handled
        See `handled_loads`.
    other
        Column of the system.
    tests
        Number of ratios whose intervals hold simultaneously.
    """
    interval = effect([handled], 0, other, tests=tests).interval
    return replace(interval.map(np.exp), method=PAIRED)


def speed_up(
    known: Iterable[CapacityRatio], testbed: str, sut: str, threads: int, cores: int
) -> Interval | None:
    """Return the narrowest measured ratio of a SUT's capacity on several cores to its capacity on one core, or None."""
    alike = [
        each.ratio
        for each in known
        if each.search.point.testbed == testbed
        and each.ratio.known
        and each.reference.mode == each.other.mode == DEFAULT
        and each.reference.instance == Instance(sut, threads, 1)
        and each.other.instance == Instance(sut, threads, cores)
    ]
    return min(alike, key=lambda ratio: ratio.high / ratio.low, default=None)
