"""What a mode does to a quantity, told from the windows of crossover runs.

The replicate is the block: one window of every mode, in random order, over the same arrivals. Its
difference is one number; what follows is made of those. docs/methodology.md, "Crossover runs:
statistics", says why and has the measured coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import special

from sipsched.analysis.blocks import (
    Autocorrelation,
    Mean,
    autocorrelation,
    hodges_lehmann,
    mean_of_blocks,
    sign_flip_p_value,
)
from sipsched.analysis.statistics import (
    LEVEL,
    NOT_MEASURED,
    RESAMPLES,
    SEED,
    TOO_FEW,
    Interval,
    Values,
)
from sipsched.errors import StableError

MIN_RUNS = 3
"""Runs from which they are a sample of all runs; t of two runs has one degree of freedom: 12.7."""
MIN_BLOCKS = 10
"""Blocks below which tails and dependence cannot be seen in the data."""
MIN_CHANGED = 10
"""Blocks that differ at all, of a quantity that is 0 in most windows."""
ROUNDING = 1e-13
TINY = 1e-150
"""Squares of what is smaller are 0."""
SKEWED_STRETCH = 1.25
"""An end this much farther away than that of t: in 4 % of normal series of 20 blocks, in 1 % of 30."""
NO_LOGARITHM = "a ratio was asked of a value that is not above 0"
NOT_FINITE = "a value is infinite"
NO_SPREAD = "no interval, since all blocks are equal"
MOST_EQUAL = "no interval, since most blocks are equal"

Tables = Sequence[npt.NDArray[np.float64]]
"""A table a run, shape (block, arm); blocks in the order of time, NaN where a window is left out."""


class Scale(StrEnum):
    """How two windows are compared."""

    RATIO = "ratio"
    """The logarithm of other / reference: of what is above 0, such as times."""
    DIFFERENCE = "difference"
    """Other - reference: of what may be 0, such as the packet drop rate."""


class Doubt(StrEnum):
    """What is seen in the data under which an interval may cover less than it says."""

    FEW_BLOCKS = "few blocks"
    """Fewer than MIN_BLOCKS."""
    FEW_CHANGED = "few changed"
    """Fewer than MIN_CHANGED blocks have a difference that is not 0."""
    ONE_BLOCK = "one block"
    """One block makes more than half of the spread."""
    SKEWED = "skewed"
    """One tail is longer; the interval pays for it, but the mean and `robust` are different middles."""
    AUTOCORRELATED = "autocorrelated"
    """Blocks follow each other; the interval pays for it."""
    RUNS_DIFFER = "runs differ"
    """Runs differ by more than their blocks explain."""


@dataclass(frozen=True)
class Effect:
    """What the other arm does, compared with the reference.

    Numbers are in the unit of the scale: natural logarithms of a ratio, or the quantity's own unit.
    `percent` turns an interval or number of a ratio into percent.

    Attributes
    ----------
    scale
        Ratio or difference.
    interval
        The mean over blocks, with the interval to print: `across` from MIN_RUNS runs, else `here`.
    here
        Of these runs: t within runs; dependence and skewness of blocks paid for.
    across
        Of any run like these: runs as clusters, t with runs - 1 degrees of freedom, never narrower
        than `here`; without an interval below 2 runs.
    robust
        Hodges and Lehmann's estimate: the same runs as `interval`, less moved by outlying blocks.
    p_value
        That there is no effect: at or under α exactly where `interval` at 1 - α leaves out 0.
    p_randomisation
        That no block has an effect: orders within blocks drawn anew.
    detectable
        The smallest effect, above 0, that would have been seen at the level of the interval with a
        power of 80 %; NaN without an interval.
    blocks
        Of each run: those that count. A run with fewer than two is not combined with others.
    conditional
        Whether `interval` speaks of these runs only.
    autocorrelation
        Of the blocks' differences.
    doubts
        What is seen in the data under which the interval may be too narrow.
    """

    scale: Scale
    interval: Interval
    here: Interval
    across: Interval
    robust: Interval
    p_value: float
    p_randomisation: float
    detectable: float
    blocks: tuple[int, ...]
    conditional: bool
    autocorrelation: Autocorrelation
    doubts: frozenset[Doubt]

    @property
    def runs(self) -> int:
        """Runs that the interval is made of."""
        return len(combined(self.blocks))

    @property
    def detectable_percent(self) -> float:
        """The smallest ratio above 1 that would have been seen, in percent."""
        return to_percent(self.detectable)


@dataclass(frozen=True)
class Change:
    """How an effect moves when windows are cut differently, such as by a longer washout.

    Attributes
    ----------
    first, second
        The effect under each.
    moved
        Second less first over the blocks that count in both, paired by block.
    """

    first: Effect
    second: Effect
    moved: Effect

    @property
    def told_from_0(self) -> bool:
        """Whether the movement is more than chance."""
        interval = self.moved.interval
        return interval.known and not interval.low <= 0 <= interval.high

    @property
    def beyond_interval(self) -> bool:
        """Whether the second estimate lies outside the interval of the first."""
        interval = self.first.interval
        return interval.known and not interval.low <= self.second.interval.estimate <= interval.high


def to_percent(log_ratio: float) -> float:
    """Turn the logarithm of a ratio into percent more (or less, below 0)."""
    return float(100 * np.expm1(log_ratio))


def percent(interval: Interval) -> Interval:
    """Turn an interval of the logarithm of a ratio into percent more (or less, below 0)."""
    return interval.map(to_percent)


def combined(blocks: Sequence[int]) -> list[int]:
    """Tell which runs are combined: those of two blocks or more, or the only one."""
    several = [run for run, count in enumerate(blocks) if count > 1]
    return several or [run for run, count in enumerate(blocks) if count][:1]


def block_differences(
    table: npt.ArrayLike, reference: int, other: int, scale: Scale = Scale.RATIO
) -> Values:
    """Compare two arms of one run, block by block.

    Parameters
    ----------
    table
        Shape (block, arm); NaN where a window is left out.
    reference, other
        Indices of the arms.
    scale
        How.

    Returns
    -------
    ndarray
        Shape (block,): NaN where one of the two is left out; infinite where a ratio is asked of a
        value of 0 or less, or where a value is infinite.

    Raises
    ------
    StableError
        The table has another shape, or no such arm.
    """
    values = np.asarray(table, np.float64)
    if values.ndim != 2 or not all(0 <= arm < values.shape[1] for arm in (reference, other)):
        raise StableError(
            f"crossover: expected a table (block, arm) with arms {reference} and {other}, "
            f"found shape {values.shape}"
        )
    first, second = values[:, reference], values[:, other]
    counts = ~(np.isnan(first) | np.isnan(second))
    usable = counts & np.isfinite(first) & np.isfinite(second)
    if scale is Scale.RATIO:
        usable &= (first > 0) & (second > 0)
    difference = np.where(counts, np.inf, np.nan)
    if scale is Scale.RATIO:
        first, second = (np.log(each, where=usable, out=each.copy()) for each in (first, second))
    difference[usable] = _subtract(second[usable], first[usable], scale)
    return difference


def effect(
    tables: Tables,
    reference: int,
    other: int,
    scale: Scale = Scale.RATIO,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Effect:
    """Tell what an arm does to a quantity, compared with another one.

    The sham arm against the reference is the A/A comparison, made the same way.

    Parameters
    ----------
    tables
        A table a run, shape (block, arm); NaN where a window is left out.
    reference, other
        Indices of the arms.
    scale
        Ratio, or difference for what may be 0.
    level
        Confidence; `statistics.simultaneous_level` for one of many.
    resamples, seed
        Of the randomisation test.

    Raises
    ------
    StableError
        A table has another shape, or no such arm.
    """
    series = [block_differences(table, reference, other, scale) for table in tables]
    return _judge(series, scale, level, resamples, seed)


def change(
    first: Tables,
    second: Tables,
    reference: int,
    other: int,
    scale: Scale = Scale.RATIO,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Change:
    """Tell how far an effect moves from one way of cutting the same windows to another.

    Parameters
    ----------
    first, second
        Tables of the same runs and blocks, such as under a short and a long washout.
    reference, other, scale, level, resamples, seed
        As for `effect`.

    Raises
    ------
    StableError
        The tables are not of the same blocks, or as for `effect`.
    """
    if [len(table) for table in first] != [len(table) for table in second]:
        raise StableError("crossover: expected the same runs and blocks under both washouts")
    before, after = (
        [block_differences(table, reference, other, scale) for table in tables]
        for tables in (first, second)
    )
    moved = [_less(late, early, scale) for early, late in zip(before, after, strict=True)]
    return Change(
        *(_judge(series, scale, level, resamples, seed) for series in (before, after, moved))
    )


def _less(late: Values, early: Values, scale: Scale) -> Values:
    """Subtract the differences of blocks; undefined (infinite) stays so where the other one counts."""
    difference = np.where(np.isnan(late) | np.isnan(early), np.nan, np.inf)
    finite = np.isfinite(late) & np.isfinite(early)
    difference[finite] = _subtract(late[finite], early[finite], scale)
    return difference


def _subtract(late: Values, early: Values, scale: Scale) -> Values:
    """Subtract; what rounding leaves of equal values is 0, or it would be tested as an effect."""
    difference = late - early
    magnitude = np.maximum(np.abs(late), np.abs(early))
    if scale is Scale.RATIO:
        magnitude = np.maximum(magnitude, 1)
    difference[np.abs(difference) <= ROUNDING * magnitude] = 0
    return difference


def _judge(
    series: Sequence[Values], scale: Scale, level: float, resamples: int, seed: int
) -> Effect:
    counting = [run[~np.isnan(run)] for run in series]
    blocks = tuple(map(len, counting))
    runs = [counting[run] for run in combined(blocks)]
    n = sum(map(len, runs))
    if any(not np.isfinite(run).all() for run in counting):
        why = NO_LOGARITHM if scale is Scale.RATIO else NOT_FINITE
        return _without(scale, np.nan, blocks, level, why)
    if n == 0:
        return _without(scale, np.nan, blocks, level, NOT_MEASURED)
    estimate = float(np.concatenate(runs).mean())
    if n == 1:
        return _without(scale, estimate, blocks, level, TOO_FEW)
    pooled = np.concatenate(runs)
    p_randomisation = sign_flip_p_value(pooled, resamples, seed)
    spread = max(float(np.ptp(run)) for run in runs)
    if spread <= max(ROUNDING * float(np.abs(pooled).max()), TINY):
        p_value = np.nan if pooled.any() else 1.0
        return _without(scale, estimate, blocks, level, NO_SPREAD, p_value, p_randomisation)
    within = mean_of_blocks(runs)
    clusters = _clusters([float(run.mean()) for run in runs], list(map(len, runs)))
    conditional = clusters is None or len(runs) < MIN_RUNS
    shown = (within,) if clusters is None or conditional else (within, clusters)
    here = _interval((within,), n, level, f"t of {within.df:.0f} cosine transforms")
    across = Interval.without(estimate, n, level)
    if clusters:
        across = _interval((within, clusters), n, level, f"t of {len(runs)} runs")
    followed = autocorrelation(runs)
    return Effect(
        scale=scale,
        interval=here if conditional else across,
        here=here,
        across=across,
        robust=_robust(runs, within, level, conditional),
        p_value=max(mean.p_value() for mean in shown),
        p_randomisation=p_randomisation,
        detectable=max(mean.detectable(level) for mean in shown),
        blocks=blocks,
        conditional=conditional,
        autocorrelation=followed,
        doubts=_doubts(runs, within, followed),
    )


def _without(
    scale: Scale,
    estimate: float,
    blocks: tuple[int, ...],
    level: float,
    why: str,
    p_value: float = np.nan,
    p_randomisation: float = np.nan,
) -> Effect:
    n = sum(blocks[run] for run in combined(blocks))
    none = Interval.without(estimate, n, level, why)
    return Effect(
        scale=scale,
        interval=none,
        here=none,
        across=none,
        robust=none,
        p_value=p_value,
        p_randomisation=p_randomisation,
        detectable=np.nan,
        blocks=blocks,
        conditional=len(combined(blocks)) < MIN_RUNS,
        autocorrelation=Autocorrelation(np.empty(0), np.nan, np.nan),
        doubts=frozenset({Doubt.FEW_BLOCKS}) if n < MIN_BLOCKS else frozenset(),
    )


def _interval(means: Sequence[Mean], n: int, level: float, method: str) -> Interval:
    """Give what none of several errors of one mean leaves out."""
    lows, highs = zip(*(mean.ends(level) for mean in means), strict=True)
    return Interval(means[0].estimate, min(lows), max(highs), n, level, method)


def _clusters(centres: Sequence[float], counts: Sequence[int]) -> Mean | None:
    """Take runs as the sample, weighted by their blocks; none of fewer than two, or of equal ones.

    Few runs agree by chance more closely than their blocks allow: the errors within runs go beside it.
    """
    runs = len(centres)
    if runs < 2:
        return None
    weights, values = np.array(counts) / sum(counts), np.array(centres)
    mean = float(weights @ values)
    squares = float(((weights * (values - mean)) ** 2).sum())
    return Mean(mean, float(np.sqrt(runs / (runs - 1) * squares)), runs - 1)


def _robust(runs: list[Values], within: Mean, level: float, conditional: bool) -> Interval:
    n, method = sum(map(len, runs)), "Hodges-Lehmann, signed ranks"
    found = np.array([hodges_lehmann(run, level) for run in runs])
    counts = list(map(len, runs))
    weights = np.array(counts) / n
    estimate = float(weights @ found[:, 0])
    if np.isnan(found).any():
        return Interval.without(estimate, n, level, TOO_FEW)
    if (found[:, 1] == found[:, 2]).any():
        return Interval.without(estimate, n, level, MOST_EQUAL)
    # What dependence costs the mean it costs the robust estimate.
    quantile = float(special.stdtrit(within.df, (1 + level) / 2))
    residuals = np.concatenate([run - run.mean() for run in runs])
    free = n - len(runs)
    plain = np.sqrt(float((residuals**2).sum()) / free / n) * special.stdtrit(free, (1 + level) / 2)
    paid = max(within.error * quantile / float(plain), 1.0)
    if len(runs) == 1:
        low, high = (estimate + paid * float(end - estimate) for end in found[0, 1:])
        return Interval(estimate, low, high, n, level, method)
    halves = paid * (found[:, 2] - found[:, 1]) / 2
    error = float(np.sqrt((weights**2 * halves**2).sum())) / quantile
    means = [Mean(estimate, error, within.df)]
    if not conditional and (clusters := _clusters(list(found[:, 0]), counts)):
        means.append(clusters)
    return _interval(means, n, level, method)


def _doubts(runs: list[Values], within: Mean, followed: Autocorrelation) -> frozenset[Doubt]:
    pooled = np.concatenate(runs)
    squares = np.concatenate([run - run.mean() for run in runs]) ** 2
    seen = {
        Doubt.FEW_BLOCKS: pooled.size < MIN_BLOCKS,
        Doubt.FEW_CHANGED: np.count_nonzero(pooled) < min(MIN_CHANGED, pooled.size),
        Doubt.ONE_BLOCK: pooled.size >= MIN_BLOCKS and squares.max() > squares.sum() / 2,
        Doubt.SKEWED: max(within.low_stretch, within.high_stretch) > SKEWED_STRETCH,
        Doubt.AUTOCORRELATED: followed.found,
        Doubt.RUNS_DIFFER: _differ(runs),
    }
    return frozenset(doubt for doubt, holds in seen.items() if holds)


def _differ(runs: list[Values]) -> bool:
    """Test that runs have one mean (Welch's analysis of variance for the errors of blocks)."""
    runs = [run for run in runs if len(run) > 2]
    # of a run whose blocks are all equal no error is known
    if len(runs) < 2 or not all(map(np.ptp, runs)):
        return False
    means = [mean_of_blocks([run]) for run in runs]
    if not all(mean.error > 0 for mean in means):
        return False
    weights = np.array([mean.error**-2 for mean in means])
    shares = weights / weights.sum()
    free = np.array([mean.df for mean in means])
    centres = np.array([mean.estimate for mean in means])
    k = len(runs)
    spread = float((weights * (centres - float(shares @ centres)) ** 2).sum()) / (k - 1)
    loose = float(((1 - shares) ** 2 / free).sum())
    statistic = spread / (1 + 2 * (k - 2) / (k**2 - 1) * loose)
    return bool(special.fdtrc(k - 1, (k**2 - 1) / (3 * loose), statistic) <= 0.05)
