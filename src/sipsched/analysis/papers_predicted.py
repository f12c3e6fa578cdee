"""What the simulator predicts of the papers' testbed, beside what the papers print.

Nothing in here was measured: the predictions are runs of `sipsched.measure.simulated_means`, one row each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from sipsched.analysis.families import Cell, Pair, compare_together
from sipsched.analysis.papers import LOAD_STEP_CPS, MODES, crossings, wide
from sipsched.analysis.papers_fit import FITTED_CORES, FITTED_MODE, FLOOR, METRICS
from sipsched.analysis.statistics import (
    LEVEL,
    PDR_LIMIT,
    Interval,
    grid_capacity,
    mean_interval,
    simultaneous_level,
)
from sipsched.errors import StableError
from sipsched.plan.modes import Counts, Setting, find_mode, load_modes, value_name
from sipsched.plan.simulated import CASE, CELL, MEANS

COLUMNS = ["part", *CASE, "calls", *MEANS]
TABLES, NEAR_LIMIT = "tables", "near limit"
"""Parts: what `wanted` lists, and the grid."""
CALLS = 20_000
REPETITIONS = 8
ABLATION_REPETITIONS = 16
ABLATED = (4, 8, 4400)
"""Cores, threads and cps of the ablation: a row of Table VI of the multi-core paper."""
MECHANISMS = ("lock", "switches", "refills", "stalls", "receive", "placement", "migration_cost")
"""Of `sipsched.measure.simulation.WITHOUT`, what the papers' model has; it has no herd."""
COSTS_NS = (0, 500_000, 5_000_000)
"""Migration costs that the text to figure 2 names."""
FIGURE_2 = {(2, 4, 4200): 0, (4, 6, 5400): 0, (6, 8, 6200): 500_000}
"""Cores, threads and cps of figure 2 of the multi-core paper, to the cost that its text calls best."""
GRID = (
    *product((1, 2, 4, 6), (1, 2, 4, 6, 8, 16)),
    *product((8,), (2, 4, 6, 8, 16)),
)
"""Cores and threads of the papers' grid; one thread and all eight cores of their machine besides."""
GRID_REPETITIONS = 3
MOST_CPS = 25_600
"""Where the search for a cell's loads ends."""
POWER = 0.8
EFFECTS = ("pdr", "k_rcv_us")
"""What the comparison tables of the papers hold."""


