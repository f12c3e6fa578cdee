"""Settings that an operator can choose, and their capacities."""

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
EXTRAPOLATED, SIMULATED = "extrapolated", "simulated"


@dataclass(frozen=True)
class Option:
    """A setting that an operator can choose, with its capacity.

    Attributes
    ----------
    sut, mode, cores, threads
        The setting.
    interval
        Capacity in cps.
    carries_cps
        Reliable load: the lower end of the interval. Without an interval, a measured setting has the papers' grid load,
        and a predicted setting has the estimate. 0 if even the lowest measured load may exceed the capacity.
    grid_cps
        The papers' grid capacity; NaN if it was not measured.
    basis
        `MEASURED`, `PUBLISHED`, `EXTRAPOLATED` (by a law over cores) or `SIMULATED`.
    settled
        Whether the capacity lies between two measured loads.
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
        """True if the capacity was measured or published, not predicted."""
        return self.basis in (MEASURED, PUBLISHED)

    @property
    def capacity(self) -> Interval:
        """The capacity for comparisons with models: the crossing, or without an interval the grid capacity."""
        if self.interval.known or not self.settled or np.isnan(self.grid_cps):
            return self.interval
        return replace(self.interval, estimate=self.grid_cps)


def measured_options(
    runs: pd.DataFrame,
    limit: float = PDR_LIMIT,
    capacities: Mapping[Configuration, SystemCapacity] = MappingProxyType({}),
) -> tuple[Option, ...]:
    """List all measured settings with their capacities.

    Parameters
    ----------
    capacities
        Capacity of each system. A setting without an estimate was measured at a single load, and its capacity is above
        or below this load.
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
    """Make an option from the estimated capacity of a system."""
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
    """Make an option of a measured capacity.

    A capacity above all measured loads is set to the highest load, and a capacity below all loads to 0.
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
    """Make an option from a predicted capacity. Its reliable load is the lower end of the interval."""
    carries = capacity.low if capacity.known else capacity.estimate
    return Option(
        *(sut, mode, cores, threads),
        interval=capacity,
        carries_cps=max(carries, 0.0),
        grid_cps=np.nan,
        basis=basis,
    )


def best_by_cores(options: Iterable[Option]) -> tuple[Option, ...]:
    """Choose the option with the largest capacity per SUT, mode and number of cores.

    Among equal options, the option with the fewest threads is chosen.
    """
    best: dict[tuple[str, str, int], Option] = {}
    for option in sorted(options, key=lambda option: option.threads):
        key = (option.sut, option.mode, option.cores)
        if key not in best or _rank(option) > _rank(best[key]):
            best[key] = option
    return tuple(best[key] for key in sorted(best, key=lambda key: key[2]))


def _rank(option: Option) -> tuple[float, float]:
    return option.capacity.estimate, option.interval.estimate
