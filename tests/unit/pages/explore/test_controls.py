"""Tests of the notebook's controls without a browser. The tests in tests/workflow/test_jupyterlab.py use a browser."""

import pytest
import synthetic
from bs4 import BeautifulSoup

from sipsched.errors import StableError
from sipsched.pages.explore import controls
from sipsched.pages.explore.single import MOST_SINGLE
from sipsched.pages.explore.timeline import read_messages, within
from sipsched.records.catalogue import find_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for run in (
        *synthetic.repeated((500, 2000), 2),
        *(synthetic.Run(mode="enhanced", cps=cps) for cps in (2000, 3000)),
    ):
        synthetic.write_record(folder / "raw", run, calls=3 * run.cps // 10)
    return find_runs(folder / "raw", "synthetic")


class Box:
    """The controls of the notebook, by the labels that a user sees."""

    def __init__(self, box):
        choices, self.start, row, self._shown = box.children
        self.left, self.right = (
            {menu.description: menu for menu in column.children[1:]} for column in choices.children
        )
        self.length, *buttons = row.children
        self.buttons = {button.description: button for button in buttons}

    @property
    def shown(self):
        return self._shown.value


def words_of(box):
    return BeautifulSoup(box.shown, "html.parser").get_text().replace("\u00a0", " ")


def test_the_choices_for_a_key_depend_on_the_choices_before_it(runs):
    box = Box(controls.controls(runs))
    assert list(box.left) == ["mode", "load (cps)", "repetition"]
    assert "500 cps, repetition 1" in words_of(box)
    assert "2\u202f000 cps, repetition 1" in words_of(box)
    box.left["load (cps)"].value = 2000
    box.left["repetition"].value = 2
    box.left["mode"].value = "enhanced"
    assert dict(box.left["load (cps)"].options) == {"2000": 2000, "3000": 3000}
    # the load is kept, but the repetition does not exist at this load
    assert box.left["load (cps)"].value == 2000
    assert dict(box.left["repetition"].options) == {"1": 1}
    assert "enhanced, 1 core, 8 threads, 2\u202f000 cps, repetition 1" in words_of(box)
    box.right["mode"].value = None
    assert "default" not in words_of(box)
    box.right["mode"].value = "default"
    assert "500 cps, repetition 1" in words_of(box)


def test_the_slider_ends_with_the_shown_runs(runs):
    box = Box(controls.controls(runs))
    box.right["mode"].value = None
    lengths = {}
    for cps in (500, 2000):
        box.left["load (cps)"].value = cps
        lengths[cps] = read_messages(runs, runs.sel(mode="default", cps=cps, rep=1).one).length_s
        assert box.start.max == pytest.approx(lengths[cps])
    assert lengths[500] != pytest.approx(lengths[2000], rel=0.01)
    box.length.value = 0.01
    box.start.value = box.start.max
    box.left["load (cps)"].value = 500 if lengths[500] < lengths[2000] else 2000
    assert box.start.value <= box.start.max


def test_the_slowest_message_is_shown_one_by_one(runs):
    box = Box(controls.controls(runs))
    box.right["mode"].value = None
    assert "figure-single" not in box.shown
    assert f"at most {MOST_SINGLE} are drawn individually" in box.shown
    box.buttons["slowest message"].click()
    assert "figure-single" in box.shown
    messages = read_messages(runs, runs.sel(mode="default", cps=500, rep=1).one)
    at_s = messages.at_s[messages.wait_us.argmax()]
    assert box.start.value <= at_s <= box.start.value + box.length.value
    stretch = within(messages.at_s, box.start.value, box.start.value + box.length.value)
    assert stretch.stop - stretch.start <= MOST_SINGLE
    before = box.start.value
    box.buttons["later"].click()
    assert box.start.value == pytest.approx(before + box.length.value / 2, abs=0.002)
    box.buttons["earlier"].click()
    assert box.start.value == pytest.approx(before, abs=0.002)
    box.buttons["whole run"].click()
    assert box.length.value is None
    assert "figure-single" not in box.shown


def test_an_interval_of_a_millisecond_can_be_chosen_anywhere(runs):
    box = Box(controls.controls(runs))
    assert box.start.step == 0.001
    box.length.value = 0.001
    box.start.value = 0.123
    assert "0.123 to 0.124 s" in words_of(box)


def test_a_single_run_has_no_comparison(runs):
    box = Box(controls.controls(runs.sel(mode="enhanced", cps=3000)))
    assert box.right["mode"].value is None
    assert box.shown.count("3\u202f000 cps") > 0


def test_runs_without_messages_are_not_offered(tmp_path):
    for mode, probe in (("default", 2), ("enhanced", 0)):
        synthetic.write_record(tmp_path / "raw", synthetic.Run(mode=mode), mode=probe)
    result = find_runs(tmp_path / "raw", "synthetic")
    box = Box(controls.controls(result))
    assert dict(box.left["mode"].options) == {"default": "default"}
    with pytest.raises(StableError, match="no per-message times: the probe was off"):
        controls.controls(result.sel(mode="enhanced"))
