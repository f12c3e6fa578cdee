"""Tests of the correction for several simultaneous tests (a family), on pairs of runs with known results."""

import numpy as np
import pytest
from scipy import stats

from sipsched.analysis.crossover import effect
from sipsched.analysis.families import ArmsToCompare, compare_together, effects_together

FIRST = np.array([10.0, 11.0, 12.0, 13.0])
PAIRS = {
    "lower": (FIRST, FIRST - [5.0, 5.1, 5.2, 4.9]),
    "a little lower": (FIRST, FIRST - [1.0, 0.4, 0.9, 0.3]),
    "the same": (FIRST, FIRST),
}
ALONE = (np.array([10.0, np.nan, np.nan, np.nan]), FIRST)


def test_each_comparison_is_corrected_for_the_number_of_comparisons():
    family = compare_together(PAIRS)
    assert list(family.cells) == list(PAIRS)
    assert family.tests == 3
    assert family.level == pytest.approx(1 - 0.05 / 3)
    lower = family.cells["lower"]
    assert lower.p_value == pytest.approx(3 * stats.ttest_rel(*np.log(PAIRS["lower"])).pvalue)
    assert lower.comparison.difference.level == family.level
    assert (lower.reference.estimate, lower.other.estimate) == pytest.approx((11.5, 6.45), rel=0.02)
    # the difference is significant as a single test, but not as one of several tests
    assert compare_together({1: PAIRS["a little lower"]}).cells[1].stands_out
    assert [cell.stands_out for cell in family.cells.values()] == [True, False, False]


def test_a_comparison_without_a_test_does_not_widen_the_others():
    family = compare_together(PAIRS | {"one pair": ALONE})
    assert family.tests == 3
    assert family.cells["lower"] == compare_together(PAIRS).cells["lower"]
    alone = family.cells["one pair"]
    assert np.isnan(alone.p_value)
    assert not alone.stands_out
    assert alone.comparison.difference.why == "too few for an interval"


def test_a_family_without_comparisons_is_empty():
    family = compare_together({})
    assert (family.tests, family.level, dict(family.cells)) == (0, 0.95, {})


def test_crossover_effects_are_corrected_for_the_number_of_all():
    rng = np.random.default_rng(1)
    reference = rng.lognormal(5, 1, 40)
    factors = np.exp(rng.normal([0, -0.5, 0.12, 0], 0.3, (40, 4)))
    windows = np.column_stack((reference, reference[:, None] * factors))
    asked = {arm: ArmsToCompare([windows], 0, arm) for arm in (2, 3, 4)}
    effects = effects_together(asked)
    assert list(effects.effects) == [2, 3, 4]
    assert effects.tests == 3
    alone = {arm: effect([windows], 0, arm) for arm in asked}
    for arm, judged in effects.effects.items():
        assert judged == effect([windows], 0, arm, tests=3)
        assert judged.p_value == pytest.approx(min(1, 3 * alone[arm].p_value))
        assert judged.interval.low < alone[arm].interval.low
        assert judged.detectable > alone[arm].detectable
    assert [judged.p_value <= 0.05 for judged in effects.effects.values()] == [True, False, False]


def test_an_effect_without_a_test_does_not_widen_the_others():
    windows = np.random.default_rng(2).lognormal(0, 1, (12, 2))
    asked = {"all": ArmsToCompare([windows], 0, 1), "one": ArmsToCompare([windows[:1]], 0, 1)}
    effects = effects_together(asked)
    assert effects.tests == 1
    assert effects.effects["all"] == effect([windows], 0, 1)
    assert np.isnan(effects.effects["one"].p_value)
    assert effects_together({}).tests == 0
