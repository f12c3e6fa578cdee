"""The load at which a proxy's packet drop rate passes a limit such as 1 %."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sipsched.analysis.intervals import (
    LEVEL,
    NOT_MEASURED,
    TOO_FEW,
    Estimates,
    Interval,
    Values,
    draw_typical,
    extremes,
    mean_intervals,
    means_of_pairs,
    percentiles,
    typical_intervals,
)
from sipsched.errors import StableError
from sipsched.plan.loads import WIDEST_BRACKET

PDR_LIMIT = 0.01
"""The packet drop rate (PDR) that defines the capacity, 1 %. Parameters `limit` and `pdr_limit` are drop rates, too."""
RESAMPLES = 9999
METHOD = "isotonic, parametric bootstrap"
SEED = 1
MIN_CROSSING_RUNS = 3
"""Smallest number of runs at each load around the limit for a confidence interval.

With two runs, the interval would span all loads.
"""
STEEPEST = 20
"""Loads are interpolated only if the drop rates on both sides are within this factor of the drop limit.

If a drop rate is beyond this factor, the function reports only that the crossing lies between the two loads.
"""
RATE_RANGE = 100
"""Drop rates below the quotient limit / RATE_RANGE are replaced by this quotient.

The estimate cannot distinguish smaller rates, and a rate of 0 has no logarithm.
"""


@dataclass(frozen=True)
class CrossingLoad:
    """The load at which the packet drop rate of a typical run passes the drop limit.

    Attributes
    ----------
    interval
        The load in cps. -inf means below the lowest measured load, inf means above the highest. `resolved` is false if
        the load is only known to lie between the two measured loads around the limit.
    bracket_cps
        The two loads around the limit; -inf or inf if no such load was measured. NaN if nothing was measured.
    bracket_pdr
        The typical drop rates at these two loads, as a share; NaN if the load was not measured.
    contrary_cps
        The loads at which the typical drop rate and the non-decreasing fit lie on different sides of the limit. Such
        loads exist only if the typical drop rate decreases from one load to the next higher load.
    """

    interval: Interval
    lowest_cps: float
    highest_cps: float
    bracket_cps: tuple[float, float]
    bracket_pdr: tuple[float, float]
    contrary_cps: tuple[float, ...] = ()

    @property
    def bracketed(self) -> bool:
        """True if loads with drop rates below and above the limit were measured."""
        return bool(np.isfinite(self.bracket_cps).all())

    @property
    def undecided(self) -> bool:
        """True if the crossing lies outside the measured loads, but the drop rate at a load contradicts this result."""
        return not self.bracketed and bool(self.contrary_cps)

    @property
    def narrow(self) -> bool:
        """True if the measured loads just below and above the limit are close enough for an interpolation."""
        low, high = self.bracket_cps
        return self.bracketed and high <= WIDEST_BRACKET * low


@dataclass(frozen=True)
class SweepCapacity:
    """The capacity by two definitions: the largest measured load within the drop limit, and an interpolated load.

    Attributes
    ----------
    grid_cps
        The definition of the papers: the last measured load before the first load whose mean PDR is above the limit.
        -inf if even the lowest load is above the limit; NaN if nothing was measured.
    next_cps
        The first load above the limit. inf if no load is above the limit; then the capacity is at least `grid_cps`.
    crossing
        Load at the limit, interpolated between two measured loads, with its interval.
    """

    grid_cps: float
    next_cps: float
    crossing: CrossingLoad

    @property
    def safe_cps(self) -> float:
        """The load that the proxy reliably handles: the lower end of the confidence interval, or else `grid_cps`.

        The result never exceeds the highest measured load.
        """
        low = self.crossing.interval.low
        if not self.crossing.interval.known:
            return self.grid_cps
        return float(min(low, self.crossing.highest_cps))


def typical_drop_rates(pdr: Values, limit: float = PDR_LIMIT, whole: float = 1.0) -> Estimates:
    """Estimate the packet drop rate of a typical run from several repetitions along the last axis.

    The function raises small rates to a minimum, the limit divided by `RATE_RANGE`, and applies `typical_intervals`. An
    estimate or end at the minimum becomes 0. No interval exceeds `whole`.

    Parameters
    ----------
    pdr
        Shape (…, rep); NaN where no run exists.
    limit
        Limit of the drop rate, in the unit of `pdr`.
    whole
        Number of all messages, in the unit of `pdr`.
    """
    least = limit / RATE_RANGE
    typical = typical_intervals(np.maximum(pdr, least))
    # Because of rounding, a rate at the minimum may be slightly above the minimum, so the test has a tolerance.
    estimate, low, high = (
        np.where(end <= 1.0001 * least, 0, end)
        for end in (typical.estimate, typical.low, typical.high)
    )
    return Estimates(estimate, low, np.minimum(high, whole), typical.n, *extremes(pdr))


def crossing(
    cps: npt.ArrayLike,
    pdr: npt.ArrayLike,
    limit: float = PDR_LIMIT,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> CrossingLoad:
    """Estimate the load at which the packet drop rate of a typical run passes the drop limit.

    The computation uses log PDR, because PDR grows almost exponentially near the capacity and varies by factors between
    runs. PDR is at least the limit divided by `RATE_RANGE`. Isotonic regression, weighted by the numbers of runs, makes
    the typical drop rates non-decreasing with the load. `_cross` finds the load at which the result passes the limit.
    The interval comes from the samples of `_draw_crossings`.

    Parameters
    ----------
    cps
        Shape (load,), in any order.
    pdr
        Shape (load, rep), or (load,) for one number per load; NaN where no run exists.
    limit
        Packet drop rate, as a share.
    level
        Confidence level of the interval.
    resamples, seed
        Number and seed of the samples. The same seed leads to the same interval.

    Raises
    ------
    StableError
        The shapes do not match.
    """
    # ASSUME between two loads near the capacity, PDR is a convex and log PDR a concave function of the load
    rates = _by_load(cps, pdr, limit)
    total = int(rates.n.sum())
    if not total:
        nothing = (np.nan, np.nan)
        unknown = Interval.without(np.nan, 0, level, NOT_MEASURED)
        return CrossingLoad(unknown, *nothing, nothing, nothing)
    fitted = _isotonic(rates.typical[None], rates.n)
    crossed = _cross(rates.loads, fitted)
    low, estimate, high = (float(bound[0]) for bound in crossed.range)
    under = crossed.under[0]
    if rates.n[max(under - 1, 0) : under + 1].min() < MIN_CROSSING_RUNS:
        ends = (np.nan, np.nan) if crossed.resolved[0] else (low, high)
        interval = Interval(estimate, *ends, total, level, why=TOO_FEW)
    else:
        drawn = _draw_crossings(rates, resamples, seed)
        ends = percentiles(drawn.low, level)[0], percentiles(drawn.high, level)[1]
        interval = Interval(estimate, *ends, total, level, METHOD)
    return CrossingLoad(
        replace(interval, resolved=bool(crossed.resolved[0])),
        float(rates.loads[0]),
        float(rates.loads[-1]),
        _around(rates.loads, under, (-np.inf, np.inf)),
        _around(limit * np.exp(fitted[0]), under, (np.nan, np.nan)),
        tuple(map(float, rates.loads[(rates.typical > 0) != (fitted[0] > 0)])),
    )


def _around(values: Values, under: int, beyond: tuple[float, float]) -> tuple[float, float]:
    """Return the values at the loads just below and above the drop limit (indices `under` - 1 and `under`).

    If an index does not exist, return the value from `beyond` instead.
    """
    low, high = np.concatenate(([beyond[0]], values, [beyond[1]]))[under : under + 2]
    return float(low), float(high)


def crossing_ratio(
    cps: npt.ArrayLike,
    reference_pdr: npt.ArrayLike,
    other_pdr: npt.ArrayLike,
    limit: float = PDR_LIMIT,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """Return the capacity in another mode divided by the capacity in the reference mode, with an interval.

    The two loads are sampled independently. If the loads are correlated because both modes have the same arrivals, the
    interval is too wide.

    Parameters
    ----------
    cps
        Shape (load,).
    reference_pdr, other_pdr
        Shape (load, rep), as for `crossing`.
    limit, level, resamples, seed
        See `crossing`.

    Raises
    ------
    StableError
        The shapes do not match.
    """
    both = [crossing(cps, pdr, limit, level, resamples) for pdr in (reference_pdr, other_pdr)]
    first, second = (side.interval for side in both)
    n = first.n + second.n
    if not (np.isfinite(first.estimate) and np.isfinite(second.estimate)):
        return Interval.without(np.nan, n, level, "a crossing lies outside the loads")
    estimate = second.estimate / first.estimate
    if not (first.known and second.known):
        return Interval.without(estimate, n, level)
    resolved = first.resolved and second.resolved
    # If a sampled capacity lies outside the measured loads, only one bound of this capacity is known.
    # The ratio's lower end combines the lower bound of `other` with the upper bound of the reference. The upper end
    # combines the opposite bounds. So the interval is rather too wide than too narrow.
    ends = []
    for i, pdr in enumerate((reference_pdr, other_pdr)):
        drawn = _draw_crossings(_by_load(cps, pdr, limit), resamples, seed + i)
        at_least = np.where(np.isneginf(drawn.low), 0, np.minimum(drawn.low, both[i].highest_cps))
        ends.append((at_least, np.maximum(drawn.high, both[i].lowest_cps)))
    (reference_low, reference_high), (other_low, other_high) = ends
    with np.errstate(divide="ignore"):
        low, _ = percentiles(other_low / reference_high, level)
        _, high = percentiles(other_high / reference_low, level)
    return Interval(estimate, low, high, n, level, METHOD, resolved=resolved)


def grid_capacity(
    cps: npt.ArrayLike, mean_pdr: npt.ArrayLike, limit: float = PDR_LIMIT
) -> tuple[float, float]:
    """Return the last load before the mean packet drop rate exceeds the limit, and the next higher load.

    Parameters
    ----------
    cps, mean_pdr
        Shape (load,), in any order. Loads without a mean (NaN) are excluded.
    limit
        Limit of the packet drop rate, as a share. A rate equal to the limit is not above the limit.

    Returns
    -------
    capacity, next
        Both in cps. `capacity` is -inf if the lowest load is above the limit. `next` is the first load above the limit,
        or inf if no load is above the limit. `capacity` and `next` are NaN if nothing was measured.
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
) -> SweepCapacity:
    """Return the capacity by two definitions: the largest measured load within the limit, and an interpolated load.

    The parameters and errors are the same as for `crossing`.
    """
    found_crossing = crossing(cps, pdr, limit)
    means, *_ = mean_intervals(_rows(cps, pdr)[1])
    return SweepCapacity(*grid_capacity(cps, means, limit), found_crossing)


