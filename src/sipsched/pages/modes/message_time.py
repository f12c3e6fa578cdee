"""Tables and figures of the parts of a message's time, such as the wait in the socket queue, in each scheduler mode.

All numbers are from the load that was chosen for comparisons of modes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from sipsched.analysis.comparison import (
    KINDS,
    PARTS,
    SETUP,
    Case,
    ComparedQuantity,
    Comparisons,
    Place,
    Side,
    SutOnCores,
    of_type,
)
from sipsched.analysis.run_table import provenance
from sipsched.pages.drawing import titled
from sipsched.pages.modes.marks import large, small
from sipsched.pages.modes.wording import (
    NOTHING,
    SERVICE,
    by_system,
    compared,
    corrected,
    identity,
    typical,
    with_papers,
)
from sipsched.pages.numbers import in_words, told, trusted
from sipsched.pages.parts import Cell, Figure, Several, Table
from sipsched.pages.plots import not_measured, panels
from sipsched.words import grouped, number, plural


def parts_figures(case: Case) -> Several:
    """Draw the parts of a message's time in every mode, at the load chosen for comparisons, with a figure per proxy."""
    return by_system(case, lambda system: [_figure(case, system)], "the parts of a message's time")


def _figure(case: Case, system: SutOnCores) -> Figure:
    sut, cores = system
    loads = {
        place: cps
        for place in case.places(system)
        if (cps := case.compared_load(place)) is not None
    }

    # All panels share one x axis, so its ends depend on the values of all panels.
    ends = _powers_of_ten(case, loads)

    def draw(axis: Axes, row: int, column: int) -> None:
        if not loads:
            not_measured(axis)
            return
        place = list(loads)[row]
        _draw_parts(axis, [case.side(place, mode) for mode in case.modes], loads[place])
        if ends is not None:
            axis.set_xlim(ends)

    drawn = [
        case.side(place, mode).mean("t_sip", cps)
        for place, cps in loads.items()
        for mode in case.modes
    ]
    interval = " with its 95\u00a0% interval" * any(map(trusted, drawn))
    names = [
        f"{plural(place.threads, 'thread')}, {grouped(cps)} cps" for place, cps in loads.items()
    ]
    return Figure(
        identity=identity("figure-parts", sut, cores),
        draw=panels(
            names or [""],
            [""],
            draw,
            "mean (µs)",
            height_in=0.5 + 0.3 * len(PARTS),
            beside=False,
        ),
        caption="Mean time that a message spends in each part of its way through the SPS, at the compared load: "
        f"{sut}, {plural(cores, 'core')}.",
        reading=f"Each small point is a run. A large point is the typical run{interval}. {SERVICE}",
        seen=tuple(
            f"{case.name(place)}, {grouped(cps)} cps: {text}."
            for place, cps in loads.items()
            if (text := _part_words(case, place, cps))
        )
        or (NOTHING,),
        provenance=with_papers(case.summary),
    )


def _part_words(case: Case, place: Place, cps: int) -> str:
    """Return as text how long messages spend, in the mean of each mode, in each stage that depends on the scheduler."""
    parts = []
    for name in ("k_sockq", "t_sip_off", "service"):
        means = {side.label: side.mean(name, cps) for side in case.sides(place)}
        texts = [
            f"{in_words(mean, 'µs')} with {label}"
            for label, mean in means.items()
            if not np.isnan(mean.estimate)
        ]
        if texts:
            parts.append(f"{PARTS[name]} {' and '.join(texts)}")
    return "; ".join(parts)


def _powers_of_ten(case: Case, loads: Mapping[Place, int]) -> tuple[float, float] | None:
    """Return the powers of ten around all drawn values; None if no value is above 0."""
    drawn: list[float] = []
    for place, cps in loads.items():
        for mode in case.modes:
            side = case.side(place, mode)
            for name in PARTS:
                mean = side.mean(name, cps)
                drawn += [mean.estimate, *side.runs(name, cps)]
                drawn += [mean.low, mean.high] if trusted(mean) else []
    # A logarithmic axis has no 0, so an interval that reaches 0 ends at the edge of the axis.
    above = [value for value in drawn if value > 0]
    if not above:
        return None
    low, high = np.floor(np.log10(min(above))), np.ceil(np.log10(1.01 * max(above)))
    return float(10**low), float(10**high)


