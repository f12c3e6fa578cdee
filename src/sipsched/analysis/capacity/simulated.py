"""Capacity by cores as the simulator predicts it, with what its parameters leave open."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sipsched.analysis.predicted import replicates
from sipsched.analysis.statistics import Interval
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import CapacityPrediction, Carried, read_capacity

FULL = 0.9
"""Share of its time at which a CPU is what bounds a capacity: bursts need the rest."""
RECEIVE, CORES, NEITHER = "the CPU that receives", "the cores", "bursts at neither"


@dataclass(frozen=True)
class Simulated:
    """What so many cores carry by simulation.

    Attributes
    ----------
    cores, threads
        The best number of threads of those tried.
    capacity
        In cps; the interval holds where 95 % of fits to samples of the runs lie, and what the costs that are
        assumed may change.
    alternatives
        What was changed, to what is carried then.
    tried
        Every number of threads that was tried, ascending, and what it carries.
    receive_share, busy_share
        At that load: of the busiest receiving CPU in receive softirqs, and of all CPUs not idle.
    """

    cores: int
    threads: int
    capacity: Interval
    alternatives: dict[str, float]
    tried: tuple[Carried, ...]
    receive_share: float
    busy_share: float

    @property
    def bound(self) -> str:
        """Say what has no time left."""
        if self.receive_share >= FULL:
            return RECEIVE
        return CORES if self.busy_share >= FULL else NEITHER


def read(paths: Iterable[Path]) -> CapacityPrediction:
    """Read the first prediction that has one; without any, one of nothing that says why."""
    found = [read_capacity(path) for path in paths if path.is_file()]
    none = CapacityPrediction(Fitted(why="nothing was simulated"), np.nan, 1)
    return next((each for each in found if each.carried), next(iter(found), none))


def by_cores(found: CapacityPrediction, widening: Sequence[str]) -> tuple[Simulated, ...]:
    """Give for each number of cores its best number of threads, and its capacity with an interval.

    Parameters
    ----------
    found
        The prediction.
    widening
        Of what is assumed, the changes that the interval has to hold; the others are other machines.
    """
    return tuple(_of(found, cores, widening) for cores in found.cores)


def _of(found: CapacityPrediction, cores: int, widening: Sequence[str]) -> Simulated:
    best = found.best(cores)
    assert best is not None
    alternatives = {
        name: each.cps
        for name, carried in (found.assumed or {}).items()
        for each in carried
        if each.cores == cores
    }
    drawn = np.array([each.cps for each in found.draws if each.cores == cores])
    spread = replicates(np.log(drawn)).map(lambda value: float(np.exp(value)))
    interval = replace(
        spread, estimate=best.cps, method="fits to samples of the runs, assumed costs"
    )
    if interval.known:
        among = [best.cps, *(alternatives[name] for name in widening if name in alternatives)]
        interval = replace(interval, low=min(interval.low, *among), high=max(interval.high, *among))
    return Simulated(
        cores=cores,
        threads=best.threads,
        capacity=interval,
        alternatives=alternatives,
        tried=tuple(
            sorted((e for e in found.carried if e.cores == cores), key=lambda e: e.threads)
        ),
        receive_share=best.receive_share,
        busy_share=best.busy_share,
    )
