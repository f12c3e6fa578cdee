"""Times per message on a real machine and in a calibrated guest, at the same settings.

The guest's virtual clock was computed from one setting (`benchmarks/virtual_calibration.py`). The guest then predicts
the times at other settings.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from sipsched.analysis.intervals import Interval, typical_interval
from sipsched.analysis.pairs import ratio_interval
from sipsched.analysis.run_table import Campaign, campaigns_of
from sipsched.records.summary_files import open_summary, split_summary_path

REAL, REFERENCE, CALIBRATED = "calibration", "calibration_reference", "calibrated"
"""The studies of config/studies/calibration.yaml: the real machine, the guest before its calibration, and after it."""
TIMES = ("cpu", "user", "system", "k_stack_mean", "k_sockq_alone", "t_sip_mean", "k_rcv_mean")
"""The compared times per message. `cpu` is the sum of `user` and `system`, the CPU time of the proxy's processes."""


@dataclass(frozen=True)
class ComparedTime:
    """A time per message at one setting, measured on a real machine and predicted by a guest.

    Attributes
    ----------
    time
        Name of the time, from `TIMES`.
    measured
        The typical run on the real machine, in µs. The ends of the interval are the smallest and the largest run.
    predicted
        Median of the guest's runs in µs; NaN if the guest has no valid run.
    fitted
        Whether the guest's clock was computed from this setting, so that the comparison is no test.
    """

    threads: int
    cps: int
    time: str
    measured: Interval
    predicted: float
    fitted: bool

    @property
    def error(self) -> float:
        """The difference of prediction and measurement, as a share of the measurement."""
        return self.predicted / self.measured.estimate - 1

    @property
    def inside(self) -> bool:
        """Whether the prediction lies between the smallest and the largest measured run."""
        return self.measured.low <= self.predicted <= self.measured.high


@dataclass(frozen=True)
class ComparedWorkers:
    """The ratio of a time with many workers to the time with few workers, measured and predicted, at one load.

    The measured ratio is computed from pairs of runs with the same arrivals, the predicted ratio from the guest's runs.
    The ends of the measured interval are the smallest and the largest ratio of a pair.
    """

    few: int
    many: int
    cps: int
    time: str
    measured: Interval
    predicted: float

    @property
    def inside(self) -> bool:
        """Whether the prediction lies between the smallest and the largest ratio of a measured pair."""
        return self.measured.low <= self.predicted <= self.measured.high


@dataclass(frozen=True)
class Calibration:
    """The comparison of a real machine with a calibrated guest."""

    times: tuple[ComparedTime, ...] = ()
    workers: tuple[ComparedWorkers, ...] = ()
    campaigns: tuple[Campaign, ...] = ()

    @property
    def tests(self) -> list[ComparedTime]:
        """The comparisons that test the guest: both numbers exist, and the clock was not computed from the setting."""
        return [
            time
            for time in self.times
            if not time.fitted and np.isfinite([time.error, time.measured.low]).all()
        ]


def read(summaries: Iterable[Path]) -> Calibration:
    """Read the summaries of the three studies, and compare the real machine with the calibrated guest.

    Parameters
    ----------
    summaries
        Paths of the studies' summaries. Missing files are skipped.
    """
    campaigns: dict[str, Campaign] = {}
    for path in summaries:
        if path.is_file():
            study = split_summary_path(path).study
            (campaigns[study],) = campaigns_of([(study, open_summary(path))])
    if not campaigns.keys() >= {REAL, CALIBRATED}:
        return Calibration()
    real, guest = (times(campaigns[study]) for study in (REAL, CALIBRATED))
    reference = times(campaigns[REFERENCE]).index if REFERENCE in campaigns else []
    fitted = {(threads, cps) for threads, cps, _ in reference}
    return Calibration(
        tuple(_times(real, guest, fitted)),
        tuple(_workers(real, guest)),
        (campaigns[REAL], campaigns[CALIBRATED]),
    )


def times(campaign: Campaign) -> pd.DataFrame:
    """Return the times per message of each valid run in µs (`TIMES`), by workers, calls per second and repetition."""
    runs = campaign.single
    messages = 1000 * runs["messages"]
    user, system = (runs[name] / messages for name in ("proxy_user_ns", "proxy_system_ns"))
    runs = runs.assign(user=user, system=system, cpu=user + system)
    return runs.set_index(["threads", "cps", "rep"])[list(TIMES)].dropna(how="all").sort_index()


def _times(
    real: pd.DataFrame, guest: pd.DataFrame, fitted: set[tuple[int, int]]
) -> Iterator[ComparedTime]:
    predicted = guest.groupby(level=[0, 1]).median()
    for (threads, cps), runs in real.groupby(level=[0, 1]):
        for time in TIMES:
            yield ComparedTime(
                *(threads, cps, time),
                _range(typical_interval(runs[time])),
                float(predicted[time].get((threads, cps), np.nan)),
                (threads, cps) in fitted,
            )


def _workers(real: pd.DataFrame, guest: pd.DataFrame) -> Iterator[ComparedWorkers]:
    for cps, runs in real.groupby(level=1):
        workers = runs.index.unique(0)
        few, many = workers.min(), workers.max()
        if few == many:
            continue
        for time in TIMES:
            yield ComparedWorkers(
                *(few, many, cps, time),
                _range(ratio_interval(*_of_both(real, (few, many), cps, time))),
                ratio_interval(*_of_both(guest, (few, many), cps, time)).estimate,
            )


def _range(interval: Interval) -> Interval:
    """Return an estimate with the smallest and the largest run instead of the ends of its confidence interval."""
    return replace(interval, low=interval.least, high=interval.most)


def _of_both(
    runs: pd.DataFrame, workers: tuple[int, int], cps: int, time: str
) -> Iterator[pd.Series]:
    """Yield a time with few and with many workers at one load, one number per repetition."""
    at_load = runs[time][runs.index.get_level_values("cps") == cps]
    by_workers = at_load.unstack("threads").reindex(columns=workers)
    yield from (by_workers[count] for count in workers)
