"""Tests of numbers as text, for ordinary intervals and for intervals without bounds or width."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sipsched.analysis.intervals import Interval, mean_interval, typical_interval
from sipsched.analysis.pairs import compare
from sipsched.pages.numbers import Number, in_words, p_text, rounded, signed, told, with_unit
from sipsched.words import ranged

NAN, INF = np.nan, np.inf
NOT_A_NUMBER = ("nan", "inf", "e+", "e-", "None")
ENDS = st.floats(-1e12, 1e12) | st.sampled_from([NAN, INF, -INF])


def of(estimate, low, high, n=20, **rest):
    return Interval(estimate, low, high, n, **rest)


@pytest.mark.parametrize(
    ("interval", "unit", "said"),
    [
        (of(49.6, 34.2, 81.4), "cps", "50\u00a0cps (34 to 81)"),
        (of(49593, 16245, 82941), "µs", "50\u00a0ms (16 to 83)"),
        (of(9504, 6593, 13308), "µs", "9.5\u00a0ms (6.6 to 13.3)"),
        (of(131.2, 108.4, 156.6), "µs", "131\u00a0µs (108 to 157)"),
        (of(1.4168, 1.331, 1.508), "µs", "1.42\u00a0µs (1.33 to 1.51)"),
        (of(2131, 1790, 2470), "cps", "2\u202f130\u00a0cps (1\u202f790 to 2\u202f470)"),
        (of(0, 0, 0), "%", "0\u00a0%"),
        (of(1840, 1790, INF), "cps", "1\u202f840\u00a0cps (at least 1\u202f790)"),
        (of(1840, -INF, 1890), "cps", "1\u202f840\u00a0cps (at most 1\u202f890)"),
        (of(1840, -INF, INF), "cps", "1\u202f840\u00a0cps"),
        (of(-3e31, -6e31, 40), "%", "over 100 times as much"),
        (of(12.3, -2e4, 40), "%", "12\u00a0% (at most 40)"),
        (of(1500, 1400, 2200, resolved=False), "cps", "between 1\u202f400 and 2\u202f200\u00a0cps"),
        (of(1500, -INF, 2200, resolved=False), "cps", "at most 2\u202f200\u00a0cps"),
        (Interval.without(12.34, 1), "%", "12.3\u00a0% (one run)"),
        (of(5027, NAN, NAN, 30, why="no spread printed"), "cps", "5\u202f027\u00a0cps"),
        (of(40, 40, 40), "%", "40\u00a0%"),
        (of(-8.5, -17.2, -0.13), "µs", "−8\u00a0µs (−17 to −0.1)"),
        (of(-85, -172, 4), "%", "−80\u00a0% (−170 to 4)"),
        (of(50, 0, 100), "%", "50\u00a0% (0 to 100)"),
        (Interval.without(NAN, 0, why="not measured"), "%", "not measured"),
    ],
)
def test_a_number_has_as_many_digits_as_its_uncertainty_allows(interval, unit, said):
    assert with_unit(interval, unit) == said


def test_three_runs_have_a_range_instead_of_an_interval():
    three, four = typical_interval([20, 49, 129]), typical_interval([20, 45, 49, 129])
    assert with_unit(three, "µs") == "50\u00a0µs (runs: 20 to 130)"
    assert "to" in with_unit(four, "µs") and "runs" not in with_unit(four, "µs")
    assert in_words(three, "µs").endswith(", n = 3")
    # the same holds for a difference of pairs
    fall = compare([100, 110, 120], [80, 100, 90]).percent_lower
    assert with_unit(fall, "%") == "18\u00a0% (runs: 9.1 to 25)"


@given(
    st.tuples(ENDS, ENDS, ENDS),
    st.integers(0, 40),
    st.booleans(),
    st.sampled_from(["", "µs", "%", "cps"]),
)
@example((0.0, 10000.0, 5e-324), 0, False, "%")
def test_no_text_contains_a_sentinel_value(ends, n, resolved, unit):
    low, estimate, high = sorted(ends) if not np.isnan(ends).any() else ends
    interval = Interval(estimate, low, high, n, resolved=resolved)
    for text in (with_unit(interval, unit), str(told(interval, unit)), in_words(interval, unit)):
        assert text
        assert not [word for word in NOT_A_NUMBER if word in text], text


def test_a_cell_shows_its_n_if_the_row_does_not():
    mean = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert str(told(mean, "%", 4)) == "2.5 (0.4 to 4.6)"
    assert str(told(mean, "%", 5, "+")) == "+2.5 (+0.4 to +4.6), n = 4"
    assert str(told(mean, "µs", 4)) == "2.5\u00a0µs (0.4 to 4.6)"
    assert str(Number(mean, "%", p_value=0.0123)) == "2.5 (0.4 to 4.6), p\u00a0=\u00a00.012"


def test_signs_and_p_values():
    assert (signed(-12.3), signed(0), signed(12.3)) == ("−12.3", "0", "+12.3")
    assert p_text(1e-5) == "p\u00a0<\u00a00.001"
    assert p_text(NAN) == ""
    assert rounded(of(0.04, -0.2, 0.3), plus="+") == ("+0.04", "−0.20", "+0.30")


def test_a_range_with_equal_ends_is_one_number():
    assert ranged([5, 3, 4]) == "3 to 5"
    assert ranged([0.271, 0.274], "{:.2f}".format) == "0.27"
