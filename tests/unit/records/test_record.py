"""Tests that the record of a run appears complete or not at all."""

import dataclasses
import errno
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.checks import digests

from sipsched.errors import StableError
from sipsched.files import SEAL_BYTES, seal
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.run import Run
from sipsched.records.record import (
    Attempt,
    UnfinishedRecord,
    failed_attempts,
    is_recorded,
    needed_files,
    read_record,
)
from sipsched.records.reduced import identity
from sipsched.records.run_document import FileReport, read_run
from sipsched.validity.verdict import INVALID, SUSPECT, Finding, Verdict

RUN = Run("local", "kamailio-udp", "default", 1, 2, 100, 1)
RECORDED = min((PROJECT_ROOT / "recorded" / "fit").rglob("run.json"))
DOCUMENT = dataclasses.replace(read_run(RECORDED.parent), run=RUN, files={}, sha256="")
CONTENT = b"hello\n"
LEFT = {name: FileReport(6, hashlib.sha256(CONTENT).hexdigest()) for name in needed_files(DOCUMENT)}


def leave(record: UnfinishedRecord) -> None:
    """Write the files of a run that exist before the run's run.json."""
    for name in LEFT:
        record.write(name, CONTENT)


@pytest.fixture
def empty(tmp_path: Path) -> UnfinishedRecord:
    """Begin a record without files."""
    return UnfinishedRecord.begin(tmp_path, RUN)


@pytest.fixture
def record(empty: UnfinishedRecord) -> UnfinishedRecord:
    """Begin a record with the files of a run."""
    leave(empty)
    return empty


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
    "a link": (replace_by_link, "expected a file of 6 bytes .* found a path that is not"),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changed_file_of_a_record_is_one_clear_error(
    record: UnfinishedRecord, damage: str, name: str
) -> None:
    record.finish(DOCUMENT)
    spoil, words = DAMAGE[damage]
    spoil(record.final / name)
    with pytest.raises(StableError, match=rf"rep~1/{name}: {words}.*; restore it from a copy"):
        read_record(record.final)


def test_a_record_with_an_unlisted_file_is_read(record: UnfinishedRecord) -> None:
    record.finish(DOCUMENT)
    (record.final / "note.txt").write_text("read me")
    assert read_record(record.final).files == LEFT


@pytest.mark.parametrize("name", ["../outside", "a\0b", "run\0.json"])
def test_a_name_of_another_folder_is_not_read(tmp_path: Path, name: str) -> None:
    named = {name: FileReport(6, "")}
    document = dataclasses.replace(DOCUMENT, files=named)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "run.json").write_text(document.to_json())
    with pytest.raises(StableError, match="expected the name of a file in this folder") as error:
        read_record(tmp_path / "record")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", LEFT)
def test_a_record_without_a_required_file_is_refused(record: UnfinishedRecord, name: str) -> None:
    (record.folder / name).unlink()
    record.finish(DOCUMENT)
    with pytest.raises(StableError, match=rf"{name}: expected a file as run.json says, found none"):
        read_record(record.final)


def test_the_required_files_of_a_run_depend_on_its_probe() -> None:
    untraced = dataclasses.replace(DOCUMENT.probe, mode="off")
    assert needed_files(DOCUMENT) == (
        *("counters.json.zst", "trace.bin.zst", "uac.calls.zst", "uac.json"),
    )
    assert needed_files(dataclasses.replace(DOCUMENT, probe=untraced)) == (
        *("counters.json.zst", "uac.calls.zst", "uac.json"),
    )


def test_a_finished_record_is_the_only_folder_left(
    record: UnfinishedRecord, tmp_path: Path
) -> None:
    assert not is_recorded(tmp_path, RUN)
    record.finish(DOCUMENT)
    assert is_recorded(tmp_path, RUN)
    assert [path.name for path in record.final.parent.iterdir()] == ["rep~1"]
    document = read_record(record.final)
    assert dataclasses.replace(document, files={}, sha256="") == DOCUMENT
    assert document.files == LEFT
    assert document.sha256 == identity(record.final)


def test_the_folder_that_snakemake_makes_is_replaced(tmp_path: Path) -> None:
    (tmp_path / RUN.path).mkdir(parents=True)
    UnfinishedRecord.begin(tmp_path, RUN).finish(DOCUMENT)
    assert is_recorded(tmp_path, RUN)


def test_a_finished_record_is_never_measured_over(tmp_path: Path) -> None:
    UnfinishedRecord.begin(tmp_path, RUN).finish(DOCUMENT)
    with pytest.raises(StableError, match="already recorded"):
        UnfinishedRecord.begin(tmp_path, RUN)
    assert dataclasses.replace(read_run(tmp_path / RUN.path), sha256="") == DOCUMENT


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
    assert str(attempt) == "one call in a hundred started more than 2\u202f100 µs late"


