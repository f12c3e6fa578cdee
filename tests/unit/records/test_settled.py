"""Tests of the list of runs in a study's summary, which expires when a record changes."""

import json
import os

import pytest

from sipsched.files import seal
from sipsched.records import settled
from sipsched.records.reduced import identity

RUNS = ("one", "two")


@pytest.fixture
def joined(tmp_path):
    """Make the summary of a study, and the list of the runs in this summary."""
    for run in RUNS:
        for place, name in (
            ("raw", "run.json"),
            *(("results/runs", name) for name in settled.MADE),
        ):
            path = tmp_path / place / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(seal(json.dumps({"of": run})) if name == "run.json" else run)
    path = tmp_path / "results" / "study" / "bed" / "summary.nc"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"joined")
    marks = {run: settled.marks(tmp_path / "raw", tmp_path / "results", run) for run in RUNS}
    attrs = {run: {"kind": "local", "load": run} for run in RUNS}
    settled.write_settled(path, settled.Settled(marks, attrs))
    return path


def unchanged(path):
    root = path.parents[3]
    return settled.settled_runs(root / "raw", root / "results", [path])


def test_a_file_is_read_as_it_was_written(joined):
    result = settled.read_settled(joined)
    assert result.attrs == {run: {"kind": "local", "load": run} for run in RUNS}
    assert {mark[0] for mark in result.marks.values()} == {
        identity(joined.parents[3] / "raw" / run) for run in RUNS
    }
    assert unchanged(joined) == set(RUNS)


def replace_and_keep_its_times(path):
    """Replace a file by another file of the same size and modification time."""
    before = path.stat()
    other = path.with_name("other")
    other.write_text("x" * before.st_size)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)


@pytest.mark.parametrize("name", settled.MADE)
@pytest.mark.parametrize("change", [os.utime, os.remove, replace_and_keep_its_times])
def test_a_run_is_settled_while_its_files_are_unchanged(joined, name, change):
    change(joined.parents[3] / "results/runs" / "one" / name)
    assert unchanged(joined) == {"two"}


@pytest.mark.parametrize("change", [os.remove, replace_and_keep_its_times])
def test_a_run_stays_settled_while_its_record_has_the_same_content(joined, change):
    run_file = joined.parents[3] / "raw" / "one" / "run.json"
    content = run_file.read_text()
    change(run_file)
    assert unchanged(joined) == {"two"}
    run_file.write_text(content)
    os.utime(run_file, (1, 1))
    assert unchanged(joined) == set(RUNS)


@pytest.mark.parametrize(
    "change",
    [
        {"versions": [0, 0, 0]},
        {"summary_bytes": 1},
        {"schema_version": 1},
        {"runs": 3},
        {"runs": {"one": [1]}},
        {"runs": {"one": [[1, 2, 3, 4], {}]}},
        {"texts": []},
        {"runs": None},
    ],
)
def test_a_settled_file_of_another_summary_settles_no_run(joined, change):
    path = settled.settled_file(joined)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert unchanged(joined) == set()


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_damaged_settled_file_settles_no_run(joined, text):
    settled.settled_file(joined).write_bytes(text.encode("latin-1"))
    assert unchanged(joined) == set()


def test_a_settled_file_without_its_summary_settles_no_run(joined):
    joined.unlink()
    assert unchanged(joined) == set()
