"""The check that each run is long enough to contain many periods in which the proxy is busy without a break."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.analysis.intervals import Values

LEAST_PERIODS = 20
"""Smallest effective number of busy periods (times in which the proxy is never idle) in a sufficiently long run."""
LONGEST_SHARE = 0.1
"""A run is too short if one busy period fills more than this share of the run."""
FULL_PDR = 0.05
"""Above this packet drop rate, no run is too short, because one busy period of the saturated proxy can fill the run."""


@dataclass(frozen=True)
class BusyPeriods:
    """Statistics of busy periods (times in which the proxy is never idle) in runs with the same settings and load.

    Attributes
    ----------
    runs
        Number of valid runs with a probe.
    short
        Number of these runs that are too short. A run with a PDR of at most `FULL_PDR` is too short if it has fewer
        than `LEAST_PERIODS` busy periods, or if one busy period fills more than `LONGEST_SHARE` of the run.
    least
        The smallest effective number of busy periods (`busy_periods_effective`) among the runs.
    longest_s, longest_share
        Length of the longest busy period in seconds, and the largest share of a run that one busy period fills.
    """

    runs: int
    short: int
    least: float
    longest_s: float
    longest_share: float


def busy_periods(runs: xr.Dataset, at: Mapping[Hashable, Any]) -> BusyPeriods | None:
    """Return statistics of the busy periods in runs with the same settings and load; None if no busy period exists.

    Parameters
    ----------
    at
        Coordinates (sut, mode, cores, threads, cps) of the runs.
    """
    names = ("busy_periods_effective", "busy_longest_share", "busy_longest_s", "pdr")
    effective, share, longest_s, pdr = (runs[name].sel(at).to_numpy() for name in names)
    known = ~np.isnan(effective)
    if not known.any():
        return None
    return BusyPeriods(
        runs=int(known.sum()),
        short=int(too_short(effective, share, pdr).sum()),
        least=float(effective[known].min()),
        longest_s=float(longest_s[known].max()),
        longest_share=float(share[known].max()),
    )


def too_short(effective: Values, longest_share: Values, pdr: Values) -> npt.NDArray[np.bool_]:
    """Return an array that is True for each run with too few or too long busy periods.

    Parameters
    ----------
    effective, longest_share, pdr
        `busy_periods_effective`, `busy_longest_share` and PDR of the runs, shape (run,). A run with NaN is considered
        long enough.
    """
    few_or_long = (effective < LEAST_PERIODS) | (longest_share > LONGEST_SHARE)
    return np.asarray(few_or_long & (pdr <= FULL_PDR))
