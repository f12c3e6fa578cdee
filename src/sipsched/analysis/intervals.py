"""Functions that estimate a value from several runs, with a confidence interval.

Each run contributes one value, because the messages of a run share one queue and are not independent of each other.
docs/methodology/statistics.md has the sources of the methods and the measured coverage of the intervals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

from sipsched.errors import StableError

LEVEL = 0.95
RANKS_FROM = 6
"""Smallest number of runs for which an interval from Wilcoxon's signed ranks reaches a level of 95 %.

With fewer runs, a t interval of the logarithms is used.
"""
FEWEST = 4
"""Smallest number of runs for which pages show a confidence interval.

The width of an interval from three runs is mostly random.
"""
TOO_FEW = "too few for an interval"
NOT_MEASURED = "not measured"
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval, or with the reason why no interval exists.

    Attributes
    ----------
    The estimated number; NaN if it is missing. `why` then contains the reason.
    low, high
        Ends of the interval; NaN if no interval exists. An end may be infinite.
    n
        Number of runs, or of pairs of runs, from which the estimate was computed.
    why
        Reason why no interval exists; empty if an interval exists.
    resolved
        False if the data only show that the number lies between `low` and `high`. Pages then show no estimate. In this
        case, `low` and `high` exist even if `why` gives a reason for a missing confidence interval.
    least, most
        The smallest and the largest value of the runs; NaN if unknown.
    """

    estimate: float
    low: float
    high: float
    n: int
    level: float = LEVEL
    method: str = ""
    why: str = ""
    resolved: bool = True
    least: float = np.nan
    most: float = np.nan

    @classmethod
    def without(
        cls, estimate: float, n: int, level: float = LEVEL, why: str = TOO_FEW
    ) -> "Interval":
        """Return an estimate without a confidence interval, and the reason for the missing interval."""
        return cls(estimate, np.nan, np.nan, n, level, why=why)

    @property
    def known(self) -> bool:
        """True if the estimate has a confidence interval."""
        return not self.why

    @property
    def excludes_zero(self) -> bool:
        """True if a confidence interval exists and does not contain 0."""
        return self.known and not self.low <= 0 <= self.high

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Apply a monotone function to the estimate and the ends. A decreasing function swaps the interval's ends."""
        low, high = sorted((function(self.low), function(self.high)))
        least, most = sorted((function(self.least), function(self.most)))
        return replace(
            self, estimate=function(self.estimate), low=low, high=high, least=least, most=most
        )


@dataclass(frozen=True)
class Estimates:
    """Arrays of estimates with the confidence intervals and the numbers of runs.

    All arrays have the same shape. The ends of a missing interval are NaN. `least` and `most` are the smallest and the
    largest value of the runs.
    """

    estimate: Values
    low: Values
    high: Values
    n: npt.NDArray[np.int64]
    least: Values
    most: Values

    @classmethod
    def of(cls, intervals: Sequence[Interval]) -> "Estimates":
        """Convert a list of intervals into arrays of shape (interval,). A number of runs of 0 becomes 1."""
        names = ("estimate", "low", "high", "least", "most")
        rows = [[getattr(interval, name) for name in names] for interval in intervals]
        estimate, low, high, least, most = np.array(rows, float).reshape(-1, len(names)).T
        count = np.array([max(interval.n, 1) for interval in intervals], int)
        return cls(estimate, low, high, count, least, most)

    @property
    def bars(self) -> Values:
        """The lengths of error bars below and above the estimates, shape (2, …); 0 if an estimate has too few runs."""
        reach = np.array([self.estimate - self.low, self.high - self.estimate])
        return np.asarray(np.where(self.n < FEWEST, 0, np.maximum(np.nan_to_num(reach), 0)))

    def at(self, i: int) -> Interval:
        """Return the estimate with index `i` and its confidence interval, from one-dimensional arrays."""
        n, estimate = int(self.n[i]), float(self.estimate[i])
        if np.isnan(self.low[i]):
            return Interval.without(estimate, n, why=TOO_FEW if n else NOT_MEASURED)
        return Interval(
            *(estimate, float(self.low[i]), float(self.high[i]), n),
            least=float(self.least[i]),
            most=float(self.most[i]),
        )


