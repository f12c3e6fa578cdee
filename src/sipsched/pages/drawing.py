"""The common style of all figures: width, colours for light and dark mode, legend and SVG output."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import ScalarFormatter

from sipsched.pages.theme import THEME
from sipsched.words import grouped

WIDTH_IN = 7.2
NARROW_IN = 3.7
COORDINATES = re.compile(r' d="[^"]*"| points="[^"]*"')
NOT_DRAWN = re.compile(r"<!--.*?-->|^\s+", re.DOTALL | re.MULTILINE)
DIGITS = re.compile(r"(\.\d\d)\d+")

INK, PAPER, GRID, LIMIT, *SERIES = THEME
MARKERS = "osD^vP"
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}


CHARACTER_IN, KEY_IN = 0.078, 0.5
"""Widths in a legend, in inches: one character of a name, and the line symbol with the space beside the name."""


@dataclass(frozen=True)
class Layout:
    """The layout of a figure: its width, and whether its panels are side by side or stacked for a phone."""

    width_in: float
    stacked: bool

    def panels(
        self,
        rows: int,
        columns: int,
        height_in: float,
        above_in: float = 0.7,
        shared: tuple[str, str] = ("", ""),
    ) -> tuple[Canvas, npt.NDArray[Any]]:
        """Make the empty panels of a figure, in a grid or stacked for a phone.

        Parameters
        ----------
        height_in, above_in
            Heights of a row of panels, and of the space above the panels.
        shared
            The panels that share their x and their y axis: "all", the panels of a "column", or none.

        Returns
        -------
        canvas, grid
            The figure and its panels. The grid has the shape (rows, columns), even if the panels are stacked.
        """
        down, across = (rows * columns, 1) if self.stacked else (rows, columns)
        size = (self.width_in, above_in + height_in * down)
        canvas = Canvas(figsize=size, layout="constrained")
        spec = canvas.add_gridspec(down, across)
        grid = np.empty((rows, columns), dtype=object)
        for row in range(rows):
            for column in range(columns):
                first = {"all": grid[0, 0], "column": grid[0, column], "": None}
                x, y = (first[name] for name in shared)
                cell = divmod(row * columns + column, across)
                axis = canvas.add_subplot(spec[cell], sharex=x, sharey=y)
                if shared[0] and cell[0] < down - 1 and not self.stacked:
                    axis.tick_params(bottom=False, labelbottom=False)
                if shared[1] == "all" and cell[1]:
                    axis.tick_params(labelleft=False)
                grid[row, column] = axis
        return canvas, grid


WIDE, NARROW = Layout(WIDTH_IN, False), Layout(NARROW_IN, True)


def in_form(draw: Callable[[Layout], str], layout: Layout, salt: str) -> str:
    """Return one form of a figure (wide, or narrow for a phone) as SVG, in the style of all figures.

    The salt is part of the ids inside the SVG. Different salts keep the ids of two drawings on a page different.
    """
    with rc_context({**STYLE, "svg.hashsalt": salt}):
        svg = draw(layout)
    form = "narrow" if layout.stacked else "wide"
    return svg.replace("<svg ", f'<svg class="{form}" role="group" ', 1)


def legend(
    canvas: Canvas,
    grid: npt.NDArray[Any],
    columns: int = 6,
    marker_scale: float = 1.0,
) -> None:
    """Draw one legend above all panels of a figure. A label that several panels share appears once."""
    entries: dict[str, Any] = {}
    for axis in grid.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        width_in = canvas.get_figwidth()
        room = int(width_in / (CHARACTER_IN * max(map(len, entries)) + KEY_IN))
        most = columns if width_in > NARROW_IN else 2
        canvas.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper left",
            ncols=max(1, min(columns, most, room)),
            columnspacing=1.2,
            markerscale=marker_scale,
        )


def titled(artist: Artist, titles: Sequence[str]) -> None:
    """Attach a title to each point of a matplotlib artist. The page shows the title on hover and focus."""
    artist.set_gid("\n".join(titles))


class _InlineSVG(RendererSVG):
    """An SVG renderer for figures inside a page, which omits the ids of groups and adds titles to points."""

    def __init__(self, width: float, height: float, buffer: io.StringIO) -> None:
        self._titles: Iterator[str] = iter(())
        super().__init__(width, height, buffer)  # type: ignore[no-untyped-call]
        self.writer: Any
        self._write_element: Any = self.writer.element
        self.writer.element = self._element

    def _write_metadata(self, metadata: Any) -> None:
        """Omit the SVG metadata, because the page describes the figure."""

    def _write_default_style(self) -> None:
        """Omit the default SVG style, because inside a page the style would apply to the whole page."""

    def open_group(self, s: str, gid: str | None = None) -> None:
        """Open an SVG group. `gid` contains the titles of the group's points, one title per line."""
        titles = gid.split("\n") if gid else []
        self._titles = iter(titles if len(titles) > 1 else ())
        if len(titles) == 1:
            self.writer.start("g", attrib={"class": "point"})
            self._write_element("title", text=titles[0])
        else:
            self.writer.start("g")

    def _element(self, tag: str, text: str | None = None, attrib: Any = None, **more: Any) -> None:
        """Add an SVG element. If the element is a point, add the title of this point, which a page shows on hover."""
        title = next(self._titles, "") if tag == "use" else ""
        if not title:
            self._write_element(tag, text, attrib or {}, **more)
            return
        self.writer.start(tag, attrib={**(attrib or {}), "class": "point"}, **more)
        self._write_element("title", text=title)
        self.writer.end(tag)


class _Grouped(ScalarFormatter):
    """The standard labels of an axis, in which the digits of whole numbers from 1000 on are grouped by three."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick. If matplotlib writes a number beside the axis, keep matplotlib's own label."""
        whole = abs(x) >= 1000 and x == round(x) and not self.get_offset()
        return grouped(x).replace("-", "−") if whole else super().__call__(x, pos)


def themed(canvas: Canvas) -> str:
    """Return a figure as SVG text for a page, with colours that follow the reader's light or dark setting."""
    buffer = io.StringIO()
    canvas.set_dpi(72)
    for axis in (axis for axes in canvas.axes for axis in (axes.xaxis, axes.yaxis)):
        if type(axis.get_major_formatter()) is ScalarFormatter:
            axis.set_major_formatter(_Grouped())
    width, height = canvas.get_size_inches()
    svg_renderer = _InlineSVG(72 * width, 72 * height, buffer)
    # `savefig` would draw the figure twice to compute its layout, so this function calls the renderer directly.
    renderer: Any = MixedModeRenderer(canvas, width, height, 72, svg_renderer)  # type: ignore[no-untyped-call]
    canvas.draw(renderer)
    renderer.finalize()
    # Two decimals are enough, because a hundredth of a point is invisible. Further digits would fill a third of a page.
    svg = COORDINATES.sub(lambda path: DIGITS.sub(r"\1", path[0]), buffer.getvalue())
    svg = NOT_DRAWN.sub("", svg[svg.index("<svg") :])
    for marker, (name, _, _) in THEME.items():
        svg = svg.replace(marker, f"var(--{name})")
    return svg
