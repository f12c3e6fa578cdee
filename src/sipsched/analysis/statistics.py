"""What runs say together: intervals, comparisons in pairs, and the load that a proxy carries.

The replicate is the run. Messages of one run follow each other through one queue, so thousands of
them weigh no more than the run they are from. docs/methodology.md gives sources and measured coverage.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from sipsched.errors import StableError
from sipsched.plan.config import WIDEST_BRACKET

PDR_LIMIT = 0.01
LEVEL = 0.95
RESAMPLES = 9999
SEED = 1
MIN_BOOTSTRAP_RUNS = 8
"""Below it a bootstrap of normal values covers less than 93 % where it says 95 %."""
RANKS_FROM = 6
"""Runs from which signed ranks reach 95 %; below it the t interval of logs is the shorter one as well."""
FEWEST = 4
"""Runs from which an interval is shown: that of three is as wide as chance makes it."""
MIN_CROSSING_RUNS = 3
"""Runs at a load that brackets a crossing; with two the interval spans the whole sweep."""
STEEPEST = 20
"""Times the limit that PDR is at most above a crossing, or under it below: else it is only "between"."""
RATE_RANGE = 100
"""A drop rate is told apart from the limit down to this part of it: what is less counts as that."""
TOO_FEW = "too few for an interval"
UNBOUNDED = "the reference is too near 0 for a percentage"
TOO_FEW_TO_RESAMPLE = f"too few for a bootstrap interval, which needs {MIN_BOOTSTRAP_RUNS}"
NOT_MEASURED = "not measured"

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A number with what is known of its error.

    Attributes
    ----------
    estimate
        The number; NaN if there is none, and `why` says so.
    low, high
        Ends of the interval; NaN if there is none. An end may be infinite.
    n
        Runs, or pairs of runs, behind it.
    level
        Confidence.
    method
        How the interval was made.
    why
        Why there is no interval; empty if there is one.
    resolved
        Whether the number is more than some place between the ends. If not it is not printed, the
        ends are; they are there then even where `why` says that they are no interval.
    least, most
        The smallest and the largest run; NaN where there are none that the number is between.
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
        """Make a number that has no interval, and say why."""
        return cls(estimate, np.nan, np.nan, n, level, why=why)

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return not self.why

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Put the number and its ends through a monotone function; a falling one swaps the ends."""
        low, high = sorted((function(self.low), function(self.high)))
        least, most = sorted((function(self.least), function(self.most)))
        return replace(
            self, estimate=function(self.estimate), low=low, high=high, least=least, most=most
        )


@dataclass(frozen=True)
class Comparison:
    """What a change of mode does to one quantity, over runs with the same arrivals.

    Attributes
    ----------
    difference
        Other minus reference, in the unit of the quantity.
    ratio
        Other over reference, as `ratio_interval`.
    percent_lower
        100 (1 - ratio): the papers' "% lower".
    p_value
        Of the paired t test that the log of the ratio is 0, or the difference where a run is 0; NaN below
        two pairs.
    """

    difference: Interval
    ratio: Interval
    percent_lower: Interval
    p_value: float


@dataclass(frozen=True)
class Crossing:
    """The load at which the packet drop rate of a typical run passes a limit.

    Attributes
    ----------
    interval
        In cps. -inf stands for below the lowest load measured, inf for above the highest. It is not
        resolved where the loads on both sides tell no more than that it is between them.
    lowest_cps, highest_cps
        Ends of what was measured.
    bracket_cps
        The loads on both sides; -inf or inf where there is none. NaN, if nothing was measured.
    bracket_pdr
        The typical drop rates there, as a share; NaN where there is no load.
    """

    interval: Interval
    lowest_cps: float
    highest_cps: float
    bracket_cps: tuple[float, float]
    bracket_pdr: tuple[float, float]

    @property
    def bracketed(self) -> bool:
        """Whether a load was measured on either side."""
        return bool(np.isfinite(self.bracket_cps).all())

    @property
    def narrow(self) -> bool:
        """Whether these two loads are near enough to each other for a number between them."""
        low, high = self.bracket_cps
        return self.bracketed and high <= WIDEST_BRACKET * low


