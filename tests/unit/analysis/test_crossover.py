"""Effects of crossover runs against scipy, statsmodels and known truth."""

import warnings

import numpy as np
import pytest
import statsmodels.api
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import signal, stats
from statsmodels.stats.diagnostic import acorr_ljungbox
from statsmodels.stats.power import TTestPower

from sipsched.analysis import blocks, crossover
from sipsched.analysis.crossover import Doubt, Scale, change, effect, percent
from sipsched.errors import StableError


def table(differences, seed=0):
    """Make windows whose log ratios in blocks are these, over arrivals that both arms share."""
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
    found = effect([table(normal(60))], 0, 1)
    assert found.interval.estimate == pytest.approx(normal(60).mean())
    assert found.interval.low < normal(60).mean() < found.interval.high
    assert (found.blocks, found.runs, found.conditional) == ((60,), 1, True)
    assert found.interval == found.here
    assert percent(found.interval).estimate == pytest.approx(
        100 * np.expm1(found.interval.estimate)
    )
    assert "cosine transforms" in found.interval.method


def test_with_all_cosine_transforms_and_no_skewness_the_interval_is_students():
    # blocks that alternate are not taken for independent ones less than they are
    values = np.tile([1.0, -1.0], 10) * np.repeat([1.0, 3.0], 10) + 0.3
    found = blocks.mean_of_blocks([values])
    assert found.df == 19
    assert found.error == pytest.approx(stats.sem(values))
    plain = blocks.Mean(found.estimate, found.error, found.df)
    expected = stats.ttest_1samp(values, 0)
    assert plain.p_value() == pytest.approx(expected.pvalue)
    assert plain.ends(0.9) == pytest.approx(tuple(expected.confidence_interval(0.9)))


def test_the_variance_of_dependent_blocks_is_that_of_the_literature():
    noise = np.random.default_rng(3).normal(size=4100)
    values = signal.lfilter([1], [1, -0.6], noise)[100:]
    newey_west = statsmodels.api.OLS(values, np.ones(4000)).fit(
        cov_type="HAC", cov_kwds={"maxlags": 60}
    )
    found = blocks.mean_of_blocks([values])
    assert found.error == pytest.approx(newey_west.bse[0], rel=0.15)
    assert found.error > 1.7 * stats.sem(values)


@pytest.mark.parametrize("n", [2, 5, 6, 13, 40, 50, 51, 80])
def test_signed_rank_interval_is_dual_to_scipys_wilcoxon_test(n):
    values = np.random.default_rng(n).normal(0.1, 1, n)
    estimate, low, high = blocks.hodges_lehmann(values)
    averages = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert estimate == pytest.approx(np.median(averages))
    if n < 6:
        assert np.isnan([low, high]).all()
        return
    method = "exact" if n <= 50 else "asymptotic"
    for end, inward in ((low, 1e-9), (high, -1e-9)):
        inside = stats.wilcoxon(values - (end + inward), method=method).pvalue
        outside = stats.wilcoxon(values - (end - inward), method=method).pvalue
        assert outside <= 0.051
        assert inside >= 0.049
        assert outside < inside


@pytest.mark.parametrize("n", [2, 7, 12])
def test_sign_flips_are_scipys_permutation_test(n):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    expected = stats.permutation_test(
        (values,),
        lambda x, axis: x.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert blocks.sign_flip_p_value(values) == pytest.approx(expected.pvalue)


def test_drawn_sign_flips_come_near_to_the_exact_ones():
    values = np.random.default_rng(4).normal(0.4, 1, 14)
    exact = blocks.sign_flip_p_value(values)
    assert blocks.sign_flip_p_value(values, resamples=8000) == pytest.approx(exact, abs=0.01)
    assert blocks.sign_flip_p_value(values, 8000, 1) == blocks.sign_flip_p_value(values, 8000, 1)
    assert blocks.sign_flip_p_value(np.full(200, 1.0)) == 1 / 10_000


def test_autocorrelation_is_statsmodels():
    values = np.random.default_rng(5).normal(size=80).cumsum()
    found = blocks.autocorrelation([values])
    expected = acorr_ljungbox(values, lags=[5])
    assert found.lags[:2] == pytest.approx(statsmodels.api.tsa.acf(values, nlags=2)[1:])
    assert found.p_value == pytest.approx(expected["lb_pvalue"].item())
    assert found.found
    assert not blocks.autocorrelation([normal(80)]).found
    assert not blocks.autocorrelation([values[:7]]).lags.size


@pytest.mark.parametrize("df", [3, 19, 80])
def test_the_smallest_effect_that_could_have_been_seen_is_statsmodels(df):
    n = df + 1
    found = blocks.Mean(0.0, 1 / np.sqrt(n), df).detectable()
    assert found == pytest.approx(TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8), rel=1e-3)


