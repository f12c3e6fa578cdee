"""Tests of intervals, pairs and crossings against known values, scipy and statsmodels."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import isotonic_regression
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from sipsched.analysis import crossing_load, intervals, pairs
from sipsched.analysis.intervals import Interval
from sipsched.errors import StableError

DRAWS = 2000
LOADS = np.arange(1000, 2600, 200.0)
KNEE = 0.0002 + 0.05 / (1 + np.exp(-(LOADS - 2200) / 150))
AROUND = np.arange(3, 7)
KNEE_CPS = 1800 + 200 * np.log(0.01 / KNEE[4]) / np.log(KNEE[5] / KNEE[4])
STRAIGHT_CPS = 1800 + 200 * (0.01 - KNEE[4]) / (KNEE[5] - KNEE[4])
TRUE_CPS = 2200 - 150 * np.log(0.05 / 0.0098 - 1)


NOISES = {
    "cv 0.3": lambda rng, shape: rng.lognormal(0, 0.3, shape),
    "sigma 1": lambda rng, shape: rng.lognormal(0, 1, shape),
    # shift the logarithms so that the median is 1: half of all values are 62.5 % of the ordinary values (4 in 5)
    "outliers": lambda rng, shape: (
        rng.lognormal(-0.3 * stats.norm.ppf(0.625), 0.3, shape)
        * np.where(rng.random(shape) < 0.2, 5, 1)
    ),
}


def covers(intervals, truth):
    """Return the share of the intervals that contain the truth."""
    return np.mean([interval.low <= truth <= interval.high for interval in intervals])


def lognormal(rng, mean, cv, shape):
    """Sample positive values with a given mean and coefficient of variation."""
    sigma = np.sqrt(np.log(1 + cv**2))
    return mean * rng.lognormal(-(sigma**2) / 2, sigma, shape)


def test_an_interval_has_its_n_and_a_missing_one_its_reason():
    alone = Interval.without(131.0, 1)
    assert (alone.known, alone.why) == (False, intervals.TOO_FEW)
    assert why(intervals.mean_interval([])) == ("not measured", 0)
    assert why(intervals.mean_interval([131.0, np.nan])) == (intervals.TOO_FEW, 1)
    four = intervals.typical_interval([3.0, 1.0, np.nan, 2.0, 4.0])
    assert (four.least, four.most, four.n) == (1, 4, 4)
    fall = pairs.percent_lower(four.map(lambda value: value / 10))
    assert (fall.least, fall.most) == pytest.approx((60, 90))


def why(interval):
    return interval.why, interval.n


def between(found):
    assert not found.interval.resolved
    return found.interval.low, found.interval.high, found.interval.n


def test_mean_intervals_are_students_t_without_missing_runs():
    values = np.array([[1.0, 2.0, 3.0, np.nan], [5.0, *[np.nan] * 3], [np.nan] * 4])
    mean, half, n = intervals.mean_intervals(values)
    assert n.tolist() == [3, 1, 0]
    assert mean[:2].tolist() == [2.0, 5.0]
    # t(0.975, 2) = 4.3027
    assert half[0] == pytest.approx(4.3027 / np.sqrt(3), rel=1e-4)
    assert np.isnan(half[1:]).all()
    assert np.isnan(mean[2])


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 5, 30])
def test_the_mean_interval_equals_scipy_and_statsmodels(n, level):
    values = np.random.default_rng(n).normal(100, 10, n)
    mean_interval = intervals.mean_interval(values, level)
    t = stats.t.interval(level, n - 1, values.mean(), stats.sem(values))
    assert (mean_interval.low, mean_interval.high) == pytest.approx(t)
    assert (mean_interval.low, mean_interval.high) == pytest.approx(
        DescrStatsW(values).tconfint_mean(alpha=1 - level)
    )
    assert (mean_interval.estimate, mean_interval.n, mean_interval.level) == (
        pytest.approx(values.mean()),
        n,
        level,
    )


@pytest.mark.parametrize("n", [6, 10, 30])
def test_a_typical_runs_interval_is_where_wilcoxons_test_turns(n):
    values = np.random.default_rng(n).lognormal(3, 1, n)
    interval = intervals.typical_interval(values)
    assert interval.method == "signed ranks of logs"
    for end, inside in ((interval.low, 1.0001), (interval.high, 0.9999)):
        p_values = [
            stats.wilcoxon(np.log(values / at), method="exact").pvalue
            for at in (end * inside, end / inside)
        ]
        assert p_values[0] > 0.05 > p_values[1]
    pairs = [np.sqrt(x * y) for i, x in enumerate(values) for y in values[i:]]
    assert interval.estimate == pytest.approx(np.median(pairs))


def test_a_typical_run_of_few_runs_and_of_runs_with_0():
    values = np.array([80.0, 100, 130])
    interval = intervals.typical_interval(values)
    t = stats.t.interval(0.95, 2, np.log(values).mean(), stats.sem(np.log(values)))
    assert (interval.low, interval.high) == pytest.approx(tuple(np.exp(t)))
    assert interval.method == "t of logs"
    # six runs are too few for an interval by ranks at the level 99 %
    assert intervals.typical_interval([*values] * 2, 0.99).method == "t of logs"
    with_0 = intervals.typical_interval([0, 0, 0.3])
    assert (with_0.low, with_0.estimate) == (0, pytest.approx(0.1))
    assert why(intervals.typical_interval([5.0])) == (intervals.TOO_FEW, 1)
    assert why(intervals.typical_interval([np.nan])) == ("not measured", 0)
    with pytest.raises(StableError, match="found a negative one"):
        intervals.typical_interval([-1.0, 2])


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("noise", ["cv 0.3", "sigma 1", "outliers"])
def test_a_typical_runs_interval_covers_the_median(noise, n):
    """Require the nominal coverage. Student's t interval would cover 81 % (sigma 1) and 66 % (outliers)."""
    values = NOISES[noise](np.random.default_rng(n), (DRAWS, n))
    typical_intervals = intervals.typical_intervals(values)
    assert np.mean((typical_intervals.low <= 1) & (typical_intervals.high >= 1)) >= 0.93


