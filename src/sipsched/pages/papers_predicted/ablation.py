"""What makes the difference between the modes: mechanisms switched off, settings put back."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from sipsched.analysis.papers_predicted import ABLATED, Ablation, Part
from sipsched.analysis.statistics import Interval
from sipsched.pages.drawing import INK, SERIES, STYLE, themed
from sipsched.pages.numbers import in_words, told
from sipsched.pages.papers_predicted.wording import (
    NAMES,
    UNITS,
    compared,
    in_unit,
    picture,
    place,
    provenance,
    scaled,
)
from sipsched.pages.parts import Cell, Figure, Table
from sipsched.words import number

MEANING = {
    "lock": "the lock that workers share",
    "switches": "context switches",
    "refills": "cache refills after a migration",
    "stalls": "stalls of a CPU",
    "receive": "receive softirqs",
    "placement": "wake-up placement and balancing",
    "migration_cost": "the cache-hot test (migration cost)",
}


def whole_words(found: Ablation) -> str:
    """Say what the whole difference is, and if it is none, what would have been seen."""
    unit, scale = _unit(found.metric), scaled(found.metric)
    whole = in_unit(found.whole, found.metric)
    name = f"{NAMES[found.metric]}, {compared()}"
    if not whole.known:
        return f"{name}: {in_words(whole, unit)}."
    if not found.told:
        least = f"{number(found.detectable * scale)} {unit}"
        return (
            f"{name}: {in_words(whole, unit)}, not told from 0; {least} would have been seen with a power of "
            f"80 %. {_parts_words(found)}"
        )
    return f"{name}: {in_words(whole, unit)}. {_parts_words(found)}"


def _parts_words(found: Ablation) -> str:
    unit, scale = _unit(found.metric), scaled(found.metric)
    parts = [
        f"{number(each.part.estimate * scale)} {unit} from {_name(each)}"
        for each in (*found.mechanisms, *found.settings)
        if _is_told(each.part)
    ]
    return f"Told from 0: {'; '.join(parts)}." if parts else "No part of it is told from 0."


def _is_told(part: Interval) -> bool:
    return part.known and not part.low <= 0 <= part.high


def _unit(metric: str) -> str:
    return "points" if metric == "pdr" else UNITS[metric]


def _name(part: Part) -> str:
    return MEANING.get(part.name, part.name)


def figure(found: Sequence[Ablation], runs: pd.DataFrame) -> Figure:
    """Draw what comes from each mechanism and each setting, with intervals.

    Parameters
    ----------
    found
        One a metric.
    runs
        As `sipsched.analysis.papers_predicted.load_predictions` returns it.
    """
    caption = (
        f"Predicted by simulation, {place(*ABLATED)}: the whole difference, {compared()}, and what of it goes "
        "when a mechanism is switched off, or when a setting of enhanced mode is put back to its value in "
        "baseline mode. 95 % intervals over seeds, with the same arrivals; those of the parts hold together. "
        "Parts need not add up."
    )
    seen = tuple(whole_words(each) for each in found) or ("Nothing of it was simulated.",)
    return picture(
        "figure-ablation",
        "What makes the difference between the modes",
        partial(_draw, found),
        caption,
        seen,
        runs,
    )


def _draw(found: Sequence[Ablation], across: int, width: float) -> str:
    down = max(math.ceil(len(found) / across), 1)
    with rc_context({**STYLE, "font.size": 8.0}):
        canvas = Canvas(figsize=(width, 3.1 * down), layout="constrained")
        grid = canvas.subplots(down, across, squeeze=False).ravel()
        for axis in grid[len(found) :]:
            axis.set_visible(False)
        for column, (axis, each) in enumerate(zip(grid, found, strict=False)):
            scale = scaled(each.metric)
            rows = [("the whole difference", each.whole)]
            rows += [(_name(part), part.part) for part in (*each.mechanisms, *each.settings)]
            for row, (_, interval) in enumerate(rows):
                middle = scale * interval.estimate
                ends = (
                    [scale * interval.low, scale * interval.high]
                    if interval.known
                    else [middle] * 2
                )
                color = SERIES[0] if row else INK
                axis.plot(ends, [row, row], color=color, linewidth=1.4)
                axis.plot([middle], [row], color=color, marker="o", markersize=4)
            axis.axvline(0, color=INK, linewidth=0.8)
            axis.set_yticks(range(len(rows)), [name for name, _ in rows])
            axis.tick_params(labelleft=column % across == 0)
            axis.set_ylim(len(rows) - 0.5, -0.5)
            axis.set_xlabel(f"{NAMES[each.metric]} ({_unit(each.metric)})")
        return themed(canvas)


def table(found: Sequence[Ablation], runs: pd.DataFrame) -> Table:
    """List the same.

    Parameters are those of `figure`.
    """
    rows: list[tuple[Cell, ...]] = []
    for each in found:
        name, metric = f"{NAMES[each.metric]} ({_unit(each.metric)})", each.metric
        whole = told(in_unit(each.whole, metric), _unit(metric), each.whole.n)
        rows.append((name, "the whole difference", whole, "", str(each.whole.n)))
        for kind, parts in (("without", each.mechanisms), ("with baseline's", each.settings)):
            rows += [
                (
                    *(name, f"{kind} {_name(part)}"),
                    *(
                        told(in_unit(each, metric), _unit(metric), each.n)
                        for each in (part.left, part.part)
                    ),
                    str(part.part.n),
                )
                for part in parts
            ]
    return Table(
        identity="table-ablation",
        places=1,
        header=("metric", "simulated", compared(), "comes from it", "pairs of runs"),
        rows=tuple(rows),
        none="nothing of it was simulated",
        caption=f"The difference between the modes taken apart, {place(*ABLATED)}.",
        provenance=provenance(runs),
    )
