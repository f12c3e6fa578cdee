"""Marks of modes in figures of single values."""

from typing import Any

from sipsched.pages.drawing import PAPER
from sipsched.pages.plots import mode_look


def small(mode: str) -> dict[str, Any]:
    """Return the style of single runs."""
    look = mode_look(mode)
    return {
        "linestyle": "none",
        "marker": look.marker,
        "markersize": 3,
        "markeredgewidth": 0,
        "color": look.color,
        "alpha": 0.45,
    }


def large(mode: str) -> dict[str, Any]:
    """Return the style of an estimate with its interval."""
    look = mode_look(mode)
    return {
        "linestyle": "none",
        "color": look.color,
        "marker": look.marker,
        "markersize": 4.5,
        "elinewidth": 1,
        "capsize": 2.5,
    }


def hollow(mode: str) -> dict[str, Any]:
    """Return the style of a published value."""
    look = mode_look(mode)
    return {
        "color": look.color,
        "marker": look.marker,
        "markersize": 5,
        "markerfacecolor": PAPER,
    }
