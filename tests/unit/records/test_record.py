"""The record of a run appears whole or not at all."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.plan.config import Run
from sipsched.records.record import UnfinishedRecord, failed_attempts, is_recorded

RUN = Run("local", "kamailio-udp", "default", 1, 2, 100, 1)


def test_a_finished_record_is_in_place_and_nothing_else_is(tmp_path: Path) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    record.write("proxy.log", "hello\n")
    assert not is_recorded(tmp_path, RUN)
    record.finish({"schema_version": 1})
    assert is_recorded(tmp_path, RUN)
    assert [path.name for path in record.final.parent.iterdir()] == ["rep~1"]
    assert json.loads((record.final / "run.json").read_text()) == {"schema_version": 1}


def test_the_folder_that_snakemake_makes_is_replaced(tmp_path: Path) -> None:
    (tmp_path / RUN.path).mkdir(parents=True)
    UnfinishedRecord.begin(tmp_path, RUN).finish({})
    assert is_recorded(tmp_path, RUN)


def test_a_finished_record_is_never_measured_over(tmp_path: Path) -> None:
    UnfinishedRecord.begin(tmp_path, RUN).finish({"first": True})
    with pytest.raises(StableError, match="already recorded"):
        UnfinishedRecord.begin(tmp_path, RUN)
    assert json.loads((tmp_path / RUN.path / "run.json").read_text()) == {"first": True}


def test_failed_runs_are_numbered_and_keep_their_reason(tmp_path: Path) -> None:
    for reason in ("first", "second"):
        record = UnfinishedRecord.begin(tmp_path, RUN)
        record.write("proxy.cfg", "")
        record.fail(reason)
    folder = (tmp_path / RUN.path).parent
    assert (folder / "rep~1.failed-1" / "failure.txt").read_text() == "first\n"
    assert (folder / "rep~1.failed-2" / "failure.txt").read_text() == "second\n"
    assert not is_recorded(tmp_path, RUN)


def test_failed_attempts_are_listed_with_their_reasons(tmp_path: Path) -> None:
    other = Run("local", "kamailio-udp", "default", 1, 2, 100, 11)
    for run, reason in ((RUN, "the probe lost 3 records"), (other, "late")):
        record = UnfinishedRecord.begin(tmp_path, run)
        record.write("proxy.cfg", "")
        record.fail(reason)
    assert failed_attempts(tmp_path, [RUN]) == [(str(RUN), "the probe lost 3 records")]
    assert failed_attempts(tmp_path, []) == []


def test_what_a_killed_run_left_is_kept_as_failed(tmp_path: Path) -> None:
    killed = UnfinishedRecord.begin(tmp_path, RUN)
    killed.write("uac.csv", "half")
    UnfinishedRecord.begin(tmp_path, RUN).finish({})
    failed = killed.final.with_name("rep~1.failed-1")
    assert (failed / "uac.csv").read_text() == "half"
    assert "interrupted" in (failed / "failure.txt").read_text()


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: Any) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StableError, match=r"proxy\.log: cannot write: No space left on device"):
        record.write("proxy.log", "hello")
    kept = record.fail("disk full")
    assert kept is not None
    assert kept.name == "rep~1.failed-1"


def test_a_run_that_left_nothing_leaves_nothing(tmp_path: Path) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    assert record.fail("host unreachable") is None
    assert list(record.final.parent.iterdir()) == []
