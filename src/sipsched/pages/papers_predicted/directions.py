"""The published effects of the modes and of the migration cost, and what became of them in the simulator."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from sipsched.analysis.papers_predicted import EFFECTS, Direction, Effect, MigrationCost
from sipsched.pages.drawing import INK, PAPER, SERIES, STYLE, legend, themed
from sipsched.pages.numbers import told, with_unit
from sipsched.pages.papers_predicted.wording import (
    NAMES,
    UNITS,
    in_unit,
    picture,
    place,
    provenance,
)
from sipsched.pages.parts import Figure, Table
from sipsched.words import number, plural

LEAST = -100.0
"""Percent lower at which an axis ends: what is more than twice as high is cut off."""


def figure(effects: Sequence[Effect], runs: pd.DataFrame) -> Figure:
    """Draw by how much enhanced mode is lower, predicted and published.

    Parameters
    ----------
    effects
        As `sipsched.analysis.papers_predicted.effects` returns them.
    runs
        As `sipsched.analysis.papers_predicted.load_predictions` returns it.
    """
    caption = (
        "By how many percent enhanced mode is lower than baseline mode at the same load. Dots and lines: predicted by "
        "simulation, 95 % intervals over seeds that hold together, cut off at −100 %; open diamonds: published. "
        "Right of 0 is what the papers found."
    )
    seen = tuple(_seen(effects, metric) for metric in EFFECTS)
    return picture(
        "figure-directions",
        "Effects of enhanced mode, predicted and published",
        partial(_draw, effects),
        caption,
        seen,
        runs,
    )


def _draw(effects: Sequence[Effect], across: int, width: float) -> str:
    down = math.ceil(len(EFFECTS) / across)
    with rc_context({**STYLE, "font.size": 8.0}):
        canvas = Canvas(figsize=(width, 0.6 + 4.4 * down), layout="constrained")
        grid = canvas.subplots(down, across, squeeze=False)
        for column, (axis, metric) in enumerate(zip(grid.ravel(), EFFECTS, strict=True)):
            these = [effect for effect in effects if effect.metric == metric]
            for row, effect in enumerate(these):
                lower = effect.predicted
                middle = max(lower.estimate, LEAST)
                ends = [max(lower.low, LEAST), lower.high] if lower.known else [middle, middle]
                axis.plot(ends, [row, row], color=SERIES[0], linewidth=1.4)
                axis.plot([middle], [row], "o", color=SERIES[0], markersize=3.5, label="predicted")
                axis.plot(
                    [effect.published],
                    [row],
                    "D",
                    color=SERIES[1],
                    markerfacecolor=PAPER,
                    markersize=4.5,
                    label="published",
                )
            axis.axvline(0, color=INK, linewidth=0.8)
            names = [place(each.cores, each.threads, each.cps) for each in these]
            axis.set_yticks(range(len(these)), names)
            axis.tick_params(labelleft=column % across == 0)
            axis.set_ylim(max(len(these), 1) - 0.5, -0.5)
            axis.set_xlabel("enhanced is lower by (%)")
            axis.set_title(NAMES[metric], loc="left")
        legend(canvas, grid)
        return themed(canvas)


def _seen(effects: Sequence[Effect], metric: str) -> str:
    these = [effect for effect in effects if effect.metric == metric]
    if not these:
        return f"{NAMES[metric]}: nothing was simulated."
    counts = [f"{sum(effect.direction is each for effect in these)} {each}" for each in Direction]
    predicted = [effect.predicted.estimate for effect in these]
    published = [effect.published for effect in these]
    return (
        f"{NAMES[metric]}, {plural(len(these), 'row')}: {', '.join(counts)}. Lower by {number(min(predicted))} to "
        f"{number(max(predicted))} % predicted, {number(min(published))} to {number(max(published))} % published."
    )


def table(effects: Sequence[Effect], runs: pd.DataFrame) -> Table:
    """List the same.

    Parameters are those of `figure`.
    """
    rows = [
        (
            f"{place(effect.cores, effect.threads, effect.cps)} (Table {effect.table})",
            *(NAMES[effect.metric], number(effect.published)),
            *(told(effect.predicted, "%", effect.predicted.n), str(effect.direction)),
            number(effect.detectable),
            "yes" if effect.holds else "no",
        )
        for effect in effects
    ]
    return Table(
        identity="table-directions",
        header=(
            *("row of the papers", "metric", "published (%)", "predicted (%)", "direction"),
            "would have been seen (%)",
            "published size in the interval?",
        ),
        rows=tuple(rows),
        none="nothing was simulated",
        caption="By how many percent enhanced mode is lower. Reproduced: lower by more than chance (Holm over all "
        "rows); opposite: higher by more than chance; would have been seen: the least difference that is told from "
        "chance with a power of 80 %; no difference at all: the same in each pair of runs to the last "
        "digit, as where there are no more threads than cores and the scheduler has nothing to choose.",
        provenance=provenance(runs),
    )


def costs(found: Sequence[MigrationCost], runs: pd.DataFrame) -> Table:
    """List the migration costs of figure 2; the paper prints which is best and no values.

    Parameters
    ----------
    found
        As `sipsched.analysis.papers_predicted.migration_costs` returns them.
    runs
        As `sipsched.analysis.papers_predicted.load_predictions` returns it.
    """
    rows = []
    for each in found:
        for cost, value in each.values.items():
            best = cost == each.best_ns
            rows.append(
                (
                    place(each.cores, each.threads, each.cps),
                    f"{NAMES[each.metric]} ({UNITS[each.metric]})",
                    f"{number(cost / 1000)} µs",
                    told(in_unit(value, each.metric), UNITS[each.metric], value.n),
                    "best, as published" if best else _told(each, cost),
                )
            )
    return Table(
        identity="table-costs",
        header=("point", "metric", "migration cost", "predicted", "beside the published best"),
        places=2,
        rows=tuple(rows),
        none="nothing was simulated",
        caption="Figure 2 of the multi-core paper: enhanced mode with its migration cost overridden. The last column: "
        "by how many percent the published best is lower than this cost, and whether that is more than chance.",
        provenance=provenance(runs),
    )


def _told(found: MigrationCost, cost: int) -> str:
    if cost not in found.lower:
        return "not simulated"
    lower = found.lower[cost]
    return f"lower by {with_unit(lower, '%')}: {found.directions[cost]}"
