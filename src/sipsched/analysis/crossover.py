"""The effect of a mode on a quantity, computed from the windows of runs that compare modes.

The replicate (unit of repetition) is the block. A block contains one window of every mode, in random order, with the
same calls. So each block yields one difference between two modes. All results follow from these differences.
docs/methodology/crossover-intervals.md explains the method and reports the measured coverage of its intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import special

from sipsched.analysis.blocks import (
    POWER,
    Splits,
    Student,
    hodges_lehmann,
    lag_one,
    mean_of_blocks,
    widening,
)
from sipsched.analysis.intervals import NOT_MEASURED, TOO_FEW, Interval, Values, simultaneous_level
from sipsched.errors import StableError

RUNS_AS_SAMPLE = 6
"""Number of runs from which a confidence interval treats the runs as a sample, and so holds for other runs, too."""
FEWEST_APART = 2
"""With only this many runs, no interval over runs is computed, even if the runs differ from each other.

Student's t would multiply the standard error by 12.7.
"""
MIN_BLOCKS = 10
"""Smallest number of blocks in which heavy tails and dependence are detectable."""
MIN_CHANGED = 10
"""Smallest number of blocks with a nonzero difference, for a quantity that is 0 in most windows."""
ROUNDING = 1e-13
TINY = 1e-150
"""Numbers closer to 0 than this number are treated as 0, because their squares would underflow."""
LOPSIDED = 0.25
"""A confidence interval may be too narrow if the blocks' skewness exceeds this factor times √(number of blocks).
"""
NO_LOGARITHM = "a ratio needs values above 0"
NOT_FINITE = "a value is infinite"
NO_SPREAD = "all blocks are equal"

Tables = Sequence[npt.NDArray[np.float64]]
"""One table per run, shape (block, arm), with blocks in the order of time; NaN for excluded windows."""
Weights = Sequence[Values] | None
"""Weights of the blocks per run, shape (block,), above 0."""
Arms = int | tuple[int, ...]
"""Column of a table (an arm: a mode or the sham), or several columns of one mode, which are averaged per block."""


class Scale(StrEnum):
    """The scale on which two windows are compared: ratio or difference."""

    RATIO = "ratio"
    """Logarithm of (other mode / reference mode), for positive quantities such as times."""
    DIFFERENCE = "difference"
    """Other mode minus reference mode, for quantities that may be 0, such as the packet drop rate."""


class Doubt(StrEnum):
    """A property of the data that may make a confidence interval too narrow for the confidence level."""

    FEW_BLOCKS = "few blocks"
    """The runs have fewer than MIN_BLOCKS blocks."""
    FEW_CHANGED = "few changed"
    """Fewer than MIN_CHANGED blocks have a nonzero difference."""
    ONE_BLOCK = "one block"
    """One block contributes more than half of the blocks' variance."""
    SKEWED = "skewed"
    """One tail of the blocks' distribution is longer, so the interval may be too short on the side of this tail."""
    AUTOCORRELATED = "autocorrelated"
    """Neighbouring blocks are correlated, so the confidence interval is widened."""
    RUNS_DIFFER = "runs differ"
    """The runs differ from each other by more than the scatter of their blocks explains."""


@dataclass(frozen=True)
class Effect:
    """The effect of a scheduler mode on one quantity, compared with the reference mode.

    Numbers are in the unit of the scale: the natural logarithm of a ratio, or the quantity's own unit. `percent`
    converts an interval of a log ratio into percent.

    Attributes
    ----------
    interval
        The mean over blocks. The intervals of all comparisons in the family hold simultaneously.
    robust
        Estimate by Hodges and Lehmann, on which outlying blocks have little influence.
    p_value
        P-value of the hypothesis of no effect, multiplied by the number of comparisons in the family. The p-value is at
        most 0.05 if and only if `interval` excludes 0. NaN without a test.
    detectable
        The smallest positive effect that the interval would detect with a power of 80 %; NaN without an interval.
    blocks
        Number of valid blocks per run. A run with one block is excluded if another run has two or more blocks.
    conditional
        Whether `interval` holds only for these runs, and not for other runs with the same setting.
    lag_one
        Correlation of the differences of neighbouring blocks; NaN for fewer than 8 blocks per run.
    doubts
        Properties of the data that may make the interval too narrow.
    """

    scale: Scale
    interval: Interval
    robust: float
    p_value: float
    detectable: float
    blocks: tuple[int, ...]
    conditional: bool
    lag_one: float
    doubts: frozenset[Doubt]

    @property
    def runs(self) -> int:
        """Number of runs from which the effect's confidence interval was computed."""
        return len(combined(self.blocks))


