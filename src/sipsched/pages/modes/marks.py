"""Marker styles for modes in figures that show single values."""

from typing import Any

from sipsched.pages.drawing import PAPER
from sipsched.pages.plots import mode_look


def small(mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for single runs."""
    return _mark(mode, linestyle="none", markersize=3, markeredgewidth=0, alpha=0.45)


def large(mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for an estimate with its interval."""
    return _mark(mode, linestyle="none", markersize=4.5, elinewidth=1, capsize=2.5)


def hollow(mode: str) -> dict[str, Any]:
    """Return the marker style (colour, shape and size) of a mode for a published value."""
    return _mark(mode, markersize=5, markerfacecolor=PAPER)


def _mark(mode: str, **style: Any) -> dict[str, Any]:
    look = mode_look(mode)
    return {"color": look.color, "marker": look.marker, **style}
