"""Tests of the number of repetitions per group, which follows from existing interim analyses (looks)."""

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.plan.config import load_config
from sipsched.plan.loads import Precision
from sipsched.plan.run import Run
from sipsched.plan.study import Study
from sipsched.records import look
from sipsched.records.forecast import Lanes, outlooks

PRECISION = Precision("k_rcv_mean", 0.05, 2, 6)
STUDY = Study(
    "s", None, ("a",), ("default", "batch"), (1,), (4, 8), (100, 200), 2, precision=PRECISION
)
LOW, HIGH, OTHER = (1, 4, 100), (1, 4, 200), (1, 8, 200)


def write(results: Path, repetitions: int, *still_wide: tuple[int, int, int]) -> Path:
    path = look.look_path(results, "s", "bed", repetitions)
    path.parent.mkdir(parents=True, exist_ok=True)
    look.write_look(path, still_wide)
    return path


def test_each_look_comes_after_half_as_many_repetitions_again() -> None:
    assert Precision("k_rcv_mean", 0.05, 5, 30).looks == (5, 8, 12, 18, 27, 30)
    assert Precision("k_rcv_mean", 0.05, 5, 5).looks == (5,)
    assert PRECISION.looks == (2, 3, 5, 6)
    assert STUDY.looks() == [(2, 3), (3, 5), (5, 6)]
    assert STUDY.looks(until=5) == [(2, 3), (3, 5)]


def test_without_a_look_the_minimum_is_planned(tmp_path: Path) -> None:
    assert look.read_repeats(tmp_path, STUDY, "bed") == {}
    assert {run.rep for run in STUDY.runs("bed")} == {1, 2}


def test_wide_groups_are_repeated_in_all_modes_the_widest_first(tmp_path: Path) -> None:
    write(tmp_path, 2, OTHER, LOW)
    repeats = look.read_repeats(tmp_path, STUDY, "bed")
    assert repeats == {OTHER: 3, LOW: 3}
    assert [(run.threads, run.cps, run.mode) for run in STUDY.runs("bed", {}, repeats)[16:]] == [
        *((8, 200, mode) for mode in STUDY.modes),
        *((4, 100, mode) for mode in STUDY.modes),
    ]
    write(tmp_path, 3, LOW)
    repeats = look.read_repeats(tmp_path, STUDY, "bed")
    assert repeats == {LOW: 5, OTHER: 3}
    # the look after fewer repetitions still uses the same runs as before
    assert look.read_repeats(tmp_path, STUDY, "bed", until=3) == {OTHER: 3, LOW: 3}


def test_an_outdated_look_does_not_repeat_groups_that_became_narrow(
    tmp_path: Path,
) -> None:
    write(tmp_path, 2, LOW)
    write(tmp_path, 3, LOW, HIGH)
    assert look.read_repeats(tmp_path, STUDY, "bed") == {LOW: 5}
    write(tmp_path, 2)
    assert look.read_repeats(tmp_path, STUDY, "bed") == {}


def test_a_damaged_look_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 2, LOW)
    for text in ("{", '{"schema_version": 1, "still_wide": [[1]]}', '{"schema_version": 1}'):
        path.write_text(text)
        with pytest.raises(StableError, match=rf"{path}.*; delete it and run snakemake"):
            look.read_repeats(tmp_path, STUDY, "bed")


def test_recorded_repetitions_beyond_the_minimum_are_counted(tmp_path: Path) -> None:
    for rep in (1, 3, 4):
        synthetic.write_record(tmp_path, Run("bed", "a", "batch", *LOW, rep), calls=5)
    assert look.recorded_repeats(tmp_path, STUDY, "bed", {}) == {LOW: 4}


def test_the_outlook_counts_the_runs_that_looks_may_add(tmp_path: Path) -> None:
    campaign = replace(load_config(), testbeds=("bed",), studies={"s": STUDY})
    (before,) = outlooks(campaign, tmp_path / "raw", Lanes(), tmp_path)
    # four more repetitions of eight runs
    assert (len(before.left), before.at_most_more) == (16, 32)
    write(tmp_path, 2, LOW)
    (after,) = outlooks(campaign, tmp_path / "raw", Lanes(), tmp_path)
    assert (len(after.left), after.at_most_more) == (18, 6)


def test_a_full_disk_during_a_look_is_one_clear_error_and_leaves_no_file(small_disk: Path) -> None:
    path = small_disk / "look~2.json"
    many = [(cores, 4, cps) for cores in range(1, 60) for cps in range(100, 4000, 10)]
    with pytest.raises(StableError, match=rf"{path}: cannot write: .*No space left on device"):
        look.write_look(path, many)
    assert list(small_disk.iterdir()) == []
