"""Figures and tables that compare predicted with published numbers, and the predicted capacities."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sipsched.analysis.crossing_load import PDR_LIMIT
from sipsched.analysis.papers_predicted import Error, PaperGroup
from sipsched.pages.drawing import INK, MARKERS, SERIES, titled
from sipsched.pages.numbers import signed
from sipsched.pages.papers_predicted.wording import (
    GROUPS,
    NAMES,
    UNITS,
    factor,
    provenance,
    scaled,
)
from sipsched.pages.parts import Figure, Table
from sipsched.pages.plots import wrapped
from sipsched.words import grouped, number, plural


def figure(
    table: pd.DataFrame, capacities: pd.DataFrame, found_errors: Sequence[Error], runs: pd.DataFrame
) -> Figure:
    """Draw each predicted number against the published number, with one panel per quantity, such as the drop rate."""
    both = pd.concat([table, capacities]).dropna(subset=["published", "predicted"])

    def draw(axis: Axes, i: int, _: bool) -> None:
        metric = list(NAMES)[i]
        part = both[(both["metric"] == metric) & (both["predicted"] > 0)]
        _panel(axis, part, metric)
        axis.set_xlabel("published")
        axis.set_ylabel("predicted")

    titles = [f"{name} ({UNITS[metric]})" for metric, name in NAMES.items()]
    return Figure(
        identity="figure-predicted",
        draw=wrapped(titles, draw, across=2, height_in=2.9),
        caption="Predicted against published numbers, by quantity.",
        reading="Each mark is a published number. On the diagonal line, the prediction equals the published number. "
        "The model was fitted only to the numbers with blue marks. The capacity is the largest load with a PDR of at "
        f"most {100 * PDR_LIMIT:g} %. The scales are logarithmic, so predicted drop rates of 0 are not drawn.",
        seen=tuple(_error_words(metric, found_errors) for metric in NAMES),
        provenance=provenance(runs),
    )


def _panel(axis: Axes, part: pd.DataFrame, metric: str) -> None:
    if part.empty:
        axis.text(0.5, 0.5, "nothing predicted", transform=axis.transAxes, ha="center")
        return
    values = scaled(metric) * part[["published", "predicted"]].to_numpy(float)
    ends = np.array([values.min() / 1.3, values.max() * 1.3])
    axis.plot(ends, ends, color=INK, linewidth=0.8)
    for group, marker, color in zip(PaperGroup, MARKERS, SERIES, strict=False):
        here = (part["group"] == group).to_numpy()
        (points,) = axis.plot(
            *values[here].T,
            linestyle="none",
            marker=marker,
            markersize=3.5,
            color=color,
            label=GROUPS[group],
        )
        titled(points, [_title(row, metric) for row in part[here].to_dict("records")])
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0)))
        one.set_major_formatter(FuncFormatter(grouped))
        one.set_minor_formatter(NullFormatter())


def _title(row: Mapping[Hashable, Any], metric: str) -> str:
    """Return the text that the page shows on hover over a mark: the setting, and both numbers."""
    where = f"{plural(row['cores'], 'core')}, {plural(row['threads'], 'thread')}"
    if not pd.isna(row.get("cps")):
        where += f", {grouped(row['cps'])} cps"
    published, predicted = (
        number(scaled(metric) * row[name]) for name in ("published", "predicted")
    )
    return f"{row['mode']}, {where}: published {published} {UNITS[metric]}, predicted {predicted} {UNITS[metric]}"


def _error_words(metric: str, found_errors: Sequence[Error]) -> str:
    these = [error for error in found_errors if error.metric == metric]
    if not these:
        return f"{NAMES[metric]}: no published number was predicted."
    parts = [
        f"{factor(error.simulator)} for "
        f"{GROUPS[error.group]}{' (fitted)' if error.group is PaperGroup.FITTED else ''}, compared with "
        f'{factor(error.same_threads)} for the prediction "same threads"'
        for error in these
    ]
    return (
        f"{NAMES[metric]}: the simulator's predictions are wrong by a factor of {'; '.join(parts)}."
    )


def errors(found_errors: Sequence[Error], runs: pd.DataFrame) -> Table:
    """Return a table of prediction errors: of the simulator, and of simple predictions without a simulator."""
    rows = [
        (
            *(NAMES[error.metric], str(error.group), str(error.n), factor(error.simulator)),
            *(factor(error.same_threads), factor(error.mean), "yes" if error.best else "no"),
        )
        for error in sorted(found_errors, key=lambda error: list(NAMES).index(error.metric))
    ]
    return Table(
        identity="table-errors",
        header=(
            "metric",
            "of the papers",
            "numbers",
            "simulator",
            "same threads",
            "mean",
            "simulator is best",
        ),
        rows=tuple(rows),
        none="no published number was predicted",
        caption="Factors by which the predictions of the simulator, and two simple predictions, are wrong.",
        reading="The factor is computed from the root mean square of the logarithm of predicted / published. If all "
        'predictions are exact, the factor is 1.00. The column "numbers" shows the number of published numbers '
        'in the group. For PDR, 0.1 percentage points are first added to both numbers. The prediction "same '
        'threads" is the geometric mean of the fitted numbers with the same number of threads. For one core, '
        "this prediction uses the numbers of one core. For more cores, it uses the numbers of two cores. The "
        'prediction "mean" is the mean of all fitted numbers. The papers chose loads at which PDR is just below '
        "or just above 1\u00a0%, so the mean predicts PDR well.",
        provenance=provenance(runs),
    )


def numbers(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """Return a table of the papers' published numbers beside the predictions. The page shows only the first 12 rows."""
    rows = []
    for row in table.itertuples():
        scale, off = scaled(row.metric), 100 * (row.predicted / row.published - 1)
        rows.append(
            (
                *(row.mode, str(row.cores), str(row.threads), str(row.cps)),
                f"{NAMES[row.metric]} ({UNITS[row.metric]})",
                *(number(scale * row.published), number(scale * row.predicted), signed(off)),
                *(number(scale * row.same_threads), number(scale * row.mean)),
                "yes" if row.group is PaperGroup.FITTED else "no",
            )
        )
    return Table(
        identity="table-numbers",
        header=(
            *("mode", "cores", "threads", "cps", "metric", "published", "predicted", "off by (%)"),
            *("same threads", "mean", "fitted"),
        ),
        rows=tuple(rows),
        none="no published number was predicted",
        caption="Every number of the papers' tables of measurements, with the prediction of the simulator and the "
        "two simple predictions.",
        provenance=provenance(runs),
        shown=12,
    )


