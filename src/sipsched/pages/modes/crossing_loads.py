"""The load at which the packet drop rate passes its limit."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from sipsched.analysis.comparison import Case, Place, Side
from sipsched.analysis.run_table import provenance
from sipsched.analysis.search import search_interval
from sipsched.analysis.statistics import Crossing
from sipsched.pages.crossings import HOW, crossing_cell, crossing_words, doubt
from sipsched.pages.drawing import STYLE, Layout, both, legend, themed
from sipsched.pages.modes.panels import hollow, large, nothing, picture
from sipsched.pages.modes.wording import (
    NOT_PRINTED,
    PUBLISHED_MODES,
    relative_to,
    study_of,
    with_papers,
)
from sipsched.pages.numbers import NO_ENTRY, in_words, signed, told
from sipsched.pages.parts import Cell, Figure, Table
from sipsched.pages.published import HEADROOM
from sipsched.records.crossing import read_crossing
from sipsched.words import grouped, number, plural


def figure(case: Case) -> Figure:
    """Draw the load at which PDR passes the limit, by threads and mode, here and as published."""
    rows = case.systems

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(max(len(rows), 1), 1, 2.6)
            for (axis,), (sut, cores) in zip(grid, rows, strict=False):
                drawn = _crossings(axis, case, case.places((sut, cores), published=True))
                axis.set_title(f"{sut}, {plural(cores, 'core')}", loc="left")
                axis.set_ylabel(f"load at PDR = {case.share} (cps)")
                axis.set_xlabel("server threads")
                axis.set_ylim(0, HEADROOM * axis.dataLim.y1 if drawn else 1)
            legend(canvas, grid, columns=2)
            return themed(canvas)

    drawn = both(draw)
    seen = []
    for place in case.places():
        sides = [case.side(place, mode) for mode in case.modes]
        said = [
            f"{side.label} {crossing_words(side.capacity.crossing)}"
            for side in sides
            if side.loads_met
        ]
        if said:
            doubts = [
                f"{side.label}: {doubted}"
                for side in sides
                if side.loads_met and (doubted := doubt(side.capacity.crossing, case.limit))
            ]
            seen.append(" ".join((f"{case.name(place)}: {'; '.join(said)}.", *doubts)))
    caption = (
        f"Load at which PDR passes {case.share}, by server threads and mode. Filled: this testbed, "
        "interpolated, with its 95 % interval, cut off at the loads measured; a bar without a mark: "
        "somewhere on it; a triangle: outside them. Open, joined: the two loads that the papers print "
        "on either side (one alone: the other is not printed), on other hardware and another kernel."
    )
    return picture("figure-crossings", "Load at the limit", drawn, caption, seen, _provenance(case))


def _crossings(axis: Axes, case: Case, among: Sequence[Place]) -> bool:
    wide = 0.5 / len(case.modes)
    drawn = False
    for i, mode in enumerate(case.modes):
        shift = wide * (i - (len(case.modes) - 1) / 2)
        for x, place in enumerate(among):
            side = case.side(place, mode)
            printed = [cps for cps in side.printed_loads if cps is not None]
            if printed:
                drawn = True
                at = [x + shift] * len(printed)
                axis.plot(at, printed, **hollow(i), linewidth=1, label=f"{mode}, published")
            if side.loads_met:
                drawn = True
                _crossing(axis, x + shift + wide / 3, side.capacity.crossing, i, side.label)
    if not drawn:
        nothing(axis)
    axis.xaxis.set_major_locator(FixedLocator(list(range(len(among)))))
    axis.set_xticklabels([str(place.threads) for place in among])
    axis.set_xlim(-0.5, len(among) - 0.5)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value) if value else "0"))
    return drawn


def _crossing(axis: Axes, x: float, found: Crossing, i: int, label: str) -> None:
    interval = found.interval
    low, y, high = np.clip(
        (interval.low, interval.estimate, interval.high), found.lowest_cps, found.highest_cps
    )
    style = large(i) | {"linestyle": "none"}
    if not interval.resolved:
        style["marker"] = "none"
    if np.isinf(interval.estimate):
        style["marker"] = "^" if interval.estimate > 0 else "v"
    ends = None if np.isnan(low) else [[max(y - low, 0)], [max(high - y, 0)]]
    axis.errorbar([x], [y], yerr=ends, **style, label=f"{label}, this testbed")


def table(case: Case) -> Table:
    """Show the load at which PDR passes the limit: published, here, and against the reference."""
    level = case.more_load_level
    rows = [
        (case.name(place), side.label, *_published(side), *_here(side), *_more(side, level))
        for place in case.measured_first(None, *case.modes)
        for side in (case.side(place, mode) for mode in case.modes)
        if side.loads_met
        or side.printed_loads != (None, None)
        or side.mode in (case.reference, case.other)
    ]
    reference = case.label(case.reference)
    return Table(
        identity="table-crossings",
        places=1,
        groups=(
            *(("", 1), ("", 1), ("published (cps)", 3), ("this testbed (cps)", 3), ("", 1)),
            (f"more than {reference} (%)", 2),
        ),
        header=(
            *(
                "",
                "mode",
                *(f"last ≤\u00a0{case.share}", f"first >\u00a0{case.share}", "crossing") * 2,
            ),
            *("difference (%)", "published", "this testbed"),
        ),
        rows=tuple(rows),
        none="nothing was planned",
        caption=f"Loads at which PDR passes {case.share}. {HOW} (95 % parametric "
        "bootstrap, n: runs at all loads; the published one from two printed PDRs, without an "
        f"interval). More than {reference}: each at {100 * level:.3g} %, so that all hold together "
        f"at 95 %.{PUBLISHED_MODES}",
        provenance=_provenance(case),
    )


def _published(side: Side) -> tuple[str, str, str]:
    last, first = (NOT_PRINTED if cps is None else grouped(cps) for cps in side.printed_loads)
    estimate = side.printed_crossing
    return last, first, NO_ENTRY if np.isnan(estimate) else number(estimate)


def _here(side: Side) -> tuple[Cell, Cell, Cell, Cell]:
    """Give the loads around the limit, the crossing, and what it is more than published."""
    if not side.loads_met:
        return side.why_not_measured, NO_ENTRY, NO_ENTRY, NO_ENTRY
    capacity, published = side.capacity, side.printed_crossing
    interval = capacity.crossing.interval
    difference: Cell = NO_ENTRY
    if np.isfinite(published) and np.isfinite(interval.estimate):
        difference = told(interval.map(relative_to(published)), "%", interval.n, "+")
    return (
        _bound(capacity.grid_cps),
        _bound(capacity.next_cps),
        crossing_cell(capacity.crossing),
        difference,
    )


def _bound(cps: float) -> str:
    return grouped(cps) if np.isfinite(cps) else "none"


def _more(side: Side, level: float) -> tuple[Cell, Cell]:
    """Give how many percent more load than the reference, published and here."""
    case = side.case
    if side.mode == case.reference:
        return NO_ENTRY, NO_ENTRY
    of_reference = case.side(side.place, case.reference).printed_crossing
    more = 100 * (side.printed_crossing / of_reference - 1)
    interval = case.more_load(side.place, side.mode, level)
    printed = NO_ENTRY if np.isnan(more) else signed(more)
    return printed, told(interval, "%", None, "+")


def searches(case: Case, crossings: Iterable[str | Path]) -> Table:
    """Show the trials by which the loads around a crossing were chosen, from the records of searches."""
    rows, found = [], []
    for path in map(Path, crossings):
        crossing = read_crossing(path)
        cores, threads = crossing.point.cores, crossing.point.threads
        name = f"{crossing.label}, {plural(cores, 'core')}, {plural(threads, 'thread')}"
        told = search_interval(crossing.trials, case.limit)
        trials = (
            f"; as trials vary, {in_words(told, 'cps')} trials" if crossing.is_bracketed else ""
        )
        found.append(f"{name}: {crossing.found}{trials}")
        rows += [
            (
                name,
                str(place),
                str(trial.cps),
                f"{trial.duration_s:g}",
                number(100 * trial.pdr),
            )
            for place, trial in enumerate(crossing.trials, start=1)
        ]
    return Table(
        identity="table-searches",
        places=1,
        header=("", "trial", "cps", "seconds", "PDR (%)"),
        rows=tuple(rows),
        none="none: the loads of this study are those of the configuration",
        caption="How the loads were chosen: trials of a search (MLRsearch) for the crossing, each one run "
        f"and in no average. Found: {'; '.join(found) or 'nothing searched'}.",
        provenance=provenance(case.summary),
    )


def _provenance(case: Case) -> str:
    papers = dict.fromkeys(study_of(cores) for _, cores in case.systems)
    return with_papers(case.summary, *papers)
