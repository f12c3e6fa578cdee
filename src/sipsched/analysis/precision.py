"""The decision whether a group of runs has enough repetitions for a narrow confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from sipsched.analysis.intervals import LEVEL, Interval, typical_interval
from sipsched.analysis.run_table import counted
from sipsched.plan.loads import Precision
from sipsched.plan.run import Group
from sipsched.records.study_summary import NOT_PLANNED
from sipsched.records.summary_variables import ALL, RUN_DIMS


@dataclass(frozen=True)
class Known:
    """The current confidence interval of one SUT and mode in one group (runs with equal cores, threads and load)."""

    sut: str
    mode: str
    group: Group
    interval: Interval

    @property
    def half_width(self) -> float:
        """Half the width of the confidence interval, divided by the estimate; infinity if no interval exists."""
        interval = self.interval
        if not interval.known or not interval.estimate > 0:
            return np.inf
        return (interval.high - interval.low) / 2 / interval.estimate


def level_of_a_look(precision: Precision) -> float:
    """Return the confidence level of the intervals that decide whether runs need more repetitions.

    A rule that repeats runs until an interval is narrow tends to stop when runs agree by chance. So Bonferroni's
    correction divides the error probability equally among all planned decisions (looks). Then the intervals of all
    looks hold simultaneously at `LEVEL`, including the last interval, whatever the reason for stopping.
    """
    return 1 - (1 - LEVEL) / len(precision.looks)


def look(summary: xr.Dataset, precision: Precision) -> list[Known]:
    """Return the confidence intervals of all groups of runs with equal settings and load, the widest interval first."""
    level = level_of_a_look(precision)
    values = counted(summary)[precision.of].sel(message_type=ALL).transpose(*RUN_DIMS)
    planned = (summary["status"] != NOT_PLANNED).any("rep")
    precisions = []
    for indices in np.argwhere(planned.to_numpy()):
        sut, mode, *group = (
            values[dim].to_numpy()[i].item() for dim, i in zip(RUN_DIMS[:-1], indices, strict=True)
        )
        cores, threads, cps = group
        interval = typical_interval(values.to_numpy()[tuple(indices)], level)
        precisions.append(Known(sut, mode, (cores, threads, cps), interval))
    return sorted(precisions, key=lambda known: -known.half_width)


def still_wide(precisions: Sequence[Known], precision: Precision) -> list[Group]:
    """Return the groups of runs with a confidence interval wider than requested, the widest interval first.

    All SUTs and modes of a group get more repetitions together, because comparisons pair their runs by repetition.
    """
    return list(
        dict.fromkeys(known.group for known in precisions if known.half_width > precision.relative)
    )
