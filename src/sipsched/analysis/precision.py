"""Whether runs have been repeated often enough: intervals that may be looked at several times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sipsched.analysis.run_table import counted
from sipsched.analysis.statistics import LEVEL, Interval, typical_interval
from sipsched.plan.config import Group, Precision
from sipsched.records.summary import ALL, NOT_PLANNED, RUN_DIMS


@dataclass(frozen=True)
class Known:
    """What the runs of a group in one SUT and mode tell.

    Attributes
    ----------
    interval
        Of a typical run, at `level_of_a_look`.
    """

    sut: str
    mode: str
    group: Group
    interval: Interval

    @property
    def half_width(self) -> float:
        """Half the width over the estimate; inf where there is no interval."""
        interval = self.interval
        if not interval.known or not interval.estimate > 0:
            return np.inf
        return (interval.high - interval.low) / 2 / interval.estimate


def level_of_a_look(precision: Precision, level: float = LEVEL) -> float:
    """Give the level at which each look's interval is made.

    Whoever looks until an interval is narrow stops where runs happen to agree. What they may miss is shared out over
    all looks that were planned (Bonferroni): then all intervals hold together at `level`, and so does the one that
    was stopped at, whatever it was stopped for.
    """
    return 1 - (1 - level) / len(precision.looks)


def look(summary: xr.Dataset, precision: Precision) -> list[Known]:
    """Look at the runs of a study.

    Parameters
    ----------
    summary
        Of the study on one testbed.
    precision
        What is looked at.

    Returns
    -------
    list
        One for each SUT, mode and group that is planned, widest first.
    """
    level = level_of_a_look(precision)
    values = counted(summary)[precision.of].sel(message_type=ALL).transpose(*RUN_DIMS)
    planned = (summary["status"] != NOT_PLANNED).any("rep")
    found = []
    for place in np.argwhere(planned.to_numpy()):
        sut, mode, *group = (
            values[dim].to_numpy()[i].item() for dim, i in zip(RUN_DIMS[:-1], place, strict=True)
        )
        cores, threads, cps = group
        interval = typical_interval(values.to_numpy()[tuple(place)], level)
        found.append(Known(sut, mode, (cores, threads, cps), interval))
    return sorted(found, key=lambda known: -known.half_width)


def still_wide(found: Sequence[Known], precision: Precision) -> list[Group]:
    """Name the groups in which an interval is wider than asked, the widest first.

    All SUTs and modes of a group are repeated together: they are compared in pairs.
    """
    return list(
        dict.fromkeys(known.group for known in found if known.half_width > precision.relative)
    )
