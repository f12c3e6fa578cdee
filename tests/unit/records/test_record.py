"""The record of a run appears whole or not at all."""

import dataclasses
import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.config import Run
from sipsched.records.record import (
    Attempt,
    UnfinishedRecord,
    failed_attempts,
    is_recorded,
    needed_files,
    read_record,
)
from sipsched.records.run_document import FileReport, read_run
from sipsched.validity.verdict import INVALID, SUSPECT, Finding, Verdict

RUN = Run("local", "kamailio-udp", "default", 1, 2, 100, 1)
DOCUMENT = dataclasses.replace(
    read_run(min((PROJECT_ROOT / "recorded" / "fit").rglob("run.json")).parent), run=RUN
)
CONTENT = b"hello\n"
LEFT = {name: FileReport(6, hashlib.sha256(CONTENT).hexdigest()) for name in needed_files(DOCUMENT)}


def leave(record: UnfinishedRecord) -> None:
    """Leave what a run leaves before its run.json."""
    for name in LEFT:
        record.write(name, CONTENT)


def cut(path: Path) -> None:
    path.write_bytes(CONTENT[:-1])


def flip(path: Path) -> None:
    path.write_bytes(b"hellp\n")


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGE = {
    "truncated": (cut, "expected 6 bytes as run.json says, found 5"),
    "missing": (Path.unlink, "expected 6 bytes as run.json says, found no such file"),
    "flipped byte": (flip, "expected SHA-256 5891b5b5.* as run.json says, found bf8c8341"),
    "a link": (replace_by_link, "expected a file of 6 bytes .* found something that is not"),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_as_written_is_one_clear_error(
    tmp_path: Path, damage: str, name: str
) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    leave(record)
    record.finish(DOCUMENT)
    spoil, words = DAMAGE[damage]
    spoil(record.final / name)
    with pytest.raises(StableError, match=rf"rep~1/{name}: {words}.*; restore it from a copy"):
        read_record(record.final)


def test_a_file_more_does_not_keep_a_record_from_being_read(tmp_path: Path) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    leave(record)
    record.finish(DOCUMENT)
    (record.final / "note.txt").write_text("read me")
    assert read_record(record.final).files == LEFT


def test_a_name_of_another_folder_is_not_read(tmp_path: Path) -> None:
    named = {"../outside": FileReport(6, "")}
    document = dataclasses.replace(DOCUMENT, files=named)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "run.json").write_text(document.to_json())
    with pytest.raises(StableError, match="expected the name of a file of this folder"):
        read_record(tmp_path / "record")


@pytest.mark.parametrize("name", LEFT)
def test_of_a_record_that_names_no_files_the_usual_ones_are_there(
    tmp_path: Path, name: str
) -> None:
    for each in LEFT.keys() - {name}:
        (tmp_path / each).write_bytes(CONTENT)
    (tmp_path / "run.json").write_text(DOCUMENT.to_json())
    with pytest.raises(StableError, match=rf"{name}: expected a file as run.json says, found none"):
        read_record(tmp_path)
    (tmp_path / name).write_bytes(CONTENT)
    assert read_record(tmp_path) == DOCUMENT


def test_what_a_run_needs_follows_from_its_probe_and_generator() -> None:
    untraced = dataclasses.replace(DOCUMENT.probe, mode="off")
    sipp = dataclasses.replace(DOCUMENT.load, generator="sipp")
    assert needed_files(DOCUMENT) == (
        *("counters.json", "trace.bin.zst", "uac.calls.zst", "uac.json"),
    )
    assert needed_files(dataclasses.replace(DOCUMENT, probe=untraced, load=sipp)) == (
        *("counters.json", "uac.csv"),
    )


def test_a_finished_record_is_in_place_and_nothing_else_is(tmp_path: Path) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    leave(record)
    assert not is_recorded(tmp_path, RUN)
    record.finish(DOCUMENT)
    assert is_recorded(tmp_path, RUN)
    assert [path.name for path in record.final.parent.iterdir()] == ["rep~1"]
    document = read_record(record.final)
    assert dataclasses.replace(document, files=None) == DOCUMENT
    assert document.files == LEFT


def test_the_folder_that_snakemake_makes_is_replaced(tmp_path: Path) -> None:
    (tmp_path / RUN.path).mkdir(parents=True)
    UnfinishedRecord.begin(tmp_path, RUN).finish(DOCUMENT)
    assert is_recorded(tmp_path, RUN)


