"""The mean of a series of blocks that may follow each other, be skewed, or both.

One number a block, in the order of time: the difference of two windows. What is here knows nothing of
windows and runs; `crossover` does. docs/methodology.md has the measured coverage.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from sipsched.analysis.statistics import LEVEL, RESAMPLES, SEED, Values

POWER = 0.8
FLATNESS = 0.9
"""The averaged part of the spectrum may be lower than the spectrum at 0 by this factor, and no more."""
LARGEST_LAG_ONE = 0.95
LARGEST_STRETCH = 2.0
"""Of an end for skewness; Hall's transformation gives up to 4, and covers no more for it."""
EXACT_RANKS = 50
"""Blocks up to which the signed-rank distribution is counted out; its normal limit is good from 20."""
_DRAWN_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Autocorrelation:
    """How blocks follow each other.

    Attributes
    ----------
    lags
        Shape (lag,): the correlation of blocks 1, 2, ... apart, runs pooled; empty below 8 blocks a run.
    bound
        What a lag of independent blocks stays within at 99 %, each for itself.
    p_value
        Of all lags together (Ljung and Box, 1978); NaN without lags.
    """

    lags: Values
    bound: float
    p_value: float

    @property
    def found(self) -> bool:
        """Whether the first lag is above its bound, or all lags together are more than chance."""
        return bool(self.lags.size) and (self.lags[0] > self.bound or self.p_value <= 0.01)

    def __eq__(self, other: object) -> bool:
        """Compare by value; arrays have no truth of their own."""
        return isinstance(other, Autocorrelation) and (
            np.array_equal(self.lags, other.lags)
            and np.array_equal([self.bound, self.p_value], [other.bound, other.p_value], True)
        )


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error, degrees of freedom, and how skewness moves its ends.

    Attributes
    ----------
    estimate, error
        The mean and its standard error.
    df
        Degrees of freedom of the error.
    low_stretch, high_stretch
        Factors of 1 to 2 by which the ends are farther away than those of t.
    """

    estimate: float
    error: float
    df: float
    low_stretch: float = 1.0
    high_stretch: float = 1.0

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Give the ends of the interval."""
        half = self.error * float(special.stdtrit(self.df, (1 + level) / 2))
        return self.estimate - half * self.low_stretch, self.estimate + half * self.high_stretch

    def p_value(self) -> float:
        """Test that the mean is 0; at or under α exactly where the interval at 1 - α leaves out 0."""
        # runs that agree to the last digit
        if not self.error:
            return float(self.estimate == 0)
        toward = self.low_stretch if self.estimate > 0 else self.high_stretch
        return float(2 * special.stdtr(self.df, -abs(self.estimate) / (self.error * toward)))

    def detectable(self, level: float = LEVEL, power: float = POWER) -> float:
        """Give the smallest true mean, either way, that the test would have seen with this power."""
        quantile = special.stdtrit(self.df, (1 + level) / 2)
        stretched = quantile * max(self.low_stretch, self.high_stretch)
        return float(self.error * special.nctdtrinc(self.df, 1 - power, stretched))