@dataclass(frozen=True)
class Change:
    """The change of an effect between two evaluations of the same windows, for example with a longer washout.

    Attributes
    ----------
    first, second
        The effect in each evaluation.
    moved
        Second effect minus first effect, paired over the blocks that are valid in both evaluations.
    """

    first: Effect
    second: Effect
    moved: Effect


def to_percent(log_ratio: float) -> float:
    """Convert the logarithm of a ratio into a change in percent. A negative change is a decrease."""
    return float(100 * np.expm1(log_ratio))


def percent(interval: Interval) -> Interval:
    """Convert an interval of the logarithm of a ratio into changes in percent. A negative change is a decrease."""
    return interval.map(to_percent)


def combined(blocks: Sequence[int]) -> list[int]:
    """Return the indices of the runs with two or more blocks. Without such runs, return the first run's index."""
    several = [run for run, count in enumerate(blocks) if count > 1]
    return several or [run for run, count in enumerate(blocks) if count][:1]


def block_differences(
    table: npt.ArrayLike, reference: Arms, other: Arms, scale: Scale = Scale.RATIO
) -> Values:
    """Return the difference between two modes for each block of one run.

    Parameters
    ----------
    table
        Shape (block, arm); NaN for excluded windows.
    reference, other
        Indices of the arms. If one side has several arms, their windows are averaged per block, as logarithms for a
        ratio.
    scale
        Whether modes are compared by ratio or by difference.

    Returns
    -------
    ndarray
        Shape (block,). NaN for excluded windows. Infinite if a value is infinite, or if a ratio would need a value of 0
        or less.

    Raises
    ------
    StableError
        The table has another shape, or lacks an arm.
    """
    values = np.asarray(table, np.float64)
    first, second = ((side,) if isinstance(side, int) else side for side in (reference, other))
    if values.ndim != 2 or not all(0 <= arm < values.shape[1] for arm in (*first, *second)):
        raise StableError(
            f"crossover: expected a table (block, arm) with arms {reference} and {other}, "
            f"found shape {values.shape}"
        )
    left, right = (_side(values[:, side], scale) for side in (first, second))
    return _less(right, left, scale)


def _side(windows: Values, scale: Scale) -> Values:
    """Return the mean of one mode's windows in each block. For a ratio, return the mean of the logarithms.

    The mean is infinite if a value is infinite, or if a value of 0 or less has no logarithm.
    """
    counts = ~np.isnan(windows)
    usable = np.isfinite(windows) & ((windows > 0) | (scale is Scale.DIFFERENCE))
    values = np.zeros_like(windows)
    if scale is Scale.RATIO:
        np.log(windows, where=usable, out=values)
    else:
        values[usable] = windows[usable]
    n = counts.sum(axis=1)
    mean: Values = np.full(len(windows), np.nan)
    np.divide(values.sum(axis=1), n, out=mean, where=n > 0)
    mean[(counts & ~usable).any(axis=1)] = np.inf
    return mean


def effect(
    tables: Tables,
    reference: Arms,
    other: Arms,
    scale: Scale = Scale.RATIO,
    tests: int = 1,
    weights: Weights = None,
) -> Effect:
    """Compute the effect of a mode on a quantity, compared with another mode.

    The comparison of the sham with the reference uses this function, too.

    Parameters
    ----------
    tables
        One table per run, shape (block, arm); NaN for excluded windows.
    reference, other
        See `block_differences`.
    scale
        Ratio, or difference for a quantity that may be 0.
    tests
        Number of comparisons in the family. The intervals of the family hold simultaneously at 95 % (Bonferroni).
    weights
        Weights of the blocks of each table; None for equal weights.

    Raises
    ------
    StableError
        A table has another shape, or lacks an arm.
    """
    series = [block_differences(table, reference, other, scale) for table in tables]
    return _judge(series, scale, tests, weights)