def typical_intervals(values: Values, level: float = LEVEL) -> Estimates:
    """Estimate the value of a typical run from the repetitions along the last axis, with confidence intervals.

    The estimate is the Hodges-Lehmann estimate of the logarithms: the median of the means of all pairs, including each
    run with itself. If the logarithms are symmetric, this value estimates the median. For `RANKS_FROM` runs or more,
    the interval comes from Wilcoxon's signed ranks, if the ranks reach the level. Otherwise the interval is Student's t
    of the logarithms. The estimate is not the mean, because no interval of a mean is valid if one run in five is five
    times as large (docs/methodology/statistics.md). A value of 0 has no logarithm. If a run has the value 0, the
    estimate is the mean with Student's t interval, cut off at 0.

    Parameters
    ----------
    values
        Shape (…, rep), 0 or more; NaN where no run exists.
    """
    rows = values.reshape(-1, values.shape[-1])
    rows_typical = [_typical_of(row[~np.isnan(row)], level) for row in rows]
    estimate, low, high = np.array([typical[:3] for typical in rows_typical]).T.reshape(
        3, *values.shape[:-1]
    )
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    return Estimates(estimate, low, high, count, *extremes(values))


def extremes(values: Values) -> tuple[Values, Values]:
    """Return the smallest and the largest value over the last axis (the runs); NaN if no run exists."""
    none = np.isnan(values).all(axis=-1)
    least = np.min(values, axis=-1, initial=np.inf, where=~np.isnan(values))
    most = np.max(values, axis=-1, initial=-np.inf, where=~np.isnan(values))
    return np.where(none, np.nan, least), np.where(none, np.nan, most)


def typical_interval(values: npt.ArrayLike, level: float = LEVEL) -> Interval:
    """Estimate the value of a typical run from several runs, with a confidence interval (see `typical_intervals`).

    Pages show this estimate for times, counts and shares.

    Parameters
    ----------
    values
        Shape (rep,), one number per run, 0 or more; NaN where no run exists.

    Raises
    ------
    StableError
        A value is negative.
    """
    runs = as_runs(values)
    runs = runs[~np.isnan(runs)]
    if (runs < 0).any():
        raise StableError("typical run: expected values of 0 or more, found a negative one")
    estimate, low, high, method = _typical_of(runs, level)
    if runs.size < 2:
        why = TOO_FEW if runs.size else NOT_MEASURED
        return Interval.without(estimate, runs.size, level, why)
    return Interval(
        *(estimate, low, high, runs.size, level, method),
        least=float(runs.min()),
        most=float(runs.max()),
    )


def mean_intervals(
    values: Values, level: float = LEVEL
) -> tuple[Values, Values, npt.NDArray[np.int64]]:
    """Return the mean over the last axis (repetitions), with a confidence interval (Student's t).

    Parameters
    ----------
    values
        Shape (…, rep); NaN where no run exists.

    Returns
    -------
    mean, half, n
        Shape (…). The mean, half the width of the interval (NaN for fewer than two runs), and the number of runs.
    """
    n = np.count_nonzero(~np.isnan(values), axis=-1)
    total = np.nansum(values, axis=-1)
    mean = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
    squares = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    variance = np.divide(squares, n - 1, out=np.full(n.shape, np.nan), where=n > 1)
    quantile = np.where(n > 1, special.stdtrit(np.maximum(n - 1, 1), (1 + level) / 2), np.nan)
    return mean, quantile * np.sqrt(variance / np.maximum(n, 1)), n


