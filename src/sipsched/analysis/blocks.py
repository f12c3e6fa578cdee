"""The mean of a difference over blocks (groups of windows), with a randomisation test and a confidence interval.

Each block contributes one number: the difference of two windows. The module `crossover` computes these differences.
docs/methodology/crossover-intervals.md reports the measured coverage of the intervals.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from sipsched.analysis.intervals import LEVEL, Values

POWER = 0.8
SPLITS = 2**14 - 1
"""Largest number of splits into two groups that the test uses. For up to 15 blocks, the test uses all splits."""
FOLLOWED = 0.99
"""Confidence level of the one-sided test for a correlation of neighbouring blocks, which widens intervals."""
LARGEST_LAG_ONE = 0.9
FEWEST_FOR_LAG_ONE = 8
_SEED = 1


@dataclass(frozen=True)
class Splits:
    """A mean over blocks, and a randomisation test of this mean, with a confidence interval.

    The order of the windows in a block is random. So if every block has the effect θ, a block's difference from θ could
    have had the other sign with equal probability. Random signs split the blocks into two groups. If θ lies between the
    means of the two groups, the mean of the signed differences is at least as far from 0 as the measured mean.
    Otherwise, the mean of the signed differences is nearer to 0. So the p-value of θ is the share of splits whose two
    means enclose θ. The ends of the interval are a quantile of the lower means and a quantile of the higher means.

    SEE Hartigan, Using Subsample Values as Typical Values (JASA 64, 1969)

    Attributes
    ----------
    estimate, error
        Mean and its standard error. A correlation of neighbouring blocks increases the standard error.
    lows, highs
        Shape (split,): the lower means of the splits in ascending order, and the higher means in descending order.
    """

    estimate: float
    error: float
    lows: Values
    highs: Values

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the confidence interval's ends, which are infinite if the level is above 1 - 1 / (1 + splits)."""
        # `lows` has no value for the split with all blocks in one group. A split into one group counts as enclosing
        # every θ, so the number of splits is 1 + size.
        # Without the factor 1 + 1e-9, a rounding error could turn a whole number into the next lower number.
        place = int((1 - level) * (1 + self.lows.size) * (1 + 1e-9))
        if place < 1:
            return -np.inf, np.inf
        return float(self.lows[place - 1]), float(self.highs[place - 1])

    def p_value(self) -> float:
        """Return the p-value of the hypothesis that the mean is 0.

        The p-value is at most α if and only if the interval of confidence 1 - α excludes 0.
        """
        if self.estimate > 0:
            enclosing = np.count_nonzero(self.lows <= 0)
        elif self.estimate < 0:
            enclosing = np.count_nonzero(self.highs >= 0)
        else:
            return 1.0
        return float((1 + enclosing) / (1 + self.lows.size))