@dataclass(frozen=True)
class Capacity:
    """The largest load whose packet drop rate stays at or under the limit, twice.

    Attributes
    ----------
    grid_cps
        As the papers have it: the last load measured before the first one whose mean PDR is above
        the limit. -inf if the lowest is above; NaN if nothing was measured.
    next_cps
        That first load above the limit; inf if none was, and the capacity is at least `grid_cps`.
    crossing
        Interpolated between loads, with its interval.
    """

    grid_cps: float
    next_cps: float
    crossing: Crossing

    @property
    def safe_cps(self) -> float:
        """What one can rely on: the lower end of the interval, or the grid's load without one.

        Never more than the highest load measured.
        """
        low = self.crossing.interval.low
        if not self.crossing.interval.known:
            return self.grid_cps
        return float(min(low, self.crossing.highest_cps))


@dataclass(frozen=True)
class Estimates:
    """Numbers with their intervals, shape (…): NaN ends where there is none; and the runs behind each.

    `least` and `most` are the smallest and the largest of these runs.
    """

    estimate: Values
    low: Values
    high: Values
    n: npt.NDArray[np.int64]
    least: Values
    most: Values

    @property
    def bars(self) -> Values:
        """How far the interval reaches below and above, shape (2, …); 0 where none is shown."""
        reach = np.array([self.estimate - self.low, self.high - self.estimate])
        return np.asarray(np.where(self.n < FEWEST, 0, np.maximum(np.nan_to_num(reach), 0)))

    def at(self, i: int) -> Interval:
        """Take the i-th of a row."""
        n, estimate = int(self.n[i]), float(self.estimate[i])
        if np.isnan(self.low[i]):
            return Interval.without(estimate, n, why=TOO_FEW if n else NOT_MEASURED)
        return Interval(
            *(estimate, float(self.low[i]), float(self.high[i]), n),
            least=float(self.least[i]),
            most=float(self.most[i]),
        )


def typical_drop_rates(
    pdr: Values, limit: float = PDR_LIMIT, level: float = LEVEL, whole: float = 1.0
) -> Estimates:
    """Give what the packet drop rate of a typical run is, over the last axis, the repetitions.

    As `typical_intervals`, but a rate under 1 / `RATE_RANGE` of the limit counts as that, and a result
    there is 0; no interval reaches beyond the whole.

    Parameters
    ----------
    pdr
        Shape (…, rep); NaN where there is no run.
    limit
        In the unit of `pdr`.
    level
        Confidence.
    whole
        All messages, in that unit.
    """
    least = limit / RATE_RANGE
    found = typical_intervals(np.maximum(pdr, least), level)
    # what is told apart from the least, beyond rounding
    estimate, low, high = (
        np.where(end <= 1.0001 * least, 0, end) for end in (found.estimate, found.low, found.high)
    )
    return Estimates(estimate, low, np.minimum(high, whole), found.n, *_ends(pdr))


def typical_intervals(values: Values, level: float = LEVEL) -> Estimates:
    """Say what a typical run is, over the last axis, the repetitions.

    Their median, as it is estimated where logs are symmetric: the Hodges-Lehmann estimate of the logs, the
    median of the means of all pairs and of each run with itself. Its interval is that of Wilcoxon's signed
    ranks from `RANKS_FROM` runs on, where these reach the level; else Student's t of the logs.
    Of a mean no interval holds where one run in five is five times as large (docs/methodology.md).
    Where a run is 0, which has no logarithm, it is their mean with Student's t interval, cut off at 0.

    Parameters
    ----------
    values
        Shape (…, rep), not negative; NaN where there is no run.
    level
        Confidence.
    """
    rows = values.reshape(-1, values.shape[-1])
    found = [_typical_of(row[~np.isnan(row)], level) for row in rows]
    estimate, low, high = np.array([each[:3] for each in found]).T.reshape(3, *values.shape[:-1])
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    return Estimates(estimate, low, high, count, *_ends(values))


def _ends(values: Values) -> tuple[Values, Values]:
    """Give the smallest and the largest run over the last axis; NaN without any."""
    none = np.isnan(values).all(axis=-1)
    least = np.min(values, axis=-1, initial=np.inf, where=~np.isnan(values))
    most = np.max(values, axis=-1, initial=-np.inf, where=~np.isnan(values))
    return np.where(none, np.nan, least), np.where(none, np.nan, most)


