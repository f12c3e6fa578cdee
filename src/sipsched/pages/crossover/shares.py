"""How many messages take longer than a time, by mode and load, from the percentiles of windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from sipsched.analysis.advice import Advice, Ranking, modes_of
from sipsched.analysis.statistics import typical_interval, typical_intervals
from sipsched.pages.crossover.wording import (
    Section,
    Sections,
    identity,
    load_name,
    place_name,
    provenance,
    short_load,
)
from sipsched.pages.drawing import MARKERS, SERIES, STYLE, Layout, both, legend, themed
from sipsched.pages.numbers import in_words
from sipsched.pages.parts import Figure
from sipsched.records.windows import by_arm
from sipsched.words import grouped

Floats = npt.NDArray[np.float64]
SHARES = {"p50": 0.5, "p90": 0.1, "p99": 0.01}
"""Percentile of a window to the share of its messages that takes longer."""
PANELS = {
    "k_rcv": "wait: K_rcv",
    "t_sip": "service: T_sip",
    "total": "both of the same message",
}
MOST = len(SERIES)
"""Modes that can be told apart."""


@dataclass(frozen=True)
class Line:
    """What a mode does at a load: of each run the median over its windows, µs; shape (run, share)."""

    label: str
    runs: Floats


def figures(found: Sequence[Advice]) -> Sections:
    """Draw K_rcv, T_sip and their sum for each proxy."""
    return Sections(
        tuple(Section(place_name(advice.place), (_figure(advice),)) for advice in found)
    )


def _figure(advice: Advice) -> Figure:
    rankings, modes = advice.rankings, chosen(advice)
    drawn = {ranking.load.cps: lines(ranking, modes) for ranking in rankings}
    more = len({each.mode for ranking in rankings for each in ranking.candidates}) + 1 - len(modes)

    def draw(layout: Layout) -> str:
        with rc_context({**STYLE, "font.size": 8.0, "axes.titlesize": 8.5}):
            canvas, grid = layout.panels(
                max(len(rankings), 1), len(PANELS), 1.9, shared=("column", "all")
            )
            for axes, ranking in zip(grid, rankings, strict=False):
                for axis, (name, title) in zip(axes, PANELS.items(), strict=True):
                    _panel(axis, drawn[ranking.load.cps][name])
                    above = short_load(ranking.load) if name == "k_rcv" or layout.stacked else ""
                    axis.set_title("\n".join(filter(None, (above, title))), loc="left")
                axes[0].set_ylabel("share that takes longer")
            for axis in grid[-1]:
                axis.set_xlabel("time (µs)")
            legend(canvas, grid, columns=4)
            return themed(canvas)

    svg, narrow = both(draw)
    seen = [
        line for ranking in rankings if (line := _words(ranking, drawn[ranking.load.cps]["total"]))
    ]
    caption = (
        "Share of messages whose time is longer than that below, both axes logarithmic: of a line further to the "
        "left, fewer messages take long. A half, a tenth and a hundredth of the messages of a window, in the median "
        "over the windows that count; line: the typical run, band: from the lowest run to the highest. Between the "
        "marks nothing is known."
        + (
            f" The reference and the {MOST - 1} modes that rank first over all loads; {more} more in the tables."
            if more > 0
            else ""
        )
    )
    return Figure(
        identity=identity("figure-shares", *advice.place[1:4]),
        svg=svg,
        narrow=narrow,
        alt=f"Times that messages exceed, {place_name(advice.place)}. {caption} {' '.join(seen)}",
        caption=caption,
        seen=tuple(seen) or ("No window that counts tells of it.",),
        provenance=provenance([ranking.load for ranking in rankings]),
    )


def chosen(advice: Advice) -> list[str]:
    """Choose what is drawn, alike at each load: the reference, then the modes that rank first over all loads."""
    places: dict[str, list[int]] = {}
    for ranking in advice.rankings:
        for place, each in enumerate(ranking.candidates):
            places.setdefault(each.mode, []).append(place)
    ranked = sorted(places, key=lambda mode: sum(places[mode]) / len(places[mode]))
    return [advice.place.reference, *ranked][:MOST]


def lines(ranking: Ranking, modes: Sequence[str]) -> dict[str, list[Line]]:
    """Find by quantity what is drawn at a load, a line a mode, also where it has no run."""
    return {
        quantity: [Line(ranking.load.label(mode), _runs(ranking, mode, quantity)) for mode in modes]
        for quantity in PANELS
    }


def _runs(ranking: Ranking, mode: str, quantity: str) -> Floats:
    rows = []
    for run in ranking.load.runs:
        if mode not in modes_of(run):
            continue
        arm = modes_of(run).index(mode)
        tables = [by_arm(run, f"{quantity}_{name}")[:, arm] for name in SHARES]
        row = [np.nanmedian(each) if np.isfinite(each).any() else np.nan for each in tables]
        if np.isfinite(row).all():
            rows.append(row)
    return np.array(rows).reshape(-1, len(SHARES))


def _panel(axis: Axes, drawn: Sequence[Line]) -> None:
    shares = list(SHARES.values())
    for i, line in enumerate(drawn):
        if not len(line.runs):
            continue
        colour = SERIES[i]
        if len(line.runs) > 1:
            ends = line.runs.min(axis=0), line.runs.max(axis=0)
            axis.fill_betweenx(shares, *ends, color=colour, alpha=0.2, linewidth=0)
        typical = typical_intervals(line.runs.T).estimate
        axis.plot(typical, shares, color=colour, marker=MARKERS[i], markersize=4, label=line.label)
    if not any(len(line.runs) for line in drawn):
        axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center")
        return
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(grouped))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_locator(FixedLocator(shares))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def _words(ranking: Ranking, drawn: Sequence[Line]) -> str:
    """Say what one message in a hundred takes longer than, by mode."""
    said = [
        f"{in_words(typical_interval(line.runs[:, -1]), 'µs')}, with {line.label}"
        for line in drawn
        if len(line.runs)
    ]
    name = load_name(ranking.load)
    return (
        f"{name[0].upper()}{name[1:]}: one message in a hundred takes longer than {'; '.join(said)}."
        if said
        else ""
    )
