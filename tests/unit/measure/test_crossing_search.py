"""The crossing of the drop rate's limit, found on proxies whose knee is known, and the loads around it."""

import dataclasses
import json
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.measure.crossing_search import Trial, find_crossing, taken_and_refused
from sipsched.measure.generator import CallStatistics
from sipsched.measure.serving import Observed
from sipsched.plan.config import AroundCrossing, Point, Search, Study, load_config
from sipsched.records.crossing import read_crossings
from sipsched.validity.ledger import Balance, Ledger

SEARCH = Search(
    lowest_cps=200, highest_cps=8000, relative_width=0.05, trial_s=2, trials_s=4, limit_s=60
)


def proxy_with_knee(knee_cps: float, asked: list[int] | None = None):
    """Give a proxy that serves so many calls a second and drops the messages of the rest."""

    def offer(cps: int, duration_s: float) -> Trial:
        if asked is not None:
            asked.append(cps)
        messages = round(6 * cps * duration_s)
        refused = round(messages * max(0.0, 1 - knee_cps / cps))
        return Trial(cps, duration_s, messages - refused, refused)

    return offer


@pytest.mark.parametrize("knee_cps", [300, 1234, 2000, 7000])
def test_the_crossing_lies_in_the_interval_found(knee_cps: int) -> None:
    asked: list[int] = []
    found = find_crossing(proxy_with_knee(knee_cps, asked), 0.01, SEARCH)
    crossing = knee_cps / 0.99
    assert found.lower_cps <= crossing * 1.001
    assert found.upper_cps >= crossing * 0.999
    assert found.upper_cps - found.lower_cps <= 0.06 * found.upper_cps
    assert [trial.cps for trial in found.trials] == asked
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("knee_cps", "message"), [(50, "at the lowest load, 200"), (9000, "at the highest load, 8000")]
)
def test_a_knee_outside_the_range_is_one_clear_error(knee_cps: int, message: str) -> None:
    with pytest.raises(StableError, match=f"{message} cps; widen `search`"):
        find_crossing(proxy_with_knee(knee_cps), 0.01, SEARCH)


def test_over_tcp_calls_that_fail_or_are_late_are_what_is_refused() -> None:
    calls = CallStatistics(1000, 990, 970, 20, 100.0, 0, 0, calls_late=50)
    none = Balance(0, 0, 0, 0, 0)
    datagrams = Ledger(Balance(100, 93, 7, 0, 0), none, 0)
    load = Observed(0.0, 1.0, calls, {}, datagrams, 0, 0.0, 0)
    assert taken_and_refused(load) == (93, 7)
    streams = dataclasses.replace(load, ledger=Ledger(none, none, 0, "messages"))
    assert taken_and_refused(streams) == (920, 70)


def test_nothing_reached_is_no_drop_rate() -> None:
    assert Trial(100, 1.0, 0, 0).pdr == 0.0


AROUND = AroundCrossing("baseline", 200, (-1, 0, 1))
STUDY = Study(
    "single_core", "x.ipynb", ("a", "b"), ("baseline", "enhanced"), (1,), (4, 8), AROUND, 2
)


def test_loads_around_a_crossing() -> None:
    assert AROUND.loads(2200, 2390) == (2000, 2200, 2400)
    assert AROUND.loads(2390, 2400) == (2000, 2200, 2400)
    # a load on either side, no farther apart than a number between them may be
    assert AROUND.loads(150, 170) == (150, 175, 200)
    assert AROUND.loads(420, 460) == (200, 400, 500, 600)
    assert AroundCrossing("baseline", 200, (1,)).loads(2200, 2390) == (2200, 2400)
    assert AroundCrossing("baseline", 200, (1, 2)).loads(2201, 2210) == (2200, 2400, 2600)
    # one campaign had loads of 800, 1000 and 1200 from this, and every crossing "above 1200"
    assert AROUND.loads(1194, 1327) == (800, 1000, 1200, 1400)


def test_a_study_around_its_crossings_has_runs_once_they_are_found(tmp_path: Path) -> None:
    points = STUDY.searches("bed")
    assert [(p.sut, p.mode, p.threads) for p in points] == [
        *(("a", "baseline", threads) for threads in (4, 8)),
        *(("b", "baseline", threads) for threads in (4, 8)),
    ]
    assert STUDY.runs("bed") == []
    path = tmp_path / points[0].crossing_path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(synthetic.crossing(points[0], 900, 1000)))
    found = read_crossings(tmp_path, points)
    assert found == {points[0]: (900, 1000)}
    assert {run.cps for run in STUDY.runs("bed", found)} == {600, 800, 1000}
    assert {(run.sut, run.threads) for run in STUDY.runs("bed", found)} == {("a", 4)}


def test_pairs_follow_each_other_and_turn_round_in_every_second_block() -> None:
    study = Study("s", "x.ipynb", ("a",), ("baseline", "enhanced"), (1,), (8,), (100, 200), 2)
    assert [(run.rep, run.cps, run.mode) for run in study.runs("bed")] == [
        *((1, cps, mode) for cps in (100, 200) for mode in ("baseline", "enhanced")),
        *((2, cps, mode) for cps in (100, 200) for mode in ("enhanced", "baseline")),
    ]


def test_a_run_is_named_by_its_tuple_and_a_crossing_by_its_point() -> None:
    point = Point("bed", "a", "baseline", 1, 8)
    assert str(point.crossing_path) == "bed/a/baseline/cores~1/threads~8/crossing.json"
    assert load_config().search.lowest_cps < load_config().search.highest_cps
