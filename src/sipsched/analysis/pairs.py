"""The comparison of two modes over pairs of runs with the same arrivals."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from sipsched.analysis.intervals import (
    LEVEL,
    NOT_MEASURED,
    Interval,
    Values,
    as_runs,
    mean_interval,
)
from sipsched.errors import StableError

UNBOUNDED = "the reference is too near 0 for a percentage"
NO_INTERVAL = "a ratio of means, as the papers print it"
OF_LOGS = "t of logs"
"""The method of a ratio's interval, unless the value of a run is 0."""


@dataclass(frozen=True)
class Comparison:
    """The effect of a mode on one quantity, from pairs of runs with the same arrivals.

    Attributes
    ----------
    difference
        Other minus reference, in the unit of the quantity.
    ratio
        Other divided by reference, as `ratio_interval` computes it.
    percent_lower
        100 (1 - ratio).
    percent_lower_of_means
        100 (1 - mean of other / mean of reference), which the papers call "%Lower". This number has no interval.
    p_value
        P-value of the paired t test of the hypothesis that the mean log ratio is 0. If the value of a run is 0, the
        hypothesis is a mean difference of 0. NaN for fewer than two pairs.
    least_significant_percent
        The smallest decrease in percent for which an interval of this width would exclude 0. If the result is above
        100, the pairs vary too much. The interval would then contain 0 even if the other mode had the value 0 in every
        run. NaN without an interval.
    """

    difference: Interval
    ratio: Interval
    percent_lower: Interval
    percent_lower_of_means: Interval
    p_value: float
    least_significant_percent: float


def paired_difference(
    reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL
) -> Interval:
    """Return the mean of other - reference over pairs of runs with the same arrivals, with a t interval.

    Parameters
    ----------
    reference, other
        Shape (rep,), in the same order. Incomplete pairs (NaN) are excluded.
    """
    first, second = _pairs(reference, other)
    return mean_interval(second - first, level)


def ratio_interval(
    reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL
) -> Interval:
    """Return the ratio other / reference over pairs of runs with the same arrivals, with a confidence interval.

    The ratio is the geometric mean of the pairs' ratios, with the t interval of their logs. If the value of a run is 0,
    the result is the ratio of the means, with Fieller's interval. Fieller's interval contains each r for which the
    paired t test cannot distinguish other from r × reference. Each of the two intervals excludes 1 if and only if the
    test of `compare` detects a difference. SEE Fieller, Some Problems in Interval Estimation (JRSS B 16, 1954)

    Parameters
    ----------
    reference, other
        Shape (rep,), 0 or more, in the same order. Incomplete pairs (NaN) are excluded.

    Raises
    ------
    StableError
        A value is negative, or the shapes differ.
    """
    first, second = _pairs(reference, other)
    if (first < 0).any() or (second < 0).any():
        raise StableError("ratio: expected values of 0 or more, found a negative one")
    n = first.size
    if not n:
        return Interval.without(np.nan, 0, level, NOT_MEASURED)
    if not first.any():
        return Interval.without(np.nan, n, level, "the reference is 0 in every run")
    if _above_0(first, second):
        logs = mean_interval(np.log(second / first), level)
        return replace(
            logs.map(lambda log: float(np.exp(log))), method=OF_LOGS if logs.known else ""
        )
    x, y = float(first.mean()), float(second.mean())
    if n < 2:
        return Interval.without(y / x, n, level)
    (xx, xy), (_, yy) = special.stdtrit(n - 1, (1 + level) / 2) ** 2 / n * np.cov(first, second)
    if x**2 <= xx:
        return Interval.without(y / x, n, level, UNBOUNDED)
    middle, spread = x * y - xy, (x * y - xy) ** 2 - (x**2 - xx) * (y**2 - yy)
    half = np.sqrt(max(spread, 0.0))
    low, high = ((middle + end) / (x**2 - xx) for end in (-half, half))
    # If all pairs have the same ratio, rounding can make the ends of the interval differ from this ratio.
    return Interval(y / x, max(min(low, y / x), 0.0), max(high, y / x), n, level, "Fieller")


def percent_lower(ratio: Interval) -> Interval:
    """Convert a ratio into a decrease in percent, 100 (1 - ratio), like the "% lower" in the papers' tables."""
    return ratio.map(lambda value: 100 * (1 - value))


def compare(reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL) -> Comparison:
    """Return a mode's effect on a quantity, from pairs of runs with the same arrivals in both modes.

    Parameters
    ----------
    reference, other
        Shape (rep,), 0 or more, in the same order. Incomplete pairs (NaN) are excluded.
    level
        Confidence level. For one of many comparisons, use the result of `simultaneous_level`.

    Raises
    ------
    StableError
        A value is negative, or the shapes differ.
    """
    first, second = _pairs(reference, other)
    ratio = ratio_interval(first, second, level)
    tested = (np.log(first), np.log(second)) if _above_0(first, second) else (first, second)
    p_value = _paired_t_test(*tested)
    of_means = np.nan if not first.any() else 100 * (1 - second.mean() / first.mean())
    difference = paired_difference(first, second, level)
    return Comparison(
        difference,
        ratio,
        percent_lower(ratio),
        Interval.without(float(of_means), first.size, level, ratio.why or NO_INTERVAL),
        p_value,
        _least_significant_percent(first, difference, ratio),
    )


def _least_significant_percent(first: Values, difference: Interval, ratio: Interval) -> float:
    if ratio.method == OF_LOGS:
        return float(100 * (1 - np.sqrt(ratio.low / ratio.high)))
    if not difference.known or not first.any():
        return np.nan
    return float(100 * (difference.high - difference.estimate) / first.mean())


def _above_0(first: Values, second: Values) -> bool:
    return bool((first > 0).all() and (second > 0).all())


def _paired_t_test(first: Values, second: Values) -> float:
    n, difference = first.size, second - first
    if n < 2:
        return np.nan
    # If all values are equal, the t statistic would be 0/0.
    if not difference.any():
        return 1.0
    with np.errstate(divide="ignore"):
        t = difference.mean() / (difference.std(ddof=1) / np.sqrt(n))
    return float(2 * special.stdtr(n - 1, -abs(t)))


def holm(p_values: npt.ArrayLike) -> Values:
    """Adjust the p-values of several tests for the number of tests (Holm, 1979).

    Parameters
    ----------
    p_values
        Shape (m,). NaN means that a test is missing. The adjustment does not count missing tests.

    Returns
    -------
    ndarray
        Shape (m,). A value is at most α if and only if Holm's procedure rejects the hypothesis at the familywise
        level α.
    """
    given = np.asarray(p_values, float)
    adjusted = np.full(given.shape, np.nan)
    order = np.argsort(given)[: np.count_nonzero(~np.isnan(given))]
    steps = given[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def _pairs(reference: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Values, Values]:
    """Return the values of two modes without the pairs of runs in which a value is missing."""
    first, second = as_runs(reference), as_runs(other)
    if first.shape != second.shape:
        raise StableError(
            f"statistics: expected pairs of runs, found {first.size} and {second.size}"
        )
    both = ~(np.isnan(first) | np.isnan(second))
    return first[both], second[both]
