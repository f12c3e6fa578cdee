"""Tests of the effects of modes within crossover runs, against scipy and known effects."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import signal, stats

from sipsched.analysis import blocks, crossover
from sipsched.analysis.crossover import Doubt, Scale, change, effect, percent
from sipsched.errors import StableError


def table(differences, seed=0):
    """Make a table of windows in which two modes differ by the given log ratio per block."""
    arrivals = np.random.default_rng(seed).lognormal(5, 1, len(differences))
    return np.column_stack((arrivals, arrivals * np.exp(differences)))


def normal(n, seed=0, mean=0.2):
    return np.random.default_rng(seed).normal(mean, 0.3, n)


tables = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 30), st.just(3)),
    elements=st.floats(1e-3, 1e3) | st.just(np.nan),
)
series = arrays.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e3, 1e3))


def ends(interval):
    return interval.estimate, interval.low, interval.high


def test_the_estimate_is_the_mean_of_the_blocks_log_ratios():
    estimate = effect([table(normal(60))], 0, 1)
    assert estimate.interval.estimate == pytest.approx(normal(60).mean())
    assert estimate.interval.low < normal(60).mean() < estimate.interval.high
    assert (estimate.blocks, estimate.runs, estimate.conditional) == ((60,), 1, True)
    assert percent(estimate.interval).estimate == pytest.approx(
        100 * np.expm1(estimate.interval.estimate)
    )
    assert estimate.interval.method == "sign flips"


def flips(values, mean, resamples=np.inf):
    """Return scipy's p-value of a mean, by sign flips."""
    return stats.permutation_test(
        (values - mean,),
        lambda x, axis: x.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        rng=1,
    ).pvalue


@pytest.mark.parametrize("n", [2, 7, 12])
def test_the_p_value_equals_scipys_permutation_test(n):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    assert blocks.mean_of_blocks([values]).p_value() == pytest.approx(flips(values, 0))


@pytest.mark.parametrize("n", [6, 11])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_inverts_scipys_permutation_test(n, level):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    low, high = blocks.mean_of_blocks([values]).ends(level)
    inward = 1e-9 * (high - low)
    for end, sign in ((low, 1), (high, -1)):
        assert flips(values, end + sign * inward) > 1 - level
        assert flips(values, end - sign * inward) <= 1 - level


def test_sampled_splits_agree_with_scipy():
    values = np.random.default_rng(4).normal(0.15, 0.5, 40)
    interval = blocks.mean_of_blocks([values])
    assert interval.p_value() == pytest.approx(flips(values, 0, 20_000), abs=0.01)
    assert interval.ends() == pytest.approx(
        stats.t.interval(0.95, 39, values.mean(), stats.sem(values)), abs=0.03
    )
    assert blocks.mean_of_blocks([values]).ends() == interval.ends()


def test_few_blocks_bound_the_level_of_an_interval():
    values = normal(8)
    interval = blocks.mean_of_blocks([values])
    # 8 blocks have only 128 sign patterns, so an interval at the level 99.58 % has no finite bounds
    assert np.isfinite(interval.ends(0.99)).all()
    assert np.isinf(interval.ends(0.9958)).all()
    assert effect([table(values)], 0, 1, tests=12).interval.why == "too few for an interval"
    assert effect([table(values)], 0, 1, tests=6).interval.known


@pytest.mark.parametrize("tests", [1, 6, 12, 66])
@pytest.mark.parametrize("n", [12, 36])
def test_p_is_at_most_5_percent_exactly_if_the_interval_excludes_0(n, tests):
    rng = np.random.default_rng(tests)
    excluded = 0
    for mean in np.linspace(0, 0.5, 40):
        estimate = effect([table(rng.normal(mean, 0.3, n))], 0, 1, tests=tests)
        low, high = estimate.interval.low, estimate.interval.high
        assert (estimate.p_value <= 0.05) == (not low <= 0 <= high)
        excluded += not low <= 0 <= high
    assert 0 < excluded < 40


def test_correlated_blocks_widen_the_interval():
    noise = np.random.default_rng(3).normal(size=4100)
    values = signal.lfilter([1], [1, -0.6], noise)[100:]
    assert blocks.lag_one([values]) == pytest.approx(0.6, abs=0.05)
    # the standard error of a mean grows by sqrt(1.6 / 0.4) for a first-order autoregression
    assert blocks.widening([values]) == pytest.approx(2, rel=0.1)
    plain = np.diff(blocks.mean_of_blocks([np.random.default_rng(1).permutation(values)]).ends())
    assert np.diff(blocks.mean_of_blocks([values]).ends()) == pytest.approx(2 * plain, rel=0.15)
    estimate = effect([table(values[:60])], 0, 1)
    assert Doubt.AUTOCORRELATED in estimate.doubts
    assert estimate.lag_one > 0.4


