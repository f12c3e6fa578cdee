"""Names of the predicted quantities, settings and effects, and sentences about the origin of the numbers."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers import MODES, SHORT
from sipsched.analysis.papers_fit import METRICS
from sipsched.analysis.papers_predicted import Direction, PaperGroup, PublishedEffect
from sipsched.pages.numbers import NO_ENTRY
from sipsched.words import grouped, listed, number, plural

PREDICTED = "Predicted by simulation, not measured"
NAMES = dict(zip(METRICS, ("T_sip", "K_rcv", "PDR"), strict=True)) | {"capacity_cps": "capacity"}
UNITS = {"t_sip_us": "µs", "k_rcv_us": "µs", "pdr": "%", "capacity_cps": "cps"}
SCALES = {"pdr": 100.0}
WHOLE_PERCENT = 100.0
"""The largest possible decrease of a quantity in percent. If only larger decreases are detectable, none is."""
GROUPS = dict(
    zip(
        PaperGroup,
        ("baseline, 1 and 2 cores", "enhanced, 1 and 2 cores", "4 cores", "6 cores"),
        strict=True,
    )
)
"""Short names of the groups of published numbers, for figures and sentences."""


def provenance(runs: pd.DataFrame) -> str:
    """Return the label that marks the numbers of a figure or table as simulated."""
    return PREDICTED if len(runs) else f"{PREDICTED}: no run"


def simulated(runs: pd.DataFrame) -> str:
    """Return sentences on the number of simulated runs, and on the sources of the published numbers."""
    calls = " or ".join(grouped(run) for run in sorted(set(runs["calls"])))
    amount = f"{grouped(len(runs))} runs of {calls} calls" if len(runs) else "no run"
    return (
        f"Simulated with the model opensips-papers and the scheduler CFS of Linux 5.10: {amount}. The published "
        f"numbers were not measured here, and are from: {'; '.join(SHORT.values())}."
    )


def place(cores: int, threads: int, cps: int) -> str:
    """Return cores, threads and load as text, such as "1 core, 4 threads, 900 cps"."""
    return f"{plural(cores, 'core')}, {plural(threads, 'thread')}, {grouped(cps)} cps"


def scaled(metric: str) -> float:
    """Return the factor that converts a value to the unit on the page, such as 100 from a share to percent."""
    return SCALES.get(metric, 1.0)


def in_unit(interval: Interval, metric: str) -> Interval:
    """Return an estimate and its confidence interval, converted to the unit on the page."""
    return interval.map(lambda value: value * scaled(metric))


def factor(log: float) -> str:
    """Return a prediction error as a factor, such as "1.25". `log` is the root mean square of logarithms of ratios."""
    return f"{math.exp(log):.2f}"


def counted(directions: Iterable[Direction]) -> str:
    """Return the number of effects per direction as text: "25 are reproduced and 1 has the opposite sign"."""
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


def published_sign(effects: Sequence[PublishedEffect]) -> str:
    """Return the number of simulated effects with the sign of the published effect as text, such as "8 of 38"."""
    same = sum(effect.predicted.estimate * effect.published > 0 for effect in effects)
    return f"{same} of {len(effects)}" if effects else ""


def detectable(percent: float) -> str:
    """Return the smallest decrease that the simulation detects as text, for a table."""
    if math.isnan(percent):
        return NO_ENTRY
    return number(percent) if percent <= WHOLE_PERCENT else "none"


def compared() -> str:
    """Return the names of the two compared modes as text: "baseline minus enhanced"."""
    return f"{MODES[0]} minus {MODES[1]}"
