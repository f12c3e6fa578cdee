"""Tests of the capacity estimate for a machine whose speed drifts."""

import numpy as np
import pytest

from sipsched.analysis.capacity.drift import Observations, fit

LIMIT = 0.01


def observations(
    cps: list[float], loss: list[float], cpu_us: list[float] | None = None, gap_s: float = 10
) -> Observations:
    """Return trials that follow each other without a gap."""
    n = len(cps)
    return Observations(
        np.arange(n) * gap_s,
        np.array(cps, float),
        np.array(loss, float),
        np.full(n, np.nan) if cpu_us is None else np.array(cpu_us, float),
        np.full(n, np.nan),
    )


def machine(
    seed: int, spread: float, gap_s: float, n: int = 24, true_cps: float = 1700
) -> Observations:
    """Simulate trials at five loads on a machine whose speed drifts with a time constant of 300 s."""
    rng = np.random.default_rng(seed)
    kept = np.exp(-gap_s / 300)
    speed = [rng.normal()]
    for _ in range(n - 1):
        speed.append(kept * speed[-1] + np.sqrt(1 - kept**2) * rng.normal())
    cps = np.tile([1000.0, 1500, 1700, 1900, 2200], n)[:n]
    own = true_cps * np.exp(spread * np.array(speed) + 0.03 * rng.normal(size=n))
    loss = np.clip(LIMIT * (cps / own) ** 20, 0, 0.5)
    loss[loss < LIMIT / 50] = 0
    cpu_us = 90 * true_cps / own
    return observations(cps.tolist(), loss.tolist(), cpu_us.tolist(), gap_s)


def test_trials_on_both_sides_enclose_the_capacity() -> None:
    """The capacity lies between the loads without drops and the loads with many drops."""
    result = fit(observations([1400, 1500, 1700, 1800] * 4, [0, 0, 0.1, 0.2] * 4), LIMIT)
    assert 1500 < result.estimate_cps < 1700
    assert result.low_cps > 1300 and result.high_cps < 1900


def test_a_load_that_drops_exactly_the_limit_is_the_capacity() -> None:
    """A load whose drop rate repeatedly equals the limit is the capacity."""
    result = fit(observations([1400, 1600, 1600, 1600, 1600, 1600], [0, *[LIMIT] * 5]), LIMIT)
    assert result.estimate_cps == pytest.approx(1600, rel=0.02)


def test_trials_spread_over_a_day_narrow_the_interval() -> None:
    """Trials within a minute share the machine's speed, so they determine the capacity less precisely."""
    cps, loss = [1500.0, 1650, 1800] * 4, [0.0005, 0.01, 0.08] * 4
    minute, day = (fit(observations(cps, loss, gap_s=gap), LIMIT) for gap in (5, 7200))
    assert np.log(minute.high_cps / minute.low_cps) > 1.1 * np.log(day.high_cps / day.low_cps)


def test_the_cpu_time_per_message_explains_part_of_the_drift() -> None:
    """If only trials with a high CPU time per message drop messages, CPU time explains most of the scatter."""
    cps, loss = [1600.0] * 12, [0.0001, 0.1] * 6
    blind = fit(observations(cps, loss), LIMIT)
    told = fit(observations(cps, loss, [90, 106] * 6), LIMIT)
    assert told.share_of_speed > 0.9 and blind.share_of_speed == 0
    assert told.scatter < 0.9 * blind.scatter


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_interval_contains_the_capacity_of_a_drifting_machine(spread: float) -> None:
    """In nearly all of 15 campaigns on a machine that drifts by 10 %, the interval contains the capacity."""
    result = [fit(machine(seed, spread, gap_s=25), LIMIT) for seed in range(15)]
    held = sum(each.low_cps <= 1700 <= each.high_cps for each in result)
    assert held >= 13


def test_the_order_of_trials_does_not_matter() -> None:
    """The estimate is the same for any order of the trials."""
    given = machine(1, 0.1, gap_s=25)
    turned = Observations(*(values[::-1] for values in given))
    assert fit(turned, LIMIT) == fit(given, LIMIT)
