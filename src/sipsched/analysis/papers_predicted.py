"""The simulator's predictions for the papers' testbed, compared with the published numbers.

The predictions are simulations, not measurements. `sipsched.measure.simulated_means` makes a table with one row per
simulated run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from sipsched.analysis.blocks import POWER
from sipsched.analysis.crossing_load import PDR_LIMIT, grid_capacity
from sipsched.analysis.families import ComparedCell, Pair, compare_together
from sipsched.analysis.intervals import LEVEL, Interval, mean_interval, simultaneous_level
from sipsched.analysis.papers import LOAD_STEP_CPS, MODES, crossings, wide
from sipsched.analysis.papers_fit import FITTED_CORES, FITTED_MODE, FLOOR, METRICS
from sipsched.errors import StableError
from sipsched.plan.modes import Counts, Setting, find_mode, load_modes, value_name
from sipsched.plan.simulated import CASE, CELL, MEANS

COLUMNS = ["part", *CASE, "calls", *MEANS]
TABLES, NEAR_LIMIT = "tables", "near limit"
"""Names of two sets of simulated runs: runs that `wanted` lists, and runs near the capacity of each row of `grid`."""
CALLS = 20_000
REPETITIONS = 8
COMPARED_REPETITIONS = 100
"""Number of simulated runs per mode and row of the papers' comparison tables."""
ABLATION_REPETITIONS = 16
ABLATED = (4, 8, 4400)
"""Cores, threads and cps of a row of Table VI in the multi-core paper. The ablation explains the effect in this row."""
MECHANISMS = ("lock", "switches", "refills", "stalls", "receive", "placement", "migration_cost")
"""Mechanisms of `sipsched.measure.simulated_point.WITHOUT` that the papers' model has."""
COSTS_NS = (0, 500_000, 5_000_000)
"""Migration costs in ns that the multi-core paper's text mentions about figure 2."""
FIGURE_2 = {(2, 4, 4200): 0, (4, 6, 5400): 0, (6, 8, 6200): 500_000}
"""The best migration cost in ns according to figure 2 of the multi-core paper, by cores, threads and cps."""
GRID = (
    *product((1, 2, 4, 6), (1, 2, 4, 6, 8, 16)),
    *product((8,), (2, 4, 6, 8, 16)),
)
"""Cores and threads to simulate: the papers' grid, plus one thread, plus all eight cores of the papers' machine."""
GRID_REPETITIONS = 3
MOST_CPS = 25_600
"""Highest load (cps) at which the search for the loads near the drop limit simulates runs."""
EFFECTS = ("pdr", "k_rcv_us")
"""Quantities that the papers' comparison tables contain."""
SCALED = "baseline-scaled"
"""Baseline mode with the printed times multiplied by 1 + log2(cores). On one core, this mode would equal `baseline`."""
READINGS = ((MODES[0], MODES[1]), (SCALED, MODES[1]), (MODES[0], SCALED))
"""Pairs of compared modes: both readings of baseline mode with enhanced mode, and with each other."""


