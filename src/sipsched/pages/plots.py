"""Functions that draw common elements of the pages' figures: grids of panels, curves with intervals, and axes."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from sipsched.analysis.intervals import Estimates, Interval, Values
from sipsched.pages.drawing import (
    INK,
    LIMIT,
    MARKERS,
    PAPER,
    SERIES,
    Layout,
    legend,
    themed,
    titled,
)
from sipsched.pages.numbers import in_words
from sipsched.plan.modes import DEFAULT, NO_LOOK, find_mode, load_modes
from sipsched.words import grouped, number

MAX_NAMED = 3
"""A panel with at most this number of lines shows the names of the lines at their ends.

A panel with more lines has a legend.
"""
NAME_GAP = 0.09
"""The smallest vertical distance between the names of two lines, as a share of the panel's height."""
MAX_LOADS_AS_TICKS = 5
LONGEST_BESIDE = 24
"""The largest number of characters in a name at the end of a line. Longer names would leave no room for the panels."""
EVERY_LOOK = tuple(itertools.product(SERIES, MARKERS))
"""All combinations of a colour and a marker."""
OUTER_FENCE = 3.0
LONG_LOG_AXIS = 100
"""A logarithmic axis whose ends have at least this ratio has labels at the powers of ten only."""
TICK_IN = 0.45
"""Width in inches that the label of a load needs on the x axis."""


@dataclass(frozen=True)
class Look:
    """The colour and the marker of a series in a figure."""

    color: str
    marker: str


