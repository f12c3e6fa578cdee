"""Numbers as pages write them."""

import numpy as np

from sipsched.analysis.statistics import Interval, mean_interval
from sipsched.pages.numbers import plain, signed, told, with_p


def test_numbers_without_meaning_are_told_as_bounds():
    assert signed(-3e31) == "below −9\u202f999"
    assert plain(np.inf) == "above 9\u202f999"
    assert plain(12.3) == "12.3"
    assert signed(-12.3) == "−12.3"
    assert signed(0) == "0"


def test_a_cell_says_its_n_where_the_row_does_not():
    mean = mean_interval([1.0, 2.0, 3.0])
    assert told(mean, 3) == "2 (−0.484 to 4.48)"
    assert told(mean, 5, signed) == "+2 (−0.484 to +4.48), n = 3"
    assert told(mean_interval([2.0]), 5) == "2, n = 1: too few for an interval"
    assert told(Interval.without(np.nan, 0, why="not measured"), 3) == "not measured"


def test_a_p_value_is_there_if_there_was_a_test():
    assert with_p("2", 0.0123) == "2, p\u00a0=\u00a00.012"
    assert with_p("2", 1e-5) == "2, p\u00a0<\u00a00.001"
    assert with_p("2", np.nan) == "2"
