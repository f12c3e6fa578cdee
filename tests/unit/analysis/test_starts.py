import numpy as np
import pytest

from sipsched.analysis.crossover import Scale
from sipsched.analysis.starts import effect_of_starts

BLOCKS = 20


def played(rng: np.random.Generator, effect: float, luck: float, noise: float = 0.1) -> np.ndarray:
    """Return a run with two starts of the proxy per setting. Starts with equal settings differ by chance."""
    of_starts = luck * rng.standard_normal(4) + [0, 0, effect, effect]
    shared = rng.standard_normal((BLOCKS, 1))
    return np.exp(of_starts + shared + noise * rng.standard_normal((BLOCKS, 4)))


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("luck", [0.0, 0.02, 0.5])
def test_the_interval_contains_the_effect_in_95_percent_of_cases(luck: float, runs: int) -> None:
    rng = np.random.default_rng(1)
    found = [
        effect_of_starts([played(rng, 0.03, luck) for _ in range(runs)], (0, 1), (2, 3))
        for _ in range(2000)
    ]
    covered = np.mean([each.low <= 0.03 <= each.high for each in found])
    # the standard error of the share is 0.5 %
    assert 0.935 < covered < 0.965
    assert np.mean([each.estimate for each in found]) == pytest.approx(0.03, abs=0.05)
    assert all(each.n == 4 * runs for each in found)


def test_the_ends_are_those_of_a_two_sample_t_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    table = np.tile([1.0, 1.2, 2.0, 2.6, 2.3], (3, 1))
    found = effect_of_starts([table], (0, 1), (2, 3, 4), Scale.DIFFERENCE)
    known = stats.ttest_ind([2.0, 2.6, 2.3], [1.0, 1.2]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


def test_blocks_with_an_excluded_window_are_left_out() -> None:
    table = np.tile([1.0, 1.1, 2.0, 2.1], (4, 1))
    disturbed = np.vstack([table, [50.0, np.nan, 2.0, 2.0]])
    weights = [np.ones(5)]
    found = effect_of_starts([disturbed], (0, 1), (2, 3), weights=weights)
    assert found == effect_of_starts([table], (0, 1), (2, 3))
    assert not effect_of_starts([np.full((4, 4), np.nan)], (0, 1), (2, 3)).known


def test_one_start_per_setting_has_no_interval() -> None:
    found = effect_of_starts([np.tile([1.0, 2.0], (4, 1))], (0,), (1,))
    assert found.estimate == pytest.approx(np.log(2))
    assert not found.known