def typical_interval(values: npt.ArrayLike, level: float = LEVEL) -> Interval:
    """Say what a typical run is, as `typical_intervals` does.

    What pages write of a time, a count or a share.

    Parameters
    ----------
    values
        Shape (rep,), a number a run, not negative; NaN where there is none.
    level
        Confidence.

    Raises
    ------
    StableError
        A value is negative.
    """
    runs = _runs(values)
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
    """Average over the last axis, the repetitions, with a t interval.

    Parameters
    ----------
    values
        Shape (…, rep); NaN where there is no run.
    level
        Confidence.

    Returns
    -------
    mean, half, n
        Shape (…). The mean, half the width of the interval (NaN below two runs), and the runs.
    """
    n = np.count_nonzero(~np.isnan(values), axis=-1)
    total = np.nansum(values, axis=-1)
    mean = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
    squares = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    variance = np.divide(squares, n - 1, out=np.full(n.shape, np.nan), where=n > 1)
    quantile = np.where(n > 1, special.stdtrit(np.maximum(n - 1, 1), (1 + level) / 2), np.nan)
    return mean, quantile * np.sqrt(variance / np.maximum(n, 1)), n


def mean_interval(values: npt.ArrayLike, level: float = LEVEL, least: float = -np.inf) -> Interval:
    """Average runs, with Student's t interval.

    Parameters
    ----------
    values
        Shape (rep,), a number a run; NaN where there is none.
    level
        Confidence.
    least
        What no value can be below, and so no end of the interval: 0 of times, counts and shares.
    """
    means, halves, counts = mean_intervals(_runs(values), level)
    mean, half, n = float(means), float(halves), int(counts)
    if n < 2:
        return Interval.without(mean, n, level, TOO_FEW if n else NOT_MEASURED)
    return Interval(
        *(mean, max(mean - half, least), mean + half, n, level, "t"),
        least=float(np.nanmin(values)),
        most=float(np.nanmax(values)),
    )