@dataclass(frozen=True)
class Student:
    """The mean of a few independent values, with a confidence interval from Student's t distribution.

    Attributes
    ----------
    estimate, error
        The mean, and its standard error.
    df
        Degrees of freedom of the standard error.
    """

    estimate: float
    error: float
    df: float

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the lower and the upper end of the confidence interval of the mean."""
        half = self.error * float(special.stdtrit(self.df, (1 + level) / 2))
        return self.estimate - half, self.estimate + half

    def p_value(self) -> float:
        """Return the p-value of the hypothesis that the mean is 0.

        The p-value is at most α if and only if the interval of confidence 1 - α excludes 0.
        """
        # If all values are exactly equal, the standard error is 0 and the t statistic does not exist.
        if not self.error:
            return float(self.estimate == 0)
        return float(2 * special.stdtr(self.df, -abs(self.estimate) / self.error))


def mean_of_blocks(runs: list[Values], weights: list[Values] | None = None) -> Splits:
    """Return the mean over the blocks of all runs, together with the randomisation test of this mean.

    Parameters
    ----------
    runs
        One series per run, in the order of time, shape (block,), without NaN. All series together have two blocks or
        more, and not all values are equal.
    weights
        Weights of the blocks, above 0, in the same shapes; None for equal weights.
    """
    pooled = np.concatenate(runs)
    weight = np.ones(pooled.size) if weights is None else np.concatenate(weights)
    whole = float(weight.sum())
    mean = float(weight @ pooled) / whole
    moments = weight * (pooled - mean)
    inside = _splits(pooled.size)
    sums, sizes = inside @ moments, inside @ weight
    first, second = sums / sizes, -sums / (whole - sizes)
    wider = widening(runs)
    lows = mean + wider * np.minimum(first, second)
    highs = mean + wider * np.maximum(first, second)
    # Without a tolerance, rounding errors would decide whether the two means of a split enclose 0.
    nothing = 1e-12 * float(np.abs(pooled).max())
    for outer in (lows, highs):
        outer[np.abs(outer) <= nothing] = 0
    # The effective number of blocks is the number of equally weighted blocks that have the same precision.
    worth = whole**2 / float(weight @ weight)
    error = wider * float(np.sqrt(worth / (worth - 1) * (moments @ moments))) / whole
    return Splits(mean, error, np.sort(lows), np.sort(highs)[::-1])


@lru_cache(maxsize=4)
def _splits(n: int) -> Values:
    """Return an array of splits of n blocks into two groups, with one row per split.

    A row has a 1 for each block in the first group, and a 0 for each block in the second group. The array has all
    splits if at most SPLITS exist. Otherwise it has a random sample of them.
    """
    if 2 ** (n - 1) - 1 <= SPLITS:
        # Exchanging the two groups yields the same split, so the last block is always in the second group.
        inside = np.arange(1, 2 ** (n - 1))[:, None] >> np.arange(n) & 1
    else:
        inside = np.random.default_rng(_SEED).integers(0, 2, (SPLITS, n), np.int8)
        # An empty group has no mean, so block 0 moves to an empty group. With 16 blocks, 1 split in 33,000 needs this
        # move.
        inside[inside.sum(axis=1) % n == 0, 0] ^= 1
    return inside.astype(np.float64)


def lag_one(runs: list[Values]) -> float:
    """Estimate the correlation of neighbouring blocks within runs; NaN if the runs have too few blocks.

    SEE Marriott and Pope, Bias in the Estimation of Autocorrelations (Biometrika 41, 1954)
    """
    length = sum(map(len, runs)) / max(len(runs), 1)
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in runs if run.size)
    if length < FEWEST_FOR_LAG_ONE or not squares:
        return np.nan
    centred = [run - run.mean() for run in runs if run.size]
    raw = sum(float((run[1:] * run[:-1]).sum()) for run in centred) / squares
    return (length * raw + 1) / (length - 3)


def widening(runs: list[Values]) -> float:
    """Return the factor by which correlated blocks widen a confidence interval; 1 without evidence of correlation.

    The order of windows within blocks is random. So the differences of blocks are uncorrelated if the effect is equal
    in all blocks, even if something disturbs the machine. Only an effect that changes with time correlates neighbouring
    blocks. For correlated blocks, the factor comes from the variance of the mean of a first-order autoregression.
    """
    correlation = lag_one(runs)
    n = sum(map(len, runs))
    length = n / max(len(runs), 1)
    # If blocks are independent, `spread` is the standard deviation of the bias-corrected correlation of neighbouring
    # blocks.
    spread = (length - 2) / (length - 3) / np.sqrt(max(n - len(runs), 1)) if length > 3 else np.inf
    if np.isnan(correlation) or correlation <= special.ndtri(FOLLOWED) * spread:
        return 1.0
    correlation = min(correlation, LARGEST_LAG_ONE)
    return float(np.sqrt((1 + correlation) / (1 - correlation)))


def hodges_lehmann(values: Values) -> float:
    """Return the Hodges-Lehmann estimate: the median of the averages of all pairs of blocks, robust against outliers.

    Parameters
    ----------
    values
        Shape (block,), one block or more, without NaN. The needed memory grows with the square of the number of blocks.
    """
    first, second = np.triu_indices(values.size)
    # Each value is halved first, because the sum of two large values may overflow.
    return float(np.median(values[first] / 2 + values[second] / 2))
