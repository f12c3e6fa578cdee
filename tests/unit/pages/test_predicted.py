"""Tests of the page of predictions, with data and without data."""

import math
import re
from dataclasses import replace

import pytest

from sipsched.analysis.intervals import Interval
from sipsched.analysis.predicted import Check, Contrast
from sipsched.pages import plots, predicted
from sipsched.pages.parts import Words
from sipsched.records.fitted import CompetingPrograms, Fitted
from sipsched.records.prediction import PredictedSetting, Predictions

REFERENCE = PredictedSetting("kamailio-udp", "default", 1, 8, 1600, True)
FITTED = Fitted(
    sut="kamailio-udp",
    model="kamailio-qm",
    runs=("a", "b"),
    messages=47_997,
    numbers={"switch_ns": 8000, "service_ns": [0.0, 9.0, 2.0, 3.0, 4.0, 5.0, 6.0]},
    draws=({"switch_ns": 7000, "service_ns": [0.0, 8.0, 2.0, 3.0, 4.0, 5.0, 6.0]},),
)


def contrast(measured: float, said: float, p_value: float = 0.001, **changes: object) -> Contrast:
    """Make a comparison of a measured and a predicted change, with intervals of ± 5."""
    return Contrast(
        REFERENCE,
        replace(REFERENCE, **{"mode": "fifo", **changes}),
        "t_sip_mean",
        Interval(measured, measured - 5, measured + 5, 40),
        p_value,
        Interval(said, said - 5, said + 5, 8),
    )


def found(*contrasts: Contrast, fitted: Fitted = FITTED) -> predicted.CheckedPredictions:
    """Make the data of the page from comparisons of measured and predicted changes."""
    return predicted.CheckedPredictions(Check(Predictions(fitted, 6.0, ()), contrasts, ()))


def test_the_first_sentence_is_the_answer() -> None:
    page = found(contrast(-44, -42), contrast(20, -30), contrast(9, 2), contrast(1, 3, 0.6))
    line = predicted.answer(page).line
    assert line.startswith("In part: 2 of 4 predictions")
    assert re.findall(r"\d+ with the (right|wrong) sign", line) == ["right", "wrong"]
    assert re.findall(r"(\d+) with", line) == ["1", "1", "1"]
    second, _ = predicted.fitted_to(page).lines
    assert "fitted to 2 runs of the default mode (47\u202f997 messages)" in second


def test_the_page_shows_the_competitors_and_their_source() -> None:
    programs = CompetingPrograms("idle", 0, 150, 3_000), CompetingPrograms("other", 5, 300, 15_000)
    source = "the account of CPU time in 1 of 2 runs"
    with_both = replace(FITTED, competitors=programs, competitors_source=source)
    _, line = predicted.fitted_to(found(fitted=with_both)).lines
    assert source in line
    assert re.findall(r"[\d.]+(?=\u00a0%)", line) == ["5", "2"]
    assert re.findall(r"[\d.]+(?=\u00a0µs)", line) == ["150", "300"]
    assert re.findall(r"[\d.]+(?=\u00a0ms)", line) == ["3", "15"]
    reason = "no run of the fit has an account of CPU time"
    _, line = predicted.fitted_to(found(fitted=replace(FITTED, competitors_source=reason))).lines
    assert line.endswith(f"{reason}.")
    assert "%" not in line


@pytest.mark.parametrize(
    ("contrasts", "verdict"),
    [
        ([contrast(20, 21)] * 9 + [contrast(20, 40)], "Yes"),
        ([contrast(20, 21), contrast(20, 40)], "In part"),
        ([contrast(20, -21), contrast(20, -40)], "No"),
    ],
)
def test_the_answer_judges_intervals_and_signs(contrasts: list[Contrast], verdict: str) -> None:
    assert predicted.answer(found(*contrasts)).line.startswith(f"{verdict}: ")


def test_a_prediction_whose_interval_contains_zero_has_no_sign() -> None:
    right, unsigned = contrast(20, 21), contrast(20, 1)
    assert right.sign_right and not right.sign_wrong
    assert not (unsigned.signed or unsigned.sign_right or unsigned.sign_wrong)
    (row,) = predicted.by_kind(found(right, unsigned, contrast(20, -30))).rows
    assert row[4:8] == ("3", "1", "1", "1")


def test_a_second_start_of_a_proxy_is_named() -> None:
    first = contrast(-10, 40, mode="default", threads=16)
    rows = predicted.contrasts(found(first, replace(first, start=2))).rows
    assert rows[0][1] != rows[1][1]


def test_a_single_prediction_is_not_counted_as_one_of_one() -> None:
    assert predicted.answer(found(contrast(0, 0, p_value=0.9))).line.startswith(
        "Yes: the only prediction lies inside the 95\u00a0% interval of its measurement. No measured effect"
    )


@pytest.mark.parametrize(
    ("fitted", "contrasts", "words"),
    [
        (
            Fitted(why="no run of the default mode has its trace"),
            (),
            "no run of the default mode has its trace",
        ),
        (FITTED, (), "no run compares modes, and only one number of threads was measured"),
        (
            FITTED,
            (replace(contrast(1, 1), measured=Interval.without(1, 1)),),
            "the measured effects have no interval",
        ),
    ],
)
def test_without_a_comparison_the_page_says_why(
    fitted: Fitted, contrasts: tuple[Contrast, ...], words: str
) -> None:
    page = found(*contrasts, fitted=fitted)
    assert predicted.answer(page).line == f"There is no comparison yet: {words}."
    assert isinstance(predicted.figure(page), Words)
    assert predicted.misses(page).lines == (f"There is no comparison yet: {words}.",)
    for table in (predicted.by_kind(page), predicted.contrasts(page), predicted.levels(page)):
        assert table._repr_html_()


def test_failed_predictions_are_ordered_by_wrong_sign_and_distance() -> None:
    page = found(contrast(10, 30), contrast(20, -30), contrast(0, 90), contrast(1, 2))
    lines = predicted.misses(page).lines
    assert len(lines) == 3
    assert lines[0].startswith(
        "Prediction with the wrong sign: fifo at 1\u202f600 cps: the predicted change of the mean service time "
        "T_sip is −30 ("
    )
    assert "is +90" in lines[1]
    assert "is +30" in lines[2]


def test_predictions_of_zero_lie_inside_and_are_not_discussed() -> None:
    page = found(*(contrast(0, 0, p_value=1.0) for _ in range(4)))
    assert predicted.answer(page).line.startswith("Yes: 4 of 4 predictions lie inside")
    assert predicted.misses(page).lines == ("No prediction lies outside the measured interval.",)
    assert "svg" in predicted.figure(page)._repr_html_()


def test_numbers_of_threads_are_labelled() -> None:
    page = found(contrast(-10, 40, mode="default", threads=16))
    assert "16 threads at 1\u202f600 cps" in predicted.misses(page).lines[0]


def test_the_fit_is_listed_with_its_range() -> None:
    table = predicted.fit(found())
    assert ("switch_ns", "8\u202f000", "7\u202f000 to 7\u202f000") in table.rows
    assert ("service_ns INVITE", "9", "8 to 8") in table.rows
    assert not any(name == "service_ns other" for name, *_ in table.rows)


def test_an_outlier_does_not_squeeze_the_other_points():
    low, high = plots._shown_range([*range(-10, 11), 4000.0, math.nan])
    assert -20 < low < -10 and 10 < high < 20
    low, high = plots._shown_range([5.0])
    assert low < 5 < high
