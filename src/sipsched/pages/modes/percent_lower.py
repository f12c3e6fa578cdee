"""The papers' comparison: the percentage by which a mode lowers the drop rate (PDR) and the wait (K_rcv)."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sipsched.analysis.comparison import (
    BESIDE_TASK,
    Case,
    ComparedQuantity,
    Comparisons,
    Place,
    SutOnCores,
    translations,
)
from sipsched.analysis.families import SIGNIFICANT, ComparedCell
from sipsched.analysis.intervals import Interval
from sipsched.analysis.pairs import Comparison
from sipsched.analysis.papers import PAPERS
from sipsched.analysis.run_table import provenance
from sipsched.pages.drawing import INK, PAPER, titled
from sipsched.pages.modes.marks import hollow, large
from sipsched.pages.modes.wording import (
    NOT_PRINTED,
    NOTHING,
    PUBLISHED_MODES,
    corrected,
    identity,
    lower,
    relative_to,
    study_of,
    typical,
    with_papers,
)
from sipsched.pages.numbers import NO_ENTRY, p_text, signed, told, trusted, with_unit
from sipsched.pages.parts import Answer, Cell, Figure, Several, Table, Words, translated
from sipsched.pages.plots import not_measured, panels
from sipsched.records.study_summary import MEASURED, NOT_PLANNED
from sipsched.words import grouped, listed, number, plural

DRAWN_FROM_PERCENT = -150
"""Left end of the figure's axis of decreases, in percent. An increase by more than 150 % is drawn at this end."""
MOST_UNDECIDED = 6
"""If more differences than this are not significant, the page counts these differences instead of listing them."""
OF_MEANS = "%Lower of means"
OF_MEANS_READING = (
    'The column "lower by (%)" shows by how much the value is lower in the second mode, for a typical pair of runs. '
    'The column "%Lower of means" shows 1 - e/b in percent, as in the papers, where b and e are the means over all '
    "runs of the first and of the second mode."
)
TITLES = {"pdr": "PDR", "k_rcv": "K_rcv"}
IN_SENTENCES = {"pdr": "the packet drop rate (PDR)", "k_rcv": "the mean waiting time K_rcv"}
"""The name of each quantity in sentences."""
UNITS = {"pdr": ("PDR (%)", "%", 100.0), "k_rcv": ("K_rcv", "µs", 1.0)}
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
            told.append(_changed(case, cells, title))
    if not told:
        told = [
            f"There is no answer yet, because no load has valid runs of both {case.compares}s, {first} and {second}."
        ]
    same = [case.same_settings(place) for place in case.places()]
    if all(same) and same and case.compares == "mode":
        told.append("Both modes have the same settings on this kernel.")
    # Name the two modes only once if two sentences begin with them.
    both = f"With {second} instead of {first}, "
    told[1:] = [line.replace(f"{both}the", "The") for line in told[1:]]
    return Answer(" ".join(told) + translated(translations(case.summary)))


def _changed(case: Case, cells: Sequence[ComparedCell], title: str) -> str:
    """Return a sentence: in how many cells the other mode's value is significantly lower or higher, or not decided.

    Each cell compares one quantity between the reference mode and the other mode, for one proxy configuration.
    """
    first, second = case.both
    of = f"{plural(len(cells), 'combination')} of proxy, cores and threads"
    if not any(cell.reference.most or cell.other.most for cell in cells):
        return f"With {first} and with {second}, {title} is 0 in every run."
    sure = [cell.comparison.difference.estimate for cell in cells if cell.stands_out]
    if sure:
        counts = (("lower", sum(d < 0 for d in sure)), ("higher", sum(d > 0 for d in sure)))
        parts = [f"significantly {word} in {count}" for word, count in counts if count]
        rest = len(cells) - len(sure)
        others = f" In the other {rest}, this is not decided." if rest else ""
        return f"With {second} instead of {first}, {title} is {listed(parts)} of {of}.{others}"
    tested = [cell.comparison for cell in cells if not np.isnan(cell.p_value)]
    if not tested:
        return f"Whether {second} changes {title} is unknown, because too few runs exist in {of}."
    pairs = sorted({comparison.difference.n for comparison in tested})
    number_of = " to ".join(map(str, dict.fromkeys((pairs[0], pairs[-1]))))
    return (
        f"Whether {title} is lower or higher with {second} than with {first} is not decided: in {of} with {number_of} "
        f"pairs of runs{' each' * (len(tested) > 1)}, no difference is significant.{least(tested)}"
    )


def least(tested: Sequence[Comparison], of: str = "") -> str:
    """Return a sentence with the smallest decrease that these runs would show. Empty if this decrease is unknown.

    Parameters
    ----------
    of
        Words that name the quantity after "a decrease", such as " of the drop rate".
    """
    sizes = sorted(size for one in tested if not np.isnan(size := one.least_significant_percent))
    if not sizes:
        return ""
    if sizes[0] >= 100:
        return f" The runs vary so much that not even a decrease{of} to 0 would be significant."
    ends = dict.fromkeys(f"{min(size, 100):.0f}" for size in (sizes[0], sizes[-1]))
    where = ", depending on the combination" if len(ends) > 1 else ""
    return (
        f" Only a decrease{of} by at least {' to '.join(ends)}\u00a0% would be significant{where}."
    )