def test_an_interval_ends_at_the_lower_bound_of_the_values():
    values = [0.0, 0.0, 0.3]
    free, cut = intervals.mean_interval(values), intervals.mean_interval(values, least=0)
    assert free.low < 0 == cut.low
    assert (free.estimate, free.high) == (cut.estimate, cut.high)


def test_the_paired_difference_equals_scipy_without_incomplete_pairs():
    rng = np.random.default_rng(3)
    seeds = rng.normal(300, 80, 7)
    reference, other = seeds + rng.normal(0, 5, 7), seeds - 20 + rng.normal(0, 5, 7)
    reference[1] = other[4] = np.nan
    both = [0, 2, 3, 5, 6]
    paired_difference = pairs.paired_difference(reference, other)
    test = stats.ttest_rel(other[both], reference[both])
    assert paired_difference.n == 5
    assert (paired_difference.low, paired_difference.high) == pytest.approx(
        tuple(test.confidence_interval())
    )
    of_logs = stats.ttest_rel(np.log(other[both]), np.log(reference[both]))
    assert pairs.compare(reference, other).p_value == pytest.approx(of_logs.pvalue)
    # a value of 0 has no logarithm, so the test uses differences instead of log ratios
    reference[0] = 0
    test = stats.ttest_rel(other[both], reference[both])
    assert pairs.compare(reference, other).p_value == pytest.approx(test.pvalue)
    unpaired = intervals.mean_interval(reference)
    assert paired_difference.high - paired_difference.low < (unpaired.high - unpaired.low) / 3
    with pytest.raises(StableError, match="expected pairs of runs, found 2 and 3"):
        pairs.paired_difference([1, 2], [1, 2, 3])


def test_ends_of_a_ratio_are_where_the_paired_t_test_turns():
    reference, other = np.array([1.0, 2, 3, 4, 5]), np.array([0.8, 1.5, 2.4, 3, 4.1])
    interval = pairs.ratio_interval(reference, other)
    assert interval.estimate == pytest.approx(stats.gmean(other / reference))
    assert interval.method == "t of logs"
    for end in (interval.low, interval.high):
        of_logs = stats.ttest_rel(np.log(other), np.log(end * reference))
        assert of_logs.pvalue == pytest.approx(0.05)
    with_0 = pairs.ratio_interval(reference, np.array([0, *other[1:]]))
    assert with_0.estimate == pytest.approx(other[1:].sum() / reference.sum())
    assert with_0.method == "Fieller"
    for end in (with_0.low, with_0.high):
        test = stats.ttest_rel(np.array([0, *other[1:]]), end * reference)
        assert test.pvalue == pytest.approx(0.05)
    lower = pairs.percent_lower(interval)
    assert lower.estimate == pytest.approx(100 * (1 - interval.estimate))
    assert (lower.low, lower.high) == pytest.approx(
        (100 - 100 * interval.high, 100 - 100 * interval.low)
    )
    alone = pairs.percent_lower(pairs.ratio_interval([4.0], [3.0]))
    assert (alone.estimate, *why(alone)) == (25, intervals.TOO_FEW, 1)