def change(
    first: Tables,
    second: Tables,
    reference: Arms,
    other: Arms,
    scale: Scale = Scale.RATIO,
    tests: int = 1,
    weights: Weights = None,
) -> Change:
    """Return the change of an effect between two evaluations of the same windows, such as two washouts.

    Parameters
    ----------
    first, second
        Tables of the same runs and blocks, for example with a short washout and with a long washout.
    reference, other, scale, tests, weights
        See `effect`.

    Raises
    ------
    StableError
        The tables have different blocks, or `effect` rejects them.
    """
    if [len(table) for table in first] != [len(table) for table in second]:
        raise StableError("crossover: expected the same runs and blocks under both washouts")
    before, after = (
        [block_differences(table, reference, other, scale) for table in tables]
        for tables in (first, second)
    )
    moved = [_less(late, early, scale) for early, late in zip(before, after, strict=True)]
    return Change(*(_judge(series, scale, tests, weights) for series in (before, after, moved)))


def _less(late: Values, early: Values, scale: Scale) -> Values:
    """Return `late` minus `early` for each block. The difference is infinite if one of the two values is infinite.

    To compare two modes, callers pass the values of the other mode as `late`, and of the reference mode as `early`. To
    compare two evaluations, callers pass the effects of the later and of the earlier evaluation.
    """
    difference: Values = np.where(np.isnan(late) | np.isnan(early), np.nan, np.inf)
    finite = np.isfinite(late) & np.isfinite(early)
    difference[finite] = _subtract(late[finite], early[finite], scale)
    return difference


def _subtract(late: Values, early: Values, scale: Scale) -> Values:
    """Return `late` minus `early`. A difference that is not larger than the rounding error becomes exactly 0.

    Otherwise, the statistical tests would treat a rounding error as a difference between modes.
    """
    difference = late - early
    magnitude = np.maximum(np.abs(late), np.abs(early))
    if scale is Scale.RATIO:
        magnitude = np.maximum(magnitude, 1)
    difference[np.abs(difference) <= ROUNDING * magnitude] = 0
    return difference


def _judge(series: Sequence[Values], scale: Scale, tests: int, weights: Weights) -> Effect:
    counting = [run[~np.isnan(run)] for run in series]
    blocks = tuple(map(len, counting))
    runs = [counting[run] for run in combined(blocks)]
    weighed = [
        np.ones(blocks[run]) if weights is None else weights[run][~np.isnan(series[run])]
        for run in combined(blocks)
    ]
    n, level = sum(map(len, runs)), simultaneous_level(tests)
    if any(not np.isfinite(run).all() for run in counting):
        why = NO_LOGARITHM if scale is Scale.RATIO else NOT_FINITE
        return _without(scale, Interval.without(np.nan, n, level, why), blocks)
    if n < 2:
        estimate = float(runs[0][0]) if n else np.nan
        why = TOO_FEW if n else NOT_MEASURED
        return _without(scale, Interval.without(estimate, n, level, why), blocks)
    pooled = np.concatenate(runs)
    spread = max(float(np.ptp(run)) for run in runs)
    if spread <= max(ROUNDING * float(np.abs(pooled).max()), TINY):
        none = Interval.without(float(pooled.mean()), n, level, NO_SPREAD)
        return _without(scale, none, blocks, np.nan if pooled.any() else 1.0)
    of_blocks, differ = mean_of_blocks(runs, weighed), _differ(runs)
    shown: list[Splits | Student] = [of_blocks]
    if len(runs) >= RUNS_AS_SAMPLE or (differ and len(runs) > FEWEST_APART):
        shown.append(_of_runs(runs, weighed))
    p_value = max(mean.p_value() for mean in shown)
    return Effect(
        scale=scale,
        interval=_interval(shown, n, level),
        robust=hodges_lehmann(pooled),
        p_value=min(1.0, tests * p_value),
        detectable=_detectable(shown, level),
        blocks=blocks,
        conditional=len(shown) == 1,
        lag_one=lag_one(runs),
        doubts=_doubts(runs, differ),
    )


