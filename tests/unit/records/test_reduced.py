"""Tests of records without their single messages."""

import json
from pathlib import Path

import pytest
import xarray as xr
import zstandard
from synthetic import Run, write_comparison, write_record

from sipsched.errors import StableError
from sipsched.plan import config
from sipsched.records import summary, windows
from sipsched.records.messages import messages_from_record, open_messages, write_messages
from sipsched.records.reduced import REASON, REDUCED_FILE, reduce
from sipsched.records.verification import verify

RUN = Run(mode="default,batch", cps=400)


def computed(run: config.Run, raw: Path, results: Path) -> None:
    """Make the files of a run's results."""
    folder = results / run.path
    write_messages(messages_from_record(raw / run.path), folder / "messages.nc")
    summary.write(
        summary.summarise_run(folder / "messages.nc", raw / run.path), folder / "summary.nc.zst"
    )
    if "," in run.mode:
        found = windows.windows_from_record(folder / "messages.nc", raw / run.path)
        windows.write_windows(found, folder / "windows.nc")


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    write_comparison(raw, RUN, {"default": 1.0, "batch": 2.0}, total_s=12.0)
    computed(RUN, raw, tmp_path / "results")
    reduce(raw / RUN.path, tmp_path / "results" / RUN.path, tmp_path / "small" / RUN.path)
    return tmp_path


def test_a_reduced_record_gives_the_same_numbers(campaign: Path) -> None:
    computed(RUN, campaign / "small", campaign / "again")
    for name, read in (("summary.nc.zst", summary.open_run), ("windows.nc", windows.open_windows)):
        before = read(campaign / "results" / RUN.path / name)
        after = read(campaign / "again" / RUN.path / name)
        xr.testing.assert_identical(before, after)
    there = {path.name for path in (campaign / "small" / RUN.path).iterdir()}
    assert {"trace.bin.zst", "counters.json"}.isdisjoint(there)
    assert {"run.json", "windows.json.zst", REDUCED_FILE} <= there


def test_counters_and_commands_are_compressed_and_nothing_of_them_is_lost(campaign: Path) -> None:
    whole, small = campaign / "raw" / RUN.path, campaign / "again" / "small"
    document = json.loads((whole / "run.json").read_text())
    commands = [{"host": "sps", "argv": ["true"]}]
    (whole / "run.json").write_text(json.dumps({**document, "commands": commands}))
    reduce(whole, campaign / "results" / RUN.path, small)
    found = {
        name: zstandard.decompress((small / f"{name}.zst").read_bytes())
        for name in ("counters.json", "commands.json")
    }
    assert found["counters.json"] == (whole / "counters.json").read_bytes()
    assert json.loads(found["commands.json"]) == commands
    del document["commands"]
    assert json.loads((small / "run.json").read_text()) == document


def test_commands_that_have_a_file_of_their_own_stay_there(campaign: Path) -> None:
    whole, small = campaign / "raw" / RUN.path, campaign / "again" / "small"
    commands = zstandard.compress(b'[{"host": "sps", "argv": ["true"]}]')
    (whole / "commands.json.zst").write_bytes(commands)
    reduce(whole, campaign / "results" / RUN.path, small)
    assert (small / "commands.json.zst").read_bytes() == commands
    assert (small / "run.json").read_bytes() == (whole / "run.json").read_bytes()


def test_its_messages_say_why_there_are_none(campaign: Path) -> None:
    computed(RUN, campaign / "small", campaign / "again")
    found = open_messages(campaign / "again" / RUN.path / "messages.nc")
    assert found.sizes["message"] == 0
    assert found["t_sip"].attrs["missing_reason"] == REASON


def test_it_verifies_and_a_damaged_one_does_not(campaign: Path) -> None:
    assert verify(campaign / "small").intact
    kept = campaign / "small" / RUN.path / "windows.nc.zst"
    kept.write_bytes(kept.read_bytes()[:-1])
    found = verify(campaign / "small")
    assert not found.intact
    assert any("windows.nc.zst: expected" in line for line in found.lines)


def test_a_single_mode_has_no_windows(tmp_path: Path) -> None:
    run = Run()
    write_record(tmp_path / "raw", run)
    computed(run, tmp_path / "raw", tmp_path / "results")
    reduce(tmp_path / "raw" / run.path, tmp_path / "results" / run.path, tmp_path / "small")
    assert not (tmp_path / "small" / "windows.nc.zst").exists()
    with pytest.raises(StableError, match=r"reduced without windows\.nc\.zst"):
        windows.windows_from_record(tmp_path / "messages.nc", tmp_path / "small")


def test_without_results_nothing_is_reduced(tmp_path: Path) -> None:
    write_record(tmp_path / "raw", Run())
    with pytest.raises(StableError, match=r"no summary\.nc\.zst; make it with snakemake"):
        reduce(tmp_path / "raw" / Run().path, tmp_path / "results", tmp_path / "small")