def _draw_parts(axis: Axes, sides: Sequence[Side], cps: int) -> None:
    wide = 0.6 / len(sides)
    drawn = False
    for i, side in enumerate(sides):
        for row, (name, part) in enumerate(PARTS.items()):
            mean = side.mean(name, cps)
            if np.isnan(mean.estimate):
                continue
            x, y = mean.estimate, row + wide * (i - (len(sides) - 1) / 2)
            values = side.runs(name, cps)
            axis.plot(values, np.full(len(values), y), **small(side.case, side.mode))
            drawn = drawn or x > 0
            ends = [[x - mean.low], [mean.high - x]] if trusted(mean) else None
            style = large(side.case, side.mode)
            line, *_ = axis.errorbar([x], [y], xerr=ends, **style, label=side.label)
            titled(line, [f"{part}, {side.label}: {in_words(mean, 'µs')}"])
    axis.yaxis.set_major_locator(FixedLocator(list(range(len(PARTS)))))
    axis.set_yticklabels(list(PARTS.values()))
    axis.set_ylim(len(PARTS) - 0.5, -0.5)
    if not drawn:
        not_measured(axis)
        return
    axis.set_xscale("log", nonpositive="clip")
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: number(value) if value < 100 else grouped(value))
    )
    axis.xaxis.set_minor_formatter(NullFormatter())


def parts_table(case: Case, family: Comparisons) -> Table:
    """Return a table that compares the parts of a message's time between two modes, at the load for comparisons."""
    first, second = case.both
    return Table(
        identity="table-parts",
        header=("", "load", "part", "pairs", first, second, "lower by (%)"),
        places=2,
        rows=tuple(
            (
                case.name(asked.place),
                f"{grouped(asked.cps)} cps",
                PARTS[asked.quantity],
                str(cell.comparison.difference.n),
                *compared(cell, "µs"),
            )
            for asked, cell in family.cells.items()
        ),
        none=f"no load has valid runs of both {first} and {second}",
        caption="Mean time that a message spends in each part of its way through the SPS, at the compared load.",
        reading=f"{typical(family)} {SERVICE} {corrected(family)}",
        provenance=provenance(case.summary),
    )


def types_table(case: Case, family: Comparisons) -> Table:
    """Return a table that compares wait, service and refused datagrams between two modes, by message type."""
    rows = [
        (
            case.name(place),
            f"{grouped(cps)} cps",
            kind,
            *_by_type(case, family, ComparedQuantity(place, cps, kind)),
        )
        for place in case.places()
        if (cps := case.compared_load(place)) is not None
        for kind in KINDS
    ]
    first, second = case.both
    pair = (first, second, "lower by (%)")
    return Table(
        identity="table-types",
        groups=(("", 4), ("K_rcv", 3), ("T_sip", 3), ("refused (%)", 2)),
        header=("", "load", "message", "pairs", *pair * 2, first, second),
        places=2,
        rows=tuple(rows),
        none=f"no load has valid runs of both {first} and {second}",
        caption="Waiting time K_rcv, service time T_sip and refused datagrams of each message type at the compared "
        "load.",
        reading='The column "refused" shows the share of this type\'s datagrams that the full socket refused. All rows '
        f"exclude retransmissions. Call setup consists of the messages {', '.join(SETUP)}. {corrected(family)}",
        provenance=provenance(case.summary),
    )


def _by_type(case: Case, family: Comparisons, at: ComparedQuantity) -> list[Cell]:
    """Return the table cells of one message type: number of pairs, times and refused datagrams in both modes.

    The times are K_rcv (receiving time) and T_sip (service time). A pair consists of two runs with the same arrivals.
    The field `at.quantity` contains the message type.
    """
    cells = [
        family.cells[at._replace(quantity=of_type(at.quantity, name))]
        for name in ("k_rcv", "t_sip")
    ]
    texts: list[Cell] = [str(cells[0].comparison.difference.n)]
    for cell in cells:
        texts += compared(cell, "µs")
    refused = of_type(at.quantity, "refused")
    return texts + [told(side.mean(refused, at.cps), "%") for side in case.sides(at.place)]