def test_percent_lower_of_means_is_the_papers_definition():
    comparison = pairs.compare([1.0, 2.0, 9.0, np.nan], [1.0, 1.0, 4.0, 100.0])
    assert comparison.percent_lower_of_means.estimate == pytest.approx(100 * (1 - 6 / 12))
    assert comparison.percent_lower_of_means.n == 3
    assert not comparison.percent_lower_of_means.known
    assert comparison.percent_lower.estimate != pytest.approx(50)
    nothing = pairs.compare([0.0, 0.0], [1.0, 2.0]).percent_lower_of_means
    assert (np.isnan(nothing.estimate), nothing.why) == (True, "the reference is 0 in every run")


def test_ratio_with_zeros():
    reference, other = np.arange(9.0), np.arange(9.0) / 2
    other[2] = 0
    interval = pairs.ratio_interval(reference, other)
    assert interval.estimate == pytest.approx(other.sum() / reference.sum())
    assert 0 <= interval.low < interval.estimate < interval.high
    none = pairs.percent_lower(pairs.ratio_interval(np.zeros(9), other))
    assert why(none) == ("the reference is 0 in every run", 9)
    assert why(pairs.ratio_interval([np.nan], [1])) == ("not measured", 0)
    assert pairs.ratio_interval(reference, np.zeros(9)).estimate == 0
    with pytest.raises(StableError, match="found a negative one"):
        pairs.ratio_interval([1, -1], [1, 1])


def test_ratio_is_unbounded_where_the_reference_may_be_zero():
    reference = np.array([1.0, *np.zeros(9)])
    interval = pairs.ratio_interval(reference, np.ones(10))
    assert (interval.estimate, *why(interval)) == (10, pairs.UNBOUNDED, 10)


def test_equal_runs_are_not_different():
    comparison = pairs.compare([1, 2, 3.0], [1, 2, 3.0])
    assert (comparison.p_value, comparison.difference.estimate, comparison.ratio.estimate) == (
        1,
        0,
        1,
    )
    assert np.isnan(pairs.compare([1.0], [2.0]).p_value)


def test_holm_equals_statsmodels_and_excludes_untested_cells():
    p_values = np.random.default_rng(9).uniform(0, 0.2, 12)
    adjusted = multipletests(p_values, method="holm")[1]
    assert pairs.holm(p_values) == pytest.approx(adjusted)
    with_gap = np.insert(p_values, 5, np.nan)
    assert np.isnan(pairs.holm(with_gap)[5])
    assert np.delete(pairs.holm(with_gap), 5) == pytest.approx(adjusted)
    assert pairs.holm([]).size == 0


def test_simultaneous_intervals_hold_together():
    cells = 15
    values = np.random.default_rng(11).normal(0, 1, (DRAWS, cells, 6))
    mean, half, _ = intervals.mean_intervals(values, intervals.simultaneous_level(cells))
    assert 0.93 <= np.mean((np.abs(mean) <= half).all(axis=1)) <= 0.97
    assert intervals.simultaneous_level(1) == pytest.approx(0.95)


def test_isotonic_regression_equals_scipy():
    rng = np.random.default_rng(12)
    rows, weights = rng.normal(size=(100, 7)), rng.integers(1, 6, 7)
    expected = [isotonic_regression(row, weights=weights).x for row in rows]
    assert crossing_load._isotonic(rows, weights) == pytest.approx(np.array(expected))


def test_crossing_without_noise_is_between_two_ways_to_interpolate():
    crossed = crossing_load.crossing(LOADS[::-1], np.tile(KNEE[::-1, None], 3))
    assert crossed.interval.estimate == pytest.approx(KNEE_CPS)
    assert (crossed.interval.low, crossed.interval.high) == pytest.approx((STRAIGHT_CPS, KNEE_CPS))
    assert STRAIGHT_CPS < TRUE_CPS < KNEE_CPS
    assert crossed.bracket_cps == (1800, 2000)
    assert crossed.bracket_pdr == pytest.approx(KNEE[4:6])
    assert crossing_load.crossing(LOADS, KNEE).interval.estimate == pytest.approx(KNEE_CPS)
    at_limit = crossing_load.crossing([100, 200, 240], [0, 0.01, 0.02])
    assert at_limit.interval.estimate == 200


