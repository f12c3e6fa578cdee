"""The papers' comparison: the percentage by which a mode lowers the drop rate (PDR) and the wait (K_rcv)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.comparison import (
    Case,
    ComparedQuantity,
    Comparisons,
    Place,
    SutOnCores,
    translations,
)
from sipsched.analysis.families import ComparedCell
from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers import PAPERS
from sipsched.analysis.run_table import provenance
from sipsched.pages.drawing import INK, titled
from sipsched.pages.modes.marks import hollow, large, small
from sipsched.pages.modes.wording import (
    NOT_PRINTED,
    NOTHING,
    PUBLISHED_MODES,
    corrected,
    identity,
    lower,
    relative_to,
    study_of,
    with_papers,
)
from sipsched.pages.numbers import NO_ENTRY, p_text, signed, told, trusted, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Several, Table, Words, translated
from sipsched.pages.plots import not_measured, panels
from sipsched.words import grouped, listed, number, plural

DRAWN_FROM_PERCENT = -150
"""Left end of the figure's axis of decreases, in percent. An increase by over 150 % is drawn at this end."""
OF_MEANS = "%Lower of means"
OF_MEANS_READING = (
    'The column "lower by (%)" shows by how much the value is lower in the second mode, for a typical pair of runs. '
    'The column "%Lower of means" shows 1 - e/b in percent, as in the papers, where b and e are the means over all '
    "runs of the first and of the second mode."
)
TITLES = {"pdr": "PDR", "k_rcv": "K_rcv"}
UNITS = {"pdr": ("PDR", "%", 100.0), "k_rcv": ("K_rcv", "µs", 1.0)}
"""The title, the unit and the factor that converts to this unit, for each quantity."""


def answer(case: Case, family: Comparisons) -> Answer:
    """Return the answer: whether messages are dropped less and wait less in `case.other` than in `case.reference`."""
    first, second = case.both
    told = []
    for name, title in (("pdr", "the packet drop rate"), ("k_rcv", "the mean wait K_rcv")):
        cells = [
            cell
            for place in case.places()
            if (cell := _at_compared_load(case, family, place, name)) is not None
        ]
        if cells:
            told.append(f"{title} is {_less_or_more(case, cells)}")
    if not told:
        return Answer(
            f"There is no answer yet, because no load has valid runs of both modes, {first} and "
            f"{second}.{translated(translations(case.summary))}"
        )
    same = [case.same_settings(place) for place in case.places()]
    alike = (
        ", although both modes have the same settings on this kernel" if all(same) and same else ""
    )
    return Answer(
        f"With {second} instead of {first}, {', and '.join(told)}{alike}.{translated(translations(case.summary))}"
    )


def _less_or_more(case: Case, cells: Sequence[ComparedCell]) -> str:
    """Return as text in how many cells the other mode's value is significantly lower or higher than the reference's.

    Each cell compares one quantity between the reference mode and the other mode, for one proxy configuration.
    """
    sure = [cell.comparison.difference.estimate for cell in cells if cell.stands_out]
    less, more = sum(value < 0 for value in sure), sum(value > 0 for value in sure)
    of = f"{plural(len(cells), 'combination')} of proxy, cores and threads"
    if not sure:
        tested = [cell for cell in cells if not np.isnan(cell.p_value)]
        why = "chance explains each difference" if tested else "too few runs exist"
        return f"indistinguishable between the {case.compares}s ({why} in {of})"
    parts = [
        f"significantly {word} in {count}"
        for word, count in (("lower", less), ("higher", more))
        if count
    ]
    return f"{listed(parts)} of {of}"