def test_independent_blocks_are_widened_at_most_once_in_forty_times():
    rng = np.random.default_rng(5)
    for n in (8, 20, 60):
        paid = [blocks.widening([rng.normal(size=n)]) > 1 for _ in range(2000)]
        assert np.mean(paid) < 0.025
    assert np.isnan(blocks.lag_one([normal(7)]))


def test_the_detectable_effect_is_detected_four_times_in_five():
    rng = np.random.default_rng(6)
    estimate = effect([table(rng.normal(0, 0.3, 40))], 0, 1)
    seen = [
        effect([table(rng.normal(-estimate.detectable, 0.3, 40))], 0, 1).interval.high < 0
        for _ in range(400)
    ]
    # the spread of 40 blocks is known with an error of 11 %
    assert 0.6 < np.mean(seen) < 0.95


def test_several_windows_of_a_side_are_averaged_and_one_may_be_missing():
    windows = np.exp(np.random.default_rng(7).normal(0, 0.3, (30, 3)))
    logs = np.log(windows)
    estimate = effect([windows], (0, 1), 2)
    assert estimate.interval.estimate == pytest.approx(
        (logs[:, 2] - logs[:, :2].mean(axis=1)).mean()
    )
    assert np.diff(ends(estimate.interval)[1:]) < np.diff(
        ends(effect([windows], 0, 2).interval)[1:]
    )
    windows[4, 1] = np.nan
    assert effect([windows], (0, 1), 2).blocks == (30,)
    windows[4, 0] = np.nan
    assert effect([windows], (0, 1), 2).blocks == (29,)


def test_a_block_with_a_missing_window_counts_for_pairs_of_other_windows():
    whole = np.column_stack((table(normal(20)), table(normal(20, 1))[:, 1]))
    gap = whole.copy()
    gap[3, 1] = np.nan
    assert effect([gap], 0, 1) == effect([np.delete(whole, 3, axis=0)], 0, 1)
    assert effect([gap], 0, 2) == effect([whole], 0, 2)
    gap[5, 0] = np.nan
    assert effect([gap], 0, 1).blocks == (18,)


def test_a_few_agreeing_runs_describe_only_themselves_and_many_describe_all():
    runs = [table(normal(30, seed), seed) for seed in range(8)]
    means = np.array([normal(30, seed).mean() for seed in range(8)])
    few, many = effect(runs[:5], 0, 1), effect(runs, 0, 1)
    assert few.conditional
    pooled = np.concatenate([normal(30, seed) for seed in range(5)])
    assert ends(few.interval)[1:] == pytest.approx(blocks.mean_of_blocks([pooled]).ends())
    assert not many.conditional
    assert many.interval.estimate == pytest.approx(means.mean())
    low, high = stats.t.interval(0.95, 7, means.mean(), stats.sem(means))
    of_blocks = blocks.mean_of_blocks([normal(30, seed) for seed in range(8)]).ends()
    assert ends(many.interval)[1:] == pytest.approx(
        (min(low, of_blocks[0]), max(high, of_blocks[1]))
    )


def test_runs_that_agree_by_chance_do_not_narrow_the_interval():
    estimate = effect([table(normal(30))] * 6, 0, 1)
    of_blocks = blocks.mean_of_blocks([normal(30)] * 6)
    assert ends(estimate.interval)[1:] == pytest.approx(of_blocks.ends())
    assert estimate.p_value == of_blocks.p_value()
    assert blocks.Student(0.2, 0.0, 2).p_value() == 0
    assert blocks.Student(0.0, 0.0, 2).p_value() == 1


def test_a_longer_tail_is_reported():
    values = np.append(np.random.default_rng(6).normal(0, 0.1, 17), [1.0, 1.2, 1.4])
    assert Doubt.SKEWED in effect([table(values)], 0, 1).doubts
    assert Doubt.SKEWED in effect([table(-values)], 0, 1).doubts
    assert Doubt.SKEWED not in effect([table(normal(40))], 0, 1).doubts


