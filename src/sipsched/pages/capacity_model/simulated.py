"""Capacity and the best number of threads by cores, predicted by simulation, beside the other models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from sipsched.analysis.capacity.predictions import BORROWED, LINEAR, extrapolations
from sipsched.analysis.capacity.simulated import CORES, RECEIVE, Simulated, by_cores, read
from sipsched.analysis.capacity.systems import Evidence
from sipsched.pages.drawing import MARKERS, NARROW_IN, SERIES, STYLE, WIDTH_IN, legend, themed
from sipsched.pages.numbers import in_words, told
from sipsched.pages.parts import Cell, Figure, Table, Words
from sipsched.plan.modes import DEFAULT
from sipsched.records.prediction import CapacityPrediction
from sipsched.words import grouped, number, plural

SIMULATED = "Predicted by simulation, not measured"
WIDENING = ("migrations cost nothing", "migrations cost thrice as much")
TWO_RECEIVE = "two CPUs receive"


@dataclass(frozen=True)
class Found:
    """A prediction, and its rows by cores."""

    prediction: CapacityPrediction
    rows: tuple[Simulated, ...]

    @property
    def provenance(self) -> str:
        """Say what the numbers are."""
        fitted = self.prediction.fitted
        if not self.rows:
            return f"{SIMULATED}: {fitted.why or 'no model was fitted'}."
        return (
            f"{SIMULATED}: {fitted.sut}, mode default, fitted to {plural(len(fitted.runs), 'run')} on one core; "
            f"computed in {number(self.prediction.cpu_s)} CPU seconds."
        )


def predicted(predictions: Sequence[Path]) -> Found:
    """Read what was simulated; of several testbeds the first."""
    found = read(predictions)
    return Found(found, by_cores(found, WIDENING))


def words(found: Found) -> Words:
    """Say what the cores carry by simulation, and what bounds it."""
    rows = found.rows
    if not rows:
        return Words((found.provenance,))
    most = max(rows, key=lambda row: row.capacity.estimate)
    # more cores than these add less than the interval is wide
    enough = next(row for row in rows if row.capacity.estimate >= 0.95 * most.capacity.estimate)
    lines = [
        f"{SIMULATED}: {plural(row.cores, 'core')} "
        f"{'carries' if row.cores == 1 else 'carry'} {in_words(row.capacity, 'cps')}, best with "
        f"{plural(row.threads, 'thread')}."
        for row in (rows[0], enough)
        if row is enough or row.cores != enough.cores
    ]
    if enough is not rows[-1]:
        lines.append(
            f"More than {plural(enough.cores, 'core')} add nothing, up to {rows[-1].cores}: one socket is "
            "received from by one CPU, or by as many as the two flows are steered to."
        )
    bounds = {
        RECEIVE: "receive softirqs take all of the CPU that receives",
        CORES: "the cores have no idle time left",
    }
    for row in (rows[0], enough) if enough is not rows[0] else (enough,):
        why = bounds.get(row.bound, "bursts fill the socket before any CPU is full")
        lines.append(
            f"What bounds {plural(row.cores, 'core')}: {why} (receive softirqs {100 * row.receive_share:.0f} % of "
            f"the busiest receiving CPU, all CPUs {100 * row.busy_share:.0f} % busy)."
        )
    two = next((row for row in reversed(rows) if TWO_RECEIVE in row.alternatives), None)
    if two:
        lines.append(
            f"With two CPUs receiving, {plural(two.cores, 'core')} would carry "
            f"{grouped(two.alternatives[TWO_RECEIVE])} cps."
        )
    lines.append(
        "Assumed, since runs on one core tell nothing of it: no waiting for locks, "
        f"{plural(found.prediction.cores_per_processor, 'core')} a processor, costs of a migration (the interval "
        "holds 0 to thrice as much), agents and links without limit, one socket."
    )
    return Words(tuple(lines))


def figure(found: Found, evidence: Evidence) -> Figure | Words:
    """Draw capacity by cores, beside what the other models say of the same SUT."""
    if not found.rows:
        return Words((found.provenance,))
    others = _others(found, evidence)
    caption = (
        "Capacity by cores, both in logarithmic steps: by simulation with the best number of threads, its "
        "interval of fits to samples of the runs and of the costs that are assumed; and what is said of one "
        "measured core carried to several."
    )
    seen = tuple(
        f"{plural(row.cores, 'core')}: {in_words(row.capacity, 'cps')} with {plural(row.threads, 'thread')}."
        for row in found.rows
    )
    return Figure(
        identity="figure-simulated-capacity",
        svg=_draw(found.rows, others, WIDTH_IN),
        narrow=_draw(found.rows, others, NARROW_IN),
        alt=f"Capacity by cores by simulation. {caption} {' '.join(seen)}",
        caption=caption,
        seen=(),
        provenance=f"{found.provenance} {evidence.own_provenance}",
    )


def _others(found: Found, evidence: Evidence) -> dict[str, list[float]]:
    sut = found.prediction.fitted.sut
    system = next((s for s in evidence.own if s.sut.startswith(sut) and s.mode == DEFAULT), None)
    if system is None:
        return {}
    said = [extrapolations(system, evidence, row.cores) for row in found.rows]
    return {name: [each[name].estimate for each in said] for name in (LINEAR, BORROWED)}


def _draw(rows: Sequence[Simulated], others: dict[str, list[float]], width: float) -> str:
    with rc_context({**STYLE, "font.size": 8.5}):
        canvas = Canvas(figsize=(width, 3.2), layout="constrained")
        axis = canvas.subplots()
        cores = np.array([row.cores for row in rows], float)
        estimates = np.array([row.capacity.estimate for row in rows])
        ends = [
            (row.capacity.low, row.capacity.high) if row.capacity.known else (estimate, estimate)
            for row, estimate in zip(rows, estimates, strict=True)
        ]
        lows, highs = np.array(ends).T
        axis.vlines(cores, lows, highs, color=SERIES[0])
        axis.plot(cores, estimates, color=SERIES[0], marker=MARKERS[0], label="by simulation")
        for place, (name, values) in enumerate(others.items(), start=1):
            if np.isfinite(values).any():
                axis.plot(
                    cores,
                    values,
                    color=SERIES[place],
                    linestyle="--",
                    marker=MARKERS[place],
                    label=name,
                )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(cores, [grouped(value) for value in cores])
        axis.yaxis.set_major_formatter(FuncFormatter(grouped))
        axis.set_xlabel("cores")
        axis.set_ylabel("capacity (cps)")
        legend(canvas, np.array([axis]), columns=1 if width < WIDTH_IN else 3)
        return themed(canvas)


def table(found: Found) -> Table:
    """List capacity, best threads and what bounds it by cores."""
    rows: list[tuple[Cell, ...]] = []
    for row in found.rows:
        tried = "; ".join(f"{each.threads}: {grouped(each.cps)}" for each in row.tried)
        others = "; ".join(f"{name}: {grouped(cps)}" for name, cps in row.alternatives.items())
        rows.append(
            (
                *(str(row.cores), str(row.threads), told(row.capacity, "cps")),
                *(f"{100 * row.receive_share:.0f} %", f"{100 * row.busy_share:.0f} %", row.bound),
                *(tried, others),
            )
        )
    return Table(
        identity="table-simulated-capacity",
        header=(
            *("cores", "threads", "capacity (cps)", "receive softirqs", "busy", "bound by"),
            *("threads: cps", "otherwise"),
        ),
        rows=tuple(rows),
        none=found.prediction.fitted.why or "nothing was simulated",
        caption="Capacity by cores by simulation, where the drop rate crosses the limit or receive softirqs "
        "fill a CPU, and the best number of threads of those tried. Receive "
        "softirqs: share of the busiest receiving CPU's time at that load; busy: of all CPUs. Otherwise: the "
        "same with other assumptions.",
        provenance=found.provenance,
    )