def figure(case: Case, family: Comparisons) -> Figure:
    """Draw by how many percent PDR and K_rcv are lower in `case.other` than in `case.reference`, here and published."""
    among = [
        place
        for place in case.places(published=True)
        if case.printed_comparison(place) is not None or case.compared_load(place) is not None
    ]

    reached = [0.0]

    def draw(axis: Axes, row: int, column: int) -> None:
        name = list(TITLES)[column]
        axis.axvline(0, color=INK, linewidth=1)
        for y, place in enumerate(among):
            _draw_published(axis, case, place, name, y)
            _draw_here(axis, case, _at_compared_load(case, family, place, name), y)
        if not among:
            not_measured(axis)
        # The panels share one x axis, so the axis has to reach the smallest value of all panels drawn so far.
        reached.append(axis.dataLim.x0 if np.isfinite(axis.dataLim.x0) else 0.0)
        axis.set_xlim(max(1.08 * min(reached), 1.08 * DRAWN_FROM_PERCENT) - 5, 108)
        axis.set_yticks(range(len(among)), [_tick(case, place) for place in among])
        axis.set_ylim(len(among) - 0.5, -0.5)

    first, second = case.both
    studies = dict.fromkeys(study_of(cores) for _, cores in case.systems if case.beside_papers)
    published = (
        "An open point is a result that the papers published, at the load of the paper and without an interval. "
        * bool(studies)
    )
    return Figure(
        identity="figure-lower",
        draw=panels(
            [""],
            list(TITLES.values()),
            draw,
            "lower by (%)",
            shared=("all", "all"),
            height_in=0.6 + 0.45 * max(len(among), 1),
            beside=False,
        ),
        caption=f"Decrease of PDR and of the mean K_rcv from {first} to {second}, in percent. {_loads(case, among)}.",
        reading="A large point is a result of this testbed with its interval. A small point is a result of this "
        f"testbed with too few runs for an interval. {published}The axis ends at "
        f"{number(DRAWN_FROM_PERCENT)}\u00a0%, and points beyond this value are drawn at this end. A combination "
        f"is a proxy with its numbers of cores and threads. {corrected(family)}",
        seen=tuple(_seen(case, family)) or (NOTHING,),
        provenance=with_papers(case.summary, *studies),
    )


def _loads(case: Case, among: Sequence[Place]) -> str:
    """Return a clause with the compared load: the first load above the drop limit (1 %), else the highest load."""
    compared = [(place, cps) for place in among if (cps := case.compared_load(place)) is not None]
    above = [cps == case.side(place, case.reference).loads_around[1] for place, cps in compared]
    first = (
        f"the lowest load at which PDR exceeds {case.share} in mode {case.label(case.reference)}"
    )
    highest = (
        f"the highest load that was measured in both modes, because no PDR exceeds {case.share}"
    )
    if not compared:
        return "No load was measured in both modes, so no load is compared"
    if all(above):
        return f"The compared load is {first}"
    return (
        f"The compared load is {first}, or {highest}"
        if any(above)
        else f"The compared load is {highest}"
    )


def _at_compared_load(
    case: Case, family: Comparisons, place: Place, name: str
) -> ComparedCell | None:
    cps = case.compared_load(place)
    return None if cps is None else family.cells.get(ComparedQuantity(place, cps, name))


def _seen(case: Case, family: Comparisons) -> list[str]:
    seen = []
    for name, title in TITLES.items():
        cells = [_at_compared_load(case, family, place, name) for place in case.places()]
        percents = [
            cell.comparison.percent_lower
            for cell in cells
            if cell is not None and not np.isnan(cell.comparison.percent_lower.estimate)
        ]
        if percents:
            seen.append(f"{title}: {_counted(case, percents)}.")
    return seen


def _counted(case: Case, percents: Sequence[Interval]) -> str:
    """Return as text how many proxy configurations have a lower value in `case.other` than in `case.reference`.

    The text also counts the significantly lower and higher values. `percents` contains a decrease per configuration.
    """
    fewer = sum(interval.estimate > 0 for interval in percents)
    of = f"the value with {case.label(case.other)} is lower in {fewer} of {plural(len(percents), 'combination')}"
    judged = [interval for interval in percents if interval.known]
    if not judged:
        return f"{of}; too few runs exist to distinguish these differences from chance"
    sure = [interval for interval in judged if interval.low > 0 or interval.high < 0]
    if not sure:
        return f"{of}, but in no combination by more than chance explains"
    up = sum(interval.high < 0 for interval in sure)
    told = f"significantly lower in {len(sure) - up}"
    return f"{of}, and {told}" + (f", and significantly higher in {up}" if up else "")


def _tick(case: Case, place: Place) -> str:
    cps = case.compared_load(place)
    return f"{case.name(place)}\n" + ("not measured" if cps is None else f"{grouped(cps)} cps")


def _draw_published(axis: Axes, case: Case, place: Place, name: str, y: float) -> None:
    printed = case.printed_comparison(place)
    if printed is not None:
        value = printed[f"{name}_lower_pct"]
        (point,) = axis.plot([value], [y + 0.15], **hollow(case, case.other), label="published")
        titled(point, [f"published: {number(value)} % lower"])


