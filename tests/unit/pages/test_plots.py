"""Tests of the functions that draw common elements of figures."""

from functools import partial

import pytest

from sipsched.pages.drawing import NARROW, WIDE, in_form
from sipsched.pages.plots import from_zero, panels, symlog_scale

HIGHEST = (10.0, 70.0, 30.0)


@pytest.mark.parametrize("scale", [from_zero, partial(symlog_scale, threshold=1.0)])
@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_a_shared_axis_shows_the_data_of_every_panel(scale, layout):
    axes = []

    def draw(axis, row, _):
        axis.plot([1, 2], [0, HIGHEST[row]])
        scale(axis)
        axes.append(axis)

    in_form(panels(["", "", ""], [""], draw, "x", shared=("all", "column")), layout, "salt")
    for axis in axes:
        low, high = axis.get_ylim()
        assert low <= 0
        assert max(HIGHEST) <= high < 2 * max(HIGHEST)
