"""Where a message's time goes, by part and by message type, under every mode at the compared load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from sipsched.analysis.comparison import (
    KINDS,
    PARTS,
    SETUP,
    Asked,
    Case,
    Comparisons,
    Place,
    Side,
    System,
    of_type,
)
from sipsched.analysis.run_table import provenance
from sipsched.pages.drawing import STYLE, Layout, both, legend, themed
from sipsched.pages.modes.panels import large, nothing, picture, small
from sipsched.pages.modes.wording import SERVICE, compared, corrected, identity, with_papers
from sipsched.pages.numbers import in_words, told, trusted
from sipsched.pages.parts import Cell, Figure, Several, Table
from sipsched.words import grouped, number, plural

Labelled = Mapping[str, str]
"""Quantity to what its row of a figure is called."""


@dataclass(frozen=True)
class Dots:
    """A figure of means with intervals in rows, a panel a place and column.

    Attributes
    ----------
    name, title, what
        Its id, what it is called, and the first sentence of its caption.
    columns
        Label of the axis to the quantities that it has in rows.
    words
        Says what is seen at a place and load; empty where it is nothing.
    """

    name: str
    title: str
    what: str
    columns: Mapping[str, Labelled]
    words: Callable[[Case, Place, int], str]


def parts_figures(case: Case) -> Several:
    """Draw where a message's time goes under every mode at the compared load, a figure a system."""
    dots = Dots(
        "figure-parts",
        "Where a message's time goes",
        f"Mean time of a message in each part of the SPS. {SERVICE}",
        {"mean (µs)": PARTS},
        _part_words,
    )
    return Several(tuple(_figure(case, system, dots) for system in case.systems))


def _part_words(case: Case, place: Place, cps: int) -> str:
    said = []
    for name in ("k_sockq", "t_sip_off", "service"):
        means = {side.label: side.mean(name, cps) for side in case.sides(place)}
        texts = [
            f"{in_words(mean, 'µs')}, under {label}"
            for label, mean in means.items()
            if not np.isnan(mean.estimate)
        ]
        if texts:
            said.append(f"{PARTS[name]} {' and '.join(texts)}")
    return "; ".join(said)


def types_figures(case: Case) -> Several:
    """Draw K_rcv and T_sip by message type under every mode at the compared load, a figure a system."""
    dots = Dots(
        "figure-types",
        "K_rcv and T_sip by message type",
        "Mean K_rcv and T_sip by message type.",
        {
            "K_rcv, mean (µs)": {of_type(kind, "k_rcv"): kind for kind in KINDS},
            "T_sip, mean (µs)": {of_type(kind, "t_sip"): kind for kind in KINDS},
        },
        _type_words,
    )
    return Several(tuple(_figure(case, system, dots) for system in case.systems))


def _type_words(case: Case, place: Place, cps: int) -> str:
    said = []
    for name, title in (("k_rcv", "K_rcv"), ("t_sip", "T_sip")):
        for side in case.sides(place):
            means = {kind: side.mean(of_type(kind, name), cps) for kind in KINDS}
            means = {kind: mean for kind, mean in means.items() if not np.isnan(mean.estimate)}
            if means:
                most = max(means, key=lambda kind: means[kind].estimate)
                least = min(means, key=lambda kind: means[kind].estimate)
                said.append(
                    f"{title} under {side.label} from {in_words(means[least], 'µs')}, of {least} "
                    f"to {in_words(means[most], 'µs')}, of {most}"
                )
    return "; ".join(said)