def _draw_here(axis: Axes, case: Case, cell: ComparedCell | None, y: float) -> None:
    if cell is None or np.isnan(cell.comparison.percent_lower.estimate):
        return
    lower = cell.comparison.percent_lower
    low, x, high = np.clip((lower.low, lower.estimate, lower.high), DRAWN_FROM_PERCENT, 100)
    at = ([x], [y - 0.15])
    if trusted(lower):
        bars, label = [[x - low], [high - x]], "this testbed"
        point, *_ = axis.errorbar(*at, xerr=bars, **large(case, case.other), label=label)
    else:
        (point,) = axis.plot(*at, **small(case, case.other), label="this testbed, no interval")
    titled(point, [f"this testbed: {with_unit(lower, '%')} lower"])


def verdict(case: Case, family: Comparisons) -> Words:
    """Return a sentence per proxy configuration and quantity: the difference of the two modes, and its significance."""
    first, second = case.both
    lines = []
    for place in case.places():
        cps = case.compared_load(place)
        if cps is None:
            lines.append(
                f"{case.name(place)}: no load has valid runs of both modes, {first} and {second}."
            )
            continue
        same = (
            " With these numbers of cores and threads, both modes have the same settings."
            if case.same_settings(place)
            else ""
        )
        for name, title in TITLES.items():
            cell = family.cells.get(ComparedQuantity(place, cps, name))
            if cell is not None:
                said = _said(cell, title, second, first)
                lines.append(f"{case.name(place)}, {grouped(cps)} cps: {said}{same}")
    return Words(tuple(lines))


def _said(cell: ComparedCell, title: str, second: str, first: str) -> str:
    fall = cell.comparison.percent_lower
    if np.isnan(fall.estimate):
        return f"{title} cannot be compared: {fall.why}."
    if fall.estimate == 0:
        text = f"{title} is the same with {second} as with {first}"
    else:
        size = fall if fall.estimate > 0 else fall.map(lambda percent: -percent)
        side = "lower" if fall.estimate > 0 else "higher"
        text = f"{title} with {second} is {with_unit(size, '%')} {side} than with {first}"
    pairs = plural(cell.comparison.difference.n, "pair")
    if np.isnan(cell.p_value):
        return f"{text}, in {pairs} of runs. So few pairs are not enough to distinguish the difference from chance."
    verdict = (
        "This difference is larger than chance explains"
        if cell.stands_out
        else "Chance explains this difference"
    )
    return f"{text}, in {pairs} of runs ({p_text(cell.p_value)}). {verdict}."


def tables(case: Case, family: Comparisons) -> Several:
    """Return a table per proxy and number of cores: the papers' comparison of two modes, beside this testbed's."""
    return Several(tuple(_table(case, family, system) for system in case.systems))


def _table(case: Case, family: Comparisons, system: SutOnCores) -> Table:
    sut, cores = system
    among = case.measured_first(system, case.reference, case.other)
    printed = [row for place in among if (row := case.printed_comparison(place)) is not None]
    # Each table of the papers covers only one number of cores, so one table number is enough per table of the page.
    table = f", Table {printed[-1]['table']}" if printed else ""
    first, second = case.both
    beside = f"{PAPERS[study_of(cores)]}{table}, beside this testbed" if table else "This testbed"
    of_papers = (
        ' The row "difference" shows by how much a mean differs from the published mean, in percent of the published '
        f"mean. For percentages, it shows the difference in percentage points.{PUBLISHED_MODES}"
    )
    return Table(
        identity=identity("table-comparison", sut, cores),
        groups=(("", 3), ("PDR", 4), ("K_rcv", 4)),
        places=1,
        header=("threads", "source", "load (cps)", *(first, second, "lower by (%)", OF_MEANS) * 2),
        rows=tuple(row for place in among for row in _rows(case, family, place)),
        none="nothing was planned",
        caption=f"{beside}: {sut}, {plural(cores, 'core')}, {first} against {second}.",
        reading=f"{_loads(case, among)}. The values describe typical runs, with 95\u00a0% intervals. "
        f"{corrected(family)} {OF_MEANS_READING}{of_papers * case.beside_papers}",
        provenance=with_papers(case.summary, *([study_of(cores)] if table else [])),
    )


