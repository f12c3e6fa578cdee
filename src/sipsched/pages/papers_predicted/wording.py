"""Names of the predicted quantities, settings and effects, and sentences about the origin of the numbers."""

import math
from collections import Counter
from collections.abc import Iterable

import pandas as pd

from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers import MODES, SHORT
from sipsched.analysis.papers_fit import METRICS
from sipsched.analysis.papers_predicted import Direction, PaperGroup
from sipsched.words import grouped, listed, plural

PREDICTED = "Predicted by simulation, not measured"
NAMES = dict(zip(METRICS, ("T_sip", "K_rcv", "PDR"), strict=True)) | {"capacity_cps": "capacity"}
UNITS = {"t_sip_us": "µs", "k_rcv_us": "µs", "pdr": "%", "capacity_cps": "cps"}
SCALES = {"pdr": 100.0}
GROUPS = dict(
    zip(
        PaperGroup,
        ("baseline, 1 and 2 cores", "enhanced, 1 and 2 cores", "4 cores", "6 cores"),
        strict=True,
    )
)
"""Short names of the groups, for a figure."""


def provenance(runs: pd.DataFrame) -> str:
    """Return the label of a figure's numbers, which says that they are simulated."""
    return PREDICTED if len(runs) else f"{PREDICTED}: no run"


def simulated(runs: pd.DataFrame) -> str:
    """Describe the simulated runs and the published numbers beside them."""
    calls = " or ".join(grouped(run) for run in sorted(set(runs["calls"])))
    amount = f"{grouped(len(runs))} runs of {calls} calls" if len(runs) else "no run"
    return (
        f"Model opensips-papers, CFS of Linux 5.10, {amount}. The published numbers were not measured here: "
        f"{'; '.join(SHORT.values())}."
    )


def place(cores: int, threads: int, cps: int) -> str:
    """Name a setting and its load."""
    return f"{plural(cores, 'core')}, {plural(threads, 'thread')}, {cps} cps"


def scaled(metric: str) -> float:
    """Return the factor that converts a value to the page's unit."""
    return SCALES.get(metric, 1.0)


def in_unit(interval: Interval, metric: str) -> Interval:
    """Convert a number and the ends of its interval to the page's unit."""
    return interval.map(lambda value: value * scaled(metric))


def factor(log: float) -> str:
    """Write a root mean square of log ratios as a factor."""
    return f"{math.exp(log):.2f}"


def counted(directions: Iterable[Direction]) -> str:
    """Count the effects by direction, such as "25 are reproduced and 1 has the opposite sign"."""
    counts = Counter(directions)
    verbs = {Direction.OPPOSITE: ("has", "have"), Direction.NONE: ("has", "have")}
    return listed(
        [
            f"{counts[direction]} {verbs.get(direction, ('is', 'are'))[counts[direction] > 1]} "
            f"{direction.removeprefix('with ').replace('without any', 'no')}"
            for direction in Direction
            if counts[direction]
        ]
    )


def compared() -> str:
    """Name the two modes that a difference compares, in the order of the subtraction."""
    return f"{MODES[0]} minus {MODES[1]}"