def measured(case: Case) -> Words:
    """Return sentences on the kernel, on competing tasks, and on planned or published results without a valid run."""
    lines = [] if case.compares == "kernel" else [f"Kernel: {case.summary.attrs['kernels']}."]
    if case.competitors:
        which = f'In the rows with "{BESIDE_TASK.strip()}", another' * (case.compares == "kernel")
        lines.append(
            f"{which or 'Another'} task used the proxy's cores, too: {listed(case.competitors)}."
        )
    status = case.summary["status"].to_numpy().ravel().tolist()
    planned, valid = sum(word != NOT_PLANNED for word in status), status.count(MEASURED)
    if valid < planned:
        lines.append(f"Of {plural(planned, 'planned run')}, {valid} are measured and valid.")
    without = [
        case.name(place)
        for place in case.places(published=True)
        if case.compared_load(place) is None
    ]
    if without:
        lines.append(f"No load was measured in both {case.compares}s with: {'; '.join(without)}.")
    return Words(tuple(lines))


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
        elif not axis.get_legend_handles_labels()[1]:
            _write_why(axis, case, family, name)
        # The panels share one x axis, so the axis has to reach the smallest value of all panels drawn so far.
        reached.append(axis.dataLim.x0 if np.isfinite(axis.dataLim.x0) else 0.0)
        axis.set_xlim(max(1.08 * min(reached), 1.08 * DRAWN_FROM_PERCENT) - 5, 108)
        axis.set_yticks(range(len(among)), [_tick(case, place) for place in among])
        axis.set_ylim(len(among) - 0.5, -0.5)

    first, second = case.both
    drawn = [
        cell.comparison.percent_lower
        for place in among
        for name in TITLES
        if (cell := _at_compared_load(case, family, place, name)) is not None
    ]
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
            height_in=0.6 + (0.45 if len(case.systems) == 1 else 0.55) * max(len(among), 1),
            beside=False,
        ),
        caption=f"Decrease of the packet drop rate (PDR) and of the mean waiting time (K_rcv) from {first} to "
        f"{second}, in percent. {_loads(case, among)}.",
        reading=f"A filled point is a result of this testbed{_bars(drawn)} {published}{_axis_end(drawn)}"
        f"A combination is a proxy with its numbers of cores and threads. {corrected(family)}",
        seen=tuple(_seen(case, family)) or (NOTHING,),
        provenance=with_papers(case.summary, *studies),
    )


def _bars(drawn: Sequence[Interval]) -> str:
    """Return the end of a sentence on points: what their bars show, or why some or all points have no bar."""
    few = "too few runs for an interval"
    if not any(map(trusted, drawn)):
        return f", with {few}."
    without = any(not np.isnan(one.estimate) and not trusted(one) for one in drawn)
    return f", and the bar is its interval.{f' A point without a bar has {few}.' * without}"


def _axis_end(drawn: Sequence[Interval]) -> str:
    """Return a sentence on values beyond the left end of the axis. Empty if no value lies there."""
    ends = [end for one in drawn for end in (one.estimate, one.low if trusted(one) else np.nan)]
    if not any(end < DRAWN_FROM_PERCENT for end in ends):
        return ""
    end = f"{number(DRAWN_FROM_PERCENT)}\u00a0%"
    return f"The axis ends at {end}, and values beyond {end} are drawn at this end. "


