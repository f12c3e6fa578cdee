"""Tests of the searches, loads and runs of studies, and of the order of the runs."""

import dataclasses
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.plan.config import load_config
from sipsched.plan.loads import AroundCrossing, Capacity
from sipsched.plan.run import Point
from sipsched.plan.study import Study
from sipsched.records.crossing import read_crossings

GOAL = Capacity(0.01, 0.02)
AROUND = AroundCrossing("baseline", 200, (-1, 0, 1))
STUDY = Study(
    "single_core", "x.ipynb", ("a", "b"), ("baseline", "enhanced"), (1,), (4, 8), AROUND, 2
)


def test_loads_around_a_crossing() -> None:
    assert AROUND.loads(2200, 2390) == (2000, 2200, 2400)
    assert AROUND.loads(2390, 2400) == (2000, 2200, 2400)
    # the loads include a load on each side of the crossing, as close as the step allows
    assert AROUND.loads(150, 170) == (150, 175, 200)
    assert AROUND.loads(420, 460) == (200, 400, 500, 600)
    assert AroundCrossing("baseline", 200, (1,)).loads(2200, 2390) == (2200, 2400)
    assert AroundCrossing("baseline", 200, (1, 2)).loads(2201, 2210) == (2200, 2400, 2600)
    # the highest load must be above the upper bound, and not only near the upper bound
    assert AROUND.loads(1194, 1327) == (800, 1000, 1200, 1400)


def test_a_study_around_crossings_has_runs_once_they_are_known(tmp_path: Path) -> None:
    points = STUDY.searches("bed")
    assert [(p.sut, p.mode, p.threads) for p in points] == [
        *(("a", "baseline", threads) for threads in (4, 8)),
        *(("b", "baseline", threads) for threads in (4, 8)),
    ]
    assert STUDY.runs("bed") == []
    path = tmp_path / points[0].crossing_path
    path.parent.mkdir(parents=True)
    path.write_text(synthetic.sealed(synthetic.crossing(points[0], 900, 1000)))
    crossings = read_crossings(tmp_path, points)
    assert crossings == {points[0]: (900, 1000)}
    assert {run.cps for run in STUDY.runs("bed", crossings)} == {600, 800, 1000}
    assert {(run.sut, run.threads) for run in STUDY.runs("bed", crossings)} == {("a", 4)}


def test_a_study_of_capacities_measures_each_mode_at_the_loads_of_all(
    tmp_path: Path,
) -> None:
    study = dataclasses.replace(STUDY, suts=("a",), threads=(8,), cps=GOAL)
    first, second = points = study.searches("bed")
    assert [point.mode for point in points] == ["baseline", "enhanced"]
    assert study.runs("bed") == []
    for point, loads in zip(points, [(900, 915), (960, None)], strict=True):
        path = tmp_path / point.crossing_path
        path.parent.mkdir(parents=True)
        document = synthetic.crossing(point, *loads)
        path.write_text(synthetic.sealed(document | {"goal": dataclasses.asdict(GOAL)}))
    crossings = read_crossings(tmp_path, points)
    # a search whose range ended before the crossing results in one load
    assert crossings == {first: (900, 915), second: (960, 960)}
    assert {(run.mode, run.cps) for run in study.runs("bed", crossings)} == {
        (mode, cps) for mode in study.modes for cps in (900, 915, 960)
    }


def test_the_path_of_a_capacity_has_its_goal() -> None:
    point = Point("bed", "a", "baseline", 1, 8, GOAL)
    assert str(point.crossing_path) == "bed/a/baseline/cores~1/threads~8/capacity~0.01~0.02.json"
    assert Point.from_wildcards(point.wildcards) == point
    for name in ("capacity~0.010~0.02", "capacity~x~0.02", "load~0.01~0.02"):
        with pytest.raises(StableError, match=rf"{name}.json: no search has this name; expected"):
            Point.from_wildcards(point.wildcards | {"search": name})


def test_the_order_of_a_pair_is_reversed_in_every_second_block() -> None:
    study = Study("s", "x.ipynb", ("a",), ("baseline", "enhanced"), (1,), (8,), (100, 200), 2)
    assert [(run.rep, run.cps, run.mode) for run in study.runs("bed")] == [
        *((1, cps, mode) for cps in (100, 200) for mode in ("baseline", "enhanced")),
        *((2, cps, mode) for cps in (100, 200) for mode in ("enhanced", "baseline")),
    ]


def test_the_path_of_a_crossing_has_its_point() -> None:
    point = Point("bed", "a", "baseline", 1, 8)
    assert str(point.crossing_path) == "bed/a/baseline/cores~1/threads~8/crossing.json"
    assert load_config().search.lowest_cps < load_config().search.highest_cps
