"""What a page says of a crossing beside its number: why there is none, and what would give one."""

import numpy as np
import numpy.typing as npt

from sipsched.analysis.statistics import RATE_RANGE, STEEPEST, Crossing
from sipsched.pages.numbers import Number, in_words, told, with_unit
from sipsched.plan.config import WIDEST_BRACKET
from sipsched.words import number

Values = npt.NDArray[np.float64]

HOW = (
    "Log PDR is interpolated between the two loads around the limit, and the interval holds the straight "
    f"line of PDR too. Where these loads are more than {100 * (WIDEST_BRACKET - 1):.0f} % apart, or a PDR there "
    f"is more than {STEEPEST} times the limit or less than its {STEEPEST}th part, the crossing is no more "
    "than between them"
)


def crossing_words(crossing: Crossing, unit: str = "cps") -> str:
    """Write a crossing: "1 840 cps (1 790 to 1 900), n = 15", or beyond which load it lies."""
    interval = crossing.interval
    if np.isinf(interval.estimate):
        side = "above" if interval.estimate > 0 else "below"
        end = crossing.highest_cps if interval.estimate > 0 else crossing.lowest_cps
        return f"{side} {number(end)}\u00a0{unit}".rstrip() + f", n = {interval.n}"
    return in_words(interval, unit)


def crossing_cell(crossing: Crossing) -> Number | str:
    """Write a crossing for a cell; in words where it lies beyond what was measured."""
    interval = crossing.interval
    return crossing_words(crossing, "") if np.isinf(interval.estimate) else told(interval, "cps")


def carries(crossing: Crossing, limit: float) -> str:
    """Say as a clause how much load a proxy carries: "carries 1 840 calls per second (…) before …".

    Parameters
    ----------
    crossing
        Of one configuration.
    limit
        Packet drop rate, as a share.
    """
    interval, share = crossing.interval, f"{100 * limit:g}\u00a0% of its messages"
    lowest, highest = (
        f"{number(cps)} calls per second" for cps in (crossing.lowest_cps, crossing.highest_cps)
    )
    if np.isnan(interval.estimate):
        return "was not measured"
    if interval.estimate == -np.inf:
        return f"drops more than {share} at every load measured, from {lowest} on"
    if interval.estimate == np.inf:
        said = f"drops no more than {share} at any load measured, up to {highest}"
        if np.isfinite(interval.low) and interval.low < crossing.highest_cps:
            said += f" (95 % confident up to {number(interval.low)})"
        return said
    return f"carries {with_unit(interval, 'calls per second')} before it drops {share}"


def doubt(crossing: Crossing, limit: float) -> str:
    """Say why a crossing is no number, and what would make it one; empty if it is one.

    Parameters
    ----------
    crossing
        Of one configuration.
    limit
        Packet drop rate, as a share.
    """
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
    return f"PDR jumps at the crossing ({told}): where between them is not told. Measure loads between them."


def _share(rate: float, limit: float) -> str:
    least = limit / RATE_RANGE
    # what is less counts as that
    return f"at most {100 * least:g} %" if rate <= 1.0001 * least else f"{number(100 * rate)} %"


def unbroken(cps: Values, crossing: Crossing | None) -> list[slice]:
    """Part a line where a crossing is somewhere between two of its loads and nothing tells where."""
    if crossing is None or crossing.interval.resolved:
        return [slice(None)]
    place = int(np.searchsorted(cps, crossing.bracket_cps[1]))
    return [slice(place), slice(place, None)]


def through(
    cps: Values, values: Values, crossing: Crossing | None, limit: float
) -> tuple[Values, Values]:
    """Lead a line through the crossing that is printed, if it lies between two of its loads."""
    if crossing is None or not crossing.interval.resolved or not crossing.bracketed:
        return cps, values
    place = int(np.searchsorted(cps, crossing.interval.estimate))
    if not 0 < place < len(cps):
        return cps, values
    return np.insert(cps, place, crossing.interval.estimate), np.insert(values, place, limit)