def _figure(case: Case, system: System, dots: Dots) -> Figure:
    sut, cores = system
    loads = {
        place: cps
        for place in case.places(system)
        if (cps := case.compared_load(place)) is not None
    }
    longest = max(map(len, dots.columns.values()))

    def draw(layout: Layout) -> str:
        with rc_context(STYLE):
            canvas, grid = layout.panels(
                *(max(len(loads), 1), len(dots.columns), 0.7 + 0.3 * longest),
                shared=("column", "all"),
            )
            for axes, (place, cps) in zip(grid, loads.items(), strict=False):
                sides = [case.side(place, mode) for mode in case.modes]
                for axis, (label, rows) in zip(axes, dots.columns.items(), strict=True):
                    _panel(axis, sides, cps, rows)
                    axis.set_xlabel(label)
                axes[0].set_title(f"{plural(place.threads, 'thread')}, {cps} cps", loc="left")
            if not loads:
                for axis in grid.ravel():
                    nothing(axis)
            legend(canvas, grid)
            return themed(canvas)

    drawn = both(draw)
    seen = [
        f"{case.name(place)}, {cps} cps: {text}."
        for place, cps in loads.items()
        if (text := dots.words(case, place, cps))
    ]
    caption = (
        f"{dots.what} {sut}, {plural(cores, 'core')}, at the compared load of each number of threads. "
        "Small: runs; large: the typical one with its 95 % interval, cut off at the axis. Log scale."
    )
    return picture(
        identity(dots.name, sut, cores),
        dots.title,
        drawn,
        caption,
        seen,
        with_papers(case.summary),
    )


def _panel(axis: Axes, sides: Sequence[Side], cps: int, rows: Labelled) -> None:
    wide = 0.6 / len(sides)
    drawn: list[float] = []
    for i, side in enumerate(sides):
        for row, name in enumerate(rows):
            mean = side.mean(name, cps)
            if np.isnan(mean.estimate):
                continue
            x, y = mean.estimate, row + wide * (i - (len(sides) - 1) / 2)
            values = side.runs(name, cps)
            axis.plot(values, np.full(len(values), y), **small(i))
            drawn += [x, *values[~np.isnan(values)]]
            ends = None
            if trusted(mean):
                drawn += [end for end in (mean.low, mean.high) if end > 0]
                # on a log scale an end at 0 is cut off by the axis
                ends = [[x - mean.low], [mean.high - x]]
            axis.errorbar(
                [x], [y], xerr=ends, **(large(i) | {"linestyle": "none"}), label=side.label
            )
    axis.yaxis.set_major_locator(FixedLocator(list(range(len(rows)))))
    axis.set_yticklabels(list(rows.values()))
    axis.set_ylim(len(rows) - 0.5, -0.5)
    if not drawn or min(drawn) <= 0:
        nothing(axis)
        return
    axis.set_xscale("log", nonpositive="clip")
    low, high = 10 ** np.floor(np.log10(min(drawn))), 10 ** np.ceil(np.log10(max(drawn) * 1.01))
    axis.set_xlim(low, high)
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: number(value) if value < 100 else grouped(value))
    )
    axis.xaxis.set_minor_formatter(NullFormatter())


def parts_table(case: Case, found: Comparisons) -> Table:
    """Show the parts of a message's time under both modes at the compared load."""
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
            for asked, cell in found.cells.items()
        ),
        none=f"no load at which runs of both {first} and {second} count",
        caption=f"Where a message's time goes, means over all messages, at the compared load. "
        f"{SERVICE} {corrected(found)}",
        provenance=provenance(case.summary),
    )


def types_table(case: Case, found: Comparisons) -> Table:
    """Show K_rcv, T_sip and refusals by message type under both modes at the compared load."""
    rows = [
        (
            case.name(place),
            f"{grouped(cps)} cps",
            kind,
            *_by_type(case, found, Asked(place, cps, kind)),
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
        none=f"no load at which runs of both {first} and {second} count",
        caption="By message type at the compared load; refused: datagrams of the type that the full "
        "socket queue refused, of all that came. What came again is a retransmission and in no row. "
        f"Call setup: {', '.join(SETUP)}. {corrected(found)}",
        provenance=provenance(case.summary),
    )


def _by_type(case: Case, found: Comparisons, at: Asked) -> list[Cell]:
    """Give pairs, both comparisons and both shares refused; the quantity of `at` is a message type."""
    cells = [
        found.cells[at._replace(quantity=of_type(at.quantity, name))] for name in ("k_rcv", "t_sip")
    ]
    texts: list[Cell] = [str(cells[0].comparison.difference.n)]
    for cell in cells:
        texts += compared(cell, "µs")
    refused = of_type(at.quantity, "refused")
    return texts + [told(side.mean(refused, at.cps), "%") for side in case.sides(at.place)]
