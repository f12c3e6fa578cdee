"""Every mode beside the reference: the figure that answers, and the ranking in numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sipsched.analysis.advice import (
    DECIDING,
    DIFFERENCES,
    Advice,
    Candidate,
    Ranking,
    Verdict,
    is_higher,
    is_lower,
    settled,
)
from sipsched.analysis.crossover import Effect
from sipsched.analysis.papers import PAPERS, load_comparison
from sipsched.pages.crossover.wording import (
    SCALES,
    TITLES,
    Section,
    Sections,
    effect_cell,
    effect_words,
    identity,
    load_name,
    place_name,
    provenance,
    short_load,
    unit,
)
from sipsched.pages.drawing import GRID, INK, NARROW_IN, PAPER, SERIES, STYLE, WIDTH_IN, themed
from sipsched.pages.numbers import told
from sipsched.pages.parts import Cell, Figure, Table
from sipsched.words import number, plural

COLUMNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("K_rcv + T_sip (%)", ("total_mean", "total_p99")),
    ("K_rcv (%)", ("k_rcv_mean", "k_rcv_p99")),
    ("T_sip (%)", ("t_sip_mean", "t_sip_p99")),
    ("CPU (%)", ("cpu_per_message",)),
    ("PDR (points)", ("pdr",)),
)
"""Columns of panels: title, and the quantities; of two the first is the mean, the second the p99."""
RANKED = (
    *("total_p99", "total_mean", "total_p50", "k_rcv_mean", "k_rcv_p99"),
    *("t_sip_mean", "t_sip_p99", "cpu_per_message", "pdr"),
)
TICKS = (-90, -50, 100, 900, -75, 300, -20, 25, -10, 10, -5, 5, -2, 2)
"""Of a logarithmic axis of ratios, in percent, the ones to have first."""
MOST = math.log(20)
"""A ratio drawn at most; what lies beyond is cut off."""
COMPARED = ("baseline", "enhanced")
"""The modes that the papers compare."""
AA = "A/A (reference again)"
COLOURS = {"lower": SERIES[2], "higher": SERIES[1], "": SERIES[5]}
WORDS = {Verdict.ALIKE: "within ±\u00a05\u00a0%", Verdict.UNSURE: "within chance"}


def figures(found: Sequence[Advice]) -> Sections:
    """Draw for each proxy what the modes do, the A/A first."""
    return Sections(
        tuple(Section(place_name(advice.place), (_figure(advice),)) for advice in found)
    )


@dataclass(frozen=True)
class Printed:
    """What a paper prints of enhanced mode beside baseline, with so many cores and threads.

    Attributes
    ----------
    words
        It, and where it is printed.
    effects
        Quantity to what is drawn, as `_ends` gives it.
    """

    words: str
    effects: Mapping[str, float]


def printed(advice: Advice) -> Printed | None:
    """Find what a paper prints of the same comparison; None where it is another one."""
    place, (reference, other) = advice.place, COMPARED
    played = {mode for ranking in advice.rankings for mode in ranking.load.modes}
    if place.reference != reference or other not in played:
        return None
    rows = load_comparison()
    rows = rows[(rows["cores"] == place.cores) & (rows["threads"] == place.threads)]
    if not len(rows):
        return None
    row = rows.iloc[0]
    points = 100 * (row["pdr_enhanced"] - row["pdr_baseline"])
    lower, side = row["k_rcv_lower_pct"], "lower" if points < 0 else "higher"
    return Printed(
        f"{PAPERS[row['study']]}, Table {row['table']}, {plural(place.cores, 'core')}, "
        f"{plural(place.threads, 'thread')}, {number(row['cps'])} cps, on another machine and kernel: "
        f"K_rcv of enhanced mode {number(lower)} % lower than of baseline, PDR {number(abs(points))} points {side}.",
        {"k_rcv_mean": math.log1p(-lower / 100), "pdr": points},
    )


def _figure(advice: Advice) -> Figure:
    loads = [ranking.load for ranking in advice.rankings]
    beside = printed(advice)
    wide = _draw(advice, len(COLUMNS), WIDTH_IN, beside)
    narrow = _draw(advice, 2, NARROW_IN, beside)
    seen = [line for ranking in advice.rankings for line in _seen(ranking)]
    if beside is not None:
        seen.append(f"Published: {beside.words}")
    reference = loads[0].label(advice.place.reference)
    caption = (
        f"What each mode does, beside {reference}, in % (95 % intervals; those of the sum hold together over "
        "all modes and loads). Filled: mean; open: 99th percentile. Left of 0 is less: green where that is "
        "more than chance; orange: more, by more than chance. First row and grey band: the A/A, the "
        "reference played against itself."
        + (" Star, at the highest load: what the paper prints." if beside else "")
    )
    return Figure(
        identity=identity("figure-effects", *advice.place[1:4]),
        svg=wide,
        narrow=narrow,
        alt=f"Effects of scheduler modes on {place_name(advice.place)}. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen),
        provenance=provenance(loads),
    )


def _draw(advice: Advice, across: int, width: float, beside: Printed | None) -> str:
    rows_of = [drawn_rows(ranking) for ranking in advice.rankings]
    spans = [_span(rows_of, quantities, beside) for _, quantities in COLUMNS]
    down = math.ceil(len(COLUMNS) / across)
    heights = [0.55 + 0.24 * len(rows) for rows in rows_of for _ in range(down)]
    with rc_context({**STYLE, "font.size": 8.0, "axes.titlesize": 8.5}):
        canvas = Canvas(figsize=(width, 0.3 + sum(heights) * 1.15), layout="constrained")
        grid = canvas.subplots(len(heights), across, squeeze=False, height_ratios=heights)
        for place, (ranking, rows) in enumerate(zip(advice.rankings, rows_of, strict=True)):
            panels = grid[place * down : (place + 1) * down].ravel()
            for column, axis in enumerate(panels):
                if column >= len(COLUMNS):
                    axis.set_visible(False)
                    continue
                title, quantities = COLUMNS[column]
                _panel(axis, rows, quantities)
                if beside is not None and ranking is advice.rankings[-1]:
                    _star(axis, rows, quantities, beside, ranking.load.label(COMPARED[1]))
                _scale(axis, spans[column], quantities[0] in DIFFERENCES)
                axis.set_title(f"\n{title}" if column == 0 else title, loc="left")
                if column % across:
                    axis.tick_params(labelleft=False)
            panels[0].annotate(
                short_load(ranking.load),
                (0, 1),
                xycoords="axes fraction",
                xytext=(0, 17),
                textcoords="offset points",
                weight="bold",
            )
        return themed(canvas)


def drawn_rows(ranking: Ranking) -> list[tuple[str, Mapping[str, Effect]]]:
    """List what is drawn: the A/A, then the modes as they are ranked."""
    return [
        (AA, ranking.sham),
        *((ranking.load.label(each.mode), each.effects) for each in ranking.candidates),
    ]


def _ends(effect: Effect, quantity: str) -> tuple[float, float, float] | None:
    """Give estimate and ends as drawn: logarithms of ratios cut off at `MOST`, or points."""
    interval = settled(effect)
    if np.isnan(interval.estimate):
        return None
    low, high = (
        (interval.low, interval.high) if interval.known else (interval.estimate, interval.estimate)
    )
    if quantity in DIFFERENCES:
        return SCALES[quantity] * interval.estimate, SCALES[quantity] * low, SCALES[quantity] * high
    middle, low, high = np.clip((interval.estimate, low, high), -MOST, MOST).tolist()
    return middle, low, high


def _span(
    rows_of: Sequence[Sequence[tuple[str, Mapping[str, Effect]]]],
    quantities: Sequence[str],
    beside: Printed | None,
) -> tuple[float, float]:
    """Find how far a column reaches at any load, so that loads can be compared by eye."""
    stars = [beside.effects[each] for each in quantities if beside and each in beside.effects]
    found = [
        ends
        for rows in rows_of
        for _, effects in rows
        for quantity in quantities
        if (ends := _ends(effects[quantity], quantity)) is not None
    ]
    least = 0.1 if quantities[0] in DIFFERENCES else math.log(1.1)
    return (
        min([-least / 2, *stars, *(low for _, low, _ in found)]),
        max([least / 2, *stars, *(high for _, _, high in found)]),
    )


def _star(
    axis: Axes,
    rows: Sequence[tuple[str, Mapping[str, Effect]]],
    quantities: Sequence[str],
    beside: Printed,
    label: str,
) -> None:
    """Mark on the line of a mode what is printed of it."""
    for place, (name, _) in enumerate(rows):
        for quantity in quantities:
            if name == label and quantity in beside.effects:
                at = beside.effects[quantity]
                axis.plot([at], [place], marker="*", markersize=7, color=INK, zorder=4)


def _panel(
    axis: Axes, rows: Sequence[tuple[str, Mapping[str, Effect]]], quantities: Sequence[str]
) -> None:
    axis.axvline(0, color=INK, linewidth=0.8)
    drawn: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for row, (name, effects) in enumerate(rows):
        for which, quantity in enumerate(quantities):
            ends = _ends(effects[quantity], quantity)
            if ends is None:
                continue
            interval = settled(effects[quantity])
            if name == AA and interval.known and which == len(quantities) - 1:
                axis.axvspan(*ends[1:], color=GRID, alpha=0.5, linewidth=0)
            side = "lower" if is_lower(interval) else "higher" if is_higher(interval) else ""
            at = row + (0.3 * which - 0.15) * (len(quantities) - 1)
            drawn.setdefault((side, which), []).append((at, *ends))
    # one element for all that looks alike: a third of the picture's size
    for (side, which), marks in drawn.items():
        rows_at, middles, lows, highs = zip(*marks, strict=True)
        axis.hlines(rows_at, lows, highs, color=COLOURS[side], linewidth=1.3)
        axis.plot(middles, rows_at, linestyle="none", **_mark(which, COLOURS[side]))
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows])
    axis.grid(False, axis="y")
    axis.tick_params(left=False)
    axis.spines["left"].set_visible(False)


def _mark(which: int, colour: str) -> dict[str, Any]:
    return {
        "marker": "D" if which else "o",
        "markersize": 3.6 if which else 4.2,
        "color": colour,
        "markerfacecolor": PAPER if which else colour,
        "zorder": 3,
    }


def _scale(axis: Axes, span: tuple[float, float], linear: bool) -> None:
    """Give a panel its axis, with ticks in what is printed and none on another."""
    low, high = span
    margin = 0.06 * (high - low)
    axis.set_xlim(low - margin, high + margin)
    axis.xaxis.set_minor_locator(NullLocator())
    if linear:
        axis.xaxis.set_major_locator(MaxNLocator(3))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value)))
        return
    apart = 0.2 * (high - low)
    ticks = [0.0]
    for tick in TICKS:
        at = math.log1p(tick / 100)
        if low - margin <= at <= high + margin and all(abs(at - each) >= apart for each in ticks):
            ticks.append(at)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(100 * math.expm1(value))))


def _signed(value: float) -> str:
    text = f"{abs(value):.3g}"
    if float(text) == 0 or abs(value) < 1e-9:
        return "0"
    return ("−" if value < 0 else "+") + text


def _seen(ranking: Ranking) -> list[str]:
    """Say what is to be seen at a load."""
    name = load_name(ranking.load)
    name = name[0].upper() + name[1:]
    sham = ranking.sham[DECIDING[0]]
    told = "differs" if ranking.floors[DECIDING[0]] else "does not differ beyond chance"
    if not settled(sham).known:
        told = "cannot be judged"
    lines = [f"{name}: A/A {told}: {TITLES[DECIDING[0]]} {effect_words(sham, DECIDING[0])}."]
    if ranking.candidates:
        ranked = "; ".join(
            f"{ranking.load.label(each.mode)} {effect_words(each.effects[DECIDING[0]], DECIDING[0])}, "
            f"{verdict_words(each)}"
            for each in ranking.candidates
        )
        lines.append(f"{name}, by the 99th percentile of the sum: {ranked}.")
    return lines


def verdict_words(candidate: Candidate) -> str:
    """Write a verdict, with what it rests on."""
    if candidate.verdict is Verdict.TRADE:
        return f"better, but {' and '.join(TITLES[name] for name in candidate.costs)} higher"
    if candidate.decided_by == DECIDING[1]:
        return f"{candidate.verdict.value} by the mean"
    return WORDS.get(candidate.verdict, candidate.verdict.value)


def tables(found: Sequence[Advice]) -> Sections:
    """Rank the modes of each proxy, load by load, with every interval."""
    return Sections(
        tuple(
            Section(place_name(advice.place), tuple(_table(ranking) for ranking in advice.rankings))
            for advice in found
        )
    )


def _table(ranking: Ranking) -> Table:
    load = ranking.load
    reference = load.place.reference
    absolute = [_absolute(ranking, reference, name) for name in RANKED]
    rows: list[tuple[Cell, ...]] = [(load.label(reference), "the reference", *absolute)]
    rows.append(
        (
            AA,
            *_cells(ranking.sham, "differs" if any(ranking.floors.values()) else "as it should be"),
        )
    )
    rows += [
        (load.label(each.mode), *_cells(each.effects, verdict_words(each)))
        for each in ranking.candidates
    ]
    return Table(
        identity=identity("table-ranking", *load.place[1:4], load.cps),
        groups=(("", 2), ("K_rcv + T_sip (%)", 3), ("K_rcv (%)", 2), ("T_sip (%)", 2), ("", 2)),
        header=(
            *("mode", "verdict", "p99", "mean", "p50", "mean", "p99", "mean", "p99"),
            *(f"{TITLES[name]} ({unit(name)})" for name in RANKED[-2:]),
        ),
        rows=tuple(rows),
        none="no window counts",
        caption=f"{short_load(load)}: modes by the 99th percentile of the sum, lowest first; differences from "
        f"{load.label(reference)}, whose own means over windows stand in the first row.",
        provenance=provenance([load]),
    )


def _absolute(ranking: Ranking, mode: str, quantity: str) -> Cell:
    mean = ranking.load.mean(mode, quantity)
    if quantity == "pdr":
        known = not math.isnan(mean.estimate)
        return f"{number(100 * mean.estimate)}\u00a0%" if known else mean.why
    return told(mean, "µs")


def _cells(effects: Mapping[str, Effect], verdict: str) -> tuple[Cell, ...]:
    return (verdict, *(effect_cell(effects[name], name) for name in RANKED))