def test_a_block_without_one_of_its_windows_counts_for_the_pairs_that_do_not_need_it():
    whole = np.column_stack((table(normal(20)), table(normal(20, 1))[:, 1]))
    gap = whole.copy()
    gap[3, 1] = np.nan
    assert effect([gap], 0, 1) == effect([np.delete(whole, 3, axis=0)], 0, 1)
    assert effect([gap], 0, 2) == effect([whole], 0, 2)
    gap[5, 0] = np.nan
    assert effect([gap], 0, 1).blocks == (18,)


def test_one_run_and_two_speak_of_themselves_and_three_of_all():
    runs = [table(normal(30, seed), seed) for seed in range(3)]
    means = np.array([normal(30, seed).mean() for seed in range(3)])
    two, three = effect(runs[:2], 0, 1), effect(runs, 0, 1)
    assert two.conditional
    assert two.interval == two.here
    low, high = stats.t.interval(0.95, 1, means[:2].mean(), stats.sem(means[:2]))
    assert (two.across.low, two.across.high) == pytest.approx((low, high))
    assert not three.conditional
    assert three.interval == three.across
    assert three.interval.estimate == pytest.approx(means.mean())
    assert np.isnan(effect(runs[:1], 0, 1).across.low)
    low, high = stats.t.interval(0.95, 2, means.mean(), stats.sem(means))
    assert three.interval.low == pytest.approx(min(low, three.here.low))
    assert three.interval.high == pytest.approx(max(high, three.here.high))


def test_runs_that_agree_more_closely_than_their_blocks_allow_do_not_narrow_it():
    found = effect([table(normal(30))] * 3, 0, 1)
    assert (found.across.low, found.across.high) == (found.here.low, found.here.high)
    assert found.p_value == pytest.approx(blocks.mean_of_blocks([normal(30)] * 3).p_value())
    assert blocks.Mean(0.2, 0.0, 2).p_value() == 0
    assert blocks.Mean(0.0, 0.0, 2).p_value() == 1


def test_skewness_moves_the_end_on_its_side_as_hall_has_it():
    values = np.random.default_rng(6).lognormal(0, 1, 40)
    found = blocks.mean_of_blocks([values])
    a, t = stats.skew(values) / np.sqrt(40), stats.t(39).ppf(0.975)
    end = found.high_stretch * t
    assert -end + a / 3 * end**2 - a**2 / 27 * end**3 + a / 6 == pytest.approx(-t)
    assert found.low_stretch == 1
    heavier = np.append(values, 9.0)
    assert 1.25 < blocks.mean_of_blocks([heavier]).high_stretch < 2
    assert Doubt.SKEWED in effect([table(heavier)], 0, 1).doubts
    assert blocks.mean_of_blocks([np.append(values, 200.0)]).high_stretch == 2
    assert Doubt.SKEWED not in effect([table(normal(40))], 0, 1).doubts
    mirrored = blocks.mean_of_blocks([-values])
    assert (mirrored.low_stretch, mirrored.high_stretch) == (found.high_stretch, 1)


