"""Panels of capacity by cores, one a SUT."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sipsched.pages.drawing import Layout
from sipsched.words import grouped

DODGE = 0.09
"""How far the modes stand apart, in cores."""


def make_panels(layout: Layout, count: int, sharey: str) -> tuple[Canvas, npt.NDArray[np.object_]]:
    """Make so many panels, two a row."""
    return layout.panels(-(-count // 2), 2, 2.9, shared=("", sharey))


def hide(grid: npt.NDArray[np.object_], used: int) -> None:
    """Hide the panels that are left over."""
    for axis in grid.ravel()[used:]:
        axis.set_visible(False)


def core_axis(axis: Axes, most: int) -> None:
    """Set the axes of a panel: cores, and calls per second from zero."""
    axis.set_xlim(0.5, most + 0.5)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("cores")
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(grouped))


def empty(axis: Axes, text: str) -> None:
    """Say in a panel why nothing is drawn."""
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center")
