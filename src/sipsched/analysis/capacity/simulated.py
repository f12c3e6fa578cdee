"""The simulated capacity for each number of cores.

The intervals of the capacities include the uncertainty of the simulator's parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sipsched.analysis.intervals import Interval
from sipsched.analysis.predicted import replicates
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import CapacityOfCores, CapacityPrediction, read_capacity

FULL = 0.9
"""A CPU that is busy for at least this share of its time is considered to limit the capacity.

A CPU cannot be busy all the time at the capacity, because bursts need the remaining share.
"""
RECEIVE, CORES, NEITHER = "the CPU that receives", "the cores", "bursts (no CPU is saturated)"


@dataclass(frozen=True)
class Simulated:
    """The simulated capacity with one number of cores.

    Attributes
    ----------
    cores, threads
        Number of cores, and the best simulated number of threads.
    capacity
        Capacity in cps. The interval is the 95 % prediction interval for fits to bootstrap samples of the runs. The
        interval also contains the capacities with the changed assumptions that `by_cores` names.
    alternatives
        Capacity in cps by changed assumption.
    tried
        Capacity by number of threads, in ascending order of threads.
    receive_share, busy_share
        At a load equal to the capacity, the share of time that the busiest receiving CPU spends in receive softirqs,
        and the busy share of all CPUs.
    """

    cores: int
    threads: int
    capacity: Interval
    alternatives: dict[str, float]
    tried: tuple[CapacityOfCores, ...]
    receive_share: float
    busy_share: float

    @property
    def bound(self) -> str:
        """The name of the resource that limits the capacity, such as the CPU that receives packets."""
        if self.receive_share >= FULL:
            return RECEIVE
        return CORES if self.busy_share >= FULL else NEITHER


def read(paths: Iterable[Path]) -> CapacityPrediction:
    """Return the first prediction file that has capacities; otherwise an empty prediction with a reason."""
    predictions = [read_capacity(path) for path in paths if path.is_file()]
    none = CapacityPrediction(Fitted(why="nothing was simulated"), np.nan, 1)
    return next(
        (prediction for prediction in predictions if prediction.carried),
        next(iter(predictions), none),
    )


def by_cores(prediction: CapacityPrediction, widening: Sequence[str]) -> tuple[Simulated, ...]:
    """Return, for each number of cores, the best number of threads and the simulated capacity with an interval.

    Parameters
    ----------
    widening
        Changed assumptions that the interval must include. All other changed assumptions describe other machines.
    """
    return tuple(_of(prediction, cores, widening) for cores in prediction.cores)


def _of(prediction: CapacityPrediction, cores: int, widening: Sequence[str]) -> Simulated:
    best = prediction.best(cores)
    assert best is not None
    alternatives = {
        name: tried_setting.cps
        for name, carried in (prediction.assumed or {}).items()
        for tried_setting in carried
        if tried_setting.cores == cores
    }
    drawn = np.array([draw.cps for draw in prediction.draws if draw.cores == cores])
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
            sorted((e for e in prediction.carried if e.cores == cores), key=lambda e: e.threads)
        ),
        receive_share=best.receive_share,
        busy_share=best.busy_share,
    )
