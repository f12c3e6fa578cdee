"""Tests of benchmarks/designs.py: the order of runs, and the intervals of pairs."""

import designs
import numpy as np
import pytest
from scipy import stats

from sipsched.analysis.intervals import Interval
from sipsched.plan.run import Point

POINT = Point("local", "kamailio-udp", "baseline", 1, 8)
MODES = ("baseline", "enhanced")


def test_pairs_are_between_the_halves_in_alternating_order() -> None:
    runs = designs.order(POINT, MODES, 900, 3)
    both = ",".join(MODES)
    assert [(run.mode, run.rep) for run in runs] == [
        (both, 1),
        ("baseline", 1),
        ("enhanced", 1),
        ("enhanced", 2),
        ("baseline", 2),
        ("baseline", 3),
        ("enhanced", 3),
        (both, 2),
    ]
    assert len({run.path for run in runs}) == len(runs)


def test_pairs_have_the_t_interval_of_their_log_ratios() -> None:
    first = np.array([1.0, 2.0, 4.0, 3.0])
    second = np.array([2.0, 3.0, 9.0, 5.0])
    expected = stats.ttest_rel(np.log(second), np.log(first)).confidence_interval(0.95)
    of_pairs = designs.of_pairs(first, second)
    assert (of_pairs.low, of_pairs.high) == pytest.approx(expected)
    assert designs.half_width(of_pairs) == pytest.approx((expected.high - expected.low) / 2)
    assert np.isnan(designs.half_width(designs.of_pairs(first[:1], second[:1])))
    assert np.isnan(designs.half_width(Interval.without(0.1, 1)))


def test_the_interval_of_a_ratio_of_half_widths_covers_95_percent() -> None:
    rng = np.random.default_rng(1)
    truth, held = 0.25, 0
    for _ in range(1000):
        inner = truth * rng.normal(size=40).std(ddof=1)
        low, high = designs.by_chance(inner / rng.normal(size=5).std(ddof=1), 39, 4)
        held += low <= truth <= high
    assert 0.93 < held / 1000 < 0.97