def test_an_attempt_whose_run_json_is_cut_keeps_its_error(
    empty: UnfinishedRecord, tmp_path: Path
) -> None:
    empty.write("run.json", DOCUMENT.to_json()[:100])
    empty.fail("disk full")
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
    del content["sha256"]
    (tmp_path / "run.json").write_text(seal(json.dumps(content)))
    with pytest.raises(StableError, match=message):
        read_run(tmp_path)


def test_every_recorded_run_json_is_read_and_written_alike() -> None:
    recorded = sorted((PROJECT_ROOT / "recorded").rglob("run.json"))
    assert len(recorded) > 10
    for path in recorded:
        assert kept(json.loads(path.read_text()), json.loads(read_run(path.parent).to_json()))


def kept(before: Any, after: Any) -> bool:
    """Return whether the new document contains all values of the old document, apart from the SHA-256."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(
            key == "sha256" or (key in after and kept(before[key], after[key])) for key in before
        )
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(kept, before, after))
    return bool(before == after)


def test_every_flipped_bit_of_a_real_run_json_is_found(tmp_path: Path) -> None:
    whole = RECORDED.read_bytes()
    tail = range(8 * (len(whole) - 2 * SEAL_BYTES), 8 * len(whole))
    bits = np.random.default_rng(1).integers(0, 8 * len(whole), 300)
    for bit in (*bits.tolist(), *tail):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "run.json").write_bytes(flipped)
        with pytest.raises(StableError):
            read_run(tmp_path)
    (tmp_path / "run.json").write_bytes(whole)
    assert read_run(tmp_path) == read_run(RECORDED.parent)


def test_a_changed_file_changes_the_identity_of_a_record(tmp_path: Path) -> None:
    result = set()
    for content in (CONTENT, b"other"):
        record = UnfinishedRecord.begin(tmp_path / content.hex(), RUN)
        leave(record)
        record.write("proxy.log", content)
        record.finish(DOCUMENT)
        result.add(identity(record.final))
    assert len(result) == 2
    assert all(len(each) == 64 for each in result)
    assert identity(tmp_path) == ""


def test_a_run_in_progress_is_protected_and_files_of_a_killed_run_are_kept(
    tmp_path: Path,
) -> None:
    begin = "import sys; from sipsched.records.record import *\n"
    begin += "record = UnfinishedRecord.begin(Path(sys.argv[1]), Run(*sys.argv[2:4], 'default', 1, 2, 100, 1))\n"
    begin += "record.write('uac.csv', 'half'); print('measuring', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", begin, str(tmp_path), RUN.testbed, RUN.sut]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"measuring\n"
        before = digests(tmp_path)
        with pytest.raises(StableError, match="another process is measuring this run"):
            UnfinishedRecord.begin(tmp_path, RUN)
        assert digests(tmp_path) == before
        process.kill()
    record = UnfinishedRecord.begin(tmp_path, RUN)
    leave(record)
    record.finish(DOCUMENT)
    assert read_record(record.final).files == LEFT
    failed = record.final.with_name("rep~1.failed-1")
    assert (failed / "uac.csv").read_text() == "half"
    assert "interrupted" in (failed / "failure.txt").read_text()


def test_only_one_of_several_simultaneous_begins_succeeds(tmp_path: Path) -> None:
    def begin(_: int) -> UnfinishedRecord | StableError:
        try:
            return UnfinishedRecord.begin(tmp_path, RUN)
        except StableError as error:
            return error

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            result = list(pool.map(begin, range(8)))
        (record,) = (each for each in result if isinstance(each, UnfinishedRecord))
        assert sum("is measuring this run" in str(each) for each in result) == 7
        assert record.fail("nothing was left") is None


def test_finishing_does_not_replace_an_existing_record(record: UnfinishedRecord) -> None:
    record.final.mkdir()
    (record.final / "run.json").write_text(DOCUMENT.to_json())
    with pytest.raises(StableError, match="cannot create the record"):
        record.finish(DOCUMENT)
    assert (record.final / "run.json").read_text() == DOCUMENT.to_json()
    record.fail("a record appeared")


def test_a_full_disk_is_one_clear_error(empty: UnfinishedRecord, monkeypatch: Any) -> None:

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StableError, match=r"proxy\.log: cannot write: No space left on device"):
        empty.write("proxy.log", "hello")
    kept = empty.fail("disk full")
    assert kept is not None
    assert kept.name == "rep~1.failed-1"


def test_a_failed_run_without_files_leaves_no_folder(empty: UnfinishedRecord) -> None:
    assert empty.fail("host unreachable") is None
    assert list(empty.final.parent.iterdir()) == []
