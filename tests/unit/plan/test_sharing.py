"""Tests of the distribution of runs among testbeds of the same hardware."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.plan.loads import AroundCrossing
from sipsched.plan.run import Run
from sipsched.plan.sharing import Sharing
from sipsched.plan.study import Study
from sipsched.records.twins import check_twins

STUDY = Study("s", None, ("a",), ("default", "batch"), (1,), (4, 8), (100, 200), 3)


def shared(raw: Path, *aside: str) -> Study:
    sharing = Sharing(("one", "two"), frozenset(aside), lambda path: (raw / path).is_file())
    return replace(STUDY, sharing=sharing)


def record(raw: Path, run: Run) -> None:
    path = raw / run.path / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")


def without_testbed(runs: list[Run]) -> list[Run]:
    return [replace(run, testbed="any") for run in runs]


def test_twins_measure_each_run_once_and_each_point_on_both(tmp_path: Path) -> None:
    study = shared(tmp_path)
    one, two = study.runs("one"), study.runs("two")
    assert Counter(without_testbed(one + two)) == Counter(without_testbed(STUDY.runs("any")))
    assert len(one) == len(two)
    points = {(run.mode, run.threads, run.cps) for run in one}
    assert points == {(run.mode, run.threads, run.cps) for run in two} and len(points) == 8
    # the same testbed measures both runs of a pair, one after the other
    assert [run.mode for run in one[:2]] == ["default", "batch"]
    assert all(first.cps == second.cps for first, second in zip(one[::2], one[1::2], strict=True))
    assert study.runs("three") == STUDY.runs("three")


def test_only_incomplete_blocks_of_a_twin_move_to_the_other_twin(
    tmp_path: Path,
) -> None:
    before = shared(tmp_path)
    first, second, third, *_ = before.runs("one")
    for run in (first, second, third):
        record(tmp_path, run)
    given = shared(tmp_path, "one")
    assert given.runs("one") == [first, second]
    assert len(given.runs("two")) == 22
    assert replace(third, testbed="two") in given.runs("two")
    # blocks that the second testbed measured stay with the second testbed after the first testbed returns
    block = [
        run
        for run in given.runs("two")
        if (run.rep, run.cps, run.threads) == (1, third.cps, third.threads)
    ]
    for run in block:
        record(tmp_path, run)
    assert set(block) <= set(before.runs("two")) and third not in before.runs("one")


def test_one_twin_searches_the_loads_for_both(tmp_path: Path) -> None:
    around = AroundCrossing("default", 100, (0,))
    study = replace(shared(tmp_path), cps=around)
    points = study.searches("two")
    assert points == study.searches("one") and {point.testbed for point in points} == {"one"}
    result = dict.fromkeys(points, (900, 950))
    assert {run.cps for run in study.runs("two", result)} == {
        run.cps for run in study.runs("one", result)
    }
    aside = replace(shared(tmp_path, "one"), cps=around)
    assert {point.testbed for point in aside.searches("one")} == {"two"}
    path = tmp_path / points[0].crossing_path
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert [point.testbed for point in aside.searches("two")] == ["one", "two"]


def test_the_records_decide_whether_twins_have_the_same_hardware(tmp_path: Path) -> None:
    check_twins(tmp_path, ("one", "two"))
    for name in ("one", "two"):
        synthetic.write_record(tmp_path, Run(name, "a", "default", 1, 8, 100, 1), calls=5)
    check_twins(tmp_path, ("one", "two"))
    folder = tmp_path / Run("two", "a", "default", 1, 8, 100, 1).path
    hosts = json.loads((folder / "run.json").read_text())["hosts"]
    synthetic.rewrite(folder, {"hosts": hosts | {"sps": hosts["sps"] | {"kernel": "9.9-other"}}})
    with pytest.raises(
        StableError,
        match="twins: one and two have different hardware according to their records: kernel of",
    ):
        check_twins(tmp_path, ("one", "two"))