def wanted(points: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """List the runs that the papers' tables, their figure 2 and the ablation need.

    Parameters
    ----------
    points, compared
        As `sipsched.analysis.papers.load_points` and `load_comparison` return them.

    Returns
    -------
    DataFrame
        Columns `CASE`, no row twice.
    """
    printed = wide(points)[[*CELL, "cps"]]
    both = pd.concat([compared[["cores", "threads", "cps"]].assign(mode=mode) for mode in MODES])
    tables = pd.concat([printed, both[[*CELL, "cps"]]]).drop_duplicates()
    costs = pd.DataFrame(
        [(cost_mode(cost), *place) for place, cost in product(FIGURE_2, COSTS_NS)],
        columns=[*CELL, "cps"],
    )
    ablated = pd.DataFrame(
        [(mode, *ABLATED, "") for mode in (*MODES, *settings_put_back().values())]
        + [(mode, *ABLATED, each) for mode, each in product(MODES, MECHANISMS)],
        columns=[*CELL, "cps", "without"],
    )
    tables = pd.concat([tables, costs]).assign(without="")
    parts = [_repeated(tables, REPETITIONS), _repeated(ablated, ABLATION_REPETITIONS)]
    return pd.concat(parts)[CASE].drop_duplicates().reset_index(drop=True)


def grid() -> pd.DataFrame:
    """List the cells of the papers' grid in both modes; columns `CELL`."""
    rows = [(mode, *cell) for cell, mode in product(GRID, MODES)]
    return pd.DataFrame(rows, columns=CELL)


def cost_mode(cost_ns: int) -> str:
    """Name enhanced mode with a migration cost."""
    return f"enhanced+{Setting.MIGRATION_COST}={cost_ns}"


def settings_put_back() -> dict[Setting, str]:
    """Name enhanced mode with one setting as baseline mode has it, for each that differs in the ablation."""
    counts, declared = Counts(*ABLATED[:2], processors=1), load_modes()
    baseline, enhanced = (find_mode(mode, declared).settings(counts) for mode in MODES)
    return {
        setting: f"enhanced+{setting}={value_name(setting, value)}"
        for setting, value in baseline.items()
        if enhanced.get(setting) != value
    }


def load_predictions(path: Path) -> pd.DataFrame:
    """Read simulated runs.

    Parameters
    ----------
    path
        A CSV file.

    Returns
    -------
    DataFrame
        A row a run: `COLUMNS`.

    Raises
    ------
    StableError
        It is not there, or has other columns.
    """
    try:
        runs = pd.read_csv(path, keep_default_na=False)
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; snakemake {path} simulates it") from None
    if list(runs.columns) != COLUMNS:
        raise StableError(
            f"{path}: expected the columns {', '.join(COLUMNS)}; "
            f"found {', '.join(map(str, runs.columns))}"
        )
    return runs


def repeated(runs: pd.DataFrame, recorded: pd.DataFrame) -> tuple[int, int]:
    """Count the runs of the grid that have the numbers of recorded ones to the last digit, and all of it.

    Parameters
    ----------
    runs, recorded
        As `load_predictions` returns them.
    """
    near, before = (
        each[each["part"] == NEAR_LIMIT].set_index([*CASE, "calls"])[MEANS].sort_index()
        for each in (runs, recorded)
    )
    same = near == before.reindex(near.index)
    return int(same.all(axis=1).sum()), len(near)


class Group(StrEnum):
    """What the fit saw of the papers, and what it did not."""

    FITTED = "fitted: baseline, 1 and 2 cores"
    OTHER_HALF = "not seen: enhanced, 1 and 2 cores"
    FOUR = "not seen: 4 cores"
    SIX = "not seen: 6 cores"


def group_of(mode: str, cores: int) -> Group:
    """Say whether the fit saw a column of the papers' tables."""
    if cores in FITTED_CORES:
        return Group.FITTED if mode == FITTED_MODE else Group.OTHER_HALF
    return Group.FOUR if cores == 4 else Group.SIX


def against_published(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Set each printed number beside the prediction, and beside two that need no simulator.

    Parameters
    ----------
    runs
        As `load_predictions` returns it.
    points
        As `sipsched.analysis.papers.load_points` returns it.

    Returns
    -------
    DataFrame
        A row a number that was simulated: study, mode, cores, threads, cps, metric (one of `METRICS`),
        group (`Group`), published, predicted (mean over runs), and two naive ones: `mean`, the
        geometric mean of the fitted half, and `same_threads`, that of the fitted columns of as many threads,
        of one core for one and of two for more.
    """
    columns = wide(points)
    printed = runs[(runs["part"] == TABLES) & (runs["without"] == "")]
    means = printed.groupby([*CELL, "cps"], as_index=False)[MEANS].mean()
    found = columns.merge(means, on=[*CELL, "cps"], suffixes=("", "_predicted"))
    names = ["study", *CELL, "cps"]
    rows = []
    for metric in METRICS:
        part = found[names].assign(
            metric=metric, published=found[metric], predicted=found[f"{metric}_predicted"]
        )
        rows.append(part)
    table = pd.concat(rows, ignore_index=True)
    return _with_naive(table)


def capacities(
    runs: pd.DataFrame, points: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> pd.DataFrame:
    """Set the load at the limit of each cell beside the published one.

    Parameters
    ----------
    runs
        As `load_predictions` returns it.
    points
        As `sipsched.analysis.papers.load_points` returns it.
    pdr_limit
        Share of messages dropped at which capacity ends.

    Returns
    -------
    DataFrame
        A row a cell of the grid: mode, cores, threads, predicted (last simulated load at or under the limit
        with the next, 200 cps more, above it; NaN where there are none such), published (the same of the
        tables; NaN where they have no such cell), group, and the naive ones of `against_published`.
    """
    near = runs[runs["part"] == NEAR_LIMIT]
    means = near.groupby([*CELL, "cps"], as_index=False)["pdr"].mean()
    rows = []
    for place, loads in means.groupby(CELL):
        last, following = grid_capacity(loads["cps"], loads["pdr"], pdr_limit)
        known = following - last == LOAD_STEP_CPS
        rows.append((*place, last if known else np.nan))
    printed = crossings(points, pdr_limit)[[*CELL, "last_cps"]]
    table = pd.DataFrame(rows, columns=[*CELL, "predicted"]).merge(printed, how="left", on=CELL)
    table["published"] = table.pop("last_cps").astype(float)
    table = _with_naive(table.assign(metric="capacity_cps"))
    return table.sort_values(["cores", "threads", "mode"], ignore_index=True)


@dataclass(frozen=True)
class Error:
    """How far predictions of one quantity are off in one group: root mean squares of log ratios.

    Attributes
    ----------
    n
        Printed numbers.
    simulator, mean, same_threads
        By whom; see `against_published`.
    """

    group: Group
    metric: str
    n: int
    simulator: float
    mean: float
    same_threads: float

    @property
    def best(self) -> bool:
        """Whether the simulator is off by less than either naive prediction."""
        return self.simulator < min(self.mean, self.same_threads)


def errors(table: pd.DataFrame) -> list[Error]:
    """Sum up `against_published` or `capacities` by group and metric; drop rates with `FLOOR` added.

    Cells without a published or a predicted number are left out.
    """
    known = table.dropna(subset=["published", "predicted"])
    found = []
    for group in Group:
        for metric in dict.fromkeys(table["metric"]):
            part = known[(known["group"] == group) & (known["metric"] == metric)]
            if len(part):
                floor = FLOOR.get(str(metric), 0.0)
                logs = np.log(part[["predicted", "mean", "same_threads"]] + floor).sub(
                    np.log(part["published"] + floor), axis=0
                )
                off = np.sqrt((logs**2).mean())
                found.append(Error(group, str(metric), len(part), *map(float, off)))
    return found


class Direction(StrEnum):
    """What became of a published effect in the simulator."""

    REPRODUCED = "reproduced"
    OPPOSITE = "opposite"
    NONE = "no difference at all"
    NOT_TOLD = "not told from chance"


@dataclass(frozen=True)
class Effect:
    """Baseline against enhanced mode at one row of the papers' comparison tables.

    Attributes
    ----------
    metric
        One of `EFFECTS`.
    published
        By how many percent enhanced is lower, as the tables have it.
    predicted
        The same, over pairs of simulated runs with the same arrivals; intervals hold together.
    detectable
        The least percent lower that would have been told from 0 with a power of 80 %.
    """

    study: str
    table: str
    cores: int
    threads: int
    cps: int
    metric: str
    published: float
    predicted: Interval
    direction: Direction
    detectable: float

    @property
    def holds(self) -> bool:
        """Whether the published size lies in the predicted interval."""
        return self.predicted.known and self.predicted.low <= self.published <= self.predicted.high


def effects(runs: pd.DataFrame, compared: pd.DataFrame) -> list[Effect]:
    """Compare the modes at each row of the papers' comparison tables.

    Parameters
    ----------
    runs
        As `load_predictions` returns it.
    compared
        As `sipsched.analysis.papers.load_comparison` returns it.
    """
    rows = {
        (row.study, row.table, row.cores, row.threads, row.cps, metric): getattr(
            row, f"{metric.removesuffix('_us')}_lower_pct"
        )
        for metric in EFFECTS
        for row in compared.sort_values(["cores", "threads"]).itertuples()
    }
    pairs = {key: _pair(runs, key[2:5], key[5]) for key in rows}
    pairs = {key: pair for key, pair in pairs.items() if pair[0].size}
    family = compare_together(pairs)
    found = []
    for key, cell in family.cells.items():
        lower, least = cell.comparison.percent_lower, _least_lower(pairs[key], family.level)
        found.append(Effect(*key, rows[key], lower, _direction(cell, pairs[key]), least))
    return found


@dataclass(frozen=True)
class MigrationCost:
    """Figure 2 at one number of cores: means by migration cost, and whether the published best is the best.

    Attributes
    ----------
    best_ns
        What the paper's text calls best.
    values
        Migration cost in ns to mean with interval; of PDR a share, of K_rcv µs.
    lower
        Other costs to by how many percent the published best is lower than they, over pairs; all intervals of
        the figure hold together.
    directions, detectable
        Of these; the latter as of an `Effect`.
    """

    cores: int
    threads: int
    cps: int
    metric: str
    best_ns: int
    values: dict[int, Interval]
    lower: dict[int, Interval]
    directions: dict[int, Direction]
    detectable: dict[int, float]


def migration_costs(runs: pd.DataFrame) -> list[MigrationCost]:
    """Look at figure 2 of the multi-core paper: enhanced mode with its migration cost overridden.

    Parameters
    ----------
    runs
        As `load_predictions` returns it.
    """
    pairs: dict[tuple[tuple[int, int, int], str, int], Pair] = {}
    for (place, best), metric in product(FIGURE_2.items(), EFFECTS):
        for cost in COSTS_NS:
            if cost != best:
                modes = (cost_mode(cost), cost_mode(best))
                pairs[place, metric, cost] = _pair(runs, place, metric, modes)
    family = compare_together({key: pair for key, pair in pairs.items() if pair[0].size})
    found = []
    for (place, best), metric in product(FIGURE_2.items(), EFFECTS):
        cells = {
            cost: family.cells[place, metric, cost]
            for cost in COSTS_NS
            if (place, metric, cost) in family.cells
        }
        if not cells:
            continue
        values = {
            cost: mean_interval(_series(runs, cost_mode(cost), place)[metric], least=0.0)
            for cost in COSTS_NS
        }
        lower = {cost: cell.comparison.percent_lower for cost, cell in cells.items()}
        told = {cost: _direction(cell, pairs[place, metric, cost]) for cost, cell in cells.items()}
        least = {cost: _least_lower(pairs[place, metric, cost], family.level) for cost in cells}
        found.append(MigrationCost(*place, metric, best, values, lower, told, least))
    return found


@dataclass(frozen=True)
class Part:
    """What one mechanism or setting makes of the difference between the modes.

    Attributes
    ----------
    name
        Of the mechanism, or of the setting.
    left
        Baseline less enhanced without the mechanism, or with the setting as in baseline.
    part
        The whole difference less what is left, over the same arrivals; intervals of all parts of a metric hold
        together.
    """

    name: str
    left: Interval
    part: Interval


@dataclass(frozen=True)
class Ablation:
    """Of the difference between the modes, what comes from where; of one metric.

    Attributes
    ----------
    whole
        Baseline less enhanced: of K_rcv µs, of PDR a share.
    baseline, enhanced
        Means.
    detectable
        The least whole difference that would have been told from 0 with a power of 80 %.
    mechanisms, settings
        In the order of `MECHANISMS`, and of the settings that differ. Parts need not add up: what two make
        together each of them makes.
    """

    metric: str
    whole: Interval
    baseline: Interval
    enhanced: Interval
    detectable: float
    mechanisms: tuple[Part, ...]
    settings: tuple[Part, ...]

    @property
    def told(self) -> bool:
        """Whether the whole difference is told from 0."""
        return self.whole.known and not self.whole.low <= 0 <= self.whole.high


def ablation(runs: pd.DataFrame, metric: str) -> Ablation | None:
    """Take the difference between the modes apart, at `ABLATED`.

    Parameters
    ----------
    runs
        As `load_predictions` returns it.
    metric
        One of `EFFECTS`.

    Returns
    -------
    Ablation
        None where its runs were not simulated.
    """
    baseline, enhanced = _pair(runs, ABLATED, metric)
    if not baseline.size:
        return None
    whole = baseline - enhanced
    left: dict[str, npt.NDArray[np.float64]] = {}
    for name in MECHANISMS:
        first, second = _pair(runs, ABLATED, metric, without=name)
        left[name] = first - second
    back = settings_put_back()
    for setting, mode in back.items():
        first, second = _pair(runs, ABLATED, metric, ("baseline", mode))
        left[setting] = first - second
    level = simultaneous_level(len(left))
    parts = {
        name: Part(
            name,
            mean_interval(rest),
            mean_interval(whole - rest if rest.size == whole.size else rest * np.nan, level),
        )
        for name, rest in left.items()
    }
    return Ablation(
        metric=metric,
        whole=mean_interval(whole),
        baseline=mean_interval(baseline, least=0.0),
        enhanced=mean_interval(enhanced, least=0.0),
        detectable=_detectable(whole),
        mechanisms=tuple(parts[name] for name in MECHANISMS),
        settings=tuple(parts[name] for name in back),
    )


def _detectable(differences: npt.NDArray[np.float64], level: float = LEVEL) -> float:
    n = differences.size
    if n < 2:
        return float("nan")
    quantiles = special.stdtrit(n - 1, [(1 + level) / 2, POWER])
    return float(quantiles.sum() * differences.std(ddof=1) / np.sqrt(n))


def _least_lower(pair: Pair, level: float) -> float:
    """Give the least percent lower that would have been told from 0; NaN where the first is 0."""
    first, second = pair
    return 100 * _detectable(first - second, level) / first.mean() if first.any() else np.nan


def _direction(cell: Cell, pair: Pair) -> Direction:
    if np.array_equal(*pair):
        return Direction.NONE
    if not cell.stands_out:
        return Direction.NOT_TOLD
    lower = cell.comparison.percent_lower.estimate > 0
    return Direction.REPRODUCED if lower else Direction.OPPOSITE


def _repeated(cases: pd.DataFrame, repetitions: int) -> pd.DataFrame:
    return pd.concat([cases.assign(rep=rep) for rep in range(1, repetitions + 1)])


def _series(runs: pd.DataFrame, mode: str, place: Sequence[int], without: str = "") -> pd.DataFrame:
    """Give the runs of a point by repetition."""
    cores, threads, cps = place
    here = (runs["part"] == TABLES) & (runs["mode"] == mode) & (runs["without"] == without)
    here &= (runs["cores"] == cores) & (runs["threads"] == threads) & (runs["cps"] == cps)
    return runs[here].set_index("rep").sort_index()


def _pair(
    runs: pd.DataFrame,
    place: Sequence[int],
    metric: str,
    modes: Iterable[str] = MODES,
    without: str = "",
) -> Pair:
    first, second = (_series(runs, mode, place, without)[metric] for mode in modes)
    both = pd.concat([first, second], axis=1, join="inner").to_numpy(float)
    return both[:, 0], both[:, 1]


def _with_naive(table: pd.DataFrame) -> pd.DataFrame:
    """Add group, and what a reader of the fitted half alone would say."""
    table["group"] = [
        group_of(mode, cores) for mode, cores in zip(table["mode"], table["cores"], strict=True)
    ]
    fitted = table[(table["group"] == Group.FITTED) & table["published"].notna()]
    logs = fitted.assign(log=np.log(fitted["published"]))
    overall = logs.groupby("metric")["log"].mean()
    alike = logs.groupby(["metric", "cores", "threads"])["log"].mean()
    keys: Iterator[tuple[str, int, int]] = zip(
        table["metric"], table["cores"].clip(upper=2), table["threads"], strict=True
    )
    table["mean"] = np.exp(table["metric"].map(overall))
    table["same_threads"] = np.exp([alike.get(key, np.nan) for key in keys])
    return table