def look(i: int) -> Look:
    """Return the colour and the marker of the i-th series of a figure."""
    return Look(SERIES[i % len(SERIES)], MARKERS[(i + i // len(SERIES)) % len(MARKERS)])


def mode_look(mode: str) -> Look:
    """Return the colour and the marker of a mode, which are the same on all pages.

    Parameters
    ----------
    mode
        Name or label of the mode, possibly with overrides and remarks, as in "enhanced+base_slice_ns=100000 (EEVDF
        translation)".
    """
    declared = _declared_modes()
    base = mode.partition(" ")[0].partition("+")[0]
    code = find_mode(base, declared).look if base in declared else NO_LOOK
    return Look(SERIES[int(code[0])], code[1])


def mode_looks(modes: Iterable[str]) -> dict[str, Look]:
    """Return the colour and the marker of each mode on a page that compares modes. Two modes have different looks.

    A mode with overrides in its name gets a look that no other mode of the page has, in a rarely used colour. If
    several modes have the same declared look, only the first of them keeps this look.
    """
    names = sorted(set(modes), key=lambda mode: ("+" in mode, mode != DEFAULT, mode))
    declared = set(map(mode_look, names))
    looks: dict[str, Look] = {}
    for name in names:
        chosen = mode_look(name)
        if "+" in name or chosen in looks.values():
            taken = [*looks.values(), *(declared - set(looks.values()))]
            free = [each for each in itertools.starmap(Look, EVERY_LOOK) if each not in taken]
            colors, markers = [each.color for each in taken], [each.marker for each in taken]
            chosen = min(
                free,
                key=lambda each: (colors.count(each.color), markers.count(each.marker)),
                default=chosen,
            )
        looks[name] = chosen
    return looks


@functools.cache
def _declared_modes() -> Mapping[str, Any]:
    return load_modes()


@dataclass(frozen=True)
class Curve:
    """One line of a figure with its points and error bars, such as the drop rate against the load for 8 threads.

    Attributes
    ----------
    x
        The x values of the points, shape (point,), in `x_unit`.
    of
        The estimates with their intervals, shape (point,), in `unit`.
    runs
        The values of single runs, shape (point, run); NaN for a missing run.
    unit, x_unit
        The units of y and x.
    x_names
        Names of the points. If empty, the points are named by their x values.
    shift
        A horizontal shift of the curve, so that the intervals of several curves do not overlap.
    hollow
        The points that are drawn hollow, shape (point,). None means no point.
    """

    name: str
    look: Look
    x: Values
    of: Estimates
    runs: Values
    unit: str
    x_unit: str = "cps"
    x_names: Sequence[str] = ()
    shift: float = 0.0
    hollow: npt.NDArray[np.bool_] | None = None


def draw_curve(axis: Axes, curve: Curve) -> None:
    """Draw single runs as small points, and the estimates as large points with confidence intervals and a line."""
    some = curve.of.n > 0
    x = curve.x + curve.shift
    color, marker = curve.look.color, curve.look.marker
    small: dict[str, Any] = {"linestyle": "none", "marker": marker, "markeredgewidth": 0}
    at, values = np.broadcast_to(x[:, None], curve.runs.shape), curve.runs
    known = np.isfinite(values)
    (points,) = axis.plot(at[known], values[known], color=color, alpha=0.7, markersize=3, **small)
    places = curve.x_names or [f"{grouped(where)} {curve.x_unit}" for where in curve.x]
    names = [f"{curve.name}, {place}" for place in places]
    of_runs = np.broadcast_to(np.array(names, object)[:, None], curve.runs.shape)[known]
    titled(
        points,
        [
            f"{name}: one run, {number(value)} {curve.unit}"
            for name, value in zip(of_runs, values[known], strict=True)
        ],
    )
    axis.errorbar(
        x[some],
        curve.of.estimate[some],
        yerr=curve.of.bars[:, some],
        color=color,
        elinewidth=1,
        capsize=2.5,
        linestyle="none",
    )
    titles = [
        f"{names[i]}: {in_words(curve.of.at(int(i)), curve.unit)}" for i in np.flatnonzero(some)
    ]
    draw_line(
        *(axis, x[some], curve.of.estimate[some], curve.look, titles),
        markersize=5,
        label=curve.name,
    )
    if curve.hollow is not None:
        some = some & curve.hollow
        axis.plot(
            x[some],
            curve.of.estimate[some],
            color=color,
            markerfacecolor=PAPER,
            linestyle="none",
            marker=marker,
            markersize=5,
            zorder=4,
        )


def draw_line(
    axis: Axes,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    style: Look,
    titles: Sequence[str],
    **more: Any,
) -> None:
    """Draw points joined by a line, in the colour and marker of a series. A page shows a point's title on hover."""
    (line,) = axis.plot(x, y, **{"color": style.color, "marker": style.marker} | more)
    titled(line, titles)


@dataclass(frozen=True)
class PredictedPoint:
    """A predicted number beside its measurement, for `draw_predictions`. A page shows the title on hover."""

    measured: Interval
    predicted: Interval
    inside: bool
    title: str


def draw_predictions(axis: Axes, group: Sequence[PredictedPoint]) -> None:
    """Draw predicted against measured numbers, with the diagonal on which both are equal."""
    low, high = _shown_range(
        [interval.estimate for point in group for interval in (point.measured, point.predicted)]
    )
    axis.plot((low, high), (low, high), color=INK, linewidth=0.8)
    axis.axhline(0, color=INK, linewidth=0.4)
    axis.axvline(0, color=INK, linewidth=0.4)
    for inside in (True, False):
        these = [point for point in group if point.inside is inside]
        color = SERIES[2] if inside else SERIES[1]
        name = f"{'inside' if inside else 'outside'} the measured interval"
        measured = Estimates.of([point.measured for point in these])
        predicted = Estimates.of([point.predicted for point in these])
        # A number outside the drawn range is drawn at the edge of the panel.
        x, y = (np.clip(of.estimate, low, high) for of in (measured, predicted))
        beyond = (x != measured.estimate) | (y != predicted.estimate)
        axis.hlines(y, measured.low, measured.high, color=color, linewidth=0.7)
        axis.vlines(x, predicted.low, predicted.high, color=color, linewidth=0.7)
        titles = np.array([point.title for point in these], object)
        for where, marker, size, label in (
            (~beyond, "o", 3.6, name),
            (beyond, "*", 7.0, f"{name}, beyond the panel"),
        ):
            if not where.any():
                continue
            (points,) = axis.plot(
                x[where],
                y[where],
                linestyle="none",
                marker=marker,
                markersize=size,
                color=color,
                markerfacecolor=color if inside else PAPER,
                clip_on=False,
                zorder=3,
                label=label,
            )
            # A star at the edge of a panel overlaps the axis, so the layout of the panels ignores the star.
            points.set_in_layout(False)
            titled(points, titles[where].tolist())
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    axis.set_xlabel("measured")
    axis.set_ylabel("predicted")


def _shown_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of a panel's axes: all values except outliers, and a margin.

    A few far values would squeeze all other points together. A value is an outlier if its distance from the quartiles
    exceeds three times their distance from each other (Tukey's outer fences).
    """
    known = np.array([value for value in values if np.isfinite(value)] or [0.0])
    lower, upper = np.percentile(known, (25, 75))
    fence = OUTER_FENCE * max(upper - lower, 1.0)
    near = known[(known >= lower - fence) & (known <= upper + fence)]
    margin = 0.1 * float(near.max() - near.min()) + 1
    return float(near.min()) - margin, float(near.max()) + margin


def categories(axis: Axes, names: Sequence[object]) -> None:
    """Label an x axis with the given names, at the positions 0, 1, 2 and so on."""
    axis.set_xticks(range(len(names)), list(map(str, names)))
    axis.set_xlim(-0.5, len(names) - 0.5)


# The function `panels` has eight parameters, of which four are optional and rarely set.
def panels(
    rows: Sequence[str],
    columns: Sequence[str],
    draw_panel: Callable[[Axes, int, int], None],
    x_label: str,
    *,
    shared: tuple[str, str] = ("all", "column"),
    height_in: float = 2.4,
    prepare: Callable[[Axes, float], None] | None = None,
    beside: bool = True,
) -> Callable[[Layout], str]:
    """Return a function that draws a grid of panels for a page, or a stack of panels for a phone.

    Parameters
    ----------
    shared
        The panels that share their x axis, and the panels that share their y axis: "all", the panels of a "column", or
        none ("").
    prepare
        Sets the ticks of the axes before a panel is drawn. Its last argument is the panel's width in inches.
    beside
        If true, a few short names of lines are written beside the lines. Otherwise, a legend names all lines.
    """

    def draw(layout: Layout) -> str:
        canvas, grid = layout.panels(len(rows), len(columns), height_in, shared=shared)
        across = 1 if layout.stacked else len(columns)
        for (row, column), axis in np.ndenumerate(grid):
            if prepare is not None:
                prepare(axis, 0.8 * layout.width_in / across)
            draw_panel(axis, row, column)
            if shared[1] == "all" and column and not layout.stacked:
                axis.set_ylabel("")
            if row == len(rows) - 1:
                axis.set_xlabel(x_label)
        labels = {label for axis in grid.ravel() for label in axis.get_legend_handles_labels()[1]}
        for (row, column), axis in np.ndenumerate(grid):
            # A figure with a single line needs no legend, because the title names the line.
            above = ", ".join(filter(None, (rows[row], *labels))) if len(labels) == 1 else rows[row]
            names = (above if not column else "", columns[column])
            axis.set_title("\n".join(filter(None, names)), loc="left")
        fits = len(labels) <= MAX_NAMED and max(map(len, labels), default=0) <= LONGEST_BESIDE
        if len(labels) > 1 and not (fits and beside):
            legend(canvas, grid)
        elif len(labels) > 1:
            name_lines(grid if layout.stacked else grid[:, -1:])
        return themed(canvas)

    return draw


def wrapped(
    titles: Sequence[str],
    draw_panel: Callable[[Axes, int, bool], None],
    *,
    across: int,
    height_in: float,
) -> Callable[[Layout], str]:
    """Return a function that draws panels in several rows for a page, or a stack of panels for a phone.

    Parameters
    ----------
    draw_panel
        Draws the i-th panel into the axes. The last argument is true if the panel is the first of its row.
    across
        The number of panels in a row on a page.
    """

    def draw(layout: Layout) -> str:
        columns = 1 if layout.stacked else across
        lines = max(-(-len(titles) // columns), 1)
        with rc_context({"font.size": 8.0, "axes.titlesize": 8.5}):
            canvas, grid = replace(layout, stacked=False).panels(lines, columns, height_in)
            for i, axis in enumerate(grid.ravel()):
                axis.set_visible(i < len(titles))
                if i < len(titles):
                    draw_panel(axis, i, i % columns == 0)
                    axis.set_title(titles[i], loc="left")
            legend(canvas, grid)
            return themed(canvas)

    return draw


def name_lines(grid: npt.NDArray[np.object_]) -> None:
    """Draw the name of each line at the line's right end, without overlapping names, in each panel of the grid."""
    for axis in grid.ravel():
        handles, names = axis.get_legend_handles_labels()
        last_points = [handle.get_xydata()[-1] for handle in handles]
        to_panel = axis.transData - axis.transAxes
        heights = [float(to_panel.transform(point)[1]) for point in last_points]
        lowest = 0.0
        for i in np.argsort(heights):
            lowest = max(heights[i], lowest)
            axis.annotate(
                names[i],
                (1, lowest),
                xycoords="axes fraction",
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=handles[i].get_color(),
            )
            lowest += NAME_GAP


def limit_line(axis: Axes, height: float, name: str = "") -> None:
    """Draw a horizontal dashed line across a panel at a given height, with an optional name at the left."""
    axis.axhline(height, color=LIMIT, linestyle="--", linewidth=1)
    if name:
        axis.annotate(
            name,
            (0, height),
            xycoords=("axes fraction", "data"),
            xytext=(3, 2),
            textcoords="offset points",
            color=LIMIT,
        )


def from_zero(axis: Axes) -> None:
    """Let a linear y axis begin at zero and end above the data.

    Setting one end of an axis fixes the other end, too. If several panels share the axis, the data of a later panel
    could then lie outside. Each call therefore computes the upper end again, from all panels drawn so far.
    """
    axis.autoscale(axis="y")
    axis.set_ylim(bottom=0)


def symlog_scale(axis: Axes, threshold: float) -> None:
    """Set a y axis to a scale that is linear up to a threshold and logarithmic above the threshold.

    The axis begins a little below zero, so that a point at zero is fully visible. As in `from_zero`, the upper end
    includes the data of all panels that share the axis and are already drawn.
    """
    axis.set_yscale("symlog", linthresh=threshold, linscale=0.5)
    axis.autoscale(axis="y")
    _, high = axis.get_ylim()
    axis.set_ylim(-0.3 * threshold, max(high, 3 * threshold))
    axis.yaxis.set_major_formatter(FuncFormatter(grouped))
    axis.yaxis.set_minor_formatter(NullFormatter())


def log_scale(axis: Axes, limits: tuple[float, float]) -> None:
    """Make a y axis logarithmic, with the given ends and a label at each power of ten."""
    axis.set_yscale("log", nonpositive="clip")
    axis.set_ylim(limits)
    axis.yaxis.set_major_formatter(FuncFormatter(grouped))
    axis.yaxis.set_minor_locator(NullLocator())


class _LogTicks(LogLocator):
    """The ticks of a logarithmic axis: the powers of ten, and on a short axis also 2 and 5 times these powers."""

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the ticks for an axis with these ends."""
        self.set_params(subs=(1.0,) if vmax >= LONG_LOG_AXIS * vmin else (1.0, 2.0, 5.0))
        return [float(tick) for tick in super().tick_values(vmin, vmax)]


def log_ticks(scale: Axis) -> None:
    """Label a logarithmic axis. A short axis may contain one power of ten only, so it has further labels."""
    scale.set_major_locator(_LogTicks())
    scale.set_major_formatter(FuncFormatter(grouped))
    scale.set_minor_formatter(NullFormatter())


def load_axis(axis: Axes, loads: Values, width_in: float) -> None:
    """Set up an x axis of loads in calls per second. Labels that would overlap are omitted."""
    margin = 0.08 * (loads[-1] - loads[0]) or 0.5 * loads[0]
    if len(loads) <= MAX_LOADS_AS_TICKS:
        gap = TICK_IN / width_in * (loads[-1] - loads[0] + 2 * margin)
        axis.xaxis.set_major_locator(FixedLocator(loads_apart(loads, gap)))
        axis.xaxis.set_minor_locator(FixedLocator(loads.tolist()))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(grouped))
    axis.set_xlim(loads[0] - margin, loads[-1] + margin)


def loads_apart(loads: Values, gap: float) -> list[float]:
    """Return the loads that get a label on an axis: the largest, and smaller loads with enough distance."""
    chosen: list[float] = []
    for cps in loads[::-1].tolist():
        if not chosen or chosen[0] - cps >= gap:
            chosen.insert(0, cps)
    return chosen


def not_measured(axis: Axes) -> None:
    """Draw the words "not measured" into an empty panel."""
    axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center")
    axis.tick_params(left=False, labelleft=False)