def capacities(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """Return a table of the largest loads with at most 1 % of messages dropped, by number of cores and threads."""
    rows = []
    for (cores, threads), cell in table.groupby(["cores", "threads"]):
        by_mode = cell.set_index("mode")
        values = [
            (by_mode["predicted"].get(mode, np.nan), by_mode["published"].get(mode, np.nan))
            for mode in ("baseline", "enhanced")
        ]
        shown = [
            text
            for predicted, published in values
            for text in (_load(predicted, "not bracketed"), _load(published, ""))
        ]
        rows.append((plural(cores, "core"), str(threads), *shown))
    return Table(
        identity="table-grid",
        groups=(("", 2), ("baseline (cps)", 2), ("enhanced (cps)", 2)),
        header=("", "threads", *("predicted", "published") * 2),
        rows=tuple(rows),
        none="the grid was not simulated",
        caption=f"The largest load with a PDR of at most {100 * PDR_LIMIT:g} %, predicted and published.",
        reading="The simulated loads are 200 cps apart, with 3 runs per load. The papers print no numbers for one "
        'thread or for eight cores. The words "not bracketed" mean that PDR is above the limit at all simulated '
        "loads, or below the limit at all of them.",
        provenance=provenance(runs),
    )


def _load(cps: float, otherwise: str) -> str:
    return otherwise if np.isnan(cps) else grouped(cps)
