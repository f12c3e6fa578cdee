"""Tests of the functions that draw common elements of figures."""

from functools import partial

import pytest
from matplotlib.figure import Figure

from sipsched.pages.drawing import NARROW, WIDE, in_form
from sipsched.pages.plots import from_zero, log_ticks, mode_look, mode_looks, panels, symlog_scale

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


@pytest.mark.parametrize(
    ("scale", "label", "plain"),
    [
        (from_zero, "2\u202f000", "2000"),
        (partial(symlog_scale, threshold=1.0), "1\u202f000", "1000"),
    ],
)
def test_whole_numbers_on_an_axis_are_grouped_as_in_tables(scale, label, plain):
    def draw(axis, *_):
        axis.plot([0.2, 0.4], [0, 2500])
        scale(axis)

    svg = in_form(panels([""], [""], draw, "x"), WIDE, "salt")
    assert f">{label}</text>" in svg
    assert f">{plain}</text>" not in svg
    assert ">0.300</text>" in svg


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


@pytest.mark.parametrize(
    ("ends", "shown"),
    [((3000, 40_000), {5000, 10_000, 20_000}), ((40, 40_000), {100, 1000, 10_000})],
)
def test_a_short_logarithmic_axis_has_labels_between_the_powers_of_ten(ends, shown):
    axis = Figure().subplots()
    axis.set_xscale("log")
    axis.set_xlim(*ends)
    log_ticks(axis.xaxis)
    low, high = ends
    assert {tick for tick in axis.get_xticks() if low <= tick <= high} == shown
