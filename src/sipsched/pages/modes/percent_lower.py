"""The papers' comparison: by how many percent PDR and K_rcv are lower."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator

from sipsched.analysis.comparison import Asked, Case, Comparisons, Place, System
from sipsched.analysis.families import Cell
from sipsched.analysis.papers import PAPERS
from sipsched.analysis.run_table import provenance
from sipsched.pages.drawing import INK, STYLE, WIDTH_IN, legend, themed
from sipsched.pages.modes.panels import hollow, large, nothing, picture
from sipsched.pages.modes.wording import (
    NO_ENTRY,
    NOT_PRINTED,
    PUBLISHED_MODES,
    corrected,
    identity,
    relative_to,
    study_of,
    with_papers,
)
from sipsched.pages.numbers import p_text, plain, signed, told, with_p
from sipsched.pages.parts import Figure, Several, Table, Words
from sipsched.words import number, plural

DRAWN_FROM_PERCENT = -150
"""What is more than so many percent higher is drawn at the edge."""
TITLES = {"pdr": "PDR", "k_rcv": "K_rcv"}
UNITS = {"pdr": ("PDR (%)", 100.0), "k_rcv": ("K_rcv (µs)", 1.0)}
"""Quantity to its title and what it is multiplied with."""


def figure(case: Case, found: Comparisons) -> Figure:
    """Draw by how many percent PDR and K_rcv are lower under the other mode, here and as published."""
    among = [
        place
        for place in case.places(published=True)
        if case.printed_comparison(place) is not None or case.compared_load(place) is not None
    ]
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, 1.4 + 0.45 * max(len(among), 1)), layout="constrained")
        grid = canvas.subplots(1, len(TITLES), squeeze=False, sharey=True, sharex=True)
        for axis, (name, title) in zip(grid[0], TITLES.items(), strict=True):
            axis.axvline(0, color=INK, linewidth=1)
            for y, place in enumerate(among):
                _published(axis, case.printed_comparison(place), name, y)
                _here(axis, _at_compared_load(case, found, place, name), y)
            axis.set_title(title, loc="left")
            axis.set_xlabel("lower by (%)")
            if not among:
                nothing(axis)
        low, _ = grid[0][0].get_xlim()
        grid[0][0].set_xlim(max(low, 1.08 * DRAWN_FROM_PERCENT), 108)
        grid[0][0].yaxis.set_major_locator(FixedLocator(list(range(len(among)))))
        grid[0][0].set_yticklabels([_tick(case, place) for place in among])
        grid[0][0].set_ylim(len(among) - 0.5, -0.5)
        legend(canvas, grid)
        svg = themed(canvas)
    first, second = case.both
    caption = (
        f"By how many percent PDR and K_rcv are lower under {second} than under {first}, at the "
        f"first load with PDR > {case.share} under the latter. Filled: this testbed; open: published, "
        f"without interval, each at the papers' own load. Cut off at "
        f"{plain(DRAWN_FROM_PERCENT)} %. {corrected(found)}"
    )
    return picture(
        "figure-lower",
        "Lower by percent",
        svg,
        caption,
        _seen(case, found),
        with_papers(case.summary, *dict.fromkeys(study_of(cores) for _, cores in case.systems)),
    )


def _at_compared_load(case: Case, found: Comparisons, place: Place, name: str) -> Cell | None:
    cps = case.compared_load(place)
    return None if cps is None else found.cells.get(Asked(place, cps, name))


def _seen(case: Case, found: Comparisons) -> list[str]:
    seen = []
    for name, title in TITLES.items():
        cells = [_at_compared_load(case, found, place, name) for place in case.places()]
        percents = [
            cell.comparison.percent_lower
            for cell in cells
            if cell is not None and not np.isnan(cell.comparison.percent_lower.estimate)
        ]
        if percents:
            sure = sum(each.known and (each.low > 0 or each.high < 0) for each in percents)
            lower = sum(each.estimate > 0 for each in percents)
            seen.append(
                f"{title} is lower under {case.label(case.other)} at {lower} of {len(percents)} "
                f"places; the interval leaves 0 out at {sure} of the "
                f"{sum(each.known for each in percents)} that have one."
            )
    return seen


def _tick(case: Case, place: Place) -> str:
    cps = case.compared_load(place)
    return f"{case.name(place)}\n" + ("not measured" if cps is None else f"{cps} cps")


def _published(axis: Axes, printed: Mapping[Any, Any] | None, name: str, y: float) -> None:
    if printed is not None:
        axis.plot([printed[f"{name}_lower_pct"]], [y + 0.15], **hollow(1), label="published")


def _here(axis: Axes, cell: Cell | None, y: float) -> None:
    if cell is None or np.isnan(cell.comparison.percent_lower.estimate):
        return
    lower = cell.comparison.percent_lower
    low, x, high = np.clip((lower.low, lower.estimate, lower.high), DRAWN_FROM_PERCENT, 100)
    ends = None if np.isnan(low) else [[x - low], [high - x]]
    axis.errorbar(
        [x], [y - 0.15], xerr=ends, **(large(1) | {"linestyle": "none"}), label="this testbed"
    )


def verdict(case: Case, found: Comparisons) -> Words:
    """Say in words what the modes do at the compared loads."""
    first, second = case.both
    lines = []
    for place in case.places():
        cps = case.compared_load(place)
        if cps is None:
            lines.append(
                f"{case.name(place)}: no load at which runs of both {first} and {second} count."
            )
            continue
        same = " Both have the same settings there." if case.same_settings(place) else ""
        for name, title in TITLES.items():
            cell = found.cells.get(Asked(place, cps, name))
            if cell is not None:
                said = _said(cell, title, second, first)
                lines.append(f"{case.name(place)}, {cps} cps: {said}{same}")
    return Words(tuple(lines))


def _said(cell: Cell, title: str, second: str, first: str) -> str:
    lower = cell.comparison.percent_lower
    difference = cell.comparison.difference
    if np.isnan(lower.estimate):
        return f"{title} cannot be compared: {told(lower)}."
    text = (
        f"{title} under {second} is {number(abs(lower.estimate))}\u00a0% "
        f"{'lower' if lower.estimate >= 0 else 'higher'} than under {first}"
    )
    if not difference.known:
        return f"{text}, n = {difference.n}: {difference.why}."
    if lower.known:
        text += f" (lower by {plain(lower.low)} to {plain(lower.high)}\u00a0%)"
    return f"{text}, n = {difference.n}, {p_text(cell.p_value)}: " + (
        "more than chance." if cell.stands_out else "within chance."
    )


def tables(case: Case, found: Comparisons) -> Several:
    """Show, for each system, the papers' comparison of the modes beside this testbed's."""
    return Several(tuple(_table(case, found, system) for system in case.systems))


def _table(case: Case, found: Comparisons, system: System) -> Table:
    sut, cores = system
    among = case.measured_first(system, case.reference, case.other)
    printed = [row for place in among if (row := case.printed_comparison(place)) is not None]
    # Each of the papers' tables is of one number of cores.
    table = f", Table {printed[-1]['table']}" if printed else ""
    first, second = case.both
    beside = f"{PAPERS[study_of(cores)]}{table}, beside this testbed" if table else "This testbed"
    return Table(
        identity=identity("table-comparison", sut, cores),
        groups=(("", 1), ("", 2), ("PDR", 3), ("K_rcv (µs)", 3)),
        header=("", "whose", "load (cps)", *(first, second, "lower by (%)") * 2),
        rows=tuple(row for place in among for row in _rows(case, found, place)),
        none="nothing was planned",
        caption=f"{beside}: {sut}, {plural(cores, 'core')}, {first} against {second}, at the first "
        f"load with PDR > {case.share} under {first}. Typical runs with 95 % intervals. {corrected(found)} The "
        "row difference: means in % of the published, percentages in points."
        f"{PUBLISHED_MODES}",
        provenance=with_papers(case.summary, *([study_of(cores)] if table else [])),
    )


def _rows(case: Case, found: Comparisons, place: Place) -> list[tuple[str, ...]]:
    """Give published, this testbed and difference of a place."""
    threads = plural(place.threads, "thread")
    printed = case.printed_comparison(place)
    texts = [NOT_PRINTED, *[NO_ENTRY] * 6]
    if printed is not None:
        names = [
            *("pdr_baseline", "pdr_enhanced", "pdr_lower_pct"),
            *("k_rcv_baseline_us", "k_rcv_enhanced_us", "k_rcv_lower_pct"),
        ]
        texts = [str(printed["cps"]), *(str(printed[f"{name}_printed"]) for name in names)]
    rows: list[tuple[str, ...]] = [(threads, "published", *texts)]
    cps = case.compared_load(place)
    if cps is None:
        return [*rows, (threads, "this testbed", _why_not_compared(case, place), *[NO_ENTRY] * 6)]
    cells = [found.cells.get(Asked(place, cps, name)) for name in TITLES]
    n = cells[0].comparison.difference.n if cells[0] else 0
    here = [text for cell in cells for text in _cell(cell, n)]
    rows.append((threads, f"this testbed, n = {n}", _load(case, place, cps), *here))
    if printed is not None:
        more = signed(100 * (cps / printed["cps"] - 1)) + "\u00a0%"
        rows.append((threads, "difference", more, *_differences(cells, printed, n)))
    return rows


def _why_not_compared(case: Case, place: Place) -> str:
    reasons = {
        side.label: side.why_not_measured for side in case.sides(place) if not side.loads_met
    }
    if len(reasons) == 2 and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return ", ".join(f"{label} {why}" for label, why in reasons.items()) or "no load in common"


def _load(case: Case, place: Place, cps: int) -> str:
    _, first = case.side(place, case.reference).loads_around
    if cps == first:
        return str(cps)
    return f"{cps} (the highest of both; none > {case.share})"


def _cell(cell: Cell | None, n: int) -> tuple[str, str, str]:
    if cell is None:
        return NO_ENTRY, NO_ENTRY, NO_ENTRY
    lower = told(cell.comparison.percent_lower, n, plain)
    return told(cell.reference, n), told(cell.other, n), with_p(lower, cell.p_value)


def _differences(
    cells: Sequence[Cell | None], printed: Mapping[Any, Any], n: int
) -> tuple[str, ...]:
    texts: list[str] = []
    for cell, name, unit in zip(cells, TITLES, ("", "_us"), strict=True):
        if cell is None:
            texts += [NO_ENTRY] * 3
            continue
        for mode, mean in (("baseline", cell.reference), ("enhanced", cell.other)):
            value = float(printed[f"{name}_{mode}{unit}"])
            texts.append(told(mean.map(relative_to(value)), n, signed))
        points = float(printed[f"{name}_lower_pct"])
        texts.append(told(cell.comparison.percent_lower.map(_less(points)), n, signed))
    return tuple(texts)


def _less(value: float) -> Callable[[float], float]:
    return lambda mean: mean - value


def both_loads(case: Case, found: Comparisons) -> Table:
    """Show both modes at every load next to a crossing that both have met."""
    rows = []
    for asked, cell in found.cells.items():
        title, scale = UNITS[asked.quantity]
        n = cell.comparison.difference.n
        means = (cell.reference, cell.other)
        rows.append(
            (
                case.name(asked.place),
                str(asked.cps),
                title,
                str(n),
                *(told(mean.map(_times(scale)), n) for mean in means),
                told(cell.comparison.difference.map(_times(scale)), n, signed),
                told(cell.comparison.percent_lower, n, plain),
                p_text(cell.p_value) or NO_ENTRY,
            )
        )
    first, second = case.both
    return Table(
        identity="table-both-loads",
        header=("", "cps", "", "pairs", first, second, "difference", "lower by (%)", "p"),
        rows=tuple(rows),
        none=f"no load at which runs of both {first} and {second} count",
        caption=f"{second} against {first} at every load next to the crossing of either that both "
        f"met; difference: {second} minus {first}, over pairs. {corrected(found)}",
        provenance=provenance(case.summary),
    )


def _times(scale: float) -> Callable[[float], float]:
    return lambda value: scale * value
