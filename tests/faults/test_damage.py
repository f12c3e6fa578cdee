"""Test that the error for a damaged record names the file and the reason, and that reading changes no file."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.checks import digests

from sipsched.errors import StableError
from sipsched.measure.generator import read_calls
from sipsched.paths import PROJECT_ROOT, RUN_FILE
from sipsched.records import record, run_summary
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.verification import verify

RECORD = next((PROJECT_ROOT / "recorded" / "fit").rglob(record.TRACE_FILE)).parent


@dataclass(frozen=True)
class Damage:
    """A damaged file of a record, and the error that reading the file must cause.

    Attributes
    ----------
    file
        Name of the file.
    kept
        Share of the bytes that are kept; 0 removes the file.
    reason
        Regular expression for the error after the path of the file.
    """

    file: str
    kept: float
    reason: str


DAMAGES = (
    Damage(record.TRACE_FILE, 0, r"expected \d+ bytes as run.json says, found no such file"),
    Damage(record.TRACE_FILE, 0.5, r"expected \d+ bytes as run.json says, found \d+"),
    Damage(record.COUNTERS_FILE, 0, r"expected \d+ bytes as run.json says, found no such file"),
    Damage(record.COUNTERS_FILE, 0.5, r"expected \d+ bytes as run.json says, found \d+"),
    Damage(RUN_FILE, 0, "no such file"),
    Damage(RUN_FILE, 0.5, "not JSON"),
    Damage("uac.calls.zst", 0, r"expected \d+ bytes as run.json says, found no such file"),
    Damage("uac.calls.zst", 0.5, r"expected \d+ bytes as run.json says, found \d+"),
)


def read(folder: Path, scratch: Path) -> None:
    """Read the messages and summarise the run as the workflow does, and read the calls as the certificate does."""
    messages = scratch / "messages.nc"
    write_messages(messages_from_record(folder), messages)
    run_summary.summarise_run(messages, folder)
    read_calls(folder / "uac.calls.zst")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: f"{one.file}-{one.kept:g}")
def test_error_names_the_damaged_file(damage: Damage, tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "rep~1"
    shutil.copytree(RECORD, folder)
    path = folder / damage.file
    if damage.kept:
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * damage.kept)])
    else:
        path.unlink()
    before = digests(tmp_path / "raw")
    named = rf"{re.escape(str(path))}: {damage.reason}"
    with pytest.raises(StableError, match=named) as error:
        read(folder, tmp_path)
    assert "\n" not in str(error.value)
    assert not verify(tmp_path / "raw").intact
    assert digests(tmp_path / "raw") == before


def test_intact_record_is_read(tmp_path: Path) -> None:
    before = digests(RECORD)
    read(RECORD, tmp_path)
    assert digests(RECORD) == before
