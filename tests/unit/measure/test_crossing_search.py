"""The crossing of the drop rate's limit, found on proxies whose knee is known, and the loads around it."""

import dataclasses
import json
import time
from collections import Counter
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError, TransientError
from sipsched.measure.crossing_search import Trial, find_capacity, find_crossing, taken_and_refused
from sipsched.measure.generator import CallStatistics
from sipsched.measure.serving import Observed
from sipsched.plan.config import AroundCrossing, Capacity, Point, Search, Study, load_config
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


GOAL = Capacity(0.01, 0.02)


@pytest.mark.parametrize("guess_cps", [None, 1234, 1500, 400, 7900, 30_000])
def test_a_capacity_is_bracketed_as_closely_as_asked_wherever_the_search_begins(
    guess_cps: float | None,
) -> None:
    asked: list[int] = []
    found = find_capacity(proxy_with_knee(1234, asked), GOAL, SEARCH, guess_cps)
    assert found.lower_cps is not None and found.upper_cps is not None
    assert found.lower_cps <= 1234 / 0.99 * 1.001 and found.upper_cps >= 1234 / 0.99 * 0.999
    assert found.upper_cps - found.lower_cps <= 0.021 * found.upper_cps
    assert found.ended_by == "width"
    # and all that was offered is in the record
    assert [trial.cps for trial in found.trials] == asked
    assert len(asked) < 30


@pytest.mark.parametrize(
    ("knee_cps", "bounds"), [(50, (None, 200)), (9000, (8000, None)), (1e9, (8000, None))]
)
@pytest.mark.parametrize("guess_cps", [None, 1000])
def test_a_limit_that_is_crossed_always_or_never_is_what_was_found(
    knee_cps: float, bounds: tuple[int | None, int | None], guess_cps: float | None
) -> None:
    found = find_capacity(proxy_with_knee(knee_cps), GOAL, SEARCH, guess_cps)
    assert (found.lower_cps, found.upper_cps, found.ended_by) == (*bounds, "range")


def test_a_search_whose_time_is_up_keeps_the_loads_around_the_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a proxy whose drops above its knee say nothing of where that is."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def timed(cps: int, duration_s: float) -> Trial:
        clock[0] += 9
        return Trial(cps, duration_s, 600, 600 if cps > 1234 else 0)

    closest = Capacity(0.01, 0.001)
    within = find_capacity(timed, closest, dataclasses.replace(SEARCH, limit_s=600))
    assert within.ended_by == "width"
    found = find_capacity(timed, closest, dataclasses.replace(SEARCH, limit_s=135), 1500)
    assert found.ended_by == "time" and len(found.trials) <= 17 < len(within.trials)
    assert found.lower_cps is not None and found.upper_cps is not None
    assert found.lower_cps <= 1234 < found.upper_cps
    with pytest.raises(TransientError, match=r"no two loads around it within 5 s"):
        find_capacity(timed, closest, dataclasses.replace(SEARCH, limit_s=5))


def test_trials_that_disagree_are_decided_by_the_third() -> None:
    """Of three trials at a load the first is disturbed: by itself it would end the search there."""
    offer, asked = proxy_with_knee(2000), Counter()

    def disturbed(cps: int, duration_s: float) -> Trial:
        asked[cps] += 1
        good = offer(cps, duration_s)
        if cps > 1900 or asked[cps] > 1:
            return good
        return Trial(cps, duration_s, good.received // 2, good.received // 2)

    found = find_capacity(disturbed, GOAL, SEARCH, 2000)
    assert found.lower_cps is not None and found.lower_cps > 1900


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


def test_a_study_of_capacities_searches_every_cell_and_measures_each_mode_at_the_loads_of_all(
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
        path.write_text(json.dumps(document | {"goal": dataclasses.asdict(GOAL)}))
    found = read_crossings(tmp_path, points)
    # one load where the search's range ended before the limit was crossed
    assert found == {first: (900, 915), second: (960, 960)}
    assert {(run.mode, run.cps) for run in study.runs("bed", found)} == {
        (mode, cps) for mode in study.modes for cps in (900, 915, 960)
    }


def test_a_capacity_is_named_by_what_was_aimed_at() -> None:
    point = Point("bed", "a", "baseline", 1, 8, GOAL)
    assert str(point.crossing_path) == "bed/a/baseline/cores~1/threads~8/capacity~0.01~0.02.json"
    assert Point.from_wildcards(point.wildcards) == point
    for name in ("capacity~0.010~0.02", "capacity~x~0.02", "load~0.01~0.02"):
        with pytest.raises(StableError, match=rf"{name}.json: no search has this name; expected"):
            Point.from_wildcards(point.wildcards | {"search": name})


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
