"""Functions that put the capacity of a proxy (the load at which drops reach a limit) into words and drawings."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sipsched.analysis.capacity.estimate import interval_of
from sipsched.analysis.crossing_load import RATE_RANGE
from sipsched.analysis.intervals import Values
from sipsched.analysis.run_length import too_short
from sipsched.pages.numbers import in_words, rounded, with_unit
from sipsched.pages.plots import Curve, Look, draw_curve, draw_line, limit_line, symlog_scale
from sipsched.records.system_capacity import Searched, SystemCapacity
from sipsched.words import listed, number, plural

HOW = (
    "The capacity of a system is estimated from all its search trials and all its runs together. The interval takes "
    "into account that the machine's speed drifts from minute to minute (docs/methodology/capacity.md)"
)
CLEARLY = 0.05
"""Smallest relative change of the CPU time per message that can explain why a search found a different capacity."""


def evidence(capacity: SystemCapacity) -> str:
    """Return as text how many measurements an estimated capacity is based on: "7 trials and 15 runs"."""
    return f"{plural(capacity.trials, 'trial')} and {plural(capacity.runs, 'run')}"


def estimate(capacity: SystemCapacity) -> str:
    """Return the estimated capacity in calls per second as text, rounded to the digits that its interval allows.

    If the capacity lies outside the measured loads, return the lowest or highest load instead.
    """
    if capacity.estimate_cps is None:
        return number(capacity.likely_cps)
    return rounded(interval_of(capacity), "cps")[0]


def bound(capacity: SystemCapacity) -> str:
    """Return the bound of a capacity outside the measured loads, as text: "at least 1 600" or "less than 800"."""
    if capacity.dropped:
        return f"less than {number(capacity.lowest_cps)}"
    return f"at least {number(capacity.highest_cps)}"


def capacity_words(capacity: SystemCapacity) -> str:
    """Return a capacity as text for a sentence: "1 780 cps (1 650 to 1 930), n = 22", or "at least …"."""
    if capacity.estimate_cps is None:
        return f"{bound(capacity)}\u00a0cps, n = {capacity.trials + capacity.runs}"
    return in_words(interval_of(capacity), "cps")


def carries(capacity: SystemCapacity) -> str:
    """Return the capacity as a clause of a sentence: "handles 1 780 calls per second (…) before …"."""
    share, unit = f"{100 * capacity.limit:g}\u00a0% of its messages", "calls per second"
    if capacity.estimate_cps is not None:
        return f"handles {with_unit(interval_of(capacity), unit)} before it drops {share}"
    if capacity.dropped:
        return f"drops more than {share} at every offered load, even at {number(capacity.lowest_cps)} {unit}"
    return f"handles at least {number(capacity.highest_cps)} {unit}: no offered load made it drop {share}"


def doubt(capacity: SystemCapacity) -> str:
    """Return a sentence that asks to measure a further load, if the capacity lies outside the measured loads."""
    if capacity.estimate_cps is not None:
        return ""
    side, end = (
        ("below", capacity.lowest_cps) if capacity.dropped else ("above", capacity.highest_cps)
    )
    return f"Measure a load {side} {number(end)} cps."


def disagreements(capacity: SystemCapacity) -> list[str]:
    """Return a sentence for each capacity search whose range excludes the estimate. Each sentence gives a reason."""
    return [
        _disagreement(capacity, search, capacity.estimate_cps)
        for search in capacity.searches
        if capacity.estimate_cps is not None
        and not (search.lower_cps or 0) <= capacity.estimate_cps <= (search.upper_cps or np.inf)
    ]


def _disagreement(capacity: SystemCapacity, search: Searched, estimate_cps: float) -> str:
    lower, upper = search.lower_cps, search.upper_cps
    bounds = (
        f"below {number(upper or 0)} cps"
        if lower is None
        else f"above {number(lower)} cps"
        if upper is None
        else f"between {number(lower)} and {number(upper)} cps"
    )
    when = f" at {datetime.fromisoformat(search.started_at):%H:%M} UTC" if search.started_at else ""
    return (
        f"The search{when} found that the drop rate passes {100 * capacity.limit:g}\u00a0% {bounds}. However, the "
        f"capacity estimated from {evidence(capacity)} together is {estimate(capacity)} cps. A possible reason is that "
        f"{_reason(search, estimate_cps)}."
    )


def _reason(search: Searched, estimate_cps: float) -> str:
    slower = None if search.cpu_ratio is None else search.cpu_ratio - 1
    below = search.upper_cps is not None and search.upper_cps < estimate_cps
    if slower is not None and abs(slower) >= CLEARLY and (slower > 0) == below:
        return (
            f"during the search, a message took {100 * abs(slower):.0f} % {'more' if below else 'less'} CPU time "
            f"than in the runs, so the machine was {'slower' if below else 'faster'}"
        )
    measured = (
        "" if slower is None else ", and the CPU time per message does not explain the difference"
    )
    return f"the range that the search found is based on only a few trials of one minute{measured}"


def apart(one: SystemCapacity, other: SystemCapacity) -> str:
    """Return a warning if the searches of two systems were over an hour apart; else an empty string."""
    starts = [
        max(
            (
                datetime.fromisoformat(search.started_at)
                for search in system.searches
                if search.started_at
            ),
            default=None,
        )
        for system in (one, other)
    ]
    if starts[0] is None or starts[1] is None:
        return ""
    hours = abs(starts[1] - starts[0]) / timedelta(hours=1)
    if hours < 1:
        return ""
    length = plural(round(hours / 24), "day") if hours >= 36 else plural(round(hours), "hour")
    return f"The searches for the two capacities were {length} apart, so the speed of the machine may have changed."


def doubts_near(
    runs: pd.DataFrame, capacity: SystemCapacity, counted: str = "of the campaign"
) -> tuple[str, ...]:
    """Return a sentence that counts suspect runs and too short runs at the loads near a proxy's capacity.

    Parameters
    ----------
    counted
        Words that name the given runs, such as "of this study", because a study has only some runs of a campaign.
    capacity
        The capacity. The sentence covers the runs at loads within the capacity's interval, at the nearest load below
        the interval, and at the nearest load above it.
    """
    cps = runs["cps"].to_numpy(float)
    low, high = capacity.low_cps or capacity.likely_cps, capacity.high_cps or capacity.likely_cps
    first, last = max(cps[cps <= low], default=low), min(cps[cps >= high], default=high)
    near = runs[(cps >= first) & (cps <= last)]
    busy = ("busy_periods_effective", "busy_longest_share", "pdr")
    counts = {
        "suspect": int((near["grade"] == "suspect").sum()),
        "too short to contain many busy periods": int(
            too_short(*(near[name].to_numpy(float) for name in busy)).sum()
        ),
    }
    found = [
        f"{count} {'is' if count == 1 else 'are'} {what}" for what, count in counts.items() if count
    ]
    if not found:
        return ()
    return (
        f"Of the {plural(len(near), 'run')} {counted} at loads near the capacity, {' and '.join(found)}.",
    )


def first_shown(loads: Values, rates: Values, capacities: Sequence[SystemCapacity | None]) -> int:
    """Return the index of the lowest load in a figure of drop rates, which omits lower loads without drops.

    Parameters
    ----------
    loads
        Ascending, shape (load,).
    rates
        Typical drop rates, shape (line, load).
    capacities
        Capacity of each line of the figure. None if the capacity was not estimated.

    Returns
    -------
    int
        Index of the highest load at which nothing is dropped and that lies below the interval of every capacity. 0 if
        no such load exists.
    """
    dropping = loads[(rates > 0).any(axis=0)]
    low = [known.low_cps for known in capacities if known is not None and known.low_cps is not None]
    below = np.flatnonzero(loads < min([*dropping[:1], *low], default=0))
    return int(below[-1]) if below.size else 0


def rates_below(curve: Curve, capacity: SystemCapacity | None, limit: float) -> str:
    """Return sentences on drop rates that never exceed the limit. Empty if the typical run exceeds it at a load.

    The estimated capacity may be below the highest load, because other runs and search trials count, too. The sentences
    then compare the highest load with the capacity.
    """
    if (curve.of.estimate > 100 * limit).any():
        return ""
    text = f"At every measured load, the typical run drops at most {100 * limit:g}\u00a0%."
    known = np.flatnonzero(np.isfinite(curve.runs).any(axis=1))
    if capacity is None or capacity.estimate_cps is None or capacity.high_cps is None:
        return text
    highest = float(curve.x[known[-1]]) if known.size else 0.0
    if highest <= capacity.estimate_cps:
        return text
    where = "inside" if highest <= capacity.high_cps else "above"
    return (
        f"{text} The highest load, {number(highest)} cps, lies {where} the interval of the capacity. At this load, the "
        f"run with the most drops drops {number(float(np.nanmax(curve.runs[known[-1]])))}\u00a0% of its messages."
    )


def draw_drop_rates(
    axis: Axes, curve: Curve, capacity: SystemCapacity | None, limit: float
) -> None:
    """Draw one line of drop rates (%) against the load, and mark the capacity on the dashed line of the drop limit.

    Parameters
    ----------
    limit
        Drop rate at which capacity ends, as a share.
    """
    draw_curve(axis, curve)
    symlog_scale(axis, 100 * limit / RATE_RANGE)
    axis.set_ylabel("PDR (%)")
    limit_line(axis, 100 * limit, f"{100 * limit:g} %")
    if capacity is None or capacity.low_cps is None or capacity.high_cps is None:
        return
    color, height = curve.look.color, 100 * limit
    ends = np.array([capacity.low_cps, capacity.high_cps]) + curve.shift
    left, right = axis.get_xlim()
    axis.set_xlim(min(left, 0.98 * ends[0]), max(right, 1.02 * ends[1]))
    axis.plot(ends, [height, height], color=color, linewidth=5, alpha=0.3, solid_capstyle="butt")
    titles = [f"{curve.name}: capacity {capacity_words(capacity)}"]
    at = [capacity.likely_cps + curve.shift]
    draw_line(axis, at, [height], Look(color, "|"), titles, markersize=11, markeredgewidth=2)


def share_words(
    loads: Sequence[int], planned_cps: float | None, capacity: SystemCapacity | None
) -> str:
    """Return loads as percentages of the planned capacity and of the estimated capacity, as text.

    Parameters
    ----------
    planned_cps
        The capacity that a search found before the runs. The loads were planned as shares of this capacity. None
        for fixed loads.

    Returns
    -------
    str
        "planned at 80 % of 1 474 cps, which is 67 % of the 1 775 cps that 7 trials and 15 runs give"; empty if no
        capacity is known.
    """
    said = []
    if planned_cps is not None:
        said.append(f"planned at {_percent(loads, planned_cps)} of {number(planned_cps)} cps")
    if capacity is not None and capacity.estimate_cps is not None:
        share = f"{_percent(loads, capacity.estimate_cps)} of the {estimate(capacity)} cps"
        said.append(
            f"{'which is ' if said else ''}{share} that was estimated from {evidence(capacity)}"
        )
    elif capacity is not None:
        said.append(f"the capacity is {bound(capacity)} cps")
    return ", ".join(said)


def _percent(loads: Sequence[int], whole: float) -> str:
    return f"{listed([f'{100 * cps / whole:.0f}' for cps in loads])}\u00a0%"


def systems(
    capacities: Sequence[SystemCapacity], limit: float, sut: str, mode: str
) -> list[SystemCapacity]:
    """Return the estimated capacities of one proxy in one mode, the largest first.

    The proxy has one capacity for each measured number of cores and threads.
    """
    found_capacities = [
        capacity
        for capacity in capacities
        if (capacity.limit, capacity.sut, capacity.mode) == (limit, sut, mode)
    ]
    return sorted(found_capacities, key=lambda capacity: -capacity.likely_cps)
