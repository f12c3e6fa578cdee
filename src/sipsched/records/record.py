"""The record of a run: a folder under raw/ that appears whole or not at all, and is never changed again."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.errors import StableError
from sipsched.paths import RUN_FILE
from sipsched.plan.config import Run
from sipsched.records import manifest
from sipsched.records.reduced import expected
from sipsched.records.run_document import RunDocument, read_run
from sipsched.validity.verdict import INVALID, Finding, in_words

COUNTERS_FILE, COMMANDS_FILE = "counters.json.zst", "commands.json.zst"
EARLIER_COUNTERS_FILE = "counters.json"
"""Of records whose `run.json` holds the commands."""
TRACE_FILE = "trace.bin.zst"
REASON_FILE = "failure.txt"
GENERATOR_FILES = {"sipload": ("uac.calls.zst", "uac.json"), "sipp": ("uac.csv",)}
"""What each generator leaves in a record."""
DAMAGED = "restore it from a copy, or move the record away and run snakemake to measure it again"


def is_recorded(raw: Path, run: Run) -> bool:
    """Tell whether a run has a finished record."""
    return (raw / run.path / RUN_FILE).is_file()


def needed_files(document: RunDocument) -> tuple[str, ...]:
    """Name the files that a run like this always leaves beside `run.json`."""
    earlier = document.files is None or EARLIER_COUNTERS_FILE in document.files
    counters = EARLIER_COUNTERS_FILE if earlier else COUNTERS_FILE
    trace = () if document.probe.mode == "off" else (TRACE_FILE,)
    return (counters, *trace, *GENERATOR_FILES.get(document.load.generator, ()))


def damages(record: Path, document: RunDocument) -> tuple[manifest.Damage, ...]:
    """Find what of a record is missing or other than its `run.json` says.

    Of a record that names no files, what a run like it always leaves has to be there; of a reduced one, what
    stands for the files that were left out.
    """
    named, needed = expected(record, document.files or {}, needed_files(document))
    return manifest.damages(record, named, needed)


def read_record(record: Path) -> RunDocument:
    """Read the `run.json` of a record whose files are all as it says.

    Raises
    ------
    StableError
        `run.json` cannot be read, or a file is missing, or has another size or SHA-256.
    """
    document = read_run(record)
    for damage in damages(record, document):
        raise StableError(f"{record}/{damage}; {DAMAGED}")
    return document


@dataclass(frozen=True)
class Attempt:
    """An attempt at a run that does not count.

    Attributes
    ----------
    run
        The run.
    findings
        The rules that it broke; empty where it did not come to a verdict.
    error
        Why it did not, in the words of its error; empty where the disk took none.
    """

    run: Run
    findings: tuple[Finding, ...]
    error: str

    def __str__(self) -> str:
        """Say why it does not count."""
        return in_words(self.findings) or self.error

    @property
    def causes(self) -> tuple[str, ...]:
        """Name each cause, so that equal ones can be counted: rules, or else the error."""
        return tuple(finding.rule for finding in self.findings) or (self.error,)


def failed_attempts(raw: Path, runs: Iterable[Run]) -> list[Attempt]:
    """List what was kept of attempts that do not count."""
    found = []
    for run in runs:
        place = raw / run.path
        for folder in sorted(place.parent.glob(f"{place.name}.failed-*")):
            reason = folder / REASON_FILE
            error = reason.read_text().strip() if reason.is_file() else ""
            try:
                findings = read_run(folder).verdict.broken
            except StableError:
                # it ended before its verdict, or on a full disk
                findings = ()
            refused = tuple(each for each in findings if each.grade == INVALID)
            found.append(Attempt(run, refused, error))
    return found


@dataclass(frozen=True)
class UnfinishedRecord:
    """The folder in which a run collects its files before it counts."""

    folder: Path
    final: Path

    @classmethod
    def begin(cls, raw: Path, run: Run) -> "UnfinishedRecord":
        """Make the folder `<run>.partial`.

        What an interrupted run left there is kept as `<run>.failed-<n>`.

        Raises
        ------
        StableError
            The run has a finished record, or the folder cannot be made.
        """
        final = raw / run.path
        if is_recorded(raw, run):
            raise StableError(f"{final}: already recorded; a finished run is never measured over")
        record = cls(folder=final.with_name(f"{final.name}.partial"), final=final)
        if record.folder.exists():
            record.fail("interrupted: the program that measured this run did not come to its end")
        try:
            record.folder.mkdir(parents=True)
        except OSError as error:
            raise StableError(f"{record.folder}: {error.strerror}") from error
        return record

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the record and see it on the disk.

        Raises
        ------
        StableError
            The disk is full or not writable.
        """
        path = self.folder / name
        data = content.encode() if isinstance(content, str) else content
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StableError(
                f"{path}: cannot write: {error.strerror}; nothing measured before is lost"
            ) from error

    def close(self, document: RunDocument) -> None:
        """Write run.json, which names every file that the folder has by now.

        Raises
        ------
        StableError
            The disk is full or not writable, or a file cannot be read.
        """
        try:
            files = manifest.reports(self.folder)
        except OSError as error:
            raise StableError(f"{error.filename}: cannot read: {error.strerror}") from error
        self.write(RUN_FILE, replace(document, files=files).to_json())

    def finish(self, document: RunDocument) -> None:
        """Write run.json last and put the folder in its place."""
        self.close(document)
        # Snakemake makes the final folder before the job; rename(2) replaces an empty one
        self.folder.rename(self.final)

    def fail(self, reason: str) -> Path | None:
        """Keep what there is as `<run>.failed-<n>`, with the reason if the disk takes it.

        Returns
        -------
        Path or None
            The folder; None if the run ended before it left anything, and nothing is kept.
        """
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
            return None
        taken = {path.name for path in self.final.parent.glob(f"{self.final.name}.failed-*")}
        numbers = range(1, len(taken) + 2)
        name = next(name for n in numbers if (name := f"{self.final.name}.failed-{n}") not in taken)
        # on a full disk the folder's name still says that the run failed
        with contextlib.suppress(StableError):
            self.write(REASON_FILE, reason + "\n")
        failed = self.final.with_name(name)
        self.folder.rename(failed)
        return failed
