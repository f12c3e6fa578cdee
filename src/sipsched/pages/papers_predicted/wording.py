"""What the predictions are called, and where they come from."""

import math
from collections.abc import Callable

import pandas as pd

from sipsched.analysis.papers import MODES, SHORT
from sipsched.analysis.papers_fit import METRICS
from sipsched.analysis.papers_predicted import Group
from sipsched.analysis.statistics import Interval
from sipsched.pages.drawing import NARROW_IN, WIDTH_IN
from sipsched.pages.parts import Figure
from sipsched.words import grouped, plural

PREDICTED = "Predicted by simulation, not measured"
NAMES = dict(zip(METRICS, ("T_sip", "K_rcv", "PDR"), strict=True)) | {"capacity_cps": "capacity"}
UNITS = {"t_sip_us": "µs", "k_rcv_us": "µs", "pdr": "%", "capacity_cps": "cps"}
SCALES = {"pdr": 100.0}
GROUPS = dict(
    zip(
        Group,
        ("baseline, 1 and 2 cores", "enhanced, 1 and 2 cores", "4 cores", "6 cores"),
        strict=True,
    )
)
"""Short, for a picture."""


def provenance(runs: pd.DataFrame) -> str:
    """Say of a figure that it was simulated, and from how much."""
    return PREDICTED if len(runs) else f"{PREDICTED}: no run"


def simulated(runs: pd.DataFrame) -> str:
    """Say what was simulated, and what stands beside it."""
    calls = " or ".join(grouped(each) for each in sorted(set(runs["calls"])))
    amount = f"{grouped(len(runs))} runs of {calls} calls" if len(runs) else "no run"
    return (
        f"Model opensips-papers, CFS of Linux 5.10, {amount}. Beside it published numbers, not measured here: "
        f"{'; '.join(SHORT.values())}."
    )


def picture(
    identity: str,
    what: str,
    draw: Callable[[int, float], str],
    caption: str,
    seen: tuple[str, ...],
    runs: pd.DataFrame,
) -> Figure:
    """Make a figure of panels, two across or one below the other.

    Parameters
    ----------
    identity, caption, seen
        As of a `Figure`.
    what
        A title for who does not see it.
    draw
        From panels across and width in inches to an SVG.
    runs
        What was simulated.
    """
    return Figure(
        identity=identity,
        svg=draw(2, WIDTH_IN),
        narrow=draw(1, NARROW_IN),
        alt=f"{what}. {caption} {' '.join(seen)}",
        caption=caption,
        seen=seen,
        provenance=provenance(runs),
    )


def place(cores: int, threads: int, cps: int) -> str:
    """Name a point."""
    return f"{plural(cores, 'core')}, {plural(threads, 'thread')}, {cps} cps"


def scaled(metric: str) -> float:
    """Give what a value is multiplied by to be in its unit on the page."""
    return SCALES.get(metric, 1.0)


def in_unit(interval: Interval, metric: str) -> Interval:
    """Put a number with its ends into its unit on the page."""
    return interval.map(lambda value: value * scaled(metric))


def factor(log: float) -> str:
    """Write a root mean square of log ratios as the factor that it comes to."""
    return f"{math.exp(log):.2f}"


def compared() -> str:
    """Name the two modes in the order of a difference."""
    return f"{MODES[0]} less {MODES[1]}"
