"""Tests of `fab verify`, which checks that records are complete and unchanged."""

import dataclasses
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import synthetic

from sipsched.analysis.capacity.estimate import capacity_of_search
from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.loads import Capacity
from sipsched.records.crossing import read_crossing
from sipsched.records.record import UnfinishedRecord
from sipsched.records.system_capacity import read_capacities
from sipsched.records.verification import verify

Spoil = Callable[[Path], object]
RECORDED = PROJECT_ROOT / "recorded" / "fit"
VIRTUAL = PROJECT_ROOT / "recorded" / "virtual" / "raw"


def write(raw: Path, rep: int, testbed: str = "synthetic") -> Path:
    """Write the record of a run with repetition `rep`, and return its folder."""
    return synthetic.write_record(raw, synthetic.Run(testbed=testbed, rep=rep), calls=5)


def lines(raw: Path) -> list[str]:
    return list(verify(raw).lines)


def test_the_recorded_runs_are_intact() -> None:
    assert lines(RECORDED) == ["6 records, 0 damaged", "1 record, 0 damaged (searches and noise)"]
    checks = verify(PROJECT_ROOT / "recorded" / "raw")
    assert len(checks.runs) > 20
    assert checks.intact
    assert len(checks.singles) > 2
    assert all(line.partition(" (")[0].endswith(" 0 damaged") for line in checks.lines)


def test_the_recorded_runs_in_virtual_time_are_intact(tmp_path: Path) -> None:
    for archive in VIRTUAL.glob("*.tar.xz"):
        with tarfile.open(archive) as records:
            records.extractall(tmp_path, filter="data")
    checks = verify(tmp_path)
    assert len(checks.runs) > 640
    assert checks.intact


def test_the_capacities_of_the_sizing_page_come_from_the_recorded_searches(tmp_path: Path) -> None:
    with tarfile.open(VIRTUAL / "virtual-8cores.tar.xz") as records:
        records.extractall(tmp_path, filter="data")
    searches = [read_crossing(path) for path in tmp_path.rglob("capacity~*.json")]
    shipped = read_capacities(PROJECT_ROOT / "config" / "models" / "virtual-capacity.json")
    assert [system.cores for system in shipped] == [1, 2, 4, 8]
    for system in shipped:
        place = (system.sut, system.mode, system.cores, system.threads)
        (search,) = [
            each
            for each in searches
            if (each.point.sut, each.point.mode, each.point.cores, each.point.threads) == place
        ]
        (found,) = system.searches
        assert found.started_at == search.started_at
        assert search.testbed is not None
        assert system.fidelity == search.testbed.fidelity
        assert "2000 MIPS, kernel weight 1, wake-up time 2 µs, quantum 5 µs" in system.fidelity
        # The shipped estimate also uses the runs of the study.
        estimate = capacity_of_search(search, system.limit).estimate
        assert system.low_cps < estimate < system.high_cps


def test_the_recorded_campaigns_stay_small() -> None:
    files = [
        path
        for path in RECORDED.parent.rglob("*")
        if path.is_file() and (VIRTUAL not in path.parents or path.parent == VIRTUAL)
    ]
    assert len(files) > 800
    assert sum(path.stat().st_size for path in files) < 20_000_000


def test_records_of_all_testbeds_are_counted(tmp_path: Path) -> None:
    for testbed in ("one", "two"):
        write(tmp_path, 1, testbed)
    write(tmp_path, 2, "two")
    (tmp_path / synthetic.Run(testbed="two", rep=3).path).mkdir(parents=True)
    assert lines(tmp_path) == ["3 records, 0 damaged"]


def test_searches_and_noise_are_checked(tmp_path: Path) -> None:
    point = synthetic.Run().point
    capacity = dataclasses.replace(point, goal=Capacity(0.01, 0.1)).crossing_path
    texts = {
        tmp_path / "synthetic" / "noise.json": synthetic.sealed(synthetic.noise()),
        tmp_path / point.crossing_path: synthetic.sealed(synthetic.crossing(point, 900, 1000)),
        tmp_path / capacity: synthetic.sealed(synthetic.crossing(point, 900, 1000)),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert lines(tmp_path) == ["0 records, 0 damaged", "3 records, 0 damaged (searches and noise)"]
    for path, text in texts.items():
        path.write_text(text.replace("1", "7", 1))
        checks = verify(tmp_path)
        assert not checks.intact
        assert next(checks.lines).startswith(f"damaged: {path}: ")
        path.write_text(text)


@pytest.mark.parametrize("attempt", [False, True])
def test_a_folder_without_records_is_an_error(tmp_path: Path, attempt: bool) -> None:
    if attempt:
        folder = write(tmp_path, 1)
        folder.rename(folder.with_name("rep~1.failed-1"))
    with pytest.raises(
        StableError, match="nothing was checked, because this folder contains no record"
    ):
        verify(tmp_path)


def test_a_damaged_record_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    write(tmp_path, 2)
    (folder / "counters.json.zst").unlink()
    trace = folder / "trace.bin.zst"
    size = trace.stat().st_size
    trace.write_bytes(trace.read_bytes()[:10])
    checks = verify(tmp_path)
    assert not checks.intact
    assert [line for line in checks.lines if "rep~" in line] == [
        f"damaged: {folder}: counters.json.zst: expected "
        f"{checks.runs[0].damage[0].split()[2]} bytes as run.json says, found no such file; "
        f"trace.bin.zst: expected {size} bytes as run.json says, found 10"
    ]
    assert list(checks.lines)[-1] == "2 records, 1 damaged"


def test_an_unlisted_file_is_named_but_is_no_damage(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    (folder / "note.txt").write_text("read me")
    assert verify(tmp_path).intact
    assert lines(tmp_path)[0] == f"not listed in run.json: {folder}: note.txt"


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{")])
def test_a_record_without_a_complete_run_json_is_damaged(tmp_path: Path, spoil: Spoil) -> None:
    folder = write(tmp_path, 1)
    spoil(folder / "run.json")
    assert not verify(tmp_path).intact
    assert lines(tmp_path)[0].startswith(f"damaged: {folder}: {folder}/run.json: ")


def test_damaged_attempts_are_reported_but_do_not_fail_the_check(tmp_path: Path) -> None:
    write(tmp_path, 1)
    folder = tmp_path / synthetic.Run(rep=2).path
    for _ in (1, 2):
        UnfinishedRecord(write(tmp_path, 2), folder).fail("late")
    folder.with_name("rep~2.failed-3").mkdir()
    assert lines(tmp_path)[1:] == [
        "2 invalid attempts, 0 of them damaged. Reports never read invalid attempts, so this check "
        "ignores their damage"
    ]
    failed = folder.with_name("rep~2.failed-2")
    (failed / "counters.json.zst").unlink()
    checks = verify(tmp_path)
    assert checks.intact
    assert f"{failed} (an invalid attempt): counters.json.zst" in next(checks.lines)
    assert list(checks.lines)[-1].startswith("2 invalid attempts, 1 of them damaged")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="no such folder"):
        verify(tmp_path / "nothing")


def test_fab_verify_exits_with_1_for_a_damaged_record(tmp_path: Path) -> None:
    fab = [str(Path(sys.executable).with_name("fab")), "verify", "--raw", str(tmp_path)]
    folder = write(tmp_path, 1)
    done = subprocess.run(fab, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "1 record, 0 damaged\n"
    cut(folder / "counters.json.zst")
    done = subprocess.run(fab, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.endswith("1 record, 1 damaged\n")
