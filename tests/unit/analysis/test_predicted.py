"""Tests of predictions against measurements with known effects."""

import math

import numpy as np
import pytest
import synthetic
from synthetic import Run

from sipsched.analysis.advice import loads_of
from sipsched.analysis.predicted import Check, Contrast, check, replicates
from sipsched.records.fitted import Fitted
from sipsched.records.prediction import UNITS, Predicted, PredictedSetting, Predictions

FITTED = Fitted(sut="kamailio-udp", runs=("a", "b"), messages=1000, numbers={"switch_ns": 1})
LEVELS = dict(zip(UNITS, (300.0, 210.0, 200.0, 400.0, 500.0, 0.4, 70.0), strict=True))


def predicted(
    mode: str, effects: dict[str, float], replicates: int = 8, threads: int = 8
) -> Predicted:
    """Make a predicted setting, whose windows are the reference's windows, multiplied by e to the effects.

    `off_share` is added to the share of time off the CPU.
    """
    rng = np.random.default_rng(1)
    setting = PredictedSetting("kamailio-udp", mode, 1, threads, 1000, True)
    luck = 0.05 * rng.standard_normal((replicates, 6, 1))
    values = np.array(
        [
            level + effects.get(name, 0.0)
            if name == "off_share"
            else level * math.exp(effects.get(name, 0.0))
            for name, level in LEVELS.items()
        ]
    )
    windows = values * np.exp(luck)
    return Predicted(setting, windows.mean(axis=1), windows)


def checked(measured: dict[str, float], said: dict[str, float]) -> Check:
    """Compare the measured and the predicted change from `default` to `fifo`."""
    run = Run(mode="default,fifo")
    windows = synthetic.windows(run, {"default": {}, "fifo": measured})
    predictions = Predictions(FITTED, 6.0, (predicted("default", {}), predicted("fifo", said)))
    return check(predictions, loads_of([windows]), [])


def of(found: Check, quantity: str) -> Contrast:
    """Return the only comparison of prediction and measurement for a quantity."""
    (chosen,) = [contrast for contrast in found.contrasts if contrast.quantity == quantity]
    return chosen


def test_a_correct_prediction_lies_inside_with_the_right_sign() -> None:
    result = of(checked({"t_sip_mean": -0.4}, {"t_sip_mean": -0.4}), "t_sip_mean")
    assert result.predicted.estimate == pytest.approx(100 * math.expm1(-0.4))
    assert result.inside
    assert result.told
    assert result.sign_right
    assert result.overlaps


def test_a_wrong_prediction_lies_outside_with_the_wrong_sign() -> None:
    result = of(checked({"t_sip_mean": -0.4}, {"t_sip_mean": 0.4}), "t_sip_mean")
    assert not result.inside
    assert result.told
    assert not result.sign_right
    assert not result.overlaps


def test_equal_modes_have_no_predicted_sign() -> None:
    result = of(checked({}, {}), "t_sip_mean")
    assert result.inside
    assert not result.told
    assert result.predicted.estimate == 0


def test_time_off_cpu_is_compared_in_points() -> None:
    """Expect -20 points from 70 % to 50 % off the CPU: T_sip falls from 200 to 120 µs, with 60 µs of service."""
    measured = {"t_sip_mean": math.log(0.6)}
    result = of(checked(measured, {"off_share": -0.2}), "off_share")
    assert result.measured.low < -20 < result.measured.high
    assert result.predicted.estimate == pytest.approx(-20, abs=1)
    assert result.inside


def test_instances_with_other_numbers_of_workers_are_compared_with_their_predictions() -> None:
    mode = "default,default+threads=2,default+start=2"
    effects = {"default": {}, "default+threads=2": {"t_sip_mean": -0.4}, "default+start=2": {}}
    windows = synthetic.windows(Run(mode=mode), effects)
    several = (predicted("default", {}), predicted("default", {"t_sip_mean": -0.4}, threads=2))
    found = check(Predictions(FITTED, 6.0, several), loads_of([windows]), [])
    # A second start of the reference has the same setting, so nothing is predicted.
    assert {contrast.other.threads for contrast in found.contrasts} == {2}
    assert of(found, "t_sip_mean").inside
    assert of(found, "t_sip_mean").sign_right


def test_settings_without_a_prediction_are_excluded() -> None:
    windows = synthetic.windows(Run(mode="default,batch"), {"default": {}, "batch": {}})
    predictions = Predictions(FITTED, 6.0, (predicted("default", {}),))
    assert check(predictions, loads_of([windows]), []).contrasts == ()


def test_the_interval_of_replicates_contains_a_new_replicate() -> None:
    rng = np.random.default_rng(3)
    held = [
        result.low <= drawn[-1] <= result.high
        for drawn in rng.standard_normal((2000, 9))
        for result in [replicates(drawn[:-1])]
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_replicates_that_are_missing_give_no_number() -> None:
    assert replicates(np.array([np.nan, np.inf])).why == "not predicted"
    assert not replicates(np.array([1.0])).known