def test_runs_that_differ_are_detected_and_widen_the_interval():
    alike = [table(normal(30, seed), seed) for seed in range(4)]
    apart = [table(normal(30, seed, mean), seed) for seed, mean in enumerate((0, 0.5, 1, 0.2))]
    assert Doubt.RUNS_DIFFER not in effect(alike, 0, 1).doubts
    estimate = effect(apart, 0, 1)
    assert Doubt.RUNS_DIFFER in estimate.doubts
    assert not estimate.conditional
    means = [normal(30, seed, mean).mean() for seed, mean in enumerate((0, 0.5, 1, 0.2))]
    expected = stats.ttest_1samp(means, 0)
    assert estimate.p_value == pytest.approx(expected.pvalue)
    assert ends(estimate.interval)[1:] == pytest.approx(tuple(expected.confidence_interval()))


def test_a_run_of_one_block_is_not_combined():
    runs = [table(normal(30)), table(normal(1))]
    estimate = effect(runs, 0, 1)
    assert (estimate.blocks, estimate.runs) == ((30, 1), 1)
    assert estimate.interval == effect(runs[:1], 0, 1).interval


def test_a_quantity_that_may_be_0_is_compared_by_its_difference():
    pdr = np.zeros((40, 2))
    pdr[::3, 1] = np.random.default_rng(2).uniform(0.01, 0.05, 14)
    estimate = effect([pdr], 0, 1, Scale.DIFFERENCE)
    assert estimate.interval.estimate == pytest.approx(pdr[:, 1].mean())
    assert estimate.interval.low > 0
    assert Doubt.FEW_CHANGED not in estimate.doubts
    pdr[:30] = 0
    few = effect([pdr], 0, 1, Scale.DIFFERENCE)
    assert Doubt.FEW_CHANGED in few.doubts
    assert few.robust == 0


def test_a_block_that_dominates_the_spread_is_reported():
    values = normal(40)
    assert not effect([table(values)], 0, 1).doubts
    values[7] = 30
    assert Doubt.ONE_BLOCK in effect([table(values)], 0, 1).doubts
    assert Doubt.FEW_BLOCKS in effect([table(normal(9))], 0, 1).doubts


