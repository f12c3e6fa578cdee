"""The published effects of enhanced mode and of the migration cost (a scheduler setting), beside simulated effects."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from sipsched.analysis.intervals import Interval
from sipsched.analysis.papers_predicted import EFFECTS, READINGS, MigrationCost, PublishedEffect
from sipsched.pages.drawing import INK, PAPER, SERIES, titled
from sipsched.pages.numbers import told, with_unit
from sipsched.pages.papers_predicted.wording import (
    NAMES,
    UNITS,
    counted,
    detectable,
    in_unit,
    place,
    provenance,
    published_sign,
)
from sipsched.pages.parts import Cell, Figure, Table
from sipsched.pages.plots import wrapped
from sipsched.words import number, plural, ranged

LEAST = -100.0
"""Left end of the figure's axis of decreases, in percent. Values that more than double are drawn at this end."""


def figure(effects: Sequence[PublishedEffect], runs: pd.DataFrame) -> Figure:
    """Draw by how many percent each quantity is lower in enhanced than in baseline mode, predicted and published."""

    def draw(axis: Axes, i: int, first: bool) -> None:
        these = [effect for effect in effects if effect.metric == EFFECTS[i]]
        for row, effect in enumerate(these):
            lower = effect.predicted
            middle = max(lower.estimate, LEAST)
            ends = [max(lower.low, LEAST), lower.high] if lower.known else [middle, middle]
            axis.plot(ends, [row, row], color=SERIES[0], linewidth=1.4)
            where = place(effect.cores, effect.threads, effect.cps)
            (point,) = axis.plot(
                [middle], [row], "o", color=SERIES[0], markersize=3.5, label="predicted"
            )
            titled(point, [f"{where}: predicted {with_unit(lower, '%', '+')}"])
            (point,) = axis.plot(
                *([effect.published], [row], "D"),
                color=SERIES[1],
                markerfacecolor=PAPER,
                markersize=4.5,
                label="published",
            )
            titled(point, [f"{where}: published {number(effect.published)} %"])
        axis.axvline(0, color=INK, linewidth=0.8)
        names = [place(effect.cores, effect.threads, effect.cps) for effect in these]
        axis.set_yticks(range(len(these)), names)
        axis.tick_params(labelleft=first)
        axis.set_ylim(max(len(these), 1) - 0.5, -0.5)
        axis.set_xlabel("enhanced is lower by (%)")

    return Figure(
        identity="figure-directions",
        draw=wrapped([NAMES[metric] for metric in EFFECTS], draw, across=2, height_in=4.4),
        caption="The decrease of each quantity from baseline mode to enhanced mode, predicted and published.",
        reading="Each dot is a prediction by simulation. Its 95\u00a0% interval comes from simulations with "
        "different random numbers, and is corrected for the number of rows. The axis ends at −100 %. Each diamond "
        "is a published number. If a dot or a diamond lies right of 0, the value in enhanced mode is lower than in "
        "baseline mode.",
        seen=tuple(_seen(effects, metric) for metric in EFFECTS),
        provenance=provenance(runs),
    )


def _seen(effects: Sequence[PublishedEffect], metric: str) -> str:
    these = [effect for effect in effects if effect.metric == metric]
    if not these:
        return f"{NAMES[metric]}: nothing was simulated."
    predicted = [effect.predicted.estimate for effect in these]
    published = [effect.published for effect in these]
    return (
        f"{NAMES[metric]}: of {plural(len(these), 'effect')}, {counted(effect.direction for effect in these)}. The "
        f"predicted decrease is {ranged(predicted)} %. The published decrease is {ranged(published)} %."
    )


def table(effects: Sequence[PublishedEffect], runs: pd.DataFrame) -> Table:
    """Return a table of the effects of enhanced mode, published and predicted, with a row per load and quantity."""
    rows = [
        (
            f"{place(effect.cores, effect.threads, effect.cps)} (Table {effect.table})",
            *(NAMES[effect.metric], number(effect.published)),
            *(told(effect.predicted, "%", effect.predicted.n), str(effect.direction)),
            detectable(effect.detectable),
            "yes" if effect.holds else "no",
        )
        for effect in effects
    ]
    return Table(
        identity="table-directions",
        header=(
            *("row of the papers' tables", "metric", "published (%)", "predicted (%)", "direction"),
            "detectable (%)",
            "interval contains the published size",
        ),
        rows=tuple(rows),
        none="nothing was simulated",
        caption="By how many percent the value in enhanced mode is lower than in baseline mode, published and "
        "predicted.",
        reading="An effect is reproduced if the simulated value in enhanced mode is lower by more than chance explains "
        "(with Holm's correction over all rows). An effect has the opposite sign if the simulated value is "
        "higher by more than chance explains. The intervals are corrected for the number of rows, so they are wider "
        'than the interval of one comparison alone. The column "detectable" shows the smallest decrease that the '
        'simulation detects in four of five cases. The word "none" means that no decrease is detectable, because a '
        "decrease of over 100 % is impossible. An effect is without any difference if the simulated runs of "
        "both modes are equal to the last digit. This happens if there are at most as many threads as cores, "
        "because the scheduler then has no choice.",
        provenance=provenance(runs),
    )