def _rows(case: Case, family: Comparisons, place: Place) -> list[tuple[Cell, ...]]:
    """Return the table rows of a proxy configuration: published values, this testbed's values, the difference.

    Without published numbers, the result is the row of this testbed.
    """
    threads = plural(place.threads, "thread")
    printed = case.printed_comparison(place)
    texts = [NOT_PRINTED, *[NO_ENTRY] * 8]
    if printed is not None:
        texts = [str(printed["cps"])]
        for name, unit in (("pdr", ""), ("k_rcv", "_us")):
            for column in (f"{name}_baseline{unit}", f"{name}_enhanced{unit}"):
                texts.append(str(printed[f"{column}_printed"]))
            texts += [NO_ENTRY, str(printed[f"{name}_lower_pct_printed"])]
    rows: list[tuple[Cell, ...]] = [(threads, "published", *texts)] * case.beside_papers
    cps = case.compared_load(place)
    if cps is None:
        return [*rows, (threads, "this testbed", _why_not_compared(case, place), *[NO_ENTRY] * 8)]
    cells = [family.cells.get(ComparedQuantity(place, cps, name)) for name in TITLES]
    n = cells[0].comparison.difference.n if cells[0] else 0
    units = ("", "µs")
    here = [text for cell, unit in zip(cells, units, strict=True) for text in _cell(cell, n, unit)]
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
    return (
        ", ".join(f"{label} {why}" for label, why in reasons.items())
        or "no load was measured in both modes"
    )


def _load(case: Case, place: Place, cps: int) -> str:
    _, first = case.side(place, case.reference).loads_around
    if cps == first:
        return str(cps)
    return f"{cps} (the highest load measured in both modes; no PDR > {case.share})"


def _cell(cell: ComparedCell | None, n: int, unit: str) -> tuple[Cell, ...]:
    if cell is None:
        return (NO_ENTRY,) * 4
    of_means = told(cell.comparison.percent_lower_of_means, "%", n)
    return told(cell.reference, unit, n), told(cell.other, unit, n), lower(cell, n), of_means


def _differences(
    cells: Sequence[ComparedCell | None], printed: Mapping[Any, Any], n: int
) -> tuple[Cell, ...]:
    texts: list[Cell] = []
    for cell, name, unit in zip(cells, TITLES, ("", "_us"), strict=True):
        if cell is None:
            texts += [NO_ENTRY] * 4
            continue
        for mode, mean in (("baseline", cell.reference), ("enhanced", cell.other)):
            value = float(printed[f"{name}_{mode}{unit}"])
            texts.append(told(mean.map(relative_to(value)), "%", n, "+"))
        points = float(printed[f"{name}_lower_pct"])
        texts.append(NO_ENTRY)
        texts.append(told(cell.comparison.percent_lower_of_means.map(_less(points)), "%", n, "+"))
    return tuple(texts)


def _less(value: float) -> Callable[[float], float]:
    return lambda mean: mean - value


def both_loads(case: Case, family: Comparisons) -> Table:
    """Return a table that compares two modes at the measured loads just below and above the capacity of each mode."""
    rows: list[tuple[Cell, ...]] = []
    for asked, cell in family.cells.items():
        title, unit, scale = UNITS[asked.quantity]
        n = cell.comparison.difference.n
        means = (cell.reference, cell.other)
        rows.append(
            (
                case.name(asked.place),
                title,
                f"{grouped(asked.cps)} cps",
                str(n),
                *(told(mean.map(_times(scale)), unit, n) for mean in means),
                told(cell.comparison.difference.map(_times(scale)), unit, n, "+"),
                lower(cell, n),
                told(cell.comparison.percent_lower_of_means, "%", n),
            )
        )
    first, second = case.both
    return Table(
        identity="table-both-loads",
        header=("", "", "load", "pairs", first, second, "difference", "lower by (%)", OF_MEANS),
        places=2,
        rows=tuple(rows),
        none=f"no load has valid runs of both {first} and {second}",
        caption=f"The values with {second} and with {first}, at the measured loads directly below and above the "
        "crossing of each mode.",
        reading=f'The column "difference" shows {second} minus {first}, over pairs of runs with the same arrivals. '
        f"{OF_MEANS_READING} {corrected(family)}",
        provenance=provenance(case.summary),
    )


def _times(scale: float) -> Callable[[float], float]:
    return lambda value: scale * value
