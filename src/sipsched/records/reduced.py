"""Reduced records: without the files of single messages, and with what came of them instead.

A trace holds some 40 bytes a message; an hour of load is hundreds of megabytes. A campaign that is to be
passed on keeps of most runs what was computed from the trace, `summary.nc.zst` and `windows.nc`, compressed
too, beside the rest of the record, of which what only a person reads is compressed as well: the counters, and
the commands in `run.json`. The original is not touched.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.paths import RUN_FILE
from sipsched.records import manifest
from sipsched.records.run_document import FileReport, as_part

REDUCED_FILE = "reduced.json"
VERSION = 1
SUMMARY_FILE = "summary.nc.zst"
WINDOWS_FILE, REDUCED_WINDOWS_FILE = "windows.nc", "windows.nc.zst"
COUNTERS, COMMANDS = "counters.json", "commands.json"
LEFT_OUT = ("trace.bin.zst", "uac.calls.zst", "uac.csv", COUNTERS)
"""Files that grow with the number of messages, and the one that is here compressed."""
LEVEL = 19
REASON = "the trace was left out of this record to make it smaller"


@dataclass(frozen=True)
class Reduced:
    """The content of `reduced.json`.

    Attributes
    ----------
    left_out
        Files of the record that are not here.
    files
        Those that stand in their place.
    """

    left_out: tuple[str, ...]
    files: Mapping[str, FileReport]


def is_reduced(folder: Path) -> bool:
    """Tell whether a record is a reduced one; of no record it is False."""
    return (folder / REDUCED_FILE).is_file()


def read_reduced(folder: Path) -> Reduced | None:
    """Read what a record was reduced to; None of a whole one.

    Raises
    ------
    StableError
        The file is damaged or of another version.
    """
    path = folder / REDUCED_FILE
    if not path.exists():
        return None
    content = read_json(path, VERSION, "take the record from the campaign it was reduced from")
    return as_part(Reduced, content, str(path))


def kept(folder: Path, name: str) -> Path | None:
    """Name the compressed file that stands for what was computed from the messages; None of a whole record.

    Raises
    ------
    StableError
        The record was reduced without it, or `reduced.json` is damaged.
    """
    reduced = read_reduced(folder)
    if reduced is None:
        return None
    if name not in reduced.files:
        raise StableError(f"{folder}: reduced without {name}; take it from the whole campaign")
    return folder / name


def reduce(record: Path, results: Path, target: Path) -> None:
    """Copy a record without the files of single messages, and with what nothing computes from compressed.

    Parameters
    ----------
    record
        A whole record.
    results
        Folder with the run's `summary.nc.zst` and, of a comparison, `windows.nc`.
    target
        The new folder; its parents are made.

    Raises
    ------
    StableError
        The target is there, a file is missing, or the disk is full.
    """
    try:
        target.mkdir(parents=True)
        left_out = tuple(name for name in LEFT_OUT if (record / name).exists())
        for path in record.iterdir():
            if path.name not in left_out:
                shutil.copy(path, target)
        if not (results / SUMMARY_FILE).exists():
            raise StableError(f"{results}: no {SUMMARY_FILE}; make it with snakemake")
        shutil.copy(results / SUMMARY_FILE, target)
        loose = _take_commands(target / RUN_FILE)
        for path in (results / WINDOWS_FILE, record / COUNTERS):
            if path.exists():
                loose[path.name] = path.read_bytes()
        for name, data in loose.items():
            (target / f"{name}.zst").write_bytes(zstandard.compress(data, LEVEL))
        everything = manifest.reports(target)
        made = (SUMMARY_FILE, *(f"{name}.zst" for name in loose))
        reduced = Reduced(left_out, {name: everything[name] for name in made})
        content = {"schema_version": VERSION, **asdict(reduced)}
        (target / REDUCED_FILE).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise StableError(f"{error.filename}: {error.strerror}") from error


def _take_commands(run_file: Path) -> dict[str, bytes]:
    """Take the commands out of an earlier `run.json`; newer ones have none, and the record a file of them."""
    content = json.loads(run_file.read_bytes())
    commands = content.pop("commands", [])
    if not commands:
        return {}
    run_file.write_text(json.dumps(content, indent=1) + "\n")
    return {COMMANDS: json.dumps(commands, indent=1).encode()}


def expected(
    folder: Path, named: Mapping[str, FileReport], needed: tuple[str, ...]
) -> tuple[dict[str, FileReport], tuple[str, ...]]:
    """Say what has to be there of a record, whole or reduced: files with sizes, and files without."""
    reduced = read_reduced(folder)
    if reduced is None:
        return dict(named), needed
    kept = {name: report for name, report in named.items() if name not in reduced.left_out}
    return kept | dict(reduced.files), tuple(n for n in needed if n not in reduced.left_out)
