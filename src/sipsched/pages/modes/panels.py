"""What the figures of the modes draw alike: marks, an empty panel, the words around a picture."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from sipsched.pages.drawing import MARKERS, PAPER, SERIES
from sipsched.pages.parts import Figure


def picture(
    identity: str,
    title: str,
    drawn: tuple[str, str],
    caption: str,
    seen: Sequence[str],
    provenance: str,
) -> Figure:
    """Put a picture, for a page and for a phone, and its words together."""
    return Figure(
        identity=identity,
        svg=drawn[0],
        narrow=drawn[1],
        alt=f"{title}. {caption} {' '.join(seen)}".strip(),
        caption=caption,
        seen=tuple(seen) or ("No valid run of both modes: nothing to see yet.",),
        provenance=provenance,
    )


def small(i: int) -> dict[str, Any]:
    """Draw runs of the i-th mode."""
    marker = MARKERS[i % len(MARKERS)]
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 3,
        "markeredgewidth": 0,
        "color": SERIES[i % len(SERIES)],
        "alpha": 0.45,
    }


def large(i: int) -> dict[str, Any]:
    """Draw means of the i-th mode."""
    return {
        "color": SERIES[i % len(SERIES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 4.5,
        "elinewidth": 1,
        "capsize": 2.5,
    }


def hollow(i: int) -> dict[str, Any]:
    """Draw what is published of the i-th mode."""
    return {
        "color": SERIES[i % len(SERIES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markerfacecolor": PAPER,
    }


def nothing(axis: Axes) -> None:
    """Say in a panel that there is nothing to draw."""
    axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", va="center")
    axis.tick_params(left=False, labelleft=False)
