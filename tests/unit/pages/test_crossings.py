"""Tests of the remarks on a crossing, the load at which the drop rate passes its limit."""

import numpy as np
import pytest

from sipsched.analysis.crossing_load import crossing
from sipsched.pages.crossings import doubt

CASES = [
    (
        [1000, 2000],
        [0.0, 0.41],
        "The loads around the crossing are 100 % apart (the typical PDR is at most 0.01 % at 1\u202f000 cps and 41 % "
        "at 2\u202f000 cps). Measure a load between them.",
    ),
    (
        [1000, 1200],
        [0.0, 0.41],
        "PDR jumps at the crossing (the typical PDR is at most 0.01 % at 1\u202f000 cps and 41 % at 1\u202f200 cps). "
        "Measure loads between them.",
    ),
    ([1000, 1200], [0.004, 0.03], ""),
    (
        [1000, 1200],
        [0.001, 0.002],
        "The crossing lies outside the measured loads: no load has a typical PDR above 1 %. Measure a load above "
        "1\u202f200 cps.",
    ),
    (
        [1000, 1200],
        [0.1, 0.2],
        "The crossing lies outside the measured loads: no load has a typical PDR at or under 1 %. Measure a load "
        "below 1\u202f000 cps.",
    ),
    (
        [1000, 1200, 1400],
        [0.001, 0.02, 0.003],
        "The crossing (the load at the drop limit) is not decided, because PDR does not rise steadily with the load: "
        "the typical PDR is more than "
        "1 % at 1\u202f200 cps, and at most 1 % at a higher load. Measure more runs at these loads.",
    ),
    (
        [1000, 1200, 1400],
        [0.05, 0.009, 0.03],
        "The crossing (the load at the drop limit) is not decided, because PDR does not rise steadily with the load: "
        "the typical PDR is at most 1 % "
        "at 1\u202f200 cps, and more than 1 % at a lower load. Measure more runs at these loads.",
    ),
    ([1000, 1200], [np.nan, np.nan], ""),
]


@pytest.mark.parametrize(("loads", "pdr", "said"), CASES)
def test_a_page_says_why_a_crossing_is_no_number_and_how_to_get_a_number(loads, pdr, said):
    assert doubt(crossing(loads, np.tile(np.array(pdr)[:, None], 3)), 0.01) == said
