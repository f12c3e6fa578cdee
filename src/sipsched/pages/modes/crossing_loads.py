"""A figure and tables of the load at which the packet drop rate exceeds the limit (1 % by default)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.comparison import Case, Place, Side
from sipsched.analysis.run_table import provenance
from sipsched.pages.crossings import HOW, crossing_cell, crossing_words, doubt, probe_modes
from sipsched.pages.drawing import titled
from sipsched.pages.modes.marks import hollow, large
from sipsched.pages.modes.wording import (
    NOT_PRINTED,
    NOTHING,
    PUBLISHED_MODES,
    relative_to,
    study_of,
    with_papers,
)
from sipsched.pages.numbers import NO_ENTRY, signed, told
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.pages.plots import categories, not_measured, panels
from sipsched.records.crossing import SearchRecord, read_searches
from sipsched.words import grouped, number, plural

HEADROOM = 1.08
"""Ratio of the top of the load axis to the largest drawn load. The margin leaves room for the marker of this load."""


def figure(case: Case) -> Figure:
    """Draw the load at which the drop rate exceeds 1 % (the limit), measured and published, by mode and threads."""
    rows = case.systems

    def draw(axis: Axes, row: int, column: int) -> None:
        drawn = _draw_crossings(axis, case, case.places(rows[row], published=True))
        axis.set_ylabel(f"load at PDR = {case.share} (cps)")
        axis.set_ylim(0, HEADROOM * axis.dataLim.y1 if drawn else 1)

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
            seen.append(
                " ".join(
                    (
                        f"{case.name(place)}, load at which PDR exceeds {case.share}: {'; '.join(said)}.",
                        *doubts,
                    )
                )
            )
    return Figure(
        identity="figure-crossings",
        draw=panels(
            [f"{sut}, {plural(cores, 'core')}" for sut, cores in rows],
            [""],
            draw,
            "server threads",
            shared=("", ""),
            beside=False,
        ),
        caption=f"The load at which the packet drop rate (PDR) begins to exceed {case.share} (the crossing), for "
        "each mode and number of "
        "server threads.",
        reading='A filled point ("here") is a result of this testbed with its 95\u00a0% interval, interpolated between '
        "the measured loads. A bar without a point shows the loads between which the crossing lies. If PDR does not "
        "decide where the crossing lies, the bar shows where it may lie. A triangle shows "
        "that the crossing lies outside the measured loads. Two open points joined by a line are the papers' "
        "loads just below and just above the limit. The papers used other hardware and another kernel.",
        seen=tuple(seen) or (NOTHING,),
        provenance=_provenance(case),
    )


def _draw_crossings(axis: Axes, case: Case, among: Sequence[Place]) -> bool:
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
                axis.plot(at, printed, **hollow(case, mode), linewidth=1, label=f"{mode}, papers")
            if side.loads_met:
                drawn = True
                _draw_crossing(axis, x + shift + wide / 3, side)
    if not drawn:
        not_measured(axis)
    categories(axis, [place.threads for place in among])
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value) if value else "0"))
    return drawn


def _draw_crossing(axis: Axes, x: float, side: Side) -> None:
    crossing = side.capacity.crossing
    interval = crossing.interval
    low, y, high = np.clip(
        (interval.low, interval.estimate, interval.high), crossing.lowest_cps, crossing.highest_cps
    )
    style = large(side.case, side.mode)
    if not interval.resolved or crossing.undecided:
        style["marker"] = "none"
    elif np.isinf(interval.estimate):
        style["marker"] = "^" if interval.estimate > 0 else "v"
    ends = None if np.isnan(low) else [[max(y - low, 0)], [max(high - y, 0)]]
    line, *_ = axis.errorbar([x], [y], yerr=ends, **style, label=f"{side.label}, here")
    titled(line, [f"{side.label}: {crossing_words(crossing)}"])


def table(case: Case) -> Table:
    """Return a table of the load at which the drop rate exceeds 1 %, with the increase over the reference mode."""
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
        caption=f"The loads at which the packet drop rate (PDR) begins to exceed {case.share} (the crossings).",
        reading=f"{HOW}. The 95\u00a0% intervals are from a parametric bootstrap, and n is the number of runs at all "
        "loads. Published crossings are computed from two printed PDRs, and have no interval. In the last two "
        f"columns, each interval has a level of {100 * level:.3g}\u00a0%. With a probability of 95\u00a0%, all "
        f"these intervals contain their true values.{PUBLISHED_MODES}",
        provenance=_provenance(case),
    )


def _published(side: Side) -> tuple[str, str, str]:
    last, first = (NOT_PRINTED if cps is None else grouped(cps) for cps in side.printed_loads)
    estimate = side.printed_crossing
    return last, first, NO_ENTRY if np.isnan(estimate) else number(estimate)


def _here(side: Side) -> tuple[Cell, Cell, Cell, Cell]:
    """Return four table cells with this testbed's loads around the limit of the drop rate.

    The cells contain the last load within the limit, the first load above the limit, the estimated load at the limit,
    and by how many percent this estimate exceeds the papers' load.
    """
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
    """Return two cells: how much more load a mode handles than the reference mode, as published and as measured here.

    The load that a mode handles is the load at which the mode's drop rate reaches the limit.
    """
    case = side.case
    if side.mode == case.reference:
        return NO_ENTRY, NO_ENTRY
    of_reference = case.side(side.place, case.reference).printed_crossing
    more = 100 * (side.printed_crossing / of_reference - 1)
    interval = case.more_load(side.place, side.mode, level)
    printed = NO_ENTRY if np.isnan(more) else signed(more)
    return printed, told(interval, "%", None, "+")


def searches(case: Case, crossings: Iterable[str | Path]) -> Table:
    """Return a table of the trial runs with which searches (MLRsearch) selected the loads of the study."""
    rows, results = [], []
    for crossing in read_searches(map(Path, crossings)):
        name = _system_of(crossing)
        results.append(f"{name}: {crossing.found}")
        rows += [
            (
                name,
                str(place),
                str(trial.cps),
                f"{trial.duration_s:g}",
                number(100 * trial.pdr),
                trial.probe_mode or NO_ENTRY,
            )
            for place, trial in enumerate(crossing.trials, start=1)
        ]
    return Table(
        identity="table-searches",
        places=1,
        header=("", "trial", "cps", "seconds", "PDR (%)", "probe mode"),
        rows=tuple(rows),
        none="none, because the configuration lists the loads of this study",
        caption="The trials of the searches (MLRsearch) that chose the measured loads.",
        reading="Each trial is one run. The averages on this page exclude trials. Results of the searches: "
        f"{'; '.join(results) or 'no search was made'}.",
        provenance=provenance(case.summary),
    )


def search_probes(crossings: Iterable[str | Path]) -> Words:
    """Return sentences with the mode of the kernel probe in each search, and a warning if the modes differ."""
    searches = read_searches(map(Path, crossings))
    return Words(
        tuple(probe_modes([(_system_of(search), search.probe_modes) for search in searches]))
    )


def _system_of(search: SearchRecord) -> str:
    """Return as text the mode, the cores and the threads for which a search looked for the capacity."""
    cores, threads = search.point.cores, search.point.threads
    return f"{search.label}, {plural(cores, 'core')}, {plural(threads, 'thread')}"


def _provenance(case: Case) -> str:
    papers = dict.fromkeys(study_of(cores) for _, cores in case.systems)
    return with_papers(case.summary, *papers)