class _Rates(NamedTuple):
    """The drop rates at each load, as log(drop rate / limit): one value for a typical run, and one value per run.

    `n` is the number of runs at each load.
    """

    loads: Values
    typical: Values
    runs: list[Values]
    n: npt.NDArray[np.int64]


class _Crossed(NamedTuple):
    """The load at which the drop rate passes the limit, for each row of a table with drop rates at ascending loads.

    The load of each row has a lower bound, an estimate and an upper bound. Each array has shape (row,). The loads are
    ±inf outside the measured loads. `resolved` is false if the load is only known to lie between two measured loads.
    `under` is the number of measured loads whose drop rate is at or below the limit.
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
    """Return the loads as an array, and the runs' drop rates as a table with one row per load."""
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
    """Compute the drop rate of a typical run at each load. Loads without runs are excluded."""
    loads, rates = _rows(cps, pdr)
    order = np.argsort(loads)
    order = order[~np.isnan(rates[order]).all(axis=1)]
    logs = np.log(np.maximum(rates[order] / limit, 1 / RATE_RANGE))
    runs = [row[~np.isnan(row)] for row in logs]
    typical = np.array([np.median(means_of_pairs(row)) for row in runs])
    return _Rates(loads[order], typical, runs, np.array([row.size for row in runs], np.int64))


