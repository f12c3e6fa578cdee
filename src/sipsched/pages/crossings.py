"""The load at which a drop rate crosses its limit, in the text and figures of pages."""

import numpy as np

from sipsched.analysis.crossing_load import RATE_RANGE, STEEPEST, CrossingLoad
from sipsched.pages.numbers import Number, in_words, told
from sipsched.plan.loads import WIDEST_BRACKET
from sipsched.words import number

HOW = (
    "Log PDR is interpolated between the two loads around the limit, and the interval includes a linear interpolation "
    f"of PDR. If these loads are more than {100 * (WIDEST_BRACKET - 1):.0f} % apart, or a PDR there is more than "
    f"{STEEPEST} times the limit or less than its {STEEPEST}th part, only the two loads are known"
)


def crossing_words(crossing: CrossingLoad, unit: str = "cps") -> str:
    """Write a crossing: "1 840 cps (1 790 to 1 900), n = 15". Beyond all loads, write the last load instead."""
    interval = crossing.interval
    if np.isinf(interval.estimate):
        side = "above" if interval.estimate > 0 else "below"
        end = crossing.highest_cps if interval.estimate > 0 else crossing.lowest_cps
        return f"{side} {number(end)}\u00a0{unit}".rstrip() + f", n = {interval.n}"
    return in_words(interval, unit)


def crossing_cell(crossing: CrossingLoad) -> Number | str:
    """Write a crossing for a cell. Beyond all loads, write the last load instead."""
    interval = crossing.interval
    return crossing_words(crossing, "") if np.isinf(interval.estimate) else told(interval, "cps")


def doubt(crossing: CrossingLoad, limit: float) -> str:
    """Explain why a crossing has no number, and name the load to measure; return an empty text if the number exists."""
    share, (below, above) = f"{100 * limit:g} %", crossing.bracket_cps
    if np.isnan(below):
        return ""
    if not crossing.bracketed:
        side = "above" if np.isinf(above) else "at or under"
        where = "above" if np.isinf(above) else "below"
        end = crossing.highest_cps if np.isinf(above) else crossing.lowest_cps
        return (
            f"The loads do not bracket the crossing: none has a typical PDR {side} {share}. "
            f"Measure a load {where} {number(end)} cps."
        )
    if crossing.interval.resolved:
        return ""
    low, high = (_share(rate, limit) for rate in crossing.bracket_pdr)
    told = f"typical PDR is {low} at {number(below)} and {high} at {number(above)} cps"
    if not crossing.narrow:
        apart = f"{100 * (above / below - 1):.0f} %"
        return (
            f"The loads around the crossing are {apart} apart ({told}). Measure one between them."
        )
    return f"PDR jumps at the crossing ({told}). Measure loads between them."


def _share(rate: float, limit: float) -> str:
    least = limit / RATE_RANGE
    # the estimate cannot resolve smaller rates
    return f"at most {100 * least:g} %" if rate <= 1.0001 * least else f"{number(100 * rate)} %"
