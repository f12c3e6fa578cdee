"""Tests of the arrival certificate, on arrivals of a known law."""

import numpy as np
import pytest
from scipy import stats

from sipsched.errors import StableError
from sipsched.validity.certificate import WINDOWS_MS, certify, ks_p_value, variance_to_mean

RATE = 2000.0
CALLS = 40_000


def poisson(seed: int) -> np.ndarray:
    gaps = np.random.default_rng(seed).exponential(1e9 / RATE, CALLS)
    return np.cumsum(gaps).astype(np.int64)


def bursts_of_a_tick() -> np.ndarray:
    """Make calls as SIPp starts them: 8 calls at once every 4 ms."""
    return np.repeat(np.arange(CALLS // 8) * 4_000_000, 8) + np.tile(
        np.arange(8) * 5_000, CALLS // 8
    )


def test_poisson_arrivals_pass() -> None:
    certificate = certify(poisson(1), RATE, "exponential")
    assert certificate.ks_distance is not None
    assert certificate.ks_distance < 0.012
    assert certificate.cv == pytest.approx(1, abs=0.02)
    assert certificate.achieved_cps == pytest.approx(RATE, rel=0.02)
    assert certificate.variance_to_mean[0] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("starts", [poisson(4), bursts_of_a_tick()], ids=["poisson", "bursts"])
def test_distance_and_p_value_are_those_of_scipy(starts: np.ndarray) -> None:
    certificate = certify(starts, RATE, "exponential")
    test = stats.kstest(np.diff(starts) / 1e9, stats.expon(scale=1 / RATE).cdf, method="asymp")
    assert certificate.ks_distance is not None
    assert certificate.ks_distance == pytest.approx(test.statistic, abs=1e-12)
    assert ks_p_value(certificate.ks_distance, starts.size - 1) == pytest.approx(
        test.pvalue, abs=1e-9
    )


def test_the_p_value_is_uniform_under_the_law() -> None:
    result = [certify(poisson(seed), RATE, "exponential") for seed in range(60)]
    p = [ks_p_value(one.ks_distance or np.nan, one.distinct_gaps) for one in result]
    assert 0.3 < np.mean(p) < 0.7
    assert np.mean(np.array(p) < 0.05) < 0.2


def test_bursts_on_a_tick_are_detected() -> None:
    certificate = certify(bursts_of_a_tick(), RATE, "exponential")
    assert certificate.ks_distance is not None
    assert certificate.ks_distance > 0.5
    assert certificate.cv > 2
    # one of four windows of 1 ms has all eight calls, so variance / mean = 8 - 2
    assert certificate.variance_to_mean[WINDOWS_MS.index(1)] == pytest.approx(6, abs=0.1)
    # windows of 4 ms hide the bursts, because each window has one burst
    assert certificate.variance_to_mean[WINDOWS_MS.index(4)] == pytest.approx(0, abs=0.01)


def test_constant_law_has_no_distribution_to_test() -> None:
    certificate = certify((np.arange(1000) * 500_000).astype(np.int64), RATE, "constant")
    assert certificate.ks_distance is None
    assert certificate.cv == pytest.approx(0, abs=1e-12)


def test_lateness() -> None:
    intended = poisson(2)
    late = np.full(CALLS, 10_000)
    late[: CALLS // 20] = 500_000
    certificate = certify(intended + late, RATE, "exponential", intended)
    assert certificate.lateness_p50_us == pytest.approx(10)
    assert certificate.lateness_p99_us == pytest.approx(500)
    assert certificate.lateness_max_us == pytest.approx(500)


def test_order_does_not_matter() -> None:
    starts = poisson(3)
    shuffled = np.random.default_rng(0).permutation(starts)
    one, other = certify(shuffled, RATE, "exponential"), certify(starts, RATE, "exponential")
    assert (one.ks_distance, one.cv, one.variance_to_mean) == (
        other.ks_distance,
        other.cv,
        other.variance_to_mean,
    )


def test_a_short_load_has_no_certificate_instead_of_a_wrong_one() -> None:
    assert variance_to_mean(np.array([0, 1_000_000]), [100]) == (None,)
    with pytest.raises(StableError, match="at least two"):
        certify(np.array([1]), RATE, "exponential")


def test_unknown_law() -> None:
    with pytest.raises(StableError, match="unknown law 'pareto'"):
        certify(poisson(1), RATE, "pareto")
