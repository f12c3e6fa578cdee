"""What `fab verify` finds in a whole raw/."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records.record import UnfinishedRecord
from sipsched.records.run_document import read_run
from sipsched.records.verification import verify

Spoil = Callable[[Path], object]
RECORDED = PROJECT_ROOT / "recorded" / "fit"


def write(raw: Path, rep: int, testbed: str = "synthetic") -> Path:
    """Write a record that names its files."""
    folder = synthetic.write_record(raw, synthetic.Run(testbed=testbed, rep=rep), calls=5)
    UnfinishedRecord(folder, folder).close(read_run(folder))
    return folder


def lines(raw: Path) -> list[str]:
    return list(verify(raw).lines)


def test_what_comes_with_the_repository_is_intact() -> None:
    assert lines(RECORDED) == ["6 records, 6 without a manifest, 0 damaged"]
    found = verify(PROJECT_ROOT / "recorded" / "raw")
    assert len(found.records) > 20
    assert found.intact
    assert list(found.lines)[-1].endswith(" 0 without a manifest, 0 damaged")


def test_records_of_all_testbeds_are_counted(tmp_path: Path) -> None:
    for testbed in ("one", "two"):
        write(tmp_path, 1, testbed)
    synthetic.write_record(tmp_path, synthetic.Run(testbed="two", rep=2), calls=5)
    (tmp_path / "two" / "noise.json").write_text("{}")
    (tmp_path / synthetic.Run(testbed="two", rep=3).path).mkdir(parents=True)
    assert lines(tmp_path) == ["3 records, 1 without a manifest, 0 damaged"]


def test_a_damaged_record_is_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    write(tmp_path, 2)
    (folder / "counters.json").unlink()
    trace = folder / "trace.bin.zst"
    size = trace.stat().st_size
    trace.write_bytes(trace.read_bytes()[:10])
    found = verify(tmp_path)
    assert not found.intact
    assert [line for line in found.lines if "rep~" in line] == [
        f"damaged: {folder}: counters.json: expected "
        f"{found.records[0].damage[0].split()[2]} bytes as run.json says, found no such file; "
        f"trace.bin.zst: expected {size} bytes as run.json says, found 10"
    ]
    assert list(found.lines)[-1] == "2 records, 0 without a manifest, 1 damaged"


def test_a_file_more_is_named_and_no_damage(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    (folder / "note.txt").write_text("read me")
    assert verify(tmp_path).intact
    assert lines(tmp_path)[0] == f"not named in run.json: {folder}: note.txt"


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{")])
def test_a_record_without_a_whole_run_json_is_damaged(tmp_path: Path, spoil: Spoil) -> None:
    folder = write(tmp_path, 1)
    spoil(folder / "run.json")
    assert not verify(tmp_path).intact
    assert lines(tmp_path)[0].startswith(f"damaged: {folder}: {folder}/run.json: ")


def test_failed_attempts_are_checked_and_do_not_fail_it(tmp_path: Path) -> None:
    write(tmp_path, 1)
    place = tmp_path / synthetic.Run(rep=2).path
    for _ in (1, 2):
        UnfinishedRecord(write(tmp_path, 2), place).fail("late")
    place.with_name("rep~2.failed-3").mkdir()
    assert lines(tmp_path)[1:] == [
        "2 attempts that do not count, 0 damaged: no report reads them, and they do not make this "
        "check fail"
    ]
    failed = place.with_name("rep~2.failed-2")
    (failed / "counters.json").unlink()
    found = verify(tmp_path)
    assert found.intact
    assert f"{failed} (an attempt that does not count): counters.json" in next(found.lines)
    assert list(found.lines)[-1].startswith("2 attempts that do not count, 1 damaged")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("name", ["uac.calls.zst", "trace.bin.zst", "counters.json"])
@pytest.mark.parametrize("spoil", [cut, Path.unlink])
def test_a_record_without_a_manifest_is_read(tmp_path: Path, name: str, spoil: Spoil) -> None:
    folder = min(RECORDED.rglob("run.json")).parent
    copy = tmp_path / folder.relative_to(RECORDED)
    shutil.copytree(folder, copy)
    assert verify(tmp_path).intact
    spoil(copy / name)
    found = verify(tmp_path)
    assert not found.intact
    assert name in next(found.lines)
    assert list(found.lines)[-1] == "1 record, 1 without a manifest, 1 damaged"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="no such folder"):
        verify(tmp_path / "nothing")


def test_the_task_ends_with_1_where_a_record_is_damaged(tmp_path: Path) -> None:
    fab = [str(Path(sys.executable).with_name("fab")), "verify", "--raw", str(tmp_path)]
    folder = write(tmp_path, 1)
    done = subprocess.run(fab, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "1 record, 0 without a manifest, 0 damaged\n"
    cut(folder / "counters.json")
    done = subprocess.run(fab, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.endswith("1 record, 0 without a manifest, 1 damaged\n")
