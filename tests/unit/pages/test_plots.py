"""Tests of the functions that draw common elements of figures."""

from functools import partial

import pytest

from sipsched.pages.drawing import NARROW, WIDE, in_form
from sipsched.pages.plots import from_zero, mode_look, mode_looks, panels, symlog_scale

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


def test_each_mode_of_a_page_has_its_own_look():
    threads = [f"default+threads={count}" for count in (1, 2, 4, 16, 32)]
    modes = ["default", "fifo", *threads, "enhanced+latency_ns=1", "default+threads=2+start=2"]
    looks = mode_looks(modes)
    assert looks == mode_looks(reversed(modes))
    assert len(set(looks.values())) == len(modes)
    assert looks["default"] == mode_look("default")
    assert looks["fifo"] == mode_look("fifo")
    assert mode_look("enhanced") not in looks.values()
    assert len({looks[mode].color for mode in ("default", *threads)}) == 1 + len(threads)
