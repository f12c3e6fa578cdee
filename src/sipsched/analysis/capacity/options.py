"""Settings that an operator can choose, what each carries, and the smallest that carries a load."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sipsched.analysis.run_table import by_load, configurations
from sipsched.analysis.statistics import LEVEL, PDR_LIMIT, Capacity, Interval, capacity

ALL_UNDER = "no load was above the limit"
ALL_ABOVE = "every load was above it"
MEASURED, PUBLISHED = "measured", "published"
PREDICTED, BEYOND = "predicted", "beyond the data"


@dataclass(frozen=True)
class Option:
    """A setting that an operator can choose, and what it carries.

    Attributes
    ----------
    sut, mode, cores, threads
        The setting.
    interval
        Its capacity in cps.
    carries_cps
        What one can rely on: the lower end of the interval; without an interval the papers' grid
        load if measured, the estimate if predicted. 0 where even the least load measured may be too much.
    grid_cps
        The papers' grid capacity; NaN if it was not measured.
    basis
        `MEASURED`, `PUBLISHED`, `PREDICTED` (between numbers of cores that are known) or `BEYOND`.
    settled
        Whether the capacity lies between loads that were measured, and is not just above or below all.
    """

    sut: str
    mode: str
    cores: int
    threads: int
    interval: Interval
    carries_cps: float
    grid_cps: float
    basis: str

    settled: bool = True

    @property
    def known(self) -> bool:
        """Whether it was measured or published, not predicted."""
        return self.basis in (MEASURED, PUBLISHED)

    @property
    def capacity(self) -> Interval:
        """The capacity that models are held against: the crossing; without its interval, the grid's."""
        if self.interval.known or not self.settled or np.isnan(self.grid_cps):
            return self.interval
        return replace(self.interval, estimate=self.grid_cps)


@dataclass(frozen=True)
class Plan:
    """The smallest setting that carries a load.

    Attributes
    ----------
    cps
        The load.
    choice
        Fewest cores, then fewest threads, then the mode named first; None if nothing carries it.
    margin_percent
        100 (what the choice carries / load - 1); NaN without a choice.
    known
        The same among known settings only, measured or published.
    largest
        What carries most of all that was allowed; None if nothing was.
    """

    cps: float
    choice: Option | None
    margin_percent: float
    known: Option | None
    largest: Option | None


def measured_options(
    runs: pd.DataFrame, limit: float = PDR_LIMIT, level: float = LEVEL
) -> tuple[Option, ...]:
    """List every measured setting with its capacity.

    Parameters
    ----------
    runs
        Rows of a campaign that count.
    limit
        Packet drop rate, as a share.
    level
        Confidence.
    """
    options = []
    for configuration, group in configurations(runs).items():
        pdr = by_load(group, ["pdr"])["pdr"]
        found = capacity(pdr["cps"], pdr, limit, level)
        options.append(measured_option(*configuration, found))
    return tuple(options)


def measured_option(sut: str, mode: str, cores: int, threads: int, found: Capacity) -> Option:
    """Make an option of a measured capacity.

    A capacity above the loads measured is taken as the highest of them, one below the lowest as 0.
    """
    interval = found.crossing.interval
    settled = not np.isinf(interval.estimate)
    if np.isposinf(interval.estimate):
        highest = found.crossing.highest_cps
        interval = Interval.without(highest, interval.n, interval.level, ALL_UNDER)
    elif np.isneginf(interval.estimate):
        interval = Interval.without(0.0, interval.n, interval.level, ALL_ABOVE)
    return Option(
        sut=sut,
        mode=mode,
        cores=cores,
        threads=threads,
        interval=interval,
        carries_cps=max(found.safe_cps, 0.0),
        grid_cps=found.grid_cps,
        basis=MEASURED,
        settled=settled,
    )


def predicted_options(
    measured: Iterable[Option],
    sut: str,
    mode: str,
    cores: Iterable[int],
    predict: Callable[[int], Interval],
    threads: Callable[[int], int],
) -> tuple[Option, ...]:
    """List settings that were not measured, with the capacity that a model predicts.

    Parameters
    ----------
    measured
        What was measured; numbers of cores in it are left out, and its extremes part `PREDICTED` from
        `BEYOND`.
    sut, mode
        What is predicted.
    cores
        Numbers of cores to predict.
    predict
        Capacity in cps by cores: `Scaling.predict`, or a model's number as `Interval.without`.
    threads
        Threads by cores: `paper_threads` for instance.
    """
    known = [each.cores for each in measured if (each.sut, each.mode) == (sut, mode)]
    options = []
    for count in cores:
        if count in known:
            continue
        interval = predict(count)
        carries = interval.low if interval.known else interval.estimate
        options.append(
            Option(
                sut=sut,
                mode=mode,
                cores=count,
                threads=threads(count),
                interval=interval,
                carries_cps=max(carries, 0.0),
                grid_cps=np.nan,
                basis=basis_of_prediction(known, count),
            )
        )
    return tuple(options)


def basis_of_prediction(known: Collection[int], cores: int) -> str:
    """Say whether a number of cores lies between those that are known, or beyond the data."""
    return PREDICTED if known and min(known) < cores < max(known) else BEYOND


def best_by_cores(options: Iterable[Option]) -> tuple[Option, ...]:
    """Choose for each SUT, mode and number of cores what has the largest capacity.

    By the papers' grid first, then by the estimate between its loads, then the fewest threads.
    """
    best: dict[tuple[str, str, int], Option] = {}
    for option in sorted(options, key=lambda each: each.threads):
        key = (option.sut, option.mode, option.cores)
        if key not in best or _rank(option) > _rank(best[key]):
            best[key] = option
    return tuple(best[key] for key in sorted(best, key=lambda key: key[2]))


def _rank(option: Option) -> tuple[float, float]:
    grid = option.interval.estimate if np.isnan(option.grid_cps) else option.grid_cps
    return grid, option.interval.estimate


def plan(
    cps: float,
    options: Iterable[Option],
    cores: int,
    threads: Collection[int] | None = None,
    modes: Sequence[str] | None = None,
) -> Plan:
    """Find the smallest setting that carries a load at the limit of the options' capacities.

    Parameters
    ----------
    cps
        Calls per second to carry.
    options
        `measured_options` and, if wanted, `predicted_options`, of one SUT.
    cores
        Cores available.
    threads
        Numbers of threads allowed; any by default.
    modes
        Modes allowed, the preferred one first; any by default, in the order of the options.
    """
    given = list(options)
    order = list(modes) if modes is not None else list(dict.fromkeys(o.mode for o in given))
    allowed = [
        option
        for option in given
        if option.cores <= cores
        and (threads is None or option.threads in threads)
        and option.mode in order
        and not np.isnan(option.carries_cps)
    ]
    enough = sorted(
        (option for option in allowed if option.carries_cps >= cps),
        key=lambda option: (option.cores, option.threads, order.index(option.mode)),
    )
    choice = next(iter(enough), None)
    return Plan(
        cps=cps,
        choice=choice,
        margin_percent=np.nan if choice is None else 100 * (choice.carries_cps / cps - 1),
        known=next((option for option in enough if option.known), None),
        largest=max(allowed, key=lambda option: option.carries_cps, default=None),
    )