def _draw_crossings(rates: _Rates, resamples: int, seed: int) -> _Crossed:
    """Return bootstrap samples of the load at which the drop rate passes the limit, for a confidence interval.

    The function samples the drop rate of a typical run at each load `resamples` times, and computes the load for each
    sample. The samples come from the distribution that also determines the typical run's interval (`draw_typical`).
    Intervals from resampling three to ten runs directly would have lower coverage (docs/methodology/statistics.md). At
    a load with one run, all samples are equal.
    """
    rng = np.random.default_rng(seed)
    drawn = np.stack([draw_typical(rng, row, resamples) for row in rates.runs], axis=1)
    return _cross(rates.loads, _isotonic(drawn, rates.n))


def _isotonic(rows: Values, weights: npt.NDArray[Any]) -> Values:
    """Fit non-decreasing values to each row by weighted least squares (max-min formula).

    scipy.optimize.isotonic_regression takes one row per call, and needs 0.3 s for 9999 samples instead of 10 ms.

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
    """Return the load at which the drop rate equals the limit, for each row of non-decreasing log(PDR / limit).

    A straight line of PDR between the two loads around the limit reaches the limit at the lower bound. A straight line
    of log PDR reaches the limit at the upper bound, which is the estimate. In two cases, the bounds are the two loads
    themselves: if the loads differ by more than the factor `WIDEST_BRACKET`, or if a drop rate at these loads differs
    from the limit by more than the factor `STEEPEST`.
    """
    under = np.count_nonzero(rows <= 0, axis=1)
    last = len(loads) - 1
    left, right = np.clip(under - 1, 0, last), np.clip(under, 0, last)
    low = np.take_along_axis(rows, left[:, None], axis=1)[:, 0]
    high = np.take_along_axis(rows, right[:, None], axis=1)[:, 0]
    start, step = loads[left], loads[right] - loads[left]
    apart = low < high
    # Clip drop rates that are more than RATE_RANGE times above or below the limit, because the estimate cannot
    # distinguish them.
    low, high = (np.clip(rate, *np.log((1 / RATE_RANGE, RATE_RANGE))) for rate in (low, high))
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
