"""Markers of the two sides of a comparison (modes or kernels) in figures that show single values."""

from typing import Any

from sipsched.analysis.comparison import Case
from sipsched.pages.drawing import PAPER
from sipsched.pages.plots import Look, look, mode_look


def look_of(case: Case, mode: str) -> Look:
    """Return the colour and the marker of a mode, or of a kernel by its position in the comparison."""
    return mode_look(mode) if case.compares == "mode" else look(case.modes.index(mode))


def small(case: Case, mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for single runs."""
    return _mark(case, mode, linestyle="none", markersize=3, markeredgewidth=0, alpha=0.45)


def large(case: Case, mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for an estimate with its interval."""
    return _mark(case, mode, linestyle="none", markersize=4.5, elinewidth=1, capsize=2.5)


def hollow(case: Case, mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for a published value."""
    return _mark(case, mode, markersize=5, markerfacecolor=PAPER)


def _mark(case: Case, mode: str, **style: Any) -> dict[str, Any]:
    chosen = look_of(case, mode)
    return {"color": chosen.color, "marker": chosen.marker, **style}