def test_a_finished_record_is_never_measured_over(tmp_path: Path) -> None:
    UnfinishedRecord.begin(tmp_path, RUN).finish(DOCUMENT)
    with pytest.raises(StableError, match="already recorded"):
        UnfinishedRecord.begin(tmp_path, RUN)
    assert read_run(tmp_path / RUN.path) == dataclasses.replace(DOCUMENT, files={})


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
    for run, reason in ((RUN, "no proxy.cfg"), (other, "late")):
        record = UnfinishedRecord.begin(tmp_path, run)
        record.write("proxy.cfg", "")
        record.fail(reason)
    assert failed_attempts(tmp_path, [RUN]) == [Attempt(RUN, (), "no proxy.cfg")]
    assert failed_attempts(tmp_path, []) == []


def test_an_attempt_with_a_verdict_is_listed_by_its_rules(tmp_path: Path) -> None:
    late = Finding("lateness_p99_us", 2100.0, INVALID, 2000.0)
    suspect = Finding("steal_share", 0.03, SUSPECT, 0.02)
    judged = dataclasses.replace(DOCUMENT, verdict=Verdict(INVALID, (suspect, late)))
    record = UnfinishedRecord.begin(tmp_path, RUN)
    record.write("run.json", judged.to_json())
    record.fail("run is not valid")
    (attempt,) = failed_attempts(tmp_path, [RUN])
    assert attempt.causes == ("lateness_p99_us",)
    assert str(attempt) == "one call in a hundred started more than 2100 µs late"


def test_an_attempt_whose_run_json_is_cut_keeps_its_error(tmp_path: Path) -> None:
    record = UnfinishedRecord.begin(tmp_path, RUN)
    record.write("run.json", DOCUMENT.to_json()[:100])
    record.fail("disk full")
    assert failed_attempts(tmp_path, [RUN]) == [Attempt(RUN, (), "disk full")]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("run", {}, r"run\.json: .*`testbed` - at `\$\.run`"),
        ("hosts", [], r"run\.json: Expected `object`, got `array` - at `\$\.hosts`"),
        ("proxy", {"cpu_ns": "1"}, r"Expected `int`, got `str` - at `\$\.proxy\.cpu_ns`"),
        ("verdict", None, r"Expected `object`, got `null` - at `\$\.verdict`"),
    ],
)
def test_a_run_json_of_wrong_types_is_one_clear_error(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    content = json.loads(DOCUMENT.to_json()) | {key: value}
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(StableError, match=message):
        read_run(tmp_path)


def test_every_recorded_run_json_is_read_and_written_alike() -> None:
    recorded = sorted((PROJECT_ROOT / "recorded").rglob("run.json"))
    assert len(recorded) > 10
    for path in recorded:
        document = read_run(path.parent)
        before, after = json.loads(path.read_text()), json.loads(document.to_json())
        # words stood in the place of limits
        before["verdict"].pop("reasons", None)
        for finding in before["verdict"]["findings"]:
            finding.pop("words", None)
        assert kept(before, after) == before


def kept(before: Any, after: Any) -> Any:
    """Take of what is written now what was written then."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {key: kept(before[key], after[key]) for key in before.keys() & after.keys()}
    if isinstance(before, list) and isinstance(after, list):
        return [kept(one, other) for one, other in zip(before, after, strict=True)]
    return after


def test_what_a_killed_run_left_is_kept_as_failed(tmp_path: Path) -> None:
    killed = UnfinishedRecord.begin(tmp_path, RUN)
    killed.write("uac.csv", "half")
    UnfinishedRecord.begin(tmp_path, RUN).finish(DOCUMENT)
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


@pytest.mark.parametrize(
    ("translated", "label", "expected"),
    [
        (None, "enhanced (EEVDF translation)", True),
        (None, "enhanced (without latency_ns)", False),
        (None, "enhanced", False),
        (True, "enhanced", True),
        (False, "enhanced (EEVDF translation)", False),
    ],
)
def test_a_translation_is_recorded_and_told_from_the_label_in_older_records(
    translated: bool | None, label: str, expected: bool
) -> None:
    report = dataclasses.replace(
        DOCUMENT.scheduler, mode="enhanced", translated=translated, label=label
    )
    assert report.is_translation is expected
