"""Tests of the line about progress in Snakemake's output, and of the order in which runs start."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic

from sipsched.measure.aside import Aside
from sipsched.records.forecast import BETWEEN_S, Lanes, pace, planned_s
from sipsched.records.progress import Progress, in_minutes
from sipsched.records.run_document import read_run
from snakemake_scheduler_plugin_campaign import Scheduler, SchedulerSettings

RUNS = [synthetic.Run(cps=100 * n) for n in range(1, 5)]


def test_the_time_left_follows_the_runs_of_this_invocation() -> None:
    progress = Progress(Lanes())
    expected = dict.fromkeys(RUNS, 60.0)
    line = progress.start(RUNS[0], 1, expected, 1000.0)
    assert line == f"measuring {RUNS[0]}: run 1 of 4, about 4 minutes left"
    progress.end(RUNS[0], 1020.0 - BETWEEN_S)
    left = dict.fromkeys(RUNS[1:], 60.0)
    line = progress.start(RUNS[1], 1, left, 1020.0)
    assert line == f"measuring {RUNS[1]}: run 2 of 4, about 60 seconds left"


def test_another_attempt_counts_as_the_same_run() -> None:
    progress = Progress(Lanes())
    expected = dict.fromkeys(RUNS[:2], 10.0)
    progress.start(RUNS[0], 1, expected, 0.0)
    progress.end(RUNS[0], 10.0)
    assert "run 2 of 2, about 20 seconds left" in progress.start(RUNS[1], 1, expected, 10.0)
    progress.end(RUNS[1], 20.0)
    line = progress.start(RUNS[0], 2, {RUNS[0]: 10.0}, 20.0)
    assert line == f"attempt 2 of 3: measuring {RUNS[0]}: run 1 of 2, about 10 seconds left"


def test_runs_of_another_mode_keep_their_expected_time() -> None:
    progress = Progress(Lanes())
    other = synthetic.Run(mode="enhanced")
    progress.start(RUNS[0], 1, {RUNS[0]: 10.0, other: 600.0}, 0.0)
    progress.end(RUNS[0], 30.0)
    assert "about 10 minutes left" in progress.start(other, 1, {other: 600.0}, 31.0)


def test_runs_from_a_search_are_counted_once_they_are_known() -> None:
    progress = Progress(Lanes())
    assert "run 1 of 1," in progress.start(RUNS[0], 1, {RUNS[0]: 9.0}, 0.0)
    assert "run 2 of 4," in progress.start(RUNS[1], 1, dict.fromkeys(RUNS[1:], 9.0), 9.0)


def test_the_slowest_testbed_determines_the_time_left() -> None:
    beds = {synthetic.Run(testbed=name): 600.0 for name in ("rack-1", "rack-2", "local")}
    side_by_side = Progress(Lanes()).start(next(iter(beds)), 1, beds, 0.0)
    assert side_by_side.endswith("about 10 minutes left")
    lanes = Lanes(alone=frozenset({"local"}))
    assert Progress(lanes).start(next(iter(beds)), 1, beds, 0.0).endswith("about 20 minutes left")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "about 10 seconds"),
        (44, "about 40 seconds"),
        (90, "about 2 minutes"),
        (5000, "about 83 minutes"),
    ],
)
def test_a_time_is_rounded(seconds: float, said: str) -> None:
    assert in_minutes(seconds) == said


def test_the_pace_comes_from_existing_records(tmp_path: Path) -> None:
    assert pace(RUNS[0], RUNS, tmp_path) == 1
    record = read_run(synthetic.write_record(tmp_path, RUNS[1], calls=40))
    (tmp_path / RUNS[2].path).mkdir(parents=True)
    (tmp_path / RUNS[2].path / "run.json").write_text("{}")
    took = record.timeline.fetched - record.timeline.started + BETWEEN_S
    assert pace(RUNS[0], RUNS, tmp_path) == pytest.approx(took / planned_s(record.load))
    assert took != planned_s(record.load)
    assert pace(synthetic.Run(mode="baseline,enhanced"), RUNS, tmp_path) == 1


class Job(SimpleNamespace):
    """A job with the attributes that the scheduler reads. Jobs with equal attributes are different jobs."""

    __hash__ = object.__hash__


def job(order: int | None, priority: int = 100, attempt: int = 1) -> Job:
    limited = {"testbed": 1, "_cores": 1, "_nodes": 1}
    resources = limited if order is None else limited | {"order": order}
    return Job(
        priority=priority,
        attempt=attempt,
        resources=resources,
        scheduler_resources=limited,
        input=[],
        rule=SimpleNamespace(resources=resources),
        is_group=lambda: False,
    )


def started(jobs: list[Job]) -> list[Job]:
    """Return jobs in the order in which the scheduler starts them, one at a time."""
    workflow = SimpleNamespace(
        globals={"PLAN": SimpleNamespace(aside=Aside())},
        scheduler=SimpleNamespace(running=[]),
        scheduling_settings=SimpleNamespace(),
    )
    scheduler = Scheduler(SimpleNamespace(workflow=workflow), SchedulerSettings(), None)
    left, order = list(jobs), []
    while left:
        chosen = scheduler.select_jobs(left, left, {"testbed": 1, "_cores": 9, "_nodes": 99}, {})
        assert len(chosen) == 1
        order += chosen
        left.remove(chosen[0])
    return order


def test_measurements_start_in_the_order_of_the_plan() -> None:
    searching, unplanned = job(None, priority=101), job(None)
    jobs = [job(3), unplanned, job(1), job(2), searching]
    order = started(jobs)
    assert order == [searching, jobs[2], jobs[3], jobs[0], unplanned]


def test_another_attempt_starts_after_everything_else() -> None:
    third, second, parsing = job(1, attempt=3), job(2, attempt=2), job(None, priority=0)
    measuring = job(9)
    assert started([third, second, parsing, measuring]) == [measuring, parsing, second, third]