def _loads(case: Case, among: Sequence[Place]) -> str:
    """Return a clause with the compared load: the first load above the drop limit (1 %), else the highest load."""
    compared = [(place, cps) for place in among if (cps := case.compared_load(place)) is not None]
    above = [cps == case.side(place, case.reference).loads_around[1] for place, cps in compared]
    reference = case.label(case.reference)
    first = f"the lowest load at which PDR exceeds {case.share} in mode {reference}"
    highest = (
        "the highest load that was measured in both modes, because no PDR in mode "
        f"{reference} exceeds {case.share}"
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
    of = (
        f"the value with {case.label(case.other)} is lower in {fewer} of {plural(len(percents), 'combination')} of "
        "proxy, cores and threads"
    )
    judged = [interval for interval in percents if interval.known]
    if not judged:
        return f"{of}; too few runs exist to distinguish these differences from chance"
    sure = [interval for interval in judged if interval.low > 0 or interval.high < 0]
    if not sure:
        return f"{of}, but in no combination by more than chance explains"
    up = sum(interval.high < 0 for interval in sure)
    told = f"significantly lower in {len(sure) - up}"
    return f"{of}, and {told}" + (f", and significantly higher in {up}" if up else "")


def _write_why(axis: Axes, case: Case, family: Comparisons, name: str) -> None:
    """Write into an empty panel why the quantity has no percentage, such as "the reference is 0 in every run"."""
    cells = [_at_compared_load(case, family, place, name) for place in case.places()]
    why = dict.fromkeys(cell.comparison.percent_lower.why for cell in cells if cell is not None)
    text = textwrap.fill(f"nothing to compare: {'; '.join(why)}", 18)
    behind = {"facecolor": PAPER, "edgecolor": "none"}
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", bbox=behind)


def _tick(case: Case, place: Place) -> str:
    """Return the name of a row of the figure in short lines, because a phone has little room beside a panel."""
    cps = case.compared_load(place)
    load = "not measured" if cps is None else f"{grouped(cps)} cps"
    return "\n".join((case.name(place).replace(f"{place.sut}, ", f"{place.sut}\n"), load))


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
    bars = [[x - low], [high - x]] if trusted(lower) else None
    style = large(case, case.other)
    point, *_ = axis.errorbar([x], [y - 0.15], xerr=bars, **style, label="this testbed")
    titled(point, [f"this testbed: {with_unit(lower, '%')} lower"])


def verdict(case: Case, family: Comparisons) -> Words:
    """Return a sentence per proxy configuration and quantity: the difference of the two modes, and its significance.

    If many differences are not significant, one sentence counts all of these differences.
    """
    first, second = case.both
    compared = [
        cell
        for place in case.places()
        for name in TITLES
        if (cell := _at_compared_load(case, family, place, name)) is not None
    ]
    undecided = [cell for cell in compared if cell.p_value > SIGNIFICANT]
    many = len(undecided) > MOST_UNDECIDED
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
        for name, title in IN_SENTENCES.items():
            cell = family.cells.get(ComparedQuantity(place, cps, name))
            if cell is not None and not (many and cell in undecided):
                said = _said(cell, title, second, first)
                lines.append(f"{case.name(place)}, {grouped(cps)} cps: {said}{same}")
    if many:
        lines.append(f"In {len(undecided)} comparisons, chance can explain the difference.")
    return Words(tuple(lines))


def _said(cell: ComparedCell, title: str, second: str, first: str) -> str:
    fall = cell.comparison.percent_lower
    if np.isnan(fall.estimate):
        return f"{title} cannot be compared: {fall.why}."
    change = with_unit(fall.map(lambda percent: -percent), "%", "+")
    text = f"{title} changes by {change} from {first} to {second}"
    pairs = plural(cell.comparison.difference.n, "pair")
    if np.isnan(cell.p_value):
        return f"{text}, in {pairs} of runs. So few pairs are not enough to distinguish the difference from chance."
    verdict = (
        "This difference is larger than chance explains"
        if cell.stands_out
        else "Chance can explain this difference"
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
        ' PDR is a share, as in the papers. The row "difference (%)" shows by how much a mean differs from the '
        "published mean, in percent of the published "
        f"mean. For percentages, this row shows the difference in percentage points.{PUBLISHED_MODES}"
    )
    return Table(
        identity=identity("table-comparison", sut, cores),
        groups=(
            ("", 3),
            ("PDR (share)" if case.beside_papers else "PDR (%)", 4),
            ("K_rcv (µs)", 4),
        ),
        places=1,
        header=("threads", "source", "load (cps)", *(first, second, "lower by (%)", OF_MEANS) * 2),
        rows=tuple(row for place in among for row in _rows(case, family, place)),
        none="nothing was planned",
        caption=f"{beside}: {sut}, {plural(cores, 'core')}, {first} against {second}.",
        reading=f"{_loads(case, among)}. {typical(family)} "
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
    # The papers print PDR as a share.
    scales = (1.0 if case.beside_papers else 100.0, 1.0)
    here = [
        text for cell, scale in zip(cells, scales, strict=True) for text in _cell(cell, n, scale)
    ]
    rows.append((threads, f"this testbed, n = {n}", _load(case, place, cps), *here))
    if printed is not None:
        more = signed(100 * (cps / printed["cps"] - 1))
        rows.append((threads, "difference (%)", more, *_differences(cells, printed, n)))
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
    reference = case.label(case.reference)
    return f"{cps} (the highest load measured in both modes; no PDR > {case.share} in {reference})"


def _cell(cell: ComparedCell | None, n: int, scale: float) -> tuple[Cell, ...]:
    if cell is None:
        return (NO_ENTRY,) * 4
    of_means = told(cell.comparison.percent_lower_of_means, "%", n)
    first, second = (told(mean.map(_times(scale)), "", n) for mean in (cell.reference, cell.other))
    return first, second, lower(cell, n), of_means


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
        caption=f"The values with {second} and with {first}, at two measured loads per mode: the last load below the "
        "crossing (the load at which the drop rate passes the limit), and the first load above the crossing.",
        reading=f'The column "difference" shows {second} minus {first}, over pairs of runs with the same arrivals. '
        f"{typical(family)} {OF_MEANS_READING} {corrected(family)}",
        provenance=provenance(case.summary),
    )


def _times(scale: float) -> Callable[[float], float]:
    return lambda value: scale * value
