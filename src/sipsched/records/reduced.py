"""Reduced records, in which summaries replace the large files with the data of each message.

A trace has about 40 bytes per message, so an hour of load has hundreds of megabytes. To publish a campaign, most of its
runs are copied without their traces and the other files in `LEFT_OUT`. Each copy contains `summary.nc.zst` and a
compressed `windows.nc` instead. All other files of the record are copied unchanged.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import zstandard

from sipsched.errors import StableError
from sipsched.files import SEAL, read_seal, read_sealed, read_zstd, seal
from sipsched.paths import RUN_FILE
from sipsched.records import manifest
from sipsched.records.conversion import as_part
from sipsched.records.run_document import FileReport, RunDocument, read_run

REDUCED_FILE = "reduced.json"
VERSION = 2
SUMMARY_FILE = "summary.nc.zst"
WINDOWS_FILE, REDUCED_WINDOWS_FILE = "windows.nc", "windows.nc.zst"
LEFT_OUT = (
    *("trace.bin.zst", "uac.calls.zst", "bursts.json.zst", "windows.json.zst"),
    *("commands.json.zst", "counters.json.zst", "proxy.log"),
)
"""Files that a reduced record lacks, because nothing reads these files after the run's summary is made.
`bursts.json.zst` also names other programs of the machine."""
LEVEL, UNCOMPRESSED = 19, -1000
"""Levels of zstd: for a single record, and for a record in an archive that is compressed as a whole."""
REMEDY = "copy the record from the campaign from which it was reduced"
REASON = "the trace was left out of this record to make it smaller"


@dataclass(frozen=True)
class Reduced:
    """The content of `reduced.json`: the files that a reduced record lacks, and the files that replace them.

    Attributes
    ----------
    left_out
        Files that the reduced record lacks.
    files
        Files that replace the missing files.
    run_sha256
        The SHA-256 of the record's `run.json`, which identifies the record.
    sha256
        The SHA-256 of `reduced.json`, which identifies the reduced record. Empty until `reduced.json` is read.
    """

    left_out: tuple[str, ...]
    files: Mapping[str, FileReport]
    run_sha256: str
    sha256: str = ""


def is_reduced(folder: Path) -> bool:
    """Return True if the folder contains a reduced record, which lacks the large files with per-message data."""
    return (folder / REDUCED_FILE).is_file()


def read_reduced(folder: Path) -> Reduced | None:
    """Read the `reduced.json` of a record. Return None for a complete record.

    Raises
    ------
    StableError
        The file is damaged or has another format version.
    """
    path = folder / REDUCED_FILE
    if not path.exists():
        return None
    content = read_sealed(path, VERSION, REMEDY)
    return as_part(Reduced, content, str(path))


def kept(folder: Path, name: str) -> Path | None:
    """Return the path of a computed file (such as the summary) in a reduced record; None for a complete record.

    Raises
    ------
    StableError
        The reduced record lacks the computed file, or `reduced.json` is damaged.
    """
    reduced = read_reduced(folder)
    if reduced is None:
        return None
    if name not in reduced.files:
        raise StableError(
            f"{folder}: the reduced record lacks {name}; copy the file from the complete campaign"
        )
    return folder / name


def reduce(record: Path, results: Path, target: Path) -> None:
    """Copy a record without the large files, and add the summaries that were computed from the large files.

    Parameters
    ----------
    results
        Folder that contains the run's `summary.nc.zst` and, for a run that compares modes, `windows.nc`.
    target
        The new folder. Missing parent folders are created.

    Raises
    ------
    StableError
        The target already exists, a file is missing, or the disk is full.
    """
    document = read_run(record)
    try:
        target.mkdir(parents=True)
        left_out = tuple(name for name in LEFT_OUT if (record / name).exists())
        for path in record.iterdir():
            if path.name not in left_out:
                shutil.copy(path, target)
        if not (results / SUMMARY_FILE).exists():
            raise StableError(f"{results}: {SUMMARY_FILE} is missing; make it with snakemake")
        shutil.copy(results / SUMMARY_FILE, target)
        made = [SUMMARY_FILE]
        if (results / WINDOWS_FILE).exists():
            windows = (results / WINDOWS_FILE).read_bytes()
            (target / REDUCED_WINDOWS_FILE).write_bytes(zstandard.compress(windows, LEVEL))
            made.append(REDUCED_WINDOWS_FILE)
        everything = manifest.reports(target)
        write_reduced(
            target, Reduced(left_out, {name: everything[name] for name in made}, document.sha256)
        )
    except OSError as error:
        raise StableError(f"{error.filename}: {error.strerror}") from error


def recompress(folder: Path, level: int) -> None:
    """Compress the summaries of a reduced record again, with another level of zstd.

    An archive of records with the level `UNCOMPRESSED` is smaller, because the compression of the archive then finds
    the equal parts of the records.
    """
    reduced = read_reduced(folder)
    assert reduced is not None
    for name in reduced.files:
        content = read_zstd(folder / name, "summary", REMEDY)
        (folder / name).write_bytes(zstandard.compress(content, level))
    everything = manifest.reports(folder)
    write_reduced(
        folder, replace(reduced, files={name: everything[name] for name in reduced.files})
    )


def write_reduced(folder: Path, reduced: Reduced) -> None:
    """Write the file `reduced.json`, including a SHA-256 of the content."""
    content = {"schema_version": VERSION, **asdict(reduced)}
    del content[SEAL]
    (folder / REDUCED_FILE).write_text(seal(json.dumps(content, indent=1)))


def expected(
    folder: Path, document: RunDocument, needed: tuple[str, ...]
) -> tuple[dict[str, FileReport], tuple[str, ...]]:
    """Return the size and SHA-256 of each file that a complete or reduced record lists, and the required files' names.

    Raises
    ------
    StableError
        `reduced.json` is damaged, or is about another record.
    """
    reduced = read_reduced(folder)
    if reduced is None:
        return dict(document.files), needed
    if reduced.run_sha256 != document.sha256:
        raise StableError(
            f"{folder / REDUCED_FILE}: expected the run.json of SHA-256 {reduced.run_sha256}, "
            f"found {document.sha256}; {REMEDY}"
        )
    left = {name: file for name, file in document.files.items() if name not in reduced.left_out}
    return left | dict(reduced.files), tuple(n for n in needed if n not in reduced.left_out)


def identity(folder: Path) -> str:
    """Return the SHA-256 that identifies a complete or reduced record, or an empty text if no record exists.

    The function reads only the last key of `run.json` or of `reduced.json`. `sipsched.records.record.read_record`
    checks that the content has this SHA-256.
    """
    return read_seal(f"{folder}/{REDUCED_FILE}") or read_seal(f"{folder}/{RUN_FILE}") or ""