def test_a_wide_or_steep_bracket_does_not_resolve_the_crossing():
    wide = crossing_load.crossing([1000, 2000], np.tile([[0.004], [0.02]], 3))
    assert between(wide) == (1000, 2000, 6)
    assert wide.bracketed
    assert not wide.narrow
    # with drop rates of 0 and 41 %, an interpolation would give a precise but wrong 1024 cps
    jump = crossing_load.crossing([1000, 1200], np.tile([[0.0], [0.41]], 3))
    assert between(jump) == (1000, 1200, 6)
    assert jump.narrow
    assert jump.interval.estimate == pytest.approx(1100, rel=0.05)
    assert crossing_load.capacity([1000, 1200], np.tile([[0.0], [0.41]], 3)).safe_cps == 1000
    once = crossing_load.crossing([1000, 1200], [0, 0.41])
    assert (*between(once), once.interval.why) == (1000, 1200, 2, intervals.TOO_FEW)
    narrow = crossing_load.crossing([1000, 1200], np.tile([[0.004], [0.02]], 3))
    assert narrow.interval.resolved
    ratio = crossing_load.crossing_ratio(
        [1000, 1200], np.tile([[0.0], [0.41]], 3), [[0.0] * 3, [0.4] * 3]
    )
    assert not ratio.resolved
    assert (ratio.low, ratio.high, ratio.n) == pytest.approx((1 / 1.2, 1.2, 12))


def test_crossing_smooths_a_dip_over_the_limit():
    loads, pdr = [400, 440, 500, 560], [0, 0.012, 0.004, 0.03]
    result = crossing_load.crossing(loads, pdr).interval.estimate
    # the drop rate decreases from 440 to 500 cps, so both drop rates are replaced by their geometric mean
    pooled = np.sqrt(0.012 * 0.004)
    assert result == pytest.approx(500 + 60 * np.log(0.01 / pooled) / np.log(0.03 / pooled))
    assert crossing_load.grid_capacity(loads, pdr) == (400, 440)


