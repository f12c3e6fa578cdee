"""The modes by load."""

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from sipsched.analysis.comparison import Case, Place, Side, System
from sipsched.analysis.statistics import typical_drop_rates, typical_intervals
from sipsched.pages.crossings import through, unbroken
from sipsched.pages.drawing import LIMIT, STYLE, Layout, both, legend, themed
from sipsched.pages.modes.panels import large, nothing, picture, small
from sipsched.pages.modes.wording import identity, with_papers
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Figure, Several
from sipsched.words import plural

SYMLOG_FROM_PERCENT = 0.01
COLUMNS = {"pdr": ("PDR (%)", 100.0), "k_rcv": ("K_rcv (µs)", 1.0), "t_sip": ("T_sip (µs)", 1.0)}
"""Quantity to its title and what it is multiplied with."""


def figures(case: Case) -> Several:
    """Draw PDR, K_rcv and T_sip against the load under every mode, a figure a system."""
    return Several(tuple(_figure(case, system) for system in case.systems))


def _figure(case: Case, system: System) -> Figure:
    sut, cores = system
    rows = case.places(system)
    loads = case.loads_cps

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(len(rows), len(COLUMNS), 2.2, shared=("all", ""))
            for axes, place in zip(grid, rows, strict=True):
                for axis, name in zip(axes, COLUMNS, strict=True):
                    if name == "pdr":
                        axis.axhline(100 * case.limit, color=LIMIT, linestyle="--", linewidth=1)
                    drawn = [
                        _curve(axis, case.side(place, mode), name, i)
                        for i, mode in enumerate(case.modes)
                    ]
                    axis.set_ylabel(COLUMNS[name][0])
                    if name == "pdr":
                        axis.set_yscale("symlog", linthresh=SYMLOG_FROM_PERCENT, linscale=0.5)
                        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                        axis.yaxis.set_minor_formatter(NullFormatter())
                    if any(drawn):
                        axis.set_ylim(bottom=0)
                    else:
                        nothing(axis)
                    if len(loads) <= 4:
                        axis.xaxis.set_major_locator(FixedLocator(loads.tolist()))
                axes[0].set_title(plural(place.threads, "thread"), loc="left")
            for axis in grid[-1]:
                axis.set_xlabel("load (cps)")
            legend(canvas, grid)
            return themed(canvas)

    drawn = both(draw)
    caption = (
        f"PDR, mean K_rcv and mean T_sip against the offered load, {sut}, {plural(cores, 'core')}, by "
        f"threads and mode. Small: runs; line: the typical run; bars: its 95 % interval. Dashed: {case.share}, "
        "which the line of PDR passes at the crossing told below, with a gap where nothing tells where; "
        f"PDR on a symmetric log scale, linear under {SYMLOG_FROM_PERCENT:g} %."
    )
    return picture(
        identity("figure-load", sut, cores),
        "Modes by load",
        drawn,
        caption,
        [_words(case, place) for place in rows],
        with_papers(case.summary),
    )


def _shift(case: Case, name: str, i: int) -> float:
    """Move the i-th mode sideways, so that intervals do not hide each other; in cps.

    Not its PDR, of which the load is told at which it passes the limit.
    """
    loads = case.loads_cps
    if name == "pdr":
        return 0.0
    step = float(np.diff(loads).min()) if len(loads) > 1 else 0.0
    return step * 0.1 * (i - (len(case.modes) - 1) / 2)


def _curve(axis: Axes, side: Side, name: str, i: int) -> bool:
    """Draw the i-th mode, if it has runs."""
    shift = _shift(side.case, name, i)
    _, scale = COLUMNS[name]
    runs = scale * side.runs(name)
    found = (
        typical_drop_rates(runs, scale * side.case.limit, whole=scale)
        if name == "pdr"
        else typical_intervals(runs)
    )
    some = found.n > 0
    if not some.any():
        return False
    at = side.case.loads_cps + shift
    for run in runs.T:
        axis.plot(at, run, **small(i))
    axis.errorbar(
        at[some],
        found.estimate[some],
        yerr=found.bars[:, some],
        **large(i),
        linestyle="none",
        label=side.label,
    )
    passes = side.capacity.crossing if name == "pdr" else None
    loads, middle = side.case.loads_cps[some], found.estimate[some]
    for part in unbroken(loads, passes):
        x, y = through(loads[part], middle[part], passes, scale * side.case.limit)
        axis.plot(x + shift, y, color=large(i)["color"])
    return True


def _words(case: Case, place: Place) -> str:
    parts = []
    for mode in case.modes:
        side = case.side(place, mode)
        met = side.loads_met
        ends = [
            f"{in_words(side.mean('k_rcv', cps), 'µs')}, at {cps} cps"
            for cps in dict.fromkeys((*met[:1], *met[-1:]))
        ]
        if ends:
            parts.append(f"{side.label} {' and '.join(ends)}")
    if not parts:
        return f"{case.name(place)}: no valid run, nothing to see yet."
    return f"{case.name(place)}, mean K_rcv: {'; '.join(parts)}."