def mean_interval(values: npt.ArrayLike, level: float = LEVEL, least: float = -np.inf) -> Interval:
    """Return the mean of several runs with a confidence interval (Student's t).

    Parameters
    ----------
    values
        Shape (rep,), one number per run; NaN where no run exists.
    least
        Lower bound of the values and of the interval, such as 0 for times, counts and shares.
    """
    means, halves, counts = mean_intervals(as_runs(values), level)
    mean, half, n = float(means), float(halves), int(counts)
    if n < 2:
        return Interval.without(mean, n, level, TOO_FEW if n else NOT_MEASURED)
    return Interval(
        *(mean, max(mean - half, least), mean + half, n, level, "t"),
        least=float(np.nanmin(values)),
        most=float(np.nanmax(values)),
    )


def simultaneous_level(cells: int) -> float:
    """Return the confidence level for each of `cells` intervals, so that all hold simultaneously (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(cells, 1)


def percentiles(drawn: Values, level: float) -> tuple[float, float]:
    """Return the two percentiles that enclose the share `level` of bootstrap samples. Samples may be infinite."""
    # Interpolation between a finite and an infinite sample would yield NaN or infinity, so the ends are samples
    # themselves.
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(drawn, tails, method="inverted_cdf")
    return float(low), float(high)


def as_runs(values: npt.ArrayLike) -> Values:
    """Convert one number per run to an array of shape (rep,). Raise an error for any other shape."""
    runs = np.asarray(values, float)
    if runs.ndim != 1:
        raise StableError(f"statistics: expected one number per run, found shape {runs.shape}")
    return runs


def means_of_pairs(values: Values) -> Values:
    """Return the means of all pairs of values in ascending order, including each value with itself."""
    first, second = np.triu_indices(values.size)
    return np.sort((values[first] + values[second]) / 2)


def _typical_of(runs: Values, level: float) -> tuple[float, float, float, str]:
    """Return the estimate of a typical run, the two ends of the interval (NaN if missing), and the method's name."""
    if not runs.size:
        return np.nan, np.nan, np.nan, ""
    if (runs > 0).all():
        *logs, method = _typical(np.log(runs), level)
        middle, low, high = map(float, np.exp(logs))
        return middle, low, high, method
    mean, half, _ = (float(number) for number in mean_intervals(runs, level))
    return mean, max(mean - half, 0.0) if runs.size > 1 else np.nan, mean + half, "t"


def _typical(logs: Values, level: float) -> tuple[float, float, float, str]:
    """Return the Hodges-Lehmann estimate, the two ends of the interval (NaN if missing), and the method's name."""
    n, means = logs.size, means_of_pairs(logs)
    middle = float(np.median(means))
    if n < 2:
        return middle, np.nan, np.nan, ""
    outside = int(np.searchsorted(_signed_ranks(n), (1 - level) / 2, side="right"))
    if n >= RANKS_FROM and outside:
        return middle, float(means[outside - 1]), float(means[-outside]), "signed ranks of logs"
    mean = float(logs.mean())
    half = special.stdtrit(n - 1, (1 + level) / 2) * logs.std(ddof=1) / np.sqrt(n)
    return middle, min(mean - half, middle), max(mean + half, middle), "t of logs"


def draw_typical(rng: np.random.Generator, logs: Values, draws: int) -> Values:
    """Return samples of a typical run's log value, whose percentiles are the ends of the interval of `_typical`."""
    n = logs.size
    if n < RANKS_FROM:
        error = logs.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
        return np.asarray(logs.mean() + error * rng.standard_t(max(n - 1, 1), draws))
    # If Wilcoxon's signed rank statistic is k, then k of the means of all pairs of `logs` are below the true median.
    # So a random signed rank statistic yields a random median.
    means = np.pad(means_of_pairs(logs), 1, mode="edge")
    ranks = rng.integers(2, size=(draws, n)) @ np.arange(1, n + 1)
    return np.asarray((means[ranks] + means[ranks + 1]) / 2)


@cache
def _signed_ranks(n: int) -> Values:
    """Return the cumulative distribution of Wilcoxon's signed rank statistic for n values without ties."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return np.asarray(np.cumsum(ways) / 2.0**n)
