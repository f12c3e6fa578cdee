"""Test that a predicted effect in virtual time is compared with the measured effect of the same setting."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from notebook_inputs import virtual

from sipsched.analysis.advice import read_loads
from sipsched.analysis.guest_effects import effects, read_predictions
from sipsched.errors import StableError
from sipsched.pages.parts import Figure
from sipsched.pages.virtual import answer, figures, panels_of, words


def test_a_prediction_is_compared_with_the_run_of_the_same_setting(tmp_path: Path) -> None:
    given = virtual(tmp_path)
    found = effects(read_loads(given["windows"]), read_predictions(given["files"][0]))
    without, missing, beside, _ = found
    assert without.place.testbed == "virtual-510"
    assert not without.stands_out
    assert not without.contains_prediction
    assert missing.place.threads == 16
    assert math.isnan(missing.measured.estimate)
    assert not missing.contains_prediction
    assert beside.stands_out
    assert beside.measured.low <= 100 * math.expm1(-0.4) <= beside.measured.high
    assert beside.predicted.low == -40
    assert beside.sham.low <= 0 <= beside.sham.high


def test_comparisons_of_the_same_system_share_an_a_a_comparison(tmp_path: Path) -> None:
    given = virtual(tmp_path)
    first, *_ = effects(read_loads(given["windows"]), read_predictions(given["files"][0]))
    lines = words([first, replace(first, mode="enhanced")]).lines
    assert lines[0] == "2 of 2 predicted comparisons were measured."
    assert lines[2].startswith("In 0 of 1 A/A comparison,")


def test_a_damaged_prediction_is_named_with_its_key(tmp_path: Path) -> None:
    path = virtual(tmp_path)["files"][0]
    path.write_text(path.read_text().replace("-30", "much", 1))
    with pytest.raises(StableError, match=r"change_percent.*guest_prediction"):
        read_predictions(path)


def test_the_answer_names_the_condition_with_the_larger_changes(tmp_path: Path) -> None:
    given = virtual(tmp_path)
    loads = read_loads(given["windows"])
    without, _, beside, _ = effects(loads, read_predictions(given["files"][0]))
    single = replace(beside, place=beside.place._replace(threads=2))
    line = answer([without, replace(without, shares_cores=True), single]).line
    assert "matters most if another program uses the proxy's cores, and no core has more" in line
    assert f"in 1 of 1 comparison by more than chance explains ({beside.measured.estimate:.0f}" in (
        line.replace("−", "-")
    )
    assert "more workers than cores, the mean wait K_rcv changes in 0 of 1 comparison" in line
    swapped = [replace(beside, shares_cores=False), replace(without, shares_cores=True)]
    assert "matters most if no other program uses the proxy's cores" in answer(swapped).line
    neither = [without, replace(without, shares_cores=True)]
    assert "No condition was found" in answer(neither).line
    assert "matters" not in answer([beside]).line


def test_each_setting_has_a_figure(tmp_path: Path) -> None:
    given = virtual(tmp_path)
    loads = read_loads(given["windows"])
    found = effects(loads, read_predictions(given["files"][0]))
    both = figures([*found, *(replace(effect, mode="other") for effect in found)], loads)
    names = [part.identity for part in both.parts if isinstance(part, Figure)]
    assert names == ["figure-virtual-effects-enhanced", "figure-virtual-effects-other"]


def test_a_task_on_another_core_is_not_beside_the_proxy(tmp_path: Path) -> None:
    given = virtual(tmp_path)
    loads = read_loads(given["windows"])
    beside = effects(loads, read_predictions(given["files"][0]))[2]
    elsewhere = replace(beside, shares_cores=False)
    assert [panel.where.rsplit(", ", 1)[1] for panel in panels_of([beside, elsewhere])] == [
        "beside the task logger",
        "task logger elsewhere",
    ]
    assert "If no other program uses the proxy's cores" in answer([elsewhere]).line