def wanted(points: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the runs to simulate: the points of the papers' tables and figure 2, and runs for an ablation.

    Each run for the ablation lacks one mechanism of the model, or uses one setting of the other mode.
    """
    printed = wide(points)[[*CELL, "cps"]]
    places = compared[["cores", "threads", "cps"]]
    modes = [places.assign(mode=mode) for mode in MODES]
    scaled = places[places["cores"] > 1].assign(mode=SCALED)
    costs = pd.DataFrame(
        [(cost_mode(cost), *place) for place, cost in product(FIGURE_2, COSTS_NS)],
        columns=[*CELL, "cps"],
    )
    ablated = pd.DataFrame(
        [(mode, *ABLATED, "") for mode in (*MODES, *settings_put_back().values())]
        + [(mode, *ABLATED, mechanism) for mode, mechanism in product(MODES, MECHANISMS)],
        columns=[*CELL, "cps", "without"],
    )
    tables = pd.concat([printed, costs]).assign(without="")
    rows = pd.concat([*modes, scaled]).assign(without="")
    parts = [
        _repeated(tables, REPETITIONS),
        _repeated(rows, COMPARED_REPETITIONS),
        _repeated(ablated, ABLATION_REPETITIONS),
    ]
    return pd.concat(parts)[CASE].drop_duplicates().reset_index(drop=True)


def grid() -> pd.DataFrame:
    """Return a table of the papers' combinations of mode, cores and threads."""
    rows = [(mode, *cell) for cell, mode in product(GRID, MODES)]
    return pd.DataFrame(rows, columns=CELL)


def cost_mode(cost_ns: int) -> str:
    """Return the name of a mode that equals the papers' enhanced mode except for the migration cost."""
    return f"enhanced+{Setting.MIGRATION_COST}={cost_ns}"


def settings_put_back() -> dict[Setting, str]:
    """Return the names of modes that equal enhanced mode, except that one setting has its value from baseline mode.

    The result has one entry, with the setting as its key, for each setting that differs between baseline and enhanced
    mode.
    """
    counts, declared = Counts(*ABLATED[:2], processors=1), load_modes()
    baseline, enhanced = (find_mode(mode, declared).settings(counts) for mode in MODES)
    return {
        setting: f"enhanced+{setting}={value_name(setting, value)}"
        for setting, value in baseline.items()
        if enhanced.get(setting) != value
    }


def load_predictions(path: Path) -> pd.DataFrame:
    """Read a file of simulated runs into a table with one row per run and the columns `COLUMNS`.

    Raises
    ------
    StableError
        The file is missing or has other columns.
    """
    try:
        runs = pd.read_csv(path, keep_default_na=False)
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; snakemake {path} makes this file") from None
    if list(runs.columns) != COLUMNS:
        raise StableError(
            f"{path}: expected the columns {', '.join(COLUMNS)}; "
            f"found {', '.join(map(str, runs.columns))}"
        )
    return runs


def repeated(runs: pd.DataFrame, recorded: pd.DataFrame) -> tuple[int, int]:
    """Count the simulated runs near the drop limit whose mean times equal those of the recorded simulations.

    Returns
    -------
    tuple of int
        Number of runs with the same means, and number of all simulated runs near the drop limit.
    """
    near, before = (
        table[table["part"] == NEAR_LIMIT].set_index([*CASE, "calls"])[MEANS].sort_index()
        for table in (runs, recorded)
    )
    # The file of recorded simulations has 6 significant digits.
    same = np.isclose(near, before.reindex(near.index), rtol=1e-5, atol=0)
    return int(same.all(axis=1).sum()), len(near)


class PaperGroup(StrEnum):
    """A group of published numbers. The simulator was fitted to one group; the other groups test its predictions."""

    FITTED = "fitted: baseline, 1 and 2 cores"
    OTHER_HALF = "not fitted: enhanced, 1 and 2 cores"
    FOUR = "not fitted: 4 cores"
    SIX = "not fitted: 6 cores"


def group_of(mode: str, cores: int) -> PaperGroup:
    """Return the group (fitted numbers, or a group of test numbers) of a column in the papers' tables."""
    if cores in FITTED_CORES:
        return PaperGroup.FITTED if mode == FITTED_MODE else PaperGroup.OTHER_HALF
    return PaperGroup.FOUR if cores == 4 else PaperGroup.SIX


def against_published(runs: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Return a table that compares each published number with the simulator's and two naive predictions.

    Returns
    -------
    DataFrame
        One row per number: study, mode, cores, threads, cps, metric (one of `METRICS`), group (`PaperGroup`),
        published, predicted (mean over runs), and two naive predictions. `mean` is the geometric mean of the metric's
        numbers in the fit. `same_threads` uses only the numbers for the same number of threads: for one core the
        numbers with one core, and otherwise the numbers with two cores.
    """
    columns = wide(points)
    printed = runs[(runs["part"] == TABLES) & (runs["without"] == "")]
    means = printed.groupby([*CELL, "cps"], as_index=False)[MEANS].mean()
    compared = columns.merge(means, on=[*CELL, "cps"], suffixes=("", "_predicted"))
    names = ["study", *CELL, "cps"]
    rows = []
    for metric in METRICS:
        part = compared[names].assign(
            metric=metric, published=compared[metric], predicted=compared[f"{metric}_predicted"]
        )
        rows.append(part)
    table = pd.concat(rows, ignore_index=True)
    return _with_naive(table)


def capacities(
    runs: pd.DataFrame, points: pd.DataFrame, pdr_limit: float = PDR_LIMIT
) -> pd.DataFrame:
    """Return a table of the simulated and the published capacity for each combination of mode, cores and threads.

    Returns
    -------
    DataFrame
        One row per combination of the grid: mode, cores, threads, predicted, published, group, and the naive
        predictions of `against_published`. `predicted` is the last simulated load at or below the limit, if the next
        load, 200 cps higher, is above the limit; otherwise NaN. `published` is the last load at or below the limit in
        the papers' tables; NaN if the tables lack the combination.
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
    """The errors of the predictions of one metric in one group: root mean squares of log(predicted / published).

    Attributes
    ----------
    n
        Number of published numbers.
    simulator, mean, same_threads
        Error of the simulator, and error of each naive prediction of `against_published`.
    """

    group: PaperGroup
    metric: str
    n: int
    simulator: float
    mean: float
    same_threads: float

    @property
    def best(self) -> bool:
        """True if the simulator's error is smaller than the errors of the two naive predictions."""
        return self.simulator < min(self.mean, self.same_threads)


def errors(table: pd.DataFrame) -> list[Error]:
    """Return the prediction errors by group and metric, from a table of `against_published` or `capacities`.

    Drop rates may be 0, so `FLOOR` is added to each drop rate. Rows without a published or a predicted number are
    excluded.
    """
    known = table.dropna(subset=["published", "predicted"])
    all_errors = []
    for group in PaperGroup:
        for metric in dict.fromkeys(table["metric"]):
            part = known[(known["group"] == group) & (known["metric"] == metric)]
            if len(part):
                floor = FLOOR.get(str(metric), 0.0)
                logs = np.log(part[["predicted", "mean", "same_threads"]] + floor).sub(
                    np.log(part["published"] + floor), axis=0
                )
                off = np.sqrt((logs**2).mean())
                all_errors.append(Error(group, str(metric), len(part), *map(float, off)))
    return all_errors


class Direction(StrEnum):
    """The agreement in sign between the simulated and the published effect of enhanced mode."""

    REPRODUCED = "reproduced"
    OPPOSITE = "with the opposite sign"
    NONE = "without any difference"
    NOT_TOLD = "indistinguishable from chance"


@dataclass(frozen=True)
class PublishedEffect:
    """The published and the simulated effect of enhanced mode, for one row of the papers' comparison tables.

    Attributes
    ----------
    metric
        One of `EFFECTS`.
    published
        Published decrease in enhanced mode, in percent.
    predicted
        Predicted decrease over pairs of simulated runs with the same arrivals. The intervals are simultaneous.
    detectable
        The smallest decrease in percent that the simulated runs detect with a power of 80 %.
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
        """True if the published decrease is inside the confidence interval of the simulated decrease."""
        return self.predicted.known and self.predicted.low <= self.published <= self.predicted.high


def effects(
    runs: pd.DataFrame, compared: pd.DataFrame, baseline: str = MODES[0]
) -> list[PublishedEffect]:
    """Return the published and simulated effect of enhanced mode for each row of the papers' comparison tables.

    Parameters
    ----------
    baseline
        The mode with which enhanced mode is compared on more than one core: `baseline` or `SCALED`.
    """
    rows = {
        (row.study, row.table, row.cores, row.threads, row.cps, metric): getattr(
            row, f"{metric.removesuffix('_us')}_lower_pct"
        )
        for metric in EFFECTS
        for row in compared.sort_values(["cores", "threads"]).itertuples()
    }
    pairs = {
        key: _pair(runs, key[2:5], key[5], (baseline if key[2] > 1 else MODES[0], MODES[1]))
        for key in rows
    }
    pairs = {key: pair for key, pair in pairs.items() if pair[0].size}
    family = compare_together(pairs)
    all_effects = []
    for key, cell in family.cells.items():
        lower, least = cell.comparison.percent_lower, _least_lower(pairs[key], family.level)
        all_effects.append(
            PublishedEffect(*key, rows[key], lower, _direction(cell, pairs[key]), least)
        )
    return all_effects


def readings(
    runs: pd.DataFrame, compared: pd.DataFrame
) -> Mapping[tuple[str, int, tuple[str, str]], Interval]:
    """Return the change in percent between the modes of each pair in `READINGS`, for several cores.

    The change is a change of the mean over the rows of the papers' comparison tables. The intervals are simultaneous.

    Returns
    -------
    dict
        Changes by metric (one of `MEANS`), number of cores, and pair of modes.
    """
    here = (runs["part"] == TABLES) & (runs["without"] == "")
    several = compared.loc[compared["cores"] > 1, ["cores", "threads", "cps"]]
    means = runs[here].merge(several).groupby(["cores", "rep", "mode"])[MEANS].mean()
    by_mode = means.unstack("mode").reindex(columns=product(MEANS, (*MODES, SCALED)))
    pairs = {
        (metric, cores, (first, second)): (
            by_mode.loc[cores, (metric, first)].to_numpy(float),
            by_mode.loc[cores, (metric, second)].to_numpy(float),
        )
        for metric in MEANS
        for cores in by_mode.index.unique("cores")
        for first, second in READINGS
    }
    return {
        key: cell.comparison.ratio.map(lambda ratio: 100 * (ratio - 1))
        for key, cell in compare_together(pairs).cells.items()
    }


@dataclass(frozen=True)
class MigrationCost:
    """The simulated mean of a metric for each migration cost, at one point of the multi-core paper's figure 2.

    Attributes
    ----------
    best_ns
        The best migration cost in ns according to the paper's text.
    values
        Mean with interval, by migration cost in ns. PDR is a share, K_rcv is in µs.
    lower
        Decrease in percent if the published best cost replaces another migration cost, by this other cost, over pairs
        of runs with the same arrivals. All intervals of the figure are simultaneous.
    directions, detectable
        Directions of these decreases, and the smallest detectable decreases as in `PublishedEffect`.
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
    """Return the mean K_rcv and PDR of simulated runs in enhanced mode per migration cost (the paper's figure 2)."""
    pairs: dict[tuple[tuple[int, int, int], str, int], Pair] = {}
    for (place, best), metric in product(FIGURE_2.items(), EFFECTS):
        for cost in COSTS_NS:
            if cost != best:
                modes = (cost_mode(cost), cost_mode(best))
                pairs[place, metric, cost] = _pair(runs, place, metric, modes)
    family = compare_together({key: pair for key, pair in pairs.items() if pair[0].size})
    costs = []
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
        costs.append(MigrationCost(*place, metric, best, values, lower, told, least))
    return costs


@dataclass(frozen=True)
class Contribution:
    """The contribution of one mechanism or setting to the difference between baseline and enhanced mode.

    Attributes
    ----------
    name
        Name of the mechanism or of the setting.
    left
        The remaining difference: baseline minus enhanced mode, both without the mechanism, or baseline minus enhanced
        mode with the baseline value of the setting.
    part
        Contribution: whole difference minus the difference in `left`, over the same arrivals. The intervals of all
        contributions to a metric are simultaneous.
    """

    name: str
    left: Interval
    part: Interval


@dataclass(frozen=True)
class Ablation:
    """The difference between baseline and enhanced mode in one metric, and the contributions to this difference.

    Attributes
    ----------
    whole
        Baseline minus enhanced mode. K_rcv is in µs, PDR is a share.
    baseline
        Mean of the metric in baseline mode.
    detectable
        The smallest whole difference that the simulated runs detect with a power of 80 %.
    mechanisms, settings
        Contributions of mechanisms in the order of `MECHANISMS`, and contributions of the settings that differ between
        the modes. The sum of contributions can differ from the whole, because mechanisms can interact.
    """

    metric: str
    whole: Interval
    baseline: Interval
    detectable: float
    mechanisms: tuple[Contribution, ...]
    settings: tuple[Contribution, ...]


def ablation(runs: pd.DataFrame, metric: str) -> Ablation | None:
    """Estimate how much each mechanism and setting contributes to the difference between baseline and enhanced mode.

    Return None if the runs at `ABLATED` were not simulated.

    Parameters
    ----------
    metric
        One of `EFFECTS`.
    """
    runs = runs[runs["rep"] <= ABLATION_REPETITIONS]
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
        name: Contribution(
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
    """Return the smallest decrease from the first to the second mode that the runs can detect with a power of 80 %.

    The decrease is in percent; NaN if the mean of the first mode is 0 or fewer than two pairs of runs exist.
    """
    first, second = pair
    return 100 * _detectable(first - second, level) / first.mean() if first.any() else np.nan


def _direction(cell: ComparedCell, pair: Pair) -> Direction:
    if np.array_equal(*pair):
        return Direction.NONE
    if not cell.stands_out:
        return Direction.NOT_TOLD
    lower = cell.comparison.percent_lower.estimate > 0
    return Direction.REPRODUCED if lower else Direction.OPPOSITE


def _repeated(cases: pd.DataFrame, repetitions: int) -> pd.DataFrame:
    return pd.concat([cases.assign(rep=rep) for rep in range(1, repetitions + 1)])


def _series(runs: pd.DataFrame, mode: str, place: Sequence[int], without: str = "") -> pd.DataFrame:
    """Return a table of the simulated runs of one mode at one `place` (cores, threads and load).

    If `without` is not empty, the runs lack this mechanism of the simulator. The index of the table is the repetition.
    """
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
    """Add columns to the table: each number's group, and two naive predictions (means of the fitted numbers)."""
    table["group"] = [
        group_of(mode, cores) for mode, cores in zip(table["mode"], table["cores"], strict=True)
    ]
    fitted = table[(table["group"] == PaperGroup.FITTED) & table["published"].notna()]
    logs = fitted.assign(log=np.log(fitted["published"]))
    overall = logs.groupby("metric")["log"].mean()
    alike = logs.groupby(["metric", "cores", "threads"])["log"].mean()
    keys: Iterator[tuple[str, int, int]] = zip(
        table["metric"], table["cores"].clip(upper=2), table["threads"], strict=True
    )
    table["mean"] = np.exp(table["metric"].map(overall))
    table["same_threads"] = np.exp([alike.get(key, np.nan) for key in keys])
    return table
