"""Comparisons corrected together, on pairs whose tests are known."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from sipsched.analysis.crossover import effect
from sipsched.analysis.families import Asked, compare_together, effects_together

FIRST = np.array([10.0, 11.0, 12.0, 13.0])
PAIRS = {
    "lower": (FIRST, FIRST - [5.0, 5.1, 5.2, 4.9]),
    "a little lower": (FIRST, FIRST - [1.0, 0.4, 0.9, 0.3]),
    "the same": (FIRST, FIRST),
}
ALONE = (np.array([10.0, np.nan, np.nan, np.nan]), FIRST)


def test_each_is_corrected_for_the_number_of_all():
    found = compare_together(PAIRS)
    assert list(found.cells) == list(PAIRS)
    assert found.tests == 3
    assert found.level == pytest.approx(1 - 0.05 / 3)
    lower = found.cells["lower"]
    assert lower.p_value == pytest.approx(3 * stats.ttest_rel(*np.log(PAIRS["lower"])).pvalue)
    assert lower.comparison.difference.level == found.level
    assert (lower.reference.estimate, lower.other.estimate) == pytest.approx((11.5, 6.45), rel=0.02)
    # alone it would stand out, beside others it does not
    assert compare_together({1: PAIRS["a little lower"]}).cells[1].stands_out
    assert [cell.stands_out for cell in found.cells.values()] == [True, False, False]


def test_what_cannot_be_tested_costs_the_others_nothing():
    found = compare_together(PAIRS | {"one pair": ALONE})
    assert found.tests == 3
    assert found.cells["lower"] == compare_together(PAIRS).cells["lower"]
    alone = found.cells["one pair"]
    assert np.isnan(alone.p_value)
    assert not alone.stands_out
    assert alone.comparison.difference.why == "too few for an interval"


def test_nothing_to_compare():
    found = compare_together({})
    assert (found.tests, found.level, dict(found.cells)) == (0, 0.95, {})


def test_crossover_effects_are_corrected_for_the_number_of_all():
    rng = np.random.default_rng(1)
    reference = rng.lognormal(5, 1, 40)
    factors = np.exp(rng.normal([0, -0.5, 0.12, 0], 0.3, (40, 4)))
    windows = np.column_stack((reference, reference[:, None] * factors))
    asked = {arm: Asked([windows], 0, arm) for arm in (2, 3, 4)}
    found = effects_together(asked)
    assert list(found.effects) == [2, 3, 4]
    assert (found.tests, found.level) == (3, pytest.approx(1 - 0.05 / 3))
    alone = {arm: effect([windows], 0, arm) for arm in asked}
    p_values = [each.p_value for each in alone.values()]
    assert [each.p_value for each in found.effects.values()] == pytest.approx(
        list(multipletests(p_values, method="holm")[1])
    )
    for arm, judged in found.effects.items():
        interval = judged.effect.interval
        assert interval == effect([windows], 0, arm, level=found.level).interval
        assert interval.low < alone[arm].interval.low
        assert judged.effect.detectable > alone[arm].detectable
        assert judged.p_randomisation >= alone[arm].p_randomisation
    assert [judged.stands_out for judged in found.effects.values()] == [True, False, False]


def test_a_crossover_effect_without_a_test_costs_the_others_nothing():
    windows = np.random.default_rng(2).lognormal(0, 1, (12, 2))
    asked = {"all": Asked([windows], 0, 1), "one": Asked([windows[:1]], 0, 1)}
    found = effects_together(asked)
    assert (found.tests, found.level) == (1, 0.95)
    assert found.effects["all"].effect == effect([windows], 0, 1)
    assert not found.effects["one"].stands_out
    assert effects_together({}).tests == 0
