"""Tests of reduced records, which lack the data of each message."""

from pathlib import Path

import pytest
import xarray as xr
from synthetic import Run, rewrite, write_comparison, write_record

from sipsched.errors import StableError
from sipsched.plan.run import Run as PlannedRun
from sipsched.records import run_summary, summary_files, windows
from sipsched.records.bursts import BURSTS_FILE
from sipsched.records.messages import messages_from_record, open_messages, write_messages
from sipsched.records.reduced import (
    REASON,
    REDUCED_FILE,
    UNCOMPRESSED,
    identity,
    recompress,
    reduce,
)
from sipsched.records.verification import verify

RUN = Run(mode="default,batch", cps=400)


def computed(run: PlannedRun, raw: Path, results: Path) -> None:
    """Compute the result files of a run from its record, as the workflow does."""
    folder = results / run.path
    write_messages(messages_from_record(raw / run.path), folder / "messages.nc")
    summary_files.write(
        run_summary.summarise_run(folder / "messages.nc", raw / run.path), folder / "summary.nc.zst"
    )
    if "," in run.mode:
        dataset = windows.windows_from_record(folder / "messages.nc", raw / run.path)
        windows.write_windows(dataset, folder / "windows.nc")


@pytest.fixture(params=[False, True], ids=["compressed", "in an archive"])
def campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    record = write_comparison(raw, RUN, {"default": 1.0, "batch": 2.0}, total_s=12.0)
    (record / BURSTS_FILE).write_bytes(b"bursts")
    rewrite(record)
    computed(RUN, raw, tmp_path / "results")
    small = tmp_path / "small" / RUN.path
    reduce(raw / RUN.path, tmp_path / "results" / RUN.path, small)
    if request.param:
        before = (small / "summary.nc.zst").stat().st_size
        recompress(small, UNCOMPRESSED)
        assert (small / "summary.nc.zst").stat().st_size > 2 * before
    return tmp_path


def test_a_reduced_record_gives_the_same_numbers(campaign: Path) -> None:
    computed(RUN, campaign / "small", campaign / "again")
    for name, read in (
        ("summary.nc.zst", summary_files.open_run),
        ("windows.nc", windows.open_windows),
    ):
        before = read(campaign / "results" / RUN.path / name)
        after = read(campaign / "again" / RUN.path / name)
        attrs = {"record": identity(campaign / "small" / RUN.path)}
        if name == "windows.nc":
            before = before.assign_attrs(attrs)
        else:
            before["record"] = before["record"].copy(data=attrs["record"])
        xr.testing.assert_identical(before, after)
    there = {path.name for path in (campaign / "small" / RUN.path).iterdir()}
    # a reduced record has no file of bursts, because a file of bursts names programs of other users
    assert {"trace.bin.zst", "uac.calls.zst", "windows.json.zst", BURSTS_FILE}.isdisjoint(there)
    assert {"run.json", "uac.json", REDUCED_FILE} <= there


def test_the_other_files_of_the_record_are_copied_unchanged(campaign: Path) -> None:
    whole, small = campaign / "raw" / RUN.path, campaign / "again" / "small"
    (whole / "commands.json.zst").write_bytes(b"commands")
    (whole / "front.cfg").write_text("front")
    rewrite(whole)
    computed(RUN, campaign / "raw", campaign / "results")
    reduce(whole, campaign / "results" / RUN.path, small)
    for name in ("uac.json", "front.cfg", "run.json"):
        assert (small / name).read_bytes() == (whole / name).read_bytes()
    assert not {"commands.json.zst", "counters.json.zst"} & {path.name for path in small.iterdir()}


@pytest.mark.parametrize("name", ["run.json", "reduced.json", "summary.nc.zst", "windows.nc.zst"])
def test_a_file_of_another_record_is_found(campaign: Path, name: str) -> None:
    other, place = Run(mode=RUN.mode, cps=300), campaign / "small" / RUN.path
    write_comparison(campaign / "raw", other, {"default": 1.0, "batch": 2.0}, total_s=12.0)
    computed(other, campaign / "raw", campaign / "results")
    reduce(
        campaign / "raw" / other.path,
        campaign / "results" / other.path,
        campaign / "small" / other.path,
    )
    assert verify(campaign / "small").intact
    (place / name).write_bytes((campaign / "small" / other.path / name).read_bytes())
    assert not verify(campaign / "small").intact
    with pytest.raises(StableError):
        computed(RUN, campaign / "small", campaign / "again")


def test_messages_of_a_reduced_record_give_the_reason_for_their_absence(campaign: Path) -> None:
    computed(RUN, campaign / "small", campaign / "again")
    result = open_messages(campaign / "again" / RUN.path / "messages.nc")
    assert result.sizes["message"] == 0
    assert result["t_sip"].attrs["missing_reason"] == REASON


def test_a_reduced_record_verifies_and_a_damaged_one_does_not(campaign: Path) -> None:
    assert verify(campaign / "small").intact
    kept = campaign / "small" / RUN.path / "windows.nc.zst"
    kept.write_bytes(kept.read_bytes()[:-1])
    checks = verify(campaign / "small")
    assert not checks.intact
    assert any("windows.nc.zst: expected" in line for line in checks.lines)


def test_a_single_mode_has_no_windows(tmp_path: Path) -> None:
    run = Run()
    write_record(tmp_path / "raw", run)
    computed(run, tmp_path / "raw", tmp_path / "results")
    reduce(tmp_path / "raw" / run.path, tmp_path / "results" / run.path, tmp_path / "small")
    assert not (tmp_path / "small" / "windows.nc.zst").exists()
    with pytest.raises(StableError, match=r"the reduced record lacks windows\.nc\.zst"):
        windows.windows_from_record(tmp_path / "messages.nc", tmp_path / "small")


def test_without_results_nothing_is_reduced(tmp_path: Path) -> None:
    write_record(tmp_path / "raw", Run())
    with pytest.raises(StableError, match=r"summary\.nc\.zst is missing; make it with snakemake"):
        reduce(tmp_path / "raw" / Run().path, tmp_path / "results", tmp_path / "small")
