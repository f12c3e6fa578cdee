"""Tests of the adjustment of windows for disturbances, with known disturbances."""

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis import advice
from sipsched.analysis.blocks import mean_of_blocks
from sipsched.analysis.covariates import COVARIATES, adjust, adjusted
from sipsched.records.window_time import STOLEN, SWITCH

CALM = np.zeros(40, bool)


def windows(seed=1, blocks=40, effect=0.2, noise=0.05):
    """Return logarithms of windows with shape (block, mode). The second mode is higher by `effect`."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 1, (blocks, 1))
    return shared + np.array([0, effect, 0]) + rng.normal(0, noise, (blocks, 3)), rng


@pytest.mark.parametrize("shape", [lambda s: 8 * s, lambda s: np.log1p((s / 0.03) ** 2)])
def test_the_effect_of_a_disturbance_is_found_and_subtracted(shape):
    logs, rng = windows()
    shares = rng.exponential(0.05, logs.shape) * (rng.random(logs.shape) < 0.3)
    adjustment = adjust(np.exp(logs + shape(shares)), [shares], CALM, ratio=True)
    assert np.log(adjustment.table) == pytest.approx(logs, abs=0.1)
    assert (adjustment.weights == 1).all()


def test_the_previous_window_explains_the_inherited_queue():
    logs, rng = windows()
    shares, before = (rng.exponential(0.05, logs.shape) for _ in range(2))
    adjustment = adjust(np.exp(logs + 4 * shares + 2 * before), [shares, before], CALM, ratio=True)
    assert np.log(adjustment.table) == pytest.approx(logs, abs=0.1)


def test_a_quantity_that_may_be_0_is_adjusted_by_its_difference():
    rng = np.random.default_rng(2)
    rates, shares = rng.uniform(0, 0.01, (40, 3)), rng.exponential(0.05, (40, 3))
    adjustment = adjust(rates + 0.5 * shares, [shares], CALM, ratio=False)
    assert adjustment.table == pytest.approx(rates, abs=0.002)


def test_without_a_disturbance_nothing_changes():
    table = np.exp(windows()[0])
    table[3, 1] = np.nan
    for covariates in ([], [np.zeros((40, 3))]):
        adjustment = adjust(table, covariates, CALM, ratio=True)
        assert np.array_equal(adjustment.table, table, equal_nan=True)
        assert (adjustment.weights == 1).all()


def test_disturbed_blocks_are_weighted_by_their_scatter():
    logs, rng = windows()
    disturbed = np.arange(40) % 4 == 0
    logs[disturbed] += rng.normal(0, 0.5, (10, 3))
    adjustment = adjust(np.exp(logs), [], disturbed, ratio=True)
    assert (adjustment.weights[~disturbed] == 1).all()
    # the ratio of variances is (0.05 / 0.5)^2, estimated from 20 and from 60 numbers
    assert adjustment.weights[disturbed] == pytest.approx(np.full(10, 0.01), rel=0.7)
    alike = adjust(np.exp(windows()[0]), [], disturbed, ratio=True)
    assert (alike.weights > 0.4).all()


def test_unusable_windows_do_not_enter_the_regression():
    logs, rng = windows()
    shares = rng.exponential(0.05, logs.shape)
    table = np.exp(logs + 8 * shares)
    expected = adjust(
        np.delete(table, 5, axis=0), [np.delete(shares, 5, axis=0)], CALM[1:], ratio=True
    )
    table[5] = np.nan
    adjustment = adjust(table, [shares], CALM, ratio=True)
    assert np.isnan(adjustment.table[5]).all()
    assert np.delete(adjustment.table, 5, axis=0) == pytest.approx(expected.table)
    few = adjust(table[:2], [shares[:2]], CALM[:2], ratio=True)
    assert np.array_equal(few.table, table[:2])


def test_adjusting_keeps_an_effect_and_narrows_its_interval():
    """Over 100 runs, the effect is correct on average, and its interval is a third as wide as before."""
    estimates, widths = [], []
    for seed in range(100):
        logs, rng = windows(seed)
        shares = rng.exponential(0.1, logs.shape) * (rng.random(logs.shape) < 0.3)
        table = np.exp(logs + 5 * shares)
        tables = [table, adjust(table, [shares], CALM, ratio=True).table]
        means = [mean_of_blocks([np.log(table[:, 1] / table[:, 0])]) for table in tables]
        estimates.append(means[1].estimate)
        widths.append([np.diff(mean.ends())[0] for mean in means])
    assert np.mean(estimates) == pytest.approx(0.2, abs=4 * np.std(estimates) / 10)
    before, after = np.mean(widths, axis=0)
    assert after < before / 3


def test_blocks_with_stolen_time_count_and_blocks_with_failed_switches_do_not():
    effects = {"default": {}, "fifo": {"total_p99": -0.5}}
    left_out = {0: SWITCH} | dict.fromkeys(range(6, 12), STOLEN)
    run = synthetic.windows(Run(mode="default,fifo"), effects, left_out=left_out)
    stolen = np.where(run["left_out"] == STOLEN, 0.3, 0.0)
    disturbed = run.assign(dict.fromkeys(COVARIATES, ("window", stolen)))
    result = adjusted(disturbed, "total_p99", ratio=True)
    assert np.isnan(result.table).sum() == 1
    assert (result.weights[[0, 1, 4]] == 1).all()
    (load,) = advice.loads_of([disturbed])
    assert load.effect("fifo", "total_p99").blocks == (40,)
    # pages show the mean of undisturbed windows: two blocks are disturbed, and a switch to the mode may have failed
    failed = int(run["window_arm"][0] == 0)
    assert load.mean("default", "total_p99").n == 40 - 2 - failed
