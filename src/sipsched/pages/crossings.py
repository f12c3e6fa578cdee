"""Sentences and table cells about a crossing, which is the load at which the drop rate reaches its limit."""

from collections.abc import Iterable, Sequence

import numpy as np

from sipsched.analysis.crossing_load import RATE_RANGE, STEEPEST, CrossingLoad
from sipsched.pages.numbers import Number, in_words, told
from sipsched.plan.loads import WIDEST_BRACKET
from sipsched.words import listed, number

HOW = (
    "The crossing is found by interpolation: the logarithm of PDR is interpolated between the last load below the "
    "limit and the first load above the limit. The interval of the crossing also includes the result of a linear "
    "interpolation of PDR. The crossing is not estimated if these two loads are more than "
    f"{100 * (WIDEST_BRACKET - 1):.0f} % apart, or if PDR at one of them is more than {STEEPEST} times the limit or "
    f"less than a {STEEPEST}th of the limit"
)


def crossing_words(crossing: CrossingLoad, unit: str = "cps") -> str:
    """Return the load at which drops reach the limit, as text, such as "1 840 cps (1 790 to 1 900), n = 15".

    If this load lies outside the measured loads, return a bound, such as "above 1 900 cps, n = 15". If a drop rate
    contradicts this bound, return "not decided".
    """
    interval = crossing.interval
    if crossing.undecided:
        return f"not decided, n = {interval.n}"
    if np.isinf(interval.estimate):
        side = "above" if interval.estimate > 0 else "below"
        end = crossing.highest_cps if interval.estimate > 0 else crossing.lowest_cps
        return f"{side} {number(end)}\u00a0{unit}".rstrip() + f", n = {interval.n}"
    return in_words(interval, unit)


def crossing_cell(crossing: CrossingLoad) -> Number | str:
    """Return the load at which drops reach the limit, for a table cell.

    If this load lies outside the measured loads, return a bound, such as "above 1 900, n = 15".
    """
    interval = crossing.interval
    return crossing_words(crossing, "") if np.isinf(interval.estimate) else told(interval, "cps")


def doubt(crossing: CrossingLoad, limit: float) -> str:
    """Return sentences that explain why the load at which the drop rate reaches its limit is unknown.

    Return an empty text if this load is known or if nothing was measured.
    """
    share, (below, above) = f"{100 * limit:g} %", crossing.bracket_cps
    if np.isnan(below):
        return ""
    if crossing.undecided:
        first, second = ("more than", "at most") if np.isinf(above) else ("at most", "more than")
        loads, next_load = (
            listed([*map(number, crossing.contrary_cps)]),
            "higher" if np.isinf(above) else "lower",
        )
        return (
            "The crossing (the load at the drop limit) is not decided, because PDR does not rise steadily with the "
            f"load: the typical PDR is {first} {share} at {loads} cps, and {second} {share} at a {next_load} load. "
            "Measure more runs at these "
            "loads."
        )
    if not crossing.bracketed:
        side = "above" if np.isinf(above) else "at or under"
        where = "above" if np.isinf(above) else "below"
        end = crossing.highest_cps if np.isinf(above) else crossing.lowest_cps
        return (
            f"The crossing lies outside the measured loads: no load has a typical PDR {side} {share}. "
            f"Measure a load {where} {number(end)} cps."
        )
    if crossing.interval.resolved:
        return ""
    low, high = (_share(rate, limit) for rate in crossing.bracket_pdr)
    told = f"the typical PDR is {low} at {number(below)} cps and {high} at {number(above)} cps"
    if not crossing.narrow:
        apart = f"{100 * (above / below - 1):.0f} %"
        return f"The loads around the crossing are {apart} apart ({told}). Measure a load between them."
    return f"PDR jumps at the crossing ({told}). Measure loads between them."


def probe_modes(searches: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return sentences that name the probe mode (how the probe recorded messages) of each search for a capacity.

    If the probe modes differ, a warning is the first sentence, because the probe mode affects the CPU time per message.

    Parameters
    ----------
    searches
        Per search, the name of its system and the probe modes of its trials. The modes are empty if the record of the
        search does not name them.
    """
    systems: dict[str, list[str]] = {}
    known = []
    for name, modes in searches:
        known.append(bool(modes))
        for mode in modes:
            systems.setdefault(mode, []).append(name)
    lines = []
    if len(systems) > 1:
        named = [f"{mode} ({listed([*dict.fromkeys(of)])})" for mode, of in systems.items()]
        lines.append(
            f"Warning: the compared searches ran with different probe modes: {'; '.join(named)}. The CPU time per "
            "message depends on the probe mode, so the probe can cause a difference of capacity."
        )
    elif systems:
        lines.append(f"Probe mode of the searches: {next(iter(systems))}.")
    if known and not any(known):
        lines.append("No record of a search names the probe mode.")
    elif not all(known):
        lines.append(
            f"The records of {known.count(False)} of {len(known)} searches do not name the probe mode."
        )
    return lines


def _share(rate: float, limit: float) -> str:
    least = limit / RATE_RANGE
    # The estimate cannot distinguish rates up to `least` from 0, so the text gives only this bound.
    return f"at most {100 * least:g} %" if rate <= 1.0001 * least else f"{number(100 * rate)} %"
