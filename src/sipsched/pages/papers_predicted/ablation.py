"""The causes of the difference between the papers' two modes: the effect of each mechanism and each setting."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from sipsched.analysis.papers_predicted import ABLATED, Ablation, Contribution
from sipsched.pages.drawing import INK, SERIES, titled
from sipsched.pages.numbers import in_words, told, with_unit
from sipsched.pages.papers_predicted.wording import (
    NAMES,
    UNITS,
    compared,
    in_unit,
    place,
    provenance,
    scaled,
)
from sipsched.pages.parts import Cell, Figure, Table
from sipsched.pages.plots import wrapped
from sipsched.words import number

UNCORRECTED = (
    "The interval of the whole difference is for one comparison alone. The table of baseline against enhanced mode "
    "corrects the interval of the same difference for the number of rows, so that interval is wider."
)
MEANING = {
    "lock": "the lock that workers share",
    "switches": "context switches",
    "refills": "cache refills after a migration",
    "stalls": "stalls of a CPU",
    "receive": "receive softirqs",
    "placement": "wake-up placement and balancing",
    "migration_cost": "the cache-hot test (migration cost)",
}


def whole_words(ablation: Ablation) -> str:
    """Return sentences with the simulated difference between the papers' two modes and the parts of this difference.

    If the difference is not significant, name the detectable difference.
    """
    unit, scale = _unit(ablation.metric), scaled(ablation.metric)
    whole = in_unit(ablation.whole, ablation.metric)
    difference = f"{NAMES[ablation.metric]}: the simulated difference {compared()} is {in_words(whole, unit)}"
    if not whole.known:
        return f"{difference}."
    difference += " (the interval is not corrected for several comparisons)"
    if not ablation.whole.excludes_zero:
        least = f"{number(ablation.detectable * scale)} {unit}"
        return (
            f"{difference}, which is indistinguishable from 0. The simulation detects a difference of {least} in four "
            f"of five cases. {_parts_words(ablation)}"
        )
    return f"{difference}. {_parts_words(ablation)}"


def _parts_words(ablation: Ablation) -> str:
    unit, scale = _unit(ablation.metric), scaled(ablation.metric)
    parts = [
        f"{number(contribution.part.estimate * scale)} {unit} from {_name(contribution)}"
        for contribution in (*ablation.mechanisms, *ablation.settings)
        if contribution.part.excludes_zero
    ]
    if not parts:
        return (
            "Each part of this difference that the simulation attributes to a mechanism or a setting is "
            "indistinguishable from 0."
        )
    return f"These parts of the difference differ from 0 by more than chance: {'; '.join(parts)}."


def _unit(metric: str) -> str:
    return "percentage points" if metric == "pdr" else UNITS[metric]


def _name(part: Contribution) -> str:
    return MEANING.get(part.name, part.name)


def figure(ablations: Sequence[Ablation], runs: pd.DataFrame) -> Figure:
    """Draw how much each mechanism and each setting contributes to the difference between the papers' two modes."""

    def draw(axis: Axes, i: int, first: bool) -> None:
        metric = ablations[i].metric
        rows = [("the whole difference", ablations[i].whole)]
        rows += [
            (_name(part), part.part) for part in (*ablations[i].mechanisms, *ablations[i].settings)
        ]
        for row, (_, interval) in enumerate(rows):
            shown = in_unit(interval, metric)
            ends = [shown.low, shown.high] if shown.known else [shown.estimate] * 2
            color = SERIES[0] if row else INK
            axis.plot(ends, [row, row], color=color, linewidth=1.4)
            (point,) = axis.plot([shown.estimate], [row], color=color, marker="o", markersize=4)
            titled(point, [f"{rows[row][0]}: {with_unit(shown, _unit(metric), '+')}"])
        axis.axvline(0, color=INK, linewidth=0.8)
        axis.set_yticks(range(len(rows)), [name for name, _ in rows])
        axis.tick_params(labelleft=first)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_xlabel(f"{NAMES[metric]} ({_unit(metric)})")

    return Figure(
        identity="figure-ablation",
        draw=wrapped([""] * len(ablations), draw, across=2, height_in=3.1),
        caption=f"The difference {compared()}, and how much of it each mechanism and each setting causes, at "
        f"{place(*ABLATED)}.",
        reading="Each row is a part of the difference. A part shows how much smaller the difference becomes if the "
        "simulator omits one mechanism, or if one setting of enhanced mode has the value of baseline mode. The "
        "95 % intervals come from simulations with different random numbers and the same arrivals. The intervals of "
        f"the parts are corrected for the number of parts. {UNCORRECTED} The sum of the parts can differ from the "
        "whole difference.",
        seen=tuple(whole_words(ablation) for ablation in ablations)
        or ("This difference was not simulated.",),
        provenance=provenance(runs),
    )


def table(ablations: Sequence[Ablation], runs: pd.DataFrame) -> Table:
    """Return a table of contributions to the difference between the papers' modes, a row per mechanism or setting."""
    rows: list[tuple[Cell, ...]] = []
    for ablation in ablations:
        name, metric = f"{NAMES[ablation.metric]} ({_unit(ablation.metric)})", ablation.metric
        whole = told(in_unit(ablation.whole, metric), _unit(metric), ablation.whole.n)
        rows.append((name, "the whole difference", whole, "", str(ablation.whole.n)))
        for kind, parts in (
            ("without", ablation.mechanisms),
            ("with baseline's", ablation.settings),
        ):
            rows += [
                (
                    *(name, f"{kind} {_name(part)}"),
                    *(
                        told(in_unit(interval, metric), _unit(metric), interval.n)
                        for interval in (part.left, part.part)
                    ),
                    str(part.part.n),
                )
                for part in parts
            ]
    return Table(
        identity="table-ablation",
        places=1,
        header=("metric", "simulated", compared(), "part of the difference", "pairs of runs"),
        rows=tuple(rows),
        none="this difference was not simulated",
        caption=f"The difference {compared()} if one mechanism is omitted or one setting is equal in both modes, at "
        f"{place(*ABLATED)}.",
        reading='The column "simulated" names the mechanism that the simulator omits, or the setting that enhanced '
        'mode takes from baseline mode. The next column shows the difference that remains. The column "part of the '
        'difference" shows the whole difference minus the remaining difference. The intervals of this column are '
        f"corrected for the number of parts. {UNCORRECTED}",
        provenance=provenance(runs),
    )