def readings(
    changes: Mapping[tuple[str, int, tuple[str, str]], Interval],
    printed: Sequence[PublishedEffect],
    scaled: Sequence[PublishedEffect],
    runs: pd.DataFrame,
) -> Table:
    """Return a table of the simulated effects of enhanced mode with the printed and the scaled times of baseline mode.

    Parameters
    ----------
    changes
        Result of `sipsched.analysis.papers_predicted.readings`.
    printed, scaled
        The papers' effects, simulated with the printed and with the scaled times.
    """
    rows: list[tuple[Cell, ...]] = []
    for metric, cores in dict.fromkeys((metric, cores) for metric, cores, _ in changes):
        between = [changes[metric, cores, modes] for modes in READINGS]
        signs = [
            published_sign(
                [effect for effect in effects if (effect.metric, effect.cores) == (metric, cores)]
            )
            for effects in (printed, scaled)
        ]
        rows.append(
            (
                *(NAMES[metric], plural(cores, "core")),
                *(told(change, "%", change.n, "+") for change in between),
                *signs,
            )
        )
    return Table(
        identity="table-readings",
        header=(
            *("metric", "cores", "printed times", "scaled times", "scaled against printed times"),
            *("printed times", "scaled times"),
        ),
        groups=(
            ("", 2),
            ("enhanced against baseline (%)", 2),
            ("baseline (%)", 1),
            ("effects with the published sign", 2),
        ),
        places=2,
        rows=tuple(rows),
        none="baseline mode was not simulated with scaled times",
        caption="The effects of enhanced mode if the times of baseline mode are the printed times, and if they are the "
        "printed times multiplied by 1 + log2(cores).",
        reading="The kernel rounds the logarithm down, so the factor is 2 on two cores, and 3 on four and six cores. "
        "The percentages are changes of the mean over the rows of the papers' comparison tables. The intervals are "
        "corrected for the number of comparisons in this table. The last two columns count the rows whose simulated "
        "effect has the same sign as the published effect, even if chance explains the simulated effect. The papers' "
        "comparison tables have no T_sip.",
        provenance=provenance(runs),
    )


def costs(found_costs: Sequence[MigrationCost], runs: pd.DataFrame) -> Table:
    """Return a table of the simulated effects of each migration cost in figure 2 of the multi-core paper.

    The migration cost is a scheduler setting. The paper states which cost is best, but prints no results per cost.
    """
    rows = []
    for migration in found_costs:
        for cost, value in migration.values.items():
            best = cost == migration.best_ns
            rows.append(
                (
                    place(migration.cores, migration.threads, migration.cps),
                    f"{NAMES[migration.metric]} ({UNITS[migration.metric]})",
                    f"{number(cost / 1000)} µs",
                    told(in_unit(value, migration.metric), UNITS[migration.metric], value.n),
                    "best according to the paper" if best else _told(migration, cost),
                )
            )
    return Table(
        identity="table-costs",
        header=(
            "point",
            "metric",
            "migration cost",
            "predicted",
            "change at the best cost",
        ),
        places=2,
        rows=tuple(rows),
        none="nothing was simulated",
        caption="Simulation of figure 2 of the multi-core paper, which compares several migration costs in enhanced "
        "mode.",
        reading="The last column compares the cost that is best according to the paper with the cost of the row. "
        "This column shows by how many percent the metric changes if the best cost replaces the cost of the row, "
        "and whether this change is larger than chance explains. If the simulation agrees with the paper, the "
        "change is negative. The intervals are corrected for the number of comparisons.",
        provenance=provenance(runs),
    )


def _told(found_cost: MigrationCost, cost: int) -> str:
    if cost not in found_cost.lower:
        return "not simulated"
    change = found_cost.lower[cost].map(lambda lower: -lower)
    return f"{with_unit(change, '%', '+')}: {found_cost.directions[cost]}"
