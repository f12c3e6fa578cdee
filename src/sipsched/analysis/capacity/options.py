"""Settings (SUT, mode, cores and threads) that an operator can choose, with their capacities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from sipsched.analysis.capacity.estimate import ALL_ABOVE, ALL_UNDER, interval_of
from sipsched.analysis.crossing_load import PDR_LIMIT, SweepCapacity, capacity
from sipsched.analysis.intervals import Interval
from sipsched.analysis.run_table import Configuration, by_load, configurations
from sipsched.records.system_capacity import SystemCapacity

MEASURED, PUBLISHED = "measured", "published"
EXTRAPOLATED, SIMULATED, IN_VIRTUAL_TIME = "extrapolated", "simulated", "in virtual time"


@dataclass(frozen=True)
class Option:
    """A setting (SUT, mode, cores and threads) that an operator can choose, with the setting's capacity.

    Attributes
    ----------
    sut, mode, cores, threads
        The values of the setting.
    interval
        Capacity in cps.
    carries_cps
        Load in cps that the setting reliably handles: the lower end of the interval. Without an interval, it is
        `grid_cps` for a measured setting, or the estimate for a predicted setting. 0 if the capacity may be below the
        lowest measured load.
    grid_cps
        The capacity by the papers' definition: the last measured load before the mean drop rate exceeds the limit; NaN
        if not measured.
    basis
        `MEASURED`, `PUBLISHED`, `EXTRAPOLATED` (by a law of capacity by cores), `SIMULATED` or `IN_VIRTUAL_TIME` (the
        measured capacity of one core, multiplied by a speed-up in virtual time).
    settled
        True if the capacity lies between two measured loads.
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
        """True if the capacity was measured or published, and not predicted."""
        return self.basis in (MEASURED, PUBLISHED)

    @property
    def capacity(self) -> Interval:
        """The capacity for comparisons with models: the estimate with its interval, or else the value `grid_cps`."""
        if self.interval.known or not self.settled or np.isnan(self.grid_cps):
            return self.interval
        return replace(self.interval, estimate=self.grid_cps)


def measured_options(
    runs: pd.DataFrame,
    limit: float = PDR_LIMIT,
    capacities: Mapping[Configuration, SystemCapacity] = MappingProxyType({}),
) -> tuple[Option, ...]:
    """Return all measured settings with their capacities.

    Parameters
    ----------
    capacities
        Estimated capacity of each system. A setting that is missing here was measured at a single load, so its capacity
        is only known to be above or below this load.
    """
    options = []
    for configuration, group in configurations(runs).items():
        pdr = by_load(group, ["pdr"])["pdr"]
        option = measured_option(*configuration, capacity(pdr["cps"], pdr, limit))
        known = capacities.get(configuration)
        if known:
            option = replace(option_of(known), sut=configuration.sut, grid_cps=option.grid_cps)
        options.append(option)
    return tuple(options)


def option_of(known: SystemCapacity) -> Option:
    """Return an `Option` (a setting with a capacity, for pages) from the estimated capacity of a system."""
    interval, settled = interval_of(known), known.estimate_cps is not None
    if not settled:
        bound = 0.0 if known.dropped else known.highest_cps
        interval = Interval.without(bound, interval.n, interval.level, interval.why)
    return Option(
        *(known.sut, known.mode, known.cores, known.threads),
        interval=interval,
        carries_cps=interval.low if interval.known else interval.estimate,
        grid_cps=np.nan,
        basis=MEASURED,
        settled=settled,
    )


def measured_option(
    sut: str, mode: str, cores: int, threads: int, measured: SweepCapacity
) -> Option:
    """Return an `Option` (a setting with a capacity, for pages) from a measured capacity.

    A capacity above all measured loads becomes the highest load. A capacity below all loads becomes 0.
    """
    interval = measured.crossing.interval
    settled = not np.isinf(interval.estimate)
    if np.isposinf(interval.estimate):
        highest = measured.crossing.highest_cps
        interval = Interval.without(highest, interval.n, interval.level, ALL_UNDER)
    elif np.isneginf(interval.estimate):
        interval = Interval.without(0.0, interval.n, interval.level, ALL_ABOVE)
    return Option(
        sut=sut,
        mode=mode,
        cores=cores,
        threads=threads,
        interval=interval,
        carries_cps=max(measured.safe_cps, 0.0),
        grid_cps=measured.grid_cps,
        basis=MEASURED,
        settled=settled,
    )


def predicted_option(
    sut: str, mode: str, cores: int, threads: int, capacity: Interval, basis: str
) -> Option:
    """Return an `Option` with a predicted capacity. The reliable load is the lower end of the prediction interval."""
    carries = capacity.low if capacity.known else capacity.estimate
    return Option(
        *(sut, mode, cores, threads),
        interval=capacity,
        carries_cps=max(carries, 0.0),
        grid_cps=np.nan,
        basis=basis,
    )


def best_by_cores(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return the setting with the largest capacity for each SUT, mode and number of cores.

    Among settings with equal capacities, the setting with the fewest threads is chosen.
    """
    best: dict[tuple[str, str, int], Option] = {}
    for option in sorted(options, key=lambda option: option.threads):
        key = (option.sut, option.mode, option.cores)
        if key not in best or _rank(option) > _rank(best[key]):
            best[key] = option
    return tuple(best[key] for key in sorted(best, key=lambda key: key[2]))


def _rank(option: Option) -> tuple[float, float]:
    return option.capacity.estimate, option.interval.estimate
