"""Whether runs are long enough for their load: how often the SPS was empty within one."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

LEAST_PERIODS = 20
"""Busy periods of equal length that a run is to amount to."""
LONGEST_SHARE = 0.1
"""Of a run, that one busy period may take."""
FULL_PDR = 0.05
"""Above it the SPS is full all the time, which one busy period tells well."""


@dataclass(frozen=True)
class BusyPeriods:
    """What the busy periods of the runs at one point come to.

    Attributes
    ----------
    runs
        Those that count and whose probe saw them.
    short
        Those of them that are too short: they hold less than `LEAST_PERIODS`, or one is longer than
        `LONGEST_SHARE` of the run, below a PDR of `FULL_PDR`.
    least
        The smallest `busy_periods_effective`.
    longest_s, longest_share
        The longest in seconds, and the largest share of a run.
    """

    runs: int
    short: int
    least: float
    longest_s: float
    longest_share: float


def busy_periods(runs: xr.Dataset, at: Mapping[Hashable, Any]) -> BusyPeriods | None:
    """Look at the busy periods of one point.

    Parameters
    ----------
    runs
        Those that count, as `sipsched.analysis.run_table.counted` gives them.
    at
        sut, mode, cores, threads, cps.

    Returns
    -------
    BusyPeriods or None
        None where no run has them.
    """
    names = ("busy_periods_effective", "busy_longest_share", "busy_longest_s", "pdr")
    effective, share, longest_s, pdr = (runs[name].sel(at).to_numpy() for name in names)
    known = ~np.isnan(effective)
    if not known.any():
        return None
    short = ((effective < LEAST_PERIODS) | (share > LONGEST_SHARE)) & (pdr <= FULL_PDR)
    return BusyPeriods(
        runs=int(known.sum()),
        short=int((short & known).sum()),
        least=float(effective[known].min()),
        longest_s=float(longest_s[known].max()),
        longest_share=float(share[known].max()),
    )