def autocorrelation(runs: list[Values]) -> Autocorrelation:
    """Look at how the blocks of each run follow each other.

    Parameters
    ----------
    runs
        A series a run, shape (block,) each, without NaN.
    """
    n, shortest = sum(map(len, runs)), min(map(len, runs), default=0)
    bound = special.ndtri(0.995) / np.sqrt(max(n, 1))
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in runs if run.size)
    if shortest < 8 or not squares:
        return Autocorrelation(np.empty(0), float(bound), np.nan)
    lags = np.array([_lagged(runs, lag) / squares for lag in range(1, min(5, shortest // 4) + 1)])
    left = n - len(runs) * np.arange(1, len(lags) + 1)
    statistic = n * (n + 2) * float((lags**2 / left).sum())
    return Autocorrelation(lags, float(bound), float(special.chdtrc(len(lags), statistic)))


def _lagged(runs: list[Values], lag: int) -> float:
    centred = (run - run.mean() for run in runs)
    return sum(float((run[lag:] * run[:-lag]).sum()) for run in centred)


def mean_of_blocks(runs: list[Values]) -> Mean:
    """Average blocks that may follow each other and may be skewed.

    The variance is the average of the squares of the first B cosine transforms of a run, B degrees of
    freedom: with all n - 1 it is exactly the usual one, with fewer it sees slow movements only, which
    is what the variance of a mean of dependent blocks is made of. B is as large as an autoregression
    of order one allows, whose coefficient is the measured one, corrected for its bias, plus one
    standard error: few blocks cannot show that they are independent, and pay for it.

    SEE Lazarus, Lewis, Stock and Watson, HAR Inference: Recommendations for Practice (JBES 36, 2018)

    Parameters
    ----------
    runs
        A series a run, shape (block,) each, two blocks or more, without NaN, not all equal within
        every run. The mean is that of all blocks, the error that within runs.
    """
    n = sum(map(len, runs))
    mean = float(np.concatenate(runs).mean())
    largest = max(float(np.abs(run - run.mean()).max()) for run in runs)
    # In units of the largest, since third powers of what is small are 0.
    residuals = [(run - run.mean()) / largest for run in runs]
    coefficient = _lag_one(residuals)
    terms = [_terms(len(run), coefficient) for run in runs]
    spectra = [
        float((fft.dct(run, norm="ortho")[1 : count + 1] ** 2).mean())
        for run, count in zip(residuals, terms, strict=True)
    ]
    # of the sum of a run's blocks
    variances = np.array([len(run) * each for run, each in zip(runs, spectra, strict=True)])
    error = float(np.sqrt(variances.sum())) / n
    df = float(variances.sum() ** 2 / (variances**2 / terms).sum())
    return Mean(mean, largest * error, df, *_stretches(np.concatenate(residuals), n - len(runs)))


def _stretches(residuals: Values, free: int) -> tuple[float, float]:
    """Tell how much farther away the ends are than those of t, at 95 %, by the blocks' skewness.

    Only ever farther, up to LARGEST_STRETCH: in few blocks with heavy tails the sign of the skewness is chance.

    SEE Hall, On the Removal of Skewness by Transformation (JRSS B 54, 1992)
    """
    skewness = float((residuals**3).mean() / (residuals**2).mean() ** 1.5)
    a = skewness / float(np.sqrt(residuals.size))
    if abs(a) < 1e-6:
        return 1.0, 1.0
    quantile = special.stdtrit(free, (1 + LEVEL) / 2)
    low, high = (
        float(3 / a * (np.cbrt(1 + a * (end - a / 6)) - 1) / end) for end in (quantile, -quantile)
    )
    return min(max(low, 1.0), LARGEST_STRETCH), min(max(high, 1.0), LARGEST_STRETCH)


def _lag_one(runs: list[Values]) -> float:
    """Estimate the first lag on the safe side."""
    n, length = sum(map(len, runs)), sum(map(len, runs)) / len(runs)
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in runs)
    if not squares or length <= 4:
        return 0.0
    # SEE Marriott and Pope, Bias in the Estimation of Autocorrelations (Biometrika 41, 1954)
    unbiased = (length * _lagged(runs, 1) / squares + 1) / (length - 3)
    return float(np.clip(unbiased + 1 / np.sqrt(n), 0, LARGEST_LAG_ONE))


def _terms(n: int, coefficient: float) -> int:
    """Count the cosine transforms over which the spectrum is flat enough; at least LLSW's rule."""
    frequencies = np.pi * np.arange(1, n) / n
    spectrum = (1 - coefficient) ** 2 / (1 - 2 * coefficient * np.cos(frequencies) + coefficient**2)
    flat = np.cumsum(spectrum) / np.arange(1, n) >= FLATNESS
    least: int = max(round(0.4 * n ** (2 / 3)), min(n - 1, 2))
    return max(int(np.count_nonzero(flat)), least)


def hodges_lehmann(values: Values, level: float = LEVEL) -> tuple[float, float, float]:
    """Give the median of all averages of two blocks, and the signed-rank interval about it.

    Parameters
    ----------
    values
        Shape (block,), one block or more, without NaN. Memory grows with the square of their number.
    level
        Confidence.

    Returns
    -------
    estimate, low, high
        low and high are NaN where so few blocks allow no interval of this level.
    """
    n = values.size
    first, second = np.triu_indices(n)
    # halves first: the sum of two large values may overflow
    averages = np.sort(values[first] / 2 + values[second] / 2)
    estimate = float(np.median(averages))
    outside = _signed_rank_quantile(n, (1 - level) / 2)
    if outside < 1:
        return estimate, np.nan, np.nan
    return estimate, float(averages[outside - 1]), float(averages[averages.size - outside])


def _signed_rank_quantile(n: int, tail: float) -> int:
    """Find the largest k such that the signed-rank statistic is below k with at most this chance."""
    if n <= EXACT_RANKS:
        ways = np.ones(1)
        for rank in range(1, n + 1):
            ways = np.concatenate((ways, np.zeros(rank))) + np.concatenate((np.zeros(rank), ways))
        # a tail such as 1/32 is met exactly, and must not be missed by rounding
        below = np.cumsum(ways) / 2.0**n <= tail * (1 + 1e-9)
        return int(np.count_nonzero(below))
    spread = np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return int(np.floor(n * (n + 1) / 4 + special.ndtri(tail) * spread))


def sign_flip_p_value(values: Values, resamples: int = RESAMPLES, seed: int = SEED) -> float:
    """Test by redrawing the order within each block that no block has a difference.

    To exchange the two windows of a block turns the sign of its difference. All 2ⁿ orders are gone
    through where that is no more work than the draws, which count the order at hand as one of them.

    Parameters
    ----------
    values
        Shape (block,), one block or more, without NaN.
    resamples, seed
        Of the draws; the same seed gives the same value.

    Returns
    -------
    float
        Two-sided.
    """
    n = values.size
    # what rounding makes of equal sums must count as equal
    reached = abs(float(values.sum())) - 1e-12 * float(np.abs(values).sum())
    if 2 ** (n - 1) <= resamples:
        patterns = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1
        return float(np.mean(np.abs(_signed(patterns, values)) >= reached))
    rng = np.random.default_rng(seed)
    beyond, step = 0, max(_DRAWN_AT_ONCE // n, 1)
    for start in range(0, resamples, step):
        drawn = rng.integers(0, 2, (min(step, resamples - start), n), np.int8)
        beyond += int(np.count_nonzero(np.abs(_signed(drawn, values)) >= reached))
    return (1 + beyond) / (1 + resamples)


def _signed(patterns: npt.NDArray[Any], values: Values) -> Values:
    sums: Values = values.sum() - 2 * (patterns @ values)
    return sums