@pytest.mark.parametrize(
    ("windows", "scale", "why", "p_value"),
    [
        ([], Scale.RATIO, "not measured", None),
        ([np.empty((0, 2))], Scale.RATIO, "not measured", None),
        ([np.full((9, 2), np.nan)], Scale.DIFFERENCE, "not measured", None),
        ([np.full((1, 2), 3.0)], Scale.RATIO, "too few for an interval", None),
        ([np.full((9, 2), 3.0)], Scale.RATIO, "all blocks are equal", 1),
        ([np.zeros((9, 2))], Scale.DIFFERENCE, "all blocks are equal", 1),
        ([np.full((9, 2), -0.0)], Scale.DIFFERENCE, "all blocks are equal", 1),
        ([np.tile([1.0, 2.0], (9, 1))], Scale.RATIO, crossover.NO_SPREAD, None),
        ([np.zeros((9, 2))], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.full((9, 2), -0.0)], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.tile([1.0, -2.0], (9, 1))], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.tile([1.0, np.inf], (9, 1))], Scale.DIFFERENCE, crossover.NOT_FINITE, None),
    ],
)
def test_windows_without_information_have_a_reason(windows, scale, why, p_value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = effect(windows, 0, 1, scale)
    assert estimate.interval.why == why
    assert np.isnan([estimate.interval.low, estimate.interval.high]).all()
    assert estimate.p_value == p_value or (p_value is None and np.isnan(estimate.p_value))
    assert np.isnan(estimate.detectable)


@pytest.mark.parametrize("windows", [np.ones(4), np.ones((4, 1)), np.ones((2, 2, 2))])
def test_a_table_of_another_shape_is_an_error(windows):
    with pytest.raises(StableError, match=r"expected a table \(block, arm\)"):
        effect([windows], 0, 1)
    with pytest.raises(StableError, match="same runs and blocks"):
        change([np.ones((4, 2))], [np.ones((5, 2))], 0, 1)


def test_two_washouts_are_compared_block_by_block():
    differences = normal(60)
    short, long = table(differences), table(differences * 0.99 + 0.1)
    result = change([short], [long], 0, 1)
    # the change between the washouts is far smaller than the interval of each estimate
    assert result.moved.interval.estimate == pytest.approx(0.1 - 0.01 * differences.mean())
    assert not result.moved.interval.low <= 0 <= result.moved.interval.high
    noise = np.random.default_rng(9).normal(0, 0.1, 60)
    moved = change([short], [table(differences + noise - noise.mean())], 0, 1).moved
    assert moved.interval.low <= 0 <= moved.interval.high
    # a constant factor on both modes changes no ratio, and rounding errors must not count as a change
    same = change([short], [short * 1.01], 0, 1)
    assert same.moved.interval.why == crossover.NO_SPREAD


def test_a_change_excludes_blocks_that_one_evaluation_lacks():
    short, long = table(normal(20)), table(normal(20) * 1.1)
    short[2, 0], long[3, 1] = np.nan, np.nan
    result = change([short], [long], 0, 1)
    assert (result.first.blocks, result.second.blocks, result.moved.blocks) == ((19,), (19,), (18,))


@given(tables, st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_a_ratio_is_independent_of_the_unit(windows, factor):
    result, scaled = effect([windows], 0, 2), effect([windows * factor], 0, 2)
    assert result.interval.why == scaled.interval.why
    assert ends(result.interval) == pytest.approx(ends(scaled.interval), nan_ok=True, abs=1e-7)
    assert result.robust == pytest.approx(scaled.robust, nan_ok=True, abs=1e-7)


@given(tables, st.sampled_from(Scale))
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_negates_the_effect(windows, scale):
    one, other = effect([windows], 0, 1, scale), effect([windows], 1, 0, scale)
    first, second = one.interval, other.interval
    assert ends(first) == pytest.approx(
        (-second.estimate, -second.high, -second.low), nan_ok=True, rel=1e-9, abs=1e-12
    )
    assert one.robust == pytest.approx(-other.robust, nan_ok=True, rel=1e-9, abs=1e-12)
    assert one.p_value == pytest.approx(other.p_value, nan_ok=True, abs=1e-3)


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_blocks_affects_only_their_correlation(windows, random):
    order = list(range(len(windows)))
    random.shuffle(order)
    one, other = effect([windows], 0, 1), effect([windows[order]], 0, 1)
    assert one.interval.estimate == pytest.approx(other.interval.estimate, nan_ok=True, abs=1e-12)
    assert one.robust == pytest.approx(other.robust, nan_ok=True, abs=1e-12)
    if Doubt.AUTOCORRELATED not in one.doubts | other.doubts:
        assert one.p_value == pytest.approx(other.p_value, nan_ok=True, abs=0.03)
    assert one.blocks == other.blocks


@given(series)
@settings(max_examples=100, deadline=None)
def test_the_p_value_agrees_with_the_interval(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = effect(
            [np.column_stack((np.zeros(len(values)), values))], 0, 1, Scale.DIFFERENCE
        )
    if not estimate.interval.known:
        return
    low, high = estimate.interval.low, estimate.interval.high
    assert low <= estimate.interval.estimate <= high
    assert (estimate.p_value <= 0.05) == (not low <= 0 <= high)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(0, 1, n),
        lambda rng, n: rng.standard_t(3, n),
        lambda rng, n: np.diff(
            np.where(rng.random((n, 2)) < 0.2, 5, 1) * rng.normal(1, 0.3, (n, 2))
        )[:, 0],
        lambda rng, n: np.diff(rng.exponential(1, (n, 2)))[:, 0],
        lambda rng, n: np.diff(np.log(rng.exponential(1, (n, 2))))[:, 0],
    ],
    ids=["normal", "heavy tails", "outliers", "skewed windows", "their logarithms"],
)
@pytest.mark.parametrize("n", [8, 20, 60])
def test_the_interval_covers_the_truth(draw, n):
    rng = np.random.default_rng(n)
    means = [blocks.mean_of_blocks([draw(rng, n)]) for _ in range(600)]
    covered = [low <= 0 <= high for low, high in (mean.ends() for mean in means)]
    # with 600 samples, a share of 0.95 has an error of ± 0.018
    assert 0.92 < np.mean(covered) < 0.98


@pytest.mark.filterwarnings("error")
def test_a_run_without_differences_does_not_divide_by_zero() -> None:
    still, moving = np.zeros((20, 2)), np.zeros((20, 2))
    moving[::2, 1] = 0.01
    estimate = crossover.effect([still, moving, still], 0, 1, Scale.DIFFERENCE)
    assert estimate.interval.estimate == pytest.approx(0.005 / 3)
    assert Doubt.RUNS_DIFFER not in estimate.doubts


def test_two_runs_that_differ_describe_only_themselves():
    runs = [table(normal(30, seed, mean), seed) for seed, mean in enumerate((0, 1))]
    estimate = effect(runs, 0, 1)
    assert Doubt.RUNS_DIFFER in estimate.doubts
    assert estimate.conditional
    assert estimate.interval.high - estimate.interval.low < 1
