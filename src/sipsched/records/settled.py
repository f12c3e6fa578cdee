"""The file `settled.json`, which lists the runs in a study summary, so that Snakemake plans no jobs for these runs.

Snakemake takes 0.65 ms per job even if the outputs of the job are up to date, and a run has three jobs.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sipsched.errors import MAKE_AGAIN, StableError
from sipsched.files import read_json, read_zstd, whole
from sipsched.paths import RUN_FILE
from sipsched.records.reduced import SUMMARY_FILE, identity
from sipsched.versions import MESSAGES_VERSION, SUMMARY_VERSION, WINDOWS_VERSION

SCHEMA_VERSION = 2
VERSIONS = [MESSAGES_VERSION, SUMMARY_VERSION, WINDOWS_VERSION]
MADE = ("messages.nc", "windows.nc", SUMMARY_FILE)
_RECORD = re.compile(rb'"record": "([0-9a-f]{64})"')
"""Pattern for the record's SHA-256 in the bytes of a run's summary. The header of a netCDF-3 file has plain text."""

Marks = list[str]
"""The SHA-256 of a run's record, a mark of its `run.json`, and a mark of the files in `MADE`.

A mark is a hash of the inodes, sizes, modification times and change times of files. No program can set a change time.
So a file with an unchanged mark has unchanged content and is not read again.
"""


@dataclass(frozen=True)
class Settled:
    """The runs that a study summary contains, with fingerprints of their files that reveal later changes.

    Attributes
    ----------
    marks
        The marks of each run, by the path of the run. The marks were made before the run was read.
    attrs
        Attributes of each run's summary, by the path of the run.
    """

    marks: Mapping[str, Marks]
    attrs: Mapping[str, Mapping[str, Any]]

    def unchanged(self, raw: Path, results: Path) -> set[str]:
        """Return the paths of the runs whose record and computed files have not changed since the study summary."""
        paths = set()
        for path, (record, run_file, made) in self.marks.items():
            if made == _mark(_made(results, path)) and (
                run_file == _mark((f"{raw}/{path}/{RUN_FILE}",)) or record == identity(raw / path)
            ):
                paths.add(path)
        return paths


NOTHING = Settled({}, {})


def marks(raw: Path, results: Path, path: str) -> Marks:
    """Return the SHA-256 of a run's record, and two fingerprints of the inodes, sizes and times of the run's files.

    Parameters
    ----------
    raw, results
        Folders of the records, and of the files that are computed from the records.
    path
        Path of the run.
    """
    run_file = _mark((f"{raw}/{path}/{RUN_FILE}",))
    return [identity(raw / path), run_file, _mark(_made(results, path))]


def _made(results: Path, path: str) -> tuple[str, ...]:
    return tuple(f"{results}/runs/{path}/{name}" for name in MADE)


def _mark(files: Iterable[str]) -> str:
    return hashlib.blake2b(
        repr([_status(file) for file in files]).encode(), digest_size=8
    ).hexdigest()


def _status(file: str) -> tuple[int, int, int, int] | None:
    try:
        # Pass the path as text, because creating Path objects for the 144,000 files of a large campaign would double
        # the time.
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_stale(record: Path, results: Path) -> bool:
    """Return True if the computed files of a run are outdated, because the files were made from another record.

    Parameters
    ----------
    record
        The record. If the record is missing, the result is false.
    results
        The folder of the computed files. The function reads the record's SHA-256 from the summary, or from the messages
        if no summary exists. A summary is only made from messages of the same record.
    """
    now = identity(record)
    return now != "" and _made_of(results) not in ("", now)


def _made_of(results: Path) -> str:
    """Return the record's SHA-256 from a run's summary file, without xarray. For 36,000 files, this saves 24 s."""
    try:
        match = _RECORD.search(read_zstd(results / SUMMARY_FILE, "summary", MAKE_AGAIN))
        return match[1].decode() if match else ""
    except (StableError, OSError):
        pass
    messages = results / "messages.nc"
    if not messages.exists():
        return ""
    # Import netCDF4 only here, because the start of the workflow rarely needs it.
    import netCDF4

    try:
        with netCDF4.Dataset(messages) as file:
            return str(file.getncattr("record"))
    except (OSError, AttributeError):
        return ""


def settled_file(summary: Path) -> Path:
    """Return the path of the `settled.json` beside a study summary."""
    return summary.with_name("settled.json")


def write_settled(summary: Path, settled: Settled) -> None:
    """Write the list of settled runs to the file `settled.json` beside a study summary.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    texts: dict[str, int] = {}
    runs = {
        path: [
            mark,
            {key: texts.setdefault(text, len(texts)) for key, text in settled.attrs[path].items()},
        ]
        for path, mark in settled.marks.items()
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "versions": VERSIONS,
        "summary_bytes": summary.stat().st_size,
        "texts": list(texts),
        "runs": runs,
    }
    with whole(settled_file(summary)) as partial:
        partial.write_text(json.dumps(document))


def read_settled(summary: Path) -> Settled:
    """Read the list of settled runs from the `settled.json` beside a study summary.

    The result has no run if the file is missing or damaged, or was written for another summary or other format
    versions. Snakemake then checks all jobs, and the study summary is made again from all runs.
    """
    try:
        document = read_json(settled_file(summary), SCHEMA_VERSION, MAKE_AGAIN)
        if document["versions"] != VERSIONS or document["summary_bytes"] != summary.stat().st_size:
            return NOTHING
        texts, runs = document["texts"], document["runs"]
        return Settled(
            {path: mark for path, ((*mark,), _) in runs.items() if len(mark) == 3},
            {
                path: {key: texts[index] for key, index in about.items()}
                for path, (_, about) in runs.items()
            },
        )
    except (StableError, OSError, LookupError, TypeError, ValueError, AttributeError):
        return NOTHING


def settled_runs(raw: Path, results: Path, summaries: Iterable[Path]) -> frozenset[str]:
    """Return the paths of the runs whose files have not changed since a study summary was made from them."""
    unchanged = (read_settled(summary).unchanged(raw, results) for summary in summaries)
    return frozenset().union(*unchanged)