def bootstrap_interval(
    values: npt.ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Compute a statistic over runs, with an expanded percentile bootstrap interval.

    Parameters
    ----------
    values
        Shape (rep,), a number a run; NaN where there is none.
    statistic
        A function of an array and `axis`, as `numpy.median` is.
    level
        Confidence.
    resamples, seed
        Of the bootstrap; the same seed gives the same interval.
    """
    runs = _runs(values)
    runs = runs[~np.isnan(runs)]
    if not runs.size:
        return Interval.without(np.nan, 0, level, NOT_MEASURED)
    estimate, n = float(statistic(runs, axis=-1)), runs.size
    if n < MIN_BOOTSTRAP_RUNS:
        return Interval.without(estimate, n, level, TOO_FEW_TO_RESAMPLE)
    # Imported here: it doubles the time that a page takes to import what it needs, and none needs it.
    from scipy import stats

    drawn = stats.bootstrap(
        (runs,),
        statistic,
        n_resamples=resamples,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).bootstrap_distribution
    low, high = percentiles(drawn, _expanded(level, n))
    return Interval(estimate, low, high, n, level, "bootstrap")


def paired_difference(
    reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL
) -> Interval:
    """Average other - reference over pairs of runs with the same arrivals, with a t interval.

    Parameters
    ----------
    reference, other
        Shape (rep,), in the same order; a pair that lacks one of the two (NaN) is left out.
    level
        Confidence.
    """
    first, second = _pairs(reference, other)
    return mean_interval(second - first, level)


def ratio_interval(
    reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL
) -> Interval:
    """Divide other by reference, over pairs of runs with the same arrivals.

    The ratio that the papers' "% lower" is made of: the geometric mean of the pairs' ratios, with the t
    interval of their logs. Where a run is 0, the ratio of the means with Fieller's interval: the ratios r for
    which the paired t test does not tell other from r × reference. Either leaves out 1 exactly where
    `compare`'s test tells the two apart.
    SEE Fieller, Some Problems in Interval Estimation (JRSS B 16, 1954)

    Parameters
    ----------
    reference, other
        Shape (rep,), not negative, in the same order; a pair that lacks one (NaN) is left out.
    level
        Confidence.

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
            logs.map(lambda log: float(np.exp(log))), method="t of logs" if logs.known else ""
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
    # where all pairs have the same ratio the ends are it, up to rounding
    return Interval(y / x, max(min(low, y / x), 0.0), max(high, y / x), n, level, "Fieller")


def percent_lower(ratio: Interval) -> Interval:
    """Turn a ratio of other to reference into how many percent lower the other is."""
    return ratio.map(lambda value: 100 * (1 - value))


def compare(reference: npt.ArrayLike, other: npt.ArrayLike, level: float = LEVEL) -> Comparison:
    """Compare a mode with the reference over runs with the same arrivals.

    Parameters
    ----------
    reference, other
        Shape (rep,), not negative, in the same order; a pair that lacks one (NaN) is left out.
    level
        Confidence; `simultaneous_level` for one cell of many.

    Raises
    ------
    StableError
        A value is negative, or the shapes differ.
    """
    first, second = _pairs(reference, other)
    ratio = ratio_interval(first, second, level)
    tested = (np.log(first), np.log(second)) if _above_0(first, second) else (first, second)
    p_value = _paired_t_test(*tested)
    return Comparison(paired_difference(first, second, level), ratio, percent_lower(ratio), p_value)


def _above_0(first: Values, second: Values) -> bool:
    return bool((first > 0).all() and (second > 0).all())


def _paired_t_test(first: Values, second: Values) -> float:
    n, difference = first.size, second - first
    if n < 2:
        return np.nan
    # Without a difference in any pair the t statistic is 0/0.
    if not difference.any():
        return 1.0
    with np.errstate(divide="ignore"):
        t = difference.mean() / (difference.std(ddof=1) / np.sqrt(n))
    return float(2 * special.stdtr(n - 1, -abs(t)))


def holm(p_values: npt.ArrayLike) -> Values:
    """Adjust the p-values of several tests so that they hold together (Holm, 1979).

    Parameters
    ----------
    p_values
        Shape (m,); NaN where there was no test, which then does not count.

    Returns
    -------
    ndarray
        Shape (m,): each is at or under α exactly if Holm's procedure rejects at a familywise α.
    """
    given = np.asarray(p_values, float)
    adjusted = np.full(given.shape, np.nan)
    order = np.argsort(given)[: np.count_nonzero(~np.isnan(given))]
    steps = given[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def simultaneous_level(cells: int, level: float = LEVEL) -> float:
    """Give the level of each of so many intervals that makes all of them hold together (Bonferroni)."""
    return 1 - (1 - level) / max(cells, 1)


def crossing(
    cps: npt.ArrayLike,
    pdr: npt.ArrayLike,
    limit: float = PDR_LIMIT,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Crossing:
    """Find the load at which the packet drop rate of a typical run passes the limit.

    On the scale of log PDR, where what is less than 1 / `RATE_RANGE` of the limit counts as that: PDR
    grows near exponentially at the knee, and there it varies by factors from run to run. What a typical
    run is at each load (`typical_drop_rates`) is made non-decreasing (isotonic regression, weighted by runs).

    Between the two loads around the limit the crossing lies between where a straight line of PDR and
    where one of log PDR passes it; the latter is the estimate. If these loads are more than `WIDEST_BRACKET`
    apart, or a drop rate there is more than `STEEPEST` times the limit, or less than that part of it,
    then it lies between the loads, and nothing tells where.

    For the interval each load's typical run is drawn anew, `resamples` times, from what its own interval is
    cut from (Student's t about the mean of the logs, or the means of pairs by their signed ranks), and the
    crossing of each draw is somewhere in its range: resampling three to ten runs themselves covers less
    (docs/methodology.md). A load with one run stays as it is.

    Parameters
    ----------
    cps
        Shape (load,), in any order.
    pdr
        Shape (load, rep), or (load,) for one number a load; NaN where there is no run.
    limit
        Packet drop rate, as a share.
    level
        Confidence.
    resamples, seed
        Of the interval; the same seed gives the same interval.

    Raises
    ------
    StableError
        The shapes do not fit.
    """
    # ASSUME between two loads around the knee PDR is convex and log PDR concave in the load
    rates = _by_load(cps, pdr, limit)
    total = int(rates.n.sum())
    if not total:
        nothing = (np.nan, np.nan)
        return Crossing(
            Interval.without(np.nan, 0, level, NOT_MEASURED), *nothing, nothing, nothing
        )
    fitted = _isotonic(rates.typical[None], rates.n)
    found = _cross(rates.loads, fitted)
    low, estimate, high = (float(each[0]) for each in found.range)
    sides = slice(max(found.under[0] - 1, 0), found.under[0] + 1)
    if rates.n[sides].min() < MIN_CROSSING_RUNS:
        ends = (np.nan, np.nan) if found.resolved[0] else (low, high)
        interval = Interval(estimate, *ends, total, level, why=TOO_FEW)
    else:
        drawn = _draw_crossings(rates, resamples, seed)
        ends = percentiles(drawn.low, level)[0], percentiles(drawn.high, level)[1]
        interval = Interval(estimate, *ends, total, level, "isotonic, parametric bootstrap")
    around = np.concatenate(([-np.inf], rates.loads, [np.inf]))[found.under[0] :][:2]
    theirs = np.concatenate(([np.nan], limit * np.exp(fitted[0]), [np.nan]))[found.under[0] :][:2]
    return Crossing(
        replace(interval, resolved=bool(found.resolved[0])),
        float(rates.loads[0]),
        float(rates.loads[-1]),
        (float(around[0]), float(around[1])),
        (float(theirs[0]), float(theirs[1])),
    )


def crossing_ratio(
    cps: npt.ArrayLike,
    reference_pdr: npt.ArrayLike,
    other_pdr: npt.ArrayLike,
    limit: float = PDR_LIMIT,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Divide the load at which another mode's drop rate passes the limit by the reference's.

    The two are drawn independently. Where equal arrivals make them move together, the interval is
    wider than it need be.

    Parameters
    ----------
    cps
        Shape (load,).
    reference_pdr, other_pdr
        Shape (load, rep), as for `crossing`.
    limit, level, resamples, seed
        As for `crossing`.

    Raises
    ------
    StableError
        The shapes do not fit.
    """
    both = [crossing(cps, pdr, limit, level, resamples) for pdr in (reference_pdr, other_pdr)]
    first, second = (each.interval for each in both)
    n = first.n + second.n
    if not (np.isfinite(first.estimate) and np.isfinite(second.estimate)):
        return Interval.without(np.nan, n, level, "a crossing lies outside the loads")
    estimate = second.estimate / first.estimate
    if not (first.known and second.known):
        return Interval.without(estimate, n, level)
    resolved = first.resolved and second.resolved
    # A draw outside the loads is known by one bound only: the ratio takes the worse end of each.
    ends = []
    for i, pdr in enumerate((reference_pdr, other_pdr)):
        drawn = _draw_crossings(_by_load(cps, pdr, limit), resamples, seed + i)
        at_least = np.where(np.isneginf(drawn.low), 0, np.minimum(drawn.low, both[i].highest_cps))
        ends.append((at_least, np.maximum(drawn.high, both[i].lowest_cps)))
    (reference_low, reference_high), (other_low, other_high) = ends
    with np.errstate(divide="ignore"):
        low, _ = percentiles(other_low / reference_high, level)
        _, high = percentiles(other_high / reference_low, level)
    method = "isotonic, parametric bootstrap"
    return Interval(estimate, low, high, n, level, method, resolved=resolved)


def grid_capacity(
    cps: npt.ArrayLike, mean_pdr: npt.ArrayLike, limit: float = PDR_LIMIT
) -> tuple[float, float]:
    """Find the last load before the first whose mean packet drop rate is above the limit.

    Parameters
    ----------
    cps, mean_pdr
        Shape (load,), in any order; loads without a mean (NaN) are left out.
    limit
        Packet drop rate, as a share; exactly the limit is not above it.

    Returns
    -------
    capacity, next
        In cps. -inf, if the lowest load is above the limit; and the first load above it, inf if there
        is none. NaN, if nothing was measured.
    """
    loads, rates = np.asarray(cps, float), np.asarray(mean_pdr, float)
    order = np.argsort(loads)
    order = order[~np.isnan(rates[order])]
    if not order.size:
        return np.nan, np.nan
    over = np.flatnonzero(rates[order] > limit)
    edge = int(over[0]) if over.size else len(order)
    loads = np.concatenate(([-np.inf], loads[order], [np.inf]))
    return float(loads[edge]), float(loads[edge + 1])


def capacity(
    cps: npt.ArrayLike,
    pdr: npt.ArrayLike,
    limit: float = PDR_LIMIT,
    level: float = LEVEL,
    seed: int = SEED,
) -> Capacity:
    """Find the largest load whose packet drop rate stays at or under the limit.

    Everything that speaks of capacity uses this definition.

    Parameters
    ----------
    cps
        Shape (load,), in any order.
    pdr
        Shape (load, rep), or (load,) for one number a load; NaN where there is no run.
    limit
        Packet drop rate, as a share.
    level
        Confidence.
    seed
        Of the interval.

    Raises
    ------
    StableError
        The shapes do not fit.
    """
    found = crossing(cps, pdr, limit, level, seed=seed)
    means, *_ = mean_intervals(_rows(cps, pdr)[1])
    return Capacity(*grid_capacity(cps, means, limit), found)


def percentiles(drawn: Values, level: float) -> tuple[float, float]:
    """Give the percentiles of a bootstrap's draws that part off the middle; draws may be infinite."""
    # Between two draws there is nothing to interpolate where one is infinite.
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(drawn, tails, method="inverted_cdf")
    return float(low), float(high)


def _runs(values: npt.ArrayLike) -> Values:
    runs = np.asarray(values, float)
    if runs.ndim != 1:
        raise StableError(f"statistics: expected one number a run, found shape {runs.shape}")
    return runs


def _pairs(reference: npt.ArrayLike, other: npt.ArrayLike) -> tuple[Values, Values]:
    """Leave out pairs that lack one of the two."""
    first, second = _runs(reference), _runs(other)
    if first.shape != second.shape:
        raise StableError(
            f"statistics: expected pairs of runs, found {first.size} and {second.size}"
        )
    both = ~(np.isnan(first) | np.isnan(second))
    return first[both], second[both]


def _expanded(level: float, n: int) -> float:
    """Widen a bootstrap's percentiles to what a t interval is of n normal values.

    Source: Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician, 2015.
    """
    quantile = np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, (1 + level) / 2)
    return float(2 * special.ndtr(quantile) - 1)


class _Rates(NamedTuple):
    """Log of drop rate over limit by load, loads ascending: of a typical run, of each, and their number."""

    loads: Values
    typical: Values
    runs: list[Values]
    n: npt.NDArray[np.int64]


class _Crossed(NamedTuple):
    """Where rows pass the limit, shape (row,): least, estimate, most; ±inf outside the loads.

    `resolved` says whether the estimate is more than a place between two loads, `under` how many loads are
    at or under the limit.
    """

    low: Values
    estimate: Values
    high: Values
    resolved: npt.NDArray[np.bool_]
    under: npt.NDArray[np.int64]

    @property
    def range(self) -> tuple[Values, Values, Values]:
        return self.low, self.estimate, self.high


def _rows(cps: npt.ArrayLike, pdr: npt.ArrayLike) -> tuple[Values, Values]:
    """Make it a row of runs for each load."""
    loads, rates = np.asarray(cps, float), np.asarray(pdr, float)
    if rates.ndim == 1:
        rates = rates[:, None]
    if loads.ndim != 1 or rates.ndim != 2 or len(loads) != len(rates):
        raise StableError(
            f"statistics: expected a row of runs for each load, found {loads.shape} loads "
            f"and {rates.shape} drop rates"
        )
    return loads, rates


def _by_load(cps: npt.ArrayLike, pdr: npt.ArrayLike, limit: float) -> _Rates:
    """Average the runs of each load that has any."""
    loads, rates = _rows(cps, pdr)
    order = np.argsort(loads)
    order = order[~np.isnan(rates[order]).all(axis=1)]
    logs = np.log(np.maximum(rates[order] / limit, 1 / RATE_RANGE))
    runs = [row[~np.isnan(row)] for row in logs]
    typical = np.array([np.median(_means_of_pairs(row)) for row in runs])
    return _Rates(loads[order], typical, runs, np.array([row.size for row in runs], np.int64))


def _draw_crossings(rates: _Rates, resamples: int, seed: int) -> _Crossed:
    rng = np.random.default_rng(seed)
    drawn = np.stack([_draw_typical(rng, row, resamples) for row in rates.runs], axis=1)
    return _cross(rates.loads, _isotonic(drawn, rates.n))


def _means_of_pairs(values: Values) -> Values:
    """Average each two values, and each with itself; sorted."""
    first, second = np.triu_indices(values.size)
    return np.sort((values[first] + values[second]) / 2)


def _typical_of(runs: Values, level: float) -> tuple[float, float, float, str]:
    """Give a typical run with its interval, NaN where there is none, and how it was made."""
    if not runs.size:
        return np.nan, np.nan, np.nan, ""
    if (runs > 0).all():
        *logs, method = _typical(np.log(runs), level)
        middle, low, high = map(float, np.exp(logs))
        return middle, low, high, method
    mean, half, _ = (float(each) for each in mean_intervals(runs, level))
    return mean, max(mean - half, 0.0) if runs.size > 1 else np.nan, mean + half, "t"


def _typical(logs: Values, level: float) -> tuple[float, float, float, str]:
    """Give the Hodges-Lehmann estimate and its interval; NaN where there is none."""
    n, means = logs.size, _means_of_pairs(logs)
    middle = float(np.median(means))
    if n < 2:
        return middle, np.nan, np.nan, ""
    outside = int(np.searchsorted(_signed_ranks(n), (1 - level) / 2, side="right"))
    if n >= RANKS_FROM and outside:
        return middle, float(means[outside - 1]), float(means[-outside]), "signed ranks of logs"
    mean = float(logs.mean())
    half = special.stdtrit(n - 1, (1 + level) / 2) * logs.std(ddof=1) / np.sqrt(n)
    return middle, min(mean - half, middle), max(mean + half, middle), "t of logs"


def _draw_typical(rng: np.random.Generator, logs: Values, draws: int) -> Values:
    """Draw what a typical run may be from the distribution whose percentiles `_typical` gives."""
    n = logs.size
    if n < RANKS_FROM:
        error = logs.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
        return np.asarray(logs.mean() + error * rng.standard_t(max(n - 1, 1), draws))
    # With any median, a signed rank statistic of k says that k means of pairs are under it.
    means = np.pad(_means_of_pairs(logs), 1, mode="edge")
    ranks = rng.integers(2, size=(draws, n)) @ np.arange(1, n + 1)
    return np.asarray((means[ranks] + means[ranks + 1]) / 2)


@cache
def _signed_ranks(n: int) -> Values:
    """Cumulate the distribution of Wilcoxon's signed rank statistic of n values without ties."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return np.asarray(np.cumsum(ways) / 2.0**n)


def _isotonic(rows: Values, weights: npt.NDArray[Any]) -> Values:
    """Fit each row by non-decreasing values, weighted least squares (max-min formula).

    scipy.optimize.isotonic_regression takes one row at a time: 0.3 s for 9999 draws, this 10 ms.

    Source: Robertson, Wright and Dykstra, Order Restricted Statistical Inference, 1988.
    """
    sums = np.cumsum(rows * weights, axis=1)
    sums = np.concatenate((np.zeros((len(rows), 1)), sums), axis=1)
    total = np.concatenate(([0], np.cumsum(weights)))
    fitted = np.full(rows.shape, -np.inf)
    for first in range(rows.shape[1]):
        averages = (sums[:, first + 1 :] - sums[:, [first]]) / (total[first + 1 :] - total[first])
        least = np.minimum.accumulate(averages[:, ::-1], axis=1)[:, ::-1]
        fitted[:, first:] = np.maximum(fitted[:, first:], least)
    return fitted


def _cross(loads: Values, rows: Values) -> _Crossed:
    """Find where each non-decreasing row of log PDR / limit passes 0."""
    under = np.count_nonzero(rows <= 0, axis=1)
    last = len(loads) - 1
    left, right = np.clip(under - 1, 0, last), np.clip(under, 0, last)
    low = np.take_along_axis(rows, left[:, None], axis=1)[:, 0]
    high = np.take_along_axis(rows, right[:, None], axis=1)[:, 0]
    start, step = loads[left], loads[right] - loads[left]
    apart = low < high
    # within what drop rates are told apart in, so that nothing is made of how much less than that is
    low, high = (np.clip(each, *np.log((1 / RATE_RANGE, RATE_RANGE))) for each in (low, high))
    straight = start + step * _share(1 - np.exp(low), np.exp(high) - np.exp(low), apart)
    estimate = start + step * _share(-low, high - low, apart)
    resolved = (
        (low >= -np.log(STEEPEST))
        & (high <= np.log(STEEPEST))
        & (step <= (WIDEST_BRACKET - 1) * start)
    )
    outside = [under == 0, under > last]
    least = np.select(outside, (-np.inf, np.inf), np.where(resolved, straight, start))
    most = np.select(outside, (-np.inf, np.inf), np.where(resolved, estimate, start + step))
    estimate = np.select(outside, (-np.inf, np.inf), estimate)
    return _Crossed(least, estimate, most, resolved | outside[0] | outside[1], under)


def _share(part: Values, whole: Values, apart: npt.NDArray[np.bool_]) -> Values:
    return np.divide(part, whole, out=np.zeros_like(part), where=apart)