def test_runs_that_differ_are_seen_and_make_it_wider():
    alike = [table(normal(30, seed), seed) for seed in range(4)]
    apart = [table(normal(30, seed, mean), seed) for seed, mean in enumerate((0, 0.5, 1, 0.2))]
    assert Doubt.RUNS_DIFFER not in effect(alike, 0, 1).doubts
    found = effect(apart, 0, 1)
    assert Doubt.RUNS_DIFFER in found.doubts
    means = [normal(30, seed, mean).mean() for seed, mean in enumerate((0, 0.5, 1, 0.2))]
    expected = stats.ttest_1samp(means, 0)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert ends(found.interval)[1:] == pytest.approx(tuple(expected.confidence_interval()))
    assert found.robust.high - found.robust.low > 0.5


def test_a_run_of_one_block_is_not_combined():
    runs = [table(normal(30)), table(normal(1))]
    found = effect(runs, 0, 1)
    assert (found.blocks, found.runs) == ((30, 1), 1)
    assert found.interval == effect(runs[:1], 0, 1).interval


def test_what_may_be_0_is_compared_by_its_difference():
    pdr = np.zeros((40, 2))
    pdr[::3, 1] = np.random.default_rng(2).uniform(0.01, 0.05, 14)
    found = effect([pdr], 0, 1, Scale.DIFFERENCE)
    assert found.interval.estimate == pytest.approx(pdr[:, 1].mean())
    assert found.interval.low > 0
    assert Doubt.FEW_CHANGED not in found.doubts
    pdr[:30] = 0
    few = effect([pdr], 0, 1, Scale.DIFFERENCE)
    assert Doubt.FEW_CHANGED in few.doubts
    # all averages of the middle are 0: an interval without width would be no knowledge
    assert (few.robust.estimate, few.robust.why) == (0, crossover.MOST_EQUAL)


