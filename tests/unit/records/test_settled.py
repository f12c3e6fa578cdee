"""What a study's summary was joined of, and when that is no longer so."""

import json
import os

import pytest

from sipsched.records import settled

RUNS = ("one", "two")


@pytest.fixture
def joined(tmp_path):
    """A study's summary and what it was joined of."""
    for run in RUNS:
        for place, name in (
            ("raw", "run.json"),
            *(("results/runs", name) for name in settled.MADE),
        ):
            path = tmp_path / place / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    path = tmp_path / "results" / "study" / "bed" / "summary.nc"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"joined")
    stamps = {run: settled.stamps(tmp_path / "raw", tmp_path / "results", run) for run in RUNS}
    attrs = {run: {"kind": "local", "load": run} for run in RUNS}
    settled.write_settled(path, settled.Settled(stamps, attrs))
    return path


def unchanged(path):
    root = path.parents[3]
    return settled.settled_runs(root / "raw", root / "results", [path])


def test_it_is_read_as_it_was_written(joined):
    found = settled.read_settled(joined)
    assert found.attrs == {run: {"kind": "local", "load": run} for run in RUNS}
    assert all(len(stamp) == 4 and None not in stamp for stamp in found.stamps.values())
    assert unchanged(joined) == set(RUNS)


@pytest.mark.parametrize("name", ["run.json", *settled.MADE])
@pytest.mark.parametrize("change", [os.utime, os.remove])
def test_a_run_is_settled_while_its_files_are_as_they_were(joined, name, change):
    folder = "raw" if name == "run.json" else "results/runs"
    change(joined.parents[3] / folder / "one" / name)
    assert unchanged(joined) == {"two"}


@pytest.mark.parametrize(
    "change",
    [
        {"versions": [0, 0, 0]},
        {"summary_bytes": 1},
        {"schema_version": 2},
        {"runs": 3},
        {"runs": {"one": [1]}},
        {"texts": []},
        {"runs": None},
    ],
)
def test_what_is_not_known_to_be_of_this_summary_settles_nothing(joined, change):
    path = settled.settled_file(joined)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert unchanged(joined) == set()


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_damaged_one_settles_nothing(joined, text):
    settled.settled_file(joined).write_bytes(text.encode("latin-1"))
    assert unchanged(joined) == set()


def test_nor_does_one_without_its_summary(joined):
    joined.unlink()
    assert unchanged(joined) == set()
