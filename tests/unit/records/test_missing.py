"""Tests of the list of a campaign's missing records, and of the list of studies without an answer."""

from dataclasses import replace
from pathlib import Path

import pytest

from sipsched.pages import missing as words
from sipsched.plan.config import Config, load_config
from sipsched.plan.loads import AroundCrossing, Precision
from sipsched.records import look
from sipsched.records.missing import Missing, find_missing


def campaign(**changes: object) -> Config:
    config = load_config()
    study = replace(
        config.studies["load_sweep"],
        **{"cps": (500, 1000), "threads": (2,), "repetitions": 2, "modes": ("default",)} | changes,
    )
    return replace(config, testbeds=("local",), studies={"load_sweep": study})


def record(raw: Path, config: Config, *left_out: int) -> None:
    for place, run in enumerate(config.runs()):
        if place not in left_out:
            (raw / run.path).mkdir(parents=True)
            (raw / run.path / "run.json").write_text("{}")


@pytest.mark.parametrize(
    ("left_out", "line"), [((), ""), ((1,), "1 of 4 runs is missing: snakemake measures it")]
)
def test_a_study_with_a_run_at_every_point_has_an_answer(
    tmp_path: Path, left_out: tuple[int, ...], line: str
) -> None:
    config = campaign()
    record(tmp_path, config, *left_out)
    missing = find_missing(config, tmp_path, tmp_path / "results")
    assert words.line(missing, 0) == line
    assert missing.unanswered == ()


def test_repetitions_that_a_precision_adds_are_counted(tmp_path: Path) -> None:
    config = campaign(precision=Precision("k_rcv_mean", 0.05, 2, 6))
    record(tmp_path, config)
    decision = look.look_path(tmp_path / "results", "load_sweep", "local", 2)
    decision.parent.mkdir(parents=True)
    look.write_look(decision, [(1, 2, 500)])
    missing = find_missing(config, tmp_path, tmp_path / "results")
    assert missing.planned == 5
    assert [(run.cps, run.rep) for run in missing.runs] == [(500, 3)]
    assert missing.unanswered == ()


def test_a_study_without_a_run_at_one_point_has_no_answer(tmp_path: Path) -> None:
    config = campaign(modes=("default", "baseline"), cps=(500,))
    runs = config.runs()
    record(tmp_path, config, *(n for n, run in enumerate(runs) if run.mode == "baseline"))
    missing = find_missing(config, tmp_path, tmp_path / "results")
    assert words.line(missing, 0) == "2 of 4 runs are missing: snakemake measures them"
    (unanswered,) = missing.unanswered
    assert words.no_answer(unanswered) == (
        "load_sweep on local has no answer, because nothing is recorded for "
        "kamailio-udp baseline cores=1 threads=2 cps=500"
    )


def test_a_study_without_its_crossing_has_no_answer(tmp_path: Path) -> None:
    config = campaign(cps=AroundCrossing("default", 200, (0,)))
    missing = find_missing(config, tmp_path, tmp_path / "results")
    assert words.line(missing, 0) == (
        "1 crossing was not found, so the loads around it are not measured: snakemake measures it"
    )
    (unanswered,) = missing.unanswered
    assert "nothing is recorded for the crossing of kamailio-udp default" in words.no_answer(
        unanswered
    )


def test_the_line_on_missing_runs_names_the_errors_first(tmp_path: Path) -> None:
    missing = find_missing(campaign(), tmp_path, tmp_path / "results")
    assert words.line(missing, 4) == (
        "4 of 4 runs are missing: snakemake measures them after the errors above are fixed"
    )
    assert words.line(Missing(4, (), ()), 0) == ""


@pytest.mark.parametrize("left", [(0, 1, 2, 3), (0,)])
def test_each_testbed_is_checked_separately(tmp_path: Path, left: tuple[int, ...]) -> None:
    config = replace(campaign(), testbeds=("local", "vm"))
    record(tmp_path, campaign(), *left)
    names = [
        unanswered.testbed
        for unanswered in find_missing(config, tmp_path, tmp_path / "results").unanswered
    ]
    assert names == (["local", "vm"] if len(left) == 4 else ["vm"])