def test_one_block_that_makes_the_spread_is_told():
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
        ([np.full((9, 2), 3.0)], Scale.RATIO, "no interval, since all blocks are equal", 1),
        ([np.zeros((9, 2))], Scale.DIFFERENCE, "no interval, since all blocks are equal", 1),
        ([np.full((9, 2), -0.0)], Scale.DIFFERENCE, "no interval, since all blocks are equal", 1),
        ([np.tile([1.0, 2.0], (9, 1))], Scale.RATIO, crossover.NO_SPREAD, None),
        ([np.zeros((9, 2))], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.full((9, 2), -0.0)], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.tile([1.0, -2.0], (9, 1))], Scale.RATIO, crossover.NO_LOGARITHM, None),
        ([np.tile([1.0, np.inf], (9, 1))], Scale.DIFFERENCE, crossover.NOT_FINITE, None),
    ],
)
def test_what_tells_nothing_says_why(windows, scale, why, p_value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = effect(windows, 0, 1, scale)
    for interval in (found.interval, found.here, found.across, found.robust):
        assert interval.why
        assert np.isnan([interval.low, interval.high]).all()
    assert found.interval.why == why
    assert found.p_value == p_value or (p_value is None and np.isnan(found.p_value))
    assert np.isnan(found.detectable)


@pytest.mark.parametrize("windows", [np.ones(4), np.ones((4, 1)), np.ones((2, 2, 2))])
def test_a_table_of_another_shape_is_an_error(windows):
    with pytest.raises(StableError, match=r"expected a table \(block, arm\)"):
        effect([windows], 0, 1)
    with pytest.raises(StableError, match="same runs and blocks"):
        change([np.ones((4, 2))], [np.ones((5, 2))], 0, 1)


def test_two_washouts_are_compared_block_by_block():
    differences = normal(60)
    short, long = table(differences), table(differences * 0.99 + 0.1)
    found = change([short], [long], 0, 1)
    # far less than what either estimate is known to
    assert found.moved.interval.estimate == pytest.approx(0.1 - 0.01 * differences.mean())
    assert found.told_from_0
    assert found.beyond_interval == (
        not found.first.interval.low <= found.second.interval.estimate <= found.first.interval.high
    )
    noise = np.random.default_rng(9).normal(0, 0.1, 60)
    assert not change([short], [table(differences + noise - noise.mean())], 0, 1).told_from_0
    # a constant factor on both arms changes nothing, and rounding is no movement
    same = change([short], [short * 1.01], 0, 1)
    assert same.moved.interval.why == crossover.NO_SPREAD
    assert not (same.told_from_0 or same.beyond_interval)


def test_a_change_leaves_out_what_one_of_the_two_lacks():
    short, long = table(normal(20)), table(normal(20) * 1.1)
    short[2, 0], long[3, 1] = np.nan, np.nan
    found = change([short], [long], 0, 1)
    assert (found.first.blocks, found.second.blocks, found.moved.blocks) == ((19,), (19,), (18,))


@given(tables, st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_a_ratio_has_no_unit(windows, factor):
    found, scaled = effect([windows], 0, 2), effect([windows * factor], 0, 2)
    for one, other in ((found.interval, scaled.interval), (found.robust, scaled.robust)):
        assert one.why == other.why
        assert ends(one) == pytest.approx(ends(other), nan_ok=True, rel=1e-6, abs=1e-8)


@given(tables, st.sampled_from(Scale))
@settings(max_examples=60, deadline=None)
def test_the_other_way_round_is_the_negative(windows, scale):
    one, other = effect([windows], 0, 1, scale), effect([windows], 1, 0, scale)
    for first, second in ((one.interval, other.interval), (one.robust, other.robust)):
        assert ends(first) == pytest.approx(
            (-second.estimate, -second.high, -second.low), nan_ok=True, rel=1e-9, abs=1e-12
        )
    assert one.p_value == pytest.approx(other.p_value, nan_ok=True, abs=1e-9)
    assert one.p_randomisation == pytest.approx(other.p_randomisation, nan_ok=True, abs=1e-3)


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_blocks_matters_to_their_dependence_only(windows, random):
    order = list(range(len(windows)))
    random.shuffle(order)
    one, other = effect([windows], 0, 1), effect([windows[order]], 0, 1)
    assert one.interval.estimate == pytest.approx(other.interval.estimate, nan_ok=True, abs=1e-12)
    assert one.robust.estimate == pytest.approx(other.robust.estimate, nan_ok=True, abs=1e-12)
    assert one.p_randomisation == pytest.approx(other.p_randomisation, nan_ok=True, abs=0.03)
    assert one.blocks == other.blocks


@given(series)
@settings(max_examples=100, deadline=None)
def test_the_p_value_is_that_of_the_interval(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = effect([np.column_stack((np.zeros(len(values)), values))], 0, 1, Scale.DIFFERENCE)
    if not found.interval.known:
        return
    low, high = found.interval.low, found.interval.high
    assert low <= found.interval.estimate <= high
    edge = 1e-9 * (high - low)
    if min(abs(low), abs(high)) > edge:
        assert (found.p_value <= 0.05) == (not low <= 0 <= high)


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng, n: rng.normal(0, 1, n), 0),
        (lambda rng, n: rng.standard_t(3, n), 0),
        (lambda rng, n: rng.lognormal(0, 1, n), np.exp(0.5)),
        (lambda rng, n: np.where(rng.random(n) < 0.2, 5, 1) * rng.normal(1, 0.3, n), 1.8),
        (lambda rng, n: signal.lfilter([1], [1, -0.6], rng.normal(0, 1, n + 50))[50:], 0),
    ],
    ids=["normal", "heavy tails", "skewed", "outliers", "dependent"],
)
@pytest.mark.parametrize("n", [20, 60])
def test_the_interval_covers_the_truth(draw, truth, n):
    rng = np.random.default_rng(n)
    means = [blocks.mean_of_blocks([draw(rng, n)]) for _ in range(600)]
    covered = [low <= truth <= high for low, high in (mean.ends() for mean in means)]
    # 600 draws tell a share of 0.9 to ± 0.024
    assert np.mean(covered) >= 0.9
    # and what holds is not bought by width alone
    assert np.mean(covered) < 0.99


@pytest.mark.filterwarnings("error")
def test_a_run_without_a_difference_beside_one_with_is_no_division_by_nothing() -> None:
    still, moving = np.zeros((20, 2)), np.zeros((20, 2))
    moving[::2, 1] = 0.01
    found = crossover.effect([still, moving, still], 0, 1, Scale.DIFFERENCE)
    assert found.interval.estimate == pytest.approx(0.005 / 3)
    assert Doubt.RUNS_DIFFER not in found.doubts