def _without(
    scale: Scale, none: Interval, blocks: tuple[int, ...], p_value: float = np.nan
) -> Effect:
    return Effect(
        scale=scale,
        interval=none,
        robust=np.nan,
        p_value=p_value,
        detectable=np.nan,
        blocks=blocks,
        conditional=len(combined(blocks)) < RUNS_AS_SAMPLE,
        lag_one=np.nan,
        doubts=frozenset({Doubt.FEW_BLOCKS}) if none.n < MIN_BLOCKS else frozenset(),
    )


def _interval(means: Sequence[Splits | Student], n: int, level: float) -> Interval:
    """Return the smallest interval that contains the confidence intervals of all estimates in `means`.

    The first estimate treats blocks as observations. With enough runs, a second estimate treats runs as observations.
    """
    estimate = means[0].estimate
    lows, highs = zip(*(mean.ends(level) for mean in means), strict=True)
    if not np.isfinite([*lows, *highs]).all():
        return Interval.without(estimate, n, level, TOO_FEW)
    method = "sign flips" if len(means) == 1 else "sign flips, and t of runs"
    return Interval(estimate, min(lows), max(highs), n, level, method)


def _detectable(means: Sequence[Splits | Student], level: float) -> float:
    reach = []
    for mean in means:
        low, high = mean.ends(level)
        half = max(mean.estimate - low, high - mean.estimate)
        reach.append(half + mean.error * float(special.ndtri(POWER)))
    return max(reach) if np.isfinite(reach).all() else np.nan


def _of_runs(runs: Sequence[Values], weighed: Sequence[Values]) -> Student:
    """Return the weighted mean over runs with a t interval, where each run is one observation.

    The weight of a run is the sum of its blocks' weights. A few runs can agree by chance more closely than their blocks
    suggest, which makes this interval too narrow. So the caller also applies the test of blocks.
    """
    weights = np.array([weight.sum() for weight in weighed])
    weights /= weights.sum()
    pairs = zip(runs, weighed, strict=True)
    centres = np.array([np.average(run, weights=weight) for run, weight in pairs])
    mean = float(weights @ centres)
    squares = float(((weights * (centres - mean)) ** 2).sum())
    return Student(mean, float(np.sqrt(len(runs) / (len(runs) - 1) * squares)), len(runs) - 1)


def _doubts(runs: list[Values], differ: bool) -> frozenset[Doubt]:
    pooled = np.concatenate(runs)
    residuals = np.concatenate([run - run.mean() for run in runs])
    residuals /= np.abs(residuals).max() or 1.0
    squares = residuals**2
    skewness = float((residuals**3).mean() / (squares.mean() or 1.0) ** 1.5)
    seen = {
        Doubt.FEW_BLOCKS: pooled.size < MIN_BLOCKS,
        Doubt.FEW_CHANGED: np.count_nonzero(pooled) < min(MIN_CHANGED, pooled.size),
        Doubt.ONE_BLOCK: pooled.size >= MIN_BLOCKS and squares.max() > squares.sum() / 2,
        Doubt.SKEWED: abs(skewness) > LOPSIDED * np.sqrt(pooled.size),
        Doubt.AUTOCORRELATED: widening(runs) > 1,
        Doubt.RUNS_DIFFER: differ,
    }
    return frozenset(doubt for doubt, holds in seen.items() if holds)


def _differ(runs: list[Values]) -> bool:
    """Test whether all runs have the same mean.

    The test is Welch's analysis of variance with the errors of the blocks.
    """
    runs = [run for run in runs if len(run) > 2]
    # If all blocks of a run are equal, the standard error of the run's mean cannot be estimated.
    if len(runs) < 2 or not all(map(np.ptp, runs)):
        return False
    errors = np.array([widening([run]) * run.std(ddof=1) / np.sqrt(len(run)) for run in runs])
    if not (errors > TINY).all():
        return False
    weights = errors**-2
    shares = weights / weights.sum()
    free = np.array([len(run) - 1 for run in runs])
    centres = np.array([run.mean() for run in runs])
    k = len(runs)
    spread = float((weights * (centres - float(shares @ centres)) ** 2).sum()) / (k - 1)
    loose = float(((1 - shares) ** 2 / free).sum())
    statistic = spread / (1 + 2 * (k - 2) / (k**2 - 1) * loose)
    return bool(special.fdtrc(k - 1, (k**2 - 1) / (3 * loose), statistic) <= 0.05)
