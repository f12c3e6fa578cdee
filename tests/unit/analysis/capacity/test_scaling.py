"""Tests of the laws that predict capacity from the number of cores, against the papers and known parameters."""

import functools

import numpy as np
import pytest

from sipsched.analysis.capacity import scaling
from sipsched.errors import StableError

PROCESSORS = {6: 2}


def test_the_papers_model_reproduces_the_papers_numbers():
    # section V of the paper states 4, 6 and 6 threads, and 1000 cps with one core and one thread
    assert [scaling.paper_threads(p, c) for p, c in ((1, 2), (1, 4), (2, 6))] == [4, 6, 6]
    assert scaling.paper_threads(1, 1) * scaling.PAPER_SINGLE_CORE_CPS == 1000
    with pytest.raises(StableError, match="found 2 processors and 1 cores"):
        scaling.paper_threads(2, 1)


def test_scaling_law_recovers_its_parameters():
    cores = np.array([1, 2, 3, 4, 6, 8])
    fit_scaling = scaling.fit_scaling(
        cores, scaling.scaling_law(cores, 1000, 0.08, 0.004), resamples=9
    )
    law = (
        fit_scaling.single_cps,
        fit_scaling.contention,
        fit_scaling.coherency,
        fit_scaling.peak_cores,
    )
    truth = (1000, 0.08, 0.004, np.sqrt(0.92 / 0.004))
    assert [each.estimate for each in law] == pytest.approx(truth, rel=1e-4)
    assert fit_scaling.predict(10).estimate == pytest.approx(
        scaling.scaling_law(10, 1000, 0.08, 0.004), rel=1e-4
    )


def test_scaling_law_with_noise_has_intervals_and_wider_predictions():
    rng = np.random.default_rng(2)
    cores = np.array([1, 2, 3, 4, 6, 8])
    cps = scaling.scaling_law(cores, 1000, 0.08, 0.004) + rng.normal(0, 50, 6)
    fit_scaling = scaling.fit_scaling(cores, cps, resamples=199)
    for each, truth in zip(
        (fit_scaling.single_cps, fit_scaling.contention, fit_scaling.coherency),
        (1000, 0.08, 0.004),
        strict=True,
    ):
        assert each.low < truth < each.high
    inside, outside = fit_scaling.predict(5), fit_scaling.predict(24)
    assert inside.low < scaling.scaling_law(5, 1000, 0.08, 0.004) < inside.high
    assert outside.high - outside.low > 3 * (inside.high - inside.low)
    assert fit_scaling.predict(5) == scaling.fit_scaling(cores, cps, resamples=199).predict(5)


def test_a_scaling_law_with_few_points_has_no_interval():
    three = scaling.fit_scaling([2, 4, 6, 8], [4400, 5400, 6600, np.nan])
    assert three.single_cps.why == "too few points for an interval (points minus parameters: 0)"
    assert three.predict(8).why == "too few points for an interval (points minus parameters: 0)"
    assert three.peak_cores.estimate == np.inf
    amdahl = scaling.fit_scaling([1, 2], [1000, 1900], contention_only=True)
    assert amdahl.contention.estimate == pytest.approx(2 * 1000 / 1900 - 1, rel=1e-4)
    assert (amdahl.coherency.estimate, amdahl.coherency.why) == (0, "held at 0")
    with pytest.raises(StableError, match="at least 3 different numbers of cores, found 2"):
        scaling.fit_scaling([2, 2, 4], [4400, 4300, 5400])


def test_papers_rule_fitted_to_the_papers_capacities():
    rule = scaling.fit_rule([2, 4, 6], [4400, 5400, 6600], PROCESSORS)
    # T = 4, 6, 6: C(1,1) = (4 · 4400 + 6 · 5400 + 6 · 6600) / 88
    assert rule.single_cps.estimate == pytest.approx(89_600 / 88)
    assert rule.single_cps.low < 1000 < rule.single_cps.high
    eight = rule.predict(8)
    assert eight.estimate == pytest.approx(10 * 89_600 / 88)
    assert eight.low < 10 * rule.single_cps.low < 10 * rule.single_cps.high < eight.high
    two = scaling.fit_rule([2, 4], [4400, 5400], PROCESSORS)
    assert two.predict(6).why == "too few points for an interval (points minus parameters: 1)"
    with pytest.raises(StableError, match="found 0"):
        scaling.fit_rule([], [], PROCESSORS)


def test_the_interval_of_the_papers_rule_covers_new_measurements():
    rng = np.random.default_rng(3)
    cores = np.array([1, 2, 4, 6, 8])
    threads = np.array([1, 4, 6, 8, 10])
    held = 0
    for _ in range(400):
        prediction = scaling.fit_rule(cores, 1000 * threads + rng.normal(0, 200, 5), {}).predict(12)
        held += prediction.low < 14_000 + rng.normal(0, 200) < prediction.high
    assert 0.92 < held / 400 < 0.98


def test_leave_one_out_of_the_papers_capacities():
    cores, cps = [2, 4, 6], [4400, 5400, 6600]
    rule = functools.partial(scaling.fit_rule, processors=PROCESSORS)
    papers = scaling.leave_one_out(cores, cps, rule)
    # Without 2 cores: C(1,1) = (6 · 5400 + 6 · 6600) / 72 = 1000, so 4000 cps are predicted
    assert papers[0] == pytest.approx(-100 / 11)
    assert np.isnan(scaling.leave_one_out(cores, cps, scaling.fit_scaling)).all()
    exact = scaling.scaling_law(np.array([1, 2, 4, 8, 16]), 1000, 0.1, 0)
    amdahl = functools.partial(scaling.fit_scaling, contention_only=True, resamples=0)
    errors = scaling.leave_one_out([1, 2, 4, 8, 16], exact, amdahl)
    assert errors == pytest.approx([0] * 5, abs=1e-3)
