"""Tests of the remaining runs of a campaign, and of the expected end of each testbed."""

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from sipsched.plan.config import Config, load_config
from sipsched.plan.run import Crossings, Point
from sipsched.records import forecast
from sipsched.records.forecast import BETWEEN_S, OVERHEAD_S, Lanes, outlooks, planned_s
from sipsched.records.run_document import read_run


@pytest.fixture
def campaign() -> Config:
    """Make four runs on each of two testbeds."""
    whole = load_config()
    study = replace(
        whole.studies["load_sweep"], threads=(2, 4), cps=(500,), repetitions=2, modes=("default",)
    )
    return replace(whole, testbeds=("local", "rack"), studies={"load_sweep": study})


def test_without_records_the_length_follows_from_the_load(campaign: Config, tmp_path: Path) -> None:
    local, rack = outlooks(campaign, tmp_path, Lanes())
    a_run = campaign.load.warmup_s + campaign.load.duration_s + OVERHEAD_S
    assert (local.measured, len(local.left), local.from_runs) == (0, 4, 0)
    assert local.work_s == local.done_in_s == rack.done_in_s == pytest.approx(4 * a_run)
    assert local.refused == () and not local.is_done


def test_the_remaining_runs_last_as_long_as_recorded_ones(campaign: Config, tmp_path: Path) -> None:
    first, *others = (run for run in campaign.runs() if run.testbed == "local")
    record = read_run(synthetic.write_record(tmp_path, first, calls=40))
    local, rack = outlooks(campaign, tmp_path, Lanes())
    took = record.timeline.fetched - record.timeline.started + BETWEEN_S
    expected = planned_s(campaign.load) * took / planned_s(record.load)
    assert (local.measured, local.left, local.from_runs) == (1, tuple(others), 1)
    assert local.work_s == pytest.approx(3 * expected)
    assert rack.from_runs == 0 and rack.work_s != pytest.approx(4 * expected)


def test_a_testbed_with_all_its_runs_is_done(campaign: Config, tmp_path: Path) -> None:
    for run in campaign.runs():
        if run.testbed == "local":
            synthetic.write_record(tmp_path, run, calls=5)
    local, rack = outlooks(campaign, tmp_path, Lanes(alone=frozenset({"local"})))
    assert local.is_done and local.done_in_s == local.work_s == 0
    assert not rack.is_done


def test_refused_attempts_are_counted_by_their_cause(campaign: Config, tmp_path: Path) -> None:
    run = campaign.runs()[0]
    for number in (1, 2):
        failed = tmp_path / run.path.with_name(f"{run.path.name}.failed-{number}")
        failed.mkdir(parents=True)
        (failed / "failure.txt").write_text("the link was lost\n")
    local, rack = outlooks(campaign, tmp_path, Lanes())
    assert local.refused == (("the link was lost", 2),)
    assert rack.refused == ()


def test_runs_that_follow_a_search_are_counted_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = replace(load_config(), documents={})
    (local,) = outlooks(campaign, tmp_path, Lanes())
    assert local.left == () and len(local.searches) == len(campaign.searches()) > 0
    result: Crossings = dict.fromkeys(campaign.searches(), (1200, 1300))

    def read(raw: Path, points: list[Point]) -> Crossings:
        return result

    monkeypatch.setattr(forecast, "read_crossings", read)
    (later,) = outlooks(campaign, tmp_path, Lanes())
    assert later.searches == () and later.behind_searches == 0
    # the forecast assumes a crossing that is near the actual crossing
    assert local.behind_searches == pytest.approx(len(later.left), abs=3)
    assert local.work_s > campaign.search.limit_s * len(local.searches)


@pytest.mark.parametrize(
    ("lanes", "ends"),
    [
        (Lanes(), {"a": 10, "b": 20, "c": 40}),
        # during a run on testbed b, no other testbed measures
        (Lanes(alone=frozenset({"b"})), {"a": 10, "b": 30, "c": 70}),
        (Lanes(alone=frozenset({"a", "b"})), {"a": 10, "b": 30, "c": 70}),
        (Lanes(at_once={"c": 4}), {"a": 10, "b": 20, "c": 10}),
    ],
)
def test_the_end_of_testbeds_depends_on_which_measure_simultaneously(
    lanes: Lanes, ends: dict[str, float]
) -> None:
    assert lanes.ends_s({"a": 10, "b": 20, "c": 40}) == ends
    assert lanes.ends_s({}) == {}
