"""How every figure is drawn: its width, colours that follow the reader, the legend, the SVG."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

WIDTH_IN = 7.2
NARROW_IN = 3.7
COORDINATES = re.compile(r' d="[^"]*"| points="[^"]*"')
NOT_DRAWN = re.compile(r"<!--.*?-->|^\s+", re.DOTALL | re.MULTILINE)
DIGITS = re.compile(r"(\.\d\d)\d+")

# Colours that follow the reader's light or dark setting. matplotlib draws with the marker colour on
# the left, the SVG gets a variable in its place. The series have the hues of Okabe and Ito (2008),
# told apart with any colour vision, darker on white and lighter on black; markers differ too.
THEME = {
    "#010101": ("ink", "#24292f", "#d6dbe1"),
    "#020202": ("paper", "#ffffff", "#14181d"),
    "#030303": ("grid", "#d9dee3", "#343b44"),
    "#040404": ("limit", "#b3261e", "#ff8a80"),
    "#050501": ("series0", "#0072b2", "#56b4e9"),
    "#050502": ("series1", "#d55e00", "#ff9248"),
    "#050503": ("series2", "#008060", "#2fcf9f"),
    "#050504": ("series3", "#a64d87", "#eba4d0"),
    "#050505": ("series4", "#a87400", "#f0c04a"),
    "#050506": ("series5", "#5b6670", "#a9b4bf"),
}
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
    "svg.hashsalt": "sipsched",
}


@dataclass(frozen=True)
class Layout:
    """How a figure is laid out: panels side by side, or one under the other for a phone."""

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
        """Make panels.

        Parameters
        ----------
        rows, columns
            How many, side by side.
        height_in, above_in
            Of a row of panels, and of what stands above them.
        shared
            Which panels share their x, and which their y axis: "all", those of a "column", or none.

        Returns
        -------
        canvas, grid
            The panels, shape (rows, columns) also where they are stacked.
        """
        down, across = (rows * columns, 1) if self.stacked else (rows, columns)
        size = (self.width_in, above_in + height_in * down)
        canvas = Canvas(figsize=size, layout="constrained")
        spec = canvas.add_gridspec(down, across)
        grid = np.empty((rows, columns), dtype=object)
        for row in range(rows):
            for column in range(columns):
                first = {"all": grid[0, 0], "column": grid[0, column], "": None}
                x, y = (first[each] for each in shared)
                place = divmod(row * columns + column, across)
                axis = canvas.add_subplot(spec[place], sharex=x, sharey=y)
                if shared[0] and place[0] < down - 1 and not self.stacked:
                    axis.tick_params(labelbottom=False)
                if shared[1] == "all" and place[1]:
                    axis.tick_params(labelleft=False)
                grid[row, column] = axis
        return canvas, grid


WIDE, NARROW = Layout(WIDTH_IN, False), Layout(NARROW_IN, True)


def both(draw: Callable[[Layout], str]) -> tuple[str, str]:
    """Draw a figure for a page and for a phone."""
    return draw(WIDE), draw(NARROW)


def legend(
    canvas: Canvas,
    grid: npt.NDArray[Any],
    columns: int = 6,
    marker_scale: float = 1.0,
) -> None:
    """Put one legend above all panels: each label once; small markers larger."""
    entries: dict[str, Any] = {}
    for axis in grid.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        canvas.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper left",
            ncols=columns if canvas.get_figwidth() > NARROW_IN else min(columns, 2),
            columnspacing=1.2,
            markerscale=marker_scale,
        )


def themed(canvas: Canvas) -> str:
    """Write the SVG, with colours that follow the reader's light or dark setting."""
    buffer = io.StringIO()
    # not savefig, which would draw it once more, to lay it out
    FigureCanvasSVG(canvas).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    # a hundredth of a point is not seen, and digits beyond it are a third of a page
    svg = COORDINATES.sub(lambda path: DIGITS.sub(r"\1", path[0]), buffer.getvalue())
    svg = NOT_DRAWN.sub("", svg)
    if "'" not in svg:
        # an address has to write the other one in three characters
        svg = svg.replace('"', "'")
    for marker, (name, _, _) in THEME.items():
        svg = svg.replace(marker, f"var(--{name})")
    light = "".join(f"--{name}:{color};" for name, color, _ in THEME.values())
    dark = "".join(f"--{name}:{color};" for name, _, color in THEME.values())
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    start = svg.index(">", svg.index("<svg")) + 1
    return svg[:start] + style + svg[start:]
