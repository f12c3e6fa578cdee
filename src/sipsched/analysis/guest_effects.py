"""Measured and predicted effects of scheduler modes on a proxy in a virtual machine with a virtual clock.

The clock counts executed instructions instead of seconds ("virtual time"). The predictions were made before the
measurement. The quantity is the mean receiving time K_rcv. docs/virtual-time.md describes the studies and the origin of
the predictions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sipsched.analysis.advice import ComparedLoad, ReferenceSystem
from sipsched.analysis.crossover import percent
from sipsched.analysis.intervals import NOT_MEASURED, Interval
from sipsched.errors import StableError
from sipsched.records.conversion import as_part
from sipsched.records.windows import SHAM

QUANTITY = "k_rcv_mean"
USUAL_QUANTUM_US = 5.0
"""Usual length of a step of the virtual clock in µs.

Some testbeds use other lengths, to show the error that this length causes.
"""


@dataclass(frozen=True)
class PredictedEffect:
    """A predicted change of the mean K_rcv in percent, with the range over the simulation's random seeds.

    Attributes
    ----------
    kernel
        Version of the testbed's kernel.
    quantum_us
        Length of a step of the testbed's virtual clock in µs.
    competitor
        Name of the program that runs on the SPS's CPUs besides the proxy; empty if none.
    shares_cores
        Whether this program may run on the cores that the proxy uses.
    """

    testbed: str
    kernel: str
    quantum_us: float
    competitor: str
    sut: str
    reference: str
    mode: str
    cores: int
    threads: int
    cps: int
    change_percent: float
    lowest_percent: float
    highest_percent: float
    seeds: int
    shares_cores: bool


@dataclass(frozen=True)
class GuestEffect:
    """The effect of a mode on the mean K_rcv of one system at one load.

    Attributes
    ----------
    measured
        The effect in percent, with a 95 % confidence interval for this comparison alone.
    sham
        The difference in percent between windows with the same mode, which shows the size of chance differences.
    predicted
        The predicted effect in percent, with the smallest and the largest value over the seeds of the simulation.
    """

    place: ReferenceSystem
    kernel: str
    quantum_us: float
    competitor: str
    shares_cores: bool
    cps: int
    mode: str
    measured: Interval
    sham: Interval
    predicted: Interval

    @property
    def stands_out(self) -> bool:
        """True if the confidence interval of the measured effect excludes 0."""
        return self.measured.excludes_zero

    @property
    def contains_prediction(self) -> bool:
        """True if the confidence interval of the measured effect contains the predicted effect."""
        return self.measured.known and (
            self.measured.low <= self.predicted.estimate <= self.measured.high
        )


def read_predictions(path: Path) -> tuple[PredictedEffect, ...]:
    """Read a CSV file of predicted effects.

    Raises
    ------
    StableError
        The file is missing, or does not have the expected columns and types.
    """
    where, remedy = (
        f"{path}: no predicted effects",
        "benchmarks/guest_prediction.py makes this file",
    )
    try:
        rows = pd.read_csv(path, dtype={"kernel": str}, keep_default_na=False).to_dict("records")
    except (OSError, ValueError) as error:
        raise StableError(f"{where}: {error}; {remedy}") from None
    return as_part(tuple[PredictedEffect, ...], rows, where, remedy)


def effects(
    loads: Iterable[ComparedLoad], predictions: Sequence[PredictedEffect]
) -> list[GuestEffect]:
    """Compare each predicted effect with the measured effect, in the order of the predictions."""
    by_place = {(load.place, load.cps): load for load in loads}
    return [_effect(predicted, by_place) for predicted in predictions]


def _effect(
    predicted: PredictedEffect, by_place: Mapping[tuple[ReferenceSystem, int], ComparedLoad]
) -> GuestEffect:
    place = ReferenceSystem(
        *(predicted.testbed, predicted.sut, predicted.cores, predicted.threads),
        predicted.reference,
    )
    load = by_place.get((place, predicted.cps))
    measured = sham = Interval.without(math.nan, 0, why=NOT_MEASURED)
    if load is not None and predicted.mode in load.modes:
        measured = percent(load.effect(predicted.mode, QUANTITY).interval)
        sham = percent(load.effect(SHAM, QUANTITY).interval)
    ends = (predicted.change_percent, predicted.lowest_percent, predicted.highest_percent)
    return GuestEffect(
        *(place, predicted.kernel, predicted.quantum_us, predicted.competitor),
        *(predicted.shares_cores, predicted.cps, predicted.mode),
        *(measured, sham, Interval(*ends, predicted.seeds)),
    )