@pytest.mark.parametrize("reps", [crossing_load.MIN_CROSSING_RUNS, 5, 10])
@pytest.mark.parametrize("noise", NOISES)
def test_crossing_covers_where_a_typical_run_passes_the_limit(noise, reps):
    """Sample runs that differ by factors, around a smooth knee at a random position between the loads."""
    rng = np.random.default_rng(13)
    shifts = rng.uniform(-100, 100, DRAWS // 8)
    result = []
    for draw, shift in enumerate(shifts):
        true = 0.0002 + 0.05 / (1 + np.exp(-(LOADS - shift - 2200) / 150))
        runs = np.minimum(true[:, None] * NOISES[noise](rng, (len(LOADS), reps)), 1)
        result.append(crossing_load.crossing(LOADS, runs, resamples=299, seed=draw).interval)
    held = [
        each.low <= TRUE_CPS + shift <= each.high
        for each, shift in zip(result, shifts, strict=True)
    ]
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("width", [30, 60])
def test_the_interval_on_a_steep_knee_covers_the_crossing(width):
    rng = np.random.default_rng(14)
    held = []
    for draw, shift in enumerate(rng.uniform(-100, 100, 200)):
        true = 0.3 / (1 + np.exp(-(LOADS - shift - 2000) / width))
        runs = true[:, None] * rng.lognormal(0, 0.3, (len(LOADS), 5))
        result = crossing_load.crossing(LOADS, runs, resamples=299, seed=draw).interval
        held.append(result.low <= 2000 + shift - width * np.log(29) <= result.high)
    assert np.mean(held) >= 0.93


def test_crossing_outside_the_loads_says_so():
    pdr = np.tile(KNEE[:, None], 3)
    above = crossing_load.crossing(LOADS[:4], pdr[:4])
    assert (above.interval.estimate, above.highest_cps, above.interval.n) == (np.inf, 1600, 12)
    below = crossing_load.crossing(LOADS[6:], pdr[6:])
    assert (below.interval.estimate, below.lowest_cps, below.interval.n) == (-np.inf, 2200, 6)
    assert crossing_load.crossing(LOADS[:1], pdr[:1]).interval.estimate == np.inf
    assert why(crossing_load.crossing(LOADS, np.full(8, np.nan)).interval) == ("not measured", 0)
    noisy = np.array([[0, 0, 0], [0.009, 0.001, 0.013]])
    open_end = crossing_load.crossing([800, 900], noisy).interval
    assert open_end.estimate == open_end.high == np.inf
    assert 800 <= open_end.low < 900


def test_crossing_with_few_runs_at_its_loads_has_no_interval():
    pdr = np.tile(KNEE[:, None], 5)
    pdr[5, 2:] = np.nan
    result = crossing_load.crossing(LOADS, pdr).interval
    assert result.estimate == pytest.approx(KNEE_CPS)
    assert result.why == "too few for an interval"
    pdr[5], pdr[0, 1:] = KNEE[5], np.nan
    assert crossing_load.crossing(LOADS, pdr).interval.known
    with pytest.raises(StableError, match="a row of runs for each load"):
        crossing_load.crossing(LOADS, pdr[:3])


def test_capacity_is_the_papers_on_their_grid():
    # Krishnamurthy and Rouskas 2016, table II: 4 threads on 2 cores, means of thirty runs
    capacity = crossing_load.capacity([4400, 4600], [0.0086, 0.0118])
    assert (capacity.grid_cps, capacity.next_cps) == (4400, 4600)
    assert capacity.crossing.interval.estimate == pytest.approx(4495.36)
    assert capacity.safe_cps == 4400
    assert capacity.crossing.bracket_cps == (4400, 4600)
    # Table I, 16 threads: 0.0100 at 2600 cps is at the limit
    assert crossing_load.grid_capacity([2400, 2600], [0.0083, 0.0100]) == (2600, np.inf)
    assert crossing_load.grid_capacity([200, 400], [0.02, 0.03]) == (-np.inf, 200)
    assert all(np.isnan(crossing_load.grid_capacity([200], [np.nan])))


def test_the_reliable_capacity_is_the_lower_end_of_the_interval():
    pdr = lognormal(np.random.default_rng(14), KNEE[:, None], 0.2, (8, 5))
    known = crossing_load.capacity(LOADS, pdr)
    assert known.safe_cps == known.crossing.interval.low < KNEE_CPS
    above = crossing_load.capacity(LOADS[:3], pdr[:3])
    assert (above.grid_cps, above.next_cps, above.safe_cps) == (1400, np.inf, 1400)
    assert crossing_load.capacity(LOADS[6:], pdr[6:]).safe_cps == -np.inf
    assert np.isnan(crossing_load.capacity(LOADS, np.full((8, 2), np.nan)).safe_cps)


def test_ratio_of_crossings():
    rng = np.random.default_rng(15)
    reference = lognormal(rng, KNEE[:, None], 0.1, (8, 10))
    shifted = np.interp(LOADS / 1.1, LOADS, KNEE, left=KNEE[0])
    other = lognormal(rng, shifted[:, None], 0.1, (8, 10))
    crossing_ratio = crossing_load.crossing_ratio(LOADS, reference, other)
    truth = crossing_load.crossing(LOADS, shifted).interval.estimate / KNEE_CPS
    assert crossing_ratio.low < truth < crossing_ratio.high
    assert crossing_ratio.high - crossing_ratio.low < 0.1
    outside = crossing_load.crossing_ratio(LOADS, reference, other / 100)
    assert why(outside) == ("a crossing lies outside the loads", 160)
    single = crossing_load.crossing_ratio(LOADS, reference[:, :1], other[:, :1])
    assert single.why == "too few for an interval"


def test_ratio_of_crossings_covers_the_truth():
    rng = np.random.default_rng(16)
    shape = (DRAWS // 8, len(AROUND), 10)
    reference, other = (lognormal(rng, KNEE[AROUND, None], 0.2, shape) for _ in range(2))
    result = [
        crossing_load.crossing_ratio(LOADS[AROUND], *pair, resamples=299, seed=draw)
        for draw, pair in enumerate(zip(reference, other, strict=True))
    ]
    assert covers(result, 1) >= 0.93


def test_no_interval_of_a_drop_rate_exceeds_100_percent() -> None:
    typical_drop_rates = crossing_load.typical_drop_rates(np.array([0.05, 0.4]))
    assert float(typical_drop_rates.high) == 1.0
    typical_drop_rates = crossing_load.typical_drop_rates(
        np.array([5.0, 40.0]), limit=1.0, whole=100.0
    )
    assert float(typical_drop_rates.high) == 100.0
