"""Tests of the comparison of a real machine with a calibrated guest."""

from dataclasses import replace

import notebook_inputs
import numpy as np
import pytest

from sipsched.analysis import calibration
from sipsched.analysis.intervals import Interval
from sipsched.pages import calibration as page


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return a comparison in which the guest's waits are half as long as the measured waits."""
    folder = tmp_path_factory.mktemp("calibration")
    return calibration.read(notebook_inputs.calibration(folder)["summaries"])


def one(compared, time, threads=2, cps=500):
    (found,) = (
        each
        for each in compared.times
        if (each.time, each.threads, each.cps) == (time, threads, cps)
    )
    return found


def test_a_time_is_measured_over_the_runs_and_predicted_by_the_guest(compared):
    waits = one(compared, "k_rcv_mean")

    assert waits.measured.estimate == pytest.approx(20, rel=1e-3)
    assert (waits.measured.low, waits.measured.high) == pytest.approx((19.8, 20.2))
    # The guest has only the first repetition, whose times are 1 % shorter.
    assert waits.predicted == pytest.approx(0.99 * 10)
    assert not waits.inside
    assert waits.error == pytest.approx(-0.505, abs=1e-3)


def test_cpu_time_is_the_sum_of_user_and_system_time_per_message(compared):
    assert one(compared, "user").measured.estimate == pytest.approx(30, rel=1e-3)
    assert one(compared, "system").measured.estimate == pytest.approx(20, rel=1e-3)
    assert one(compared, "cpu").measured.estimate == pytest.approx(50, rel=1e-3)
    assert one(compared, "cpu").inside


def test_the_setting_of_the_clock_is_no_test_of_the_guest(compared):
    assert one(compared, "cpu", 8, 900).fitted
    assert {(test.threads, test.cps) for test in compared.tests} == {(2, 500), (2, 900), (8, 500)}


def test_the_change_with_workers_comes_from_pairs_of_runs(compared):
    (waits,) = (each for each in compared.workers if (each.time, each.cps) == ("k_rcv_mean", 500))

    assert (waits.few, waits.many) == (2, 8)
    assert waits.measured.estimate == pytest.approx(2.5)
    assert waits.predicted == pytest.approx(2.5)


def test_a_predicted_change_is_inside_if_it_lies_between_the_measured_pairs():
    measured = Interval(1.2, 1.1, 1.3, 3)
    change = calibration.ComparedWorkers(2, 8, 500, "k_rcv_mean", measured, 1.25)

    assert change.inside
    assert not replace(change, predicted=1.35).inside
    assert not replace(change, predicted=np.nan).inside


def test_a_guest_without_runs_predicts_nothing(tmp_path):
    summaries = notebook_inputs.calibration(tmp_path)["summaries"]
    for missing in summaries:
        compared = calibration.read([path for path in summaries if path != missing])
        if missing.parts[-3] == "calibration_reference":
            assert not any(time.fitted for time in compared.times)
        else:
            assert page.answer(compared).line == page.NOTHING


def test_the_answer_names_the_direction_and_the_size_of_each_error(compared):
    text = page.answer(compared).line

    assert text.startswith("In part: 12 of 21 predictions lie between")
    assert "K_rcv is predicted 50\u00a0% too short." in text
