"""The record of a run: a folder under raw/ that appears when all files are complete, and then never changes."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.errors import StableError
from sipsched.paths import RUN_FILE
from sipsched.plan.run import Run
from sipsched.records import manifest
from sipsched.records.reduced import expected
from sipsched.records.run_document import RunDocument, read_run
from sipsched.validity.verdict import INVALID, Finding, in_words

COUNTERS_FILE, COMMANDS_FILE = "counters.json.zst", "commands.json.zst"
TRACE_FILE = "trace.bin.zst"
REASON_FILE = "failure.txt"
KILLED = "interrupted: the program that measured this run did not come to its end"
STOPPED = "interrupted by a signal"
"""Texts in `failure.txt` for two failures: the measuring program was killed, or a signal ended the attempt."""
GENERATOR_FILES = ("uac.calls.zst", "uac.json")
"""Files that the load generator sipload writes to a record."""
DAMAGED = "restore it from a copy, or move the record away and run snakemake to measure it again"


def is_recorded(raw: Path, run: Run) -> bool:
    """Return True if the folder `raw` contains a complete record of the run."""
    return (raw / run.path / RUN_FILE).is_file()


def needed_files(document: RunDocument) -> tuple[str, ...]:
    """Return the names of the files that a record must contain in addition to `run.json`."""
    trace = () if document.probe.mode == "off" else (TRACE_FILE,)
    return (COUNTERS_FILE, *trace, *GENERATOR_FILES)


def damages(record: Path, document: RunDocument) -> tuple[manifest.Damage, ...]:
    """Return the damage of each file in a record that is missing or differs from the entry in `run.json`.

    A reduced record must contain the files that replace its removed files.

    Raises
    ------
    StableError
        `reduced.json` cannot be read, or is about another record.
    """
    named, needed = expected(record, document, needed_files(document))
    return manifest.damages(record, named, needed)


def read_record(record: Path) -> RunDocument:
    """Read the `run.json` of a record, and check that all files of the record match `run.json`.

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
    """An invalid attempt to measure a run: the attempt broke a validity rule, or ended with an error.

    Attributes
    ----------
    findings
        The broken rules that made the attempt invalid; empty if the attempt ended before the rules were applied.
    error
        Text of the error that ended the attempt; empty if the disk was too full for the text.
    """

    run: Run
    findings: tuple[Finding, ...]
    error: str

    def __str__(self) -> str:
        """Return the reason why the attempt is invalid as text."""
        return in_words(self.findings) or self.error

    @property
    def causes(self) -> tuple[str, ...]:
        """Return the causes of the failure as short texts that can be counted: broken rules, or else the error."""
        return tuple(finding.rule for finding in self.findings) or (self.error,)


def failed_attempts(raw: Path, runs: Iterable[Run]) -> list[Attempt]:
    """Return all invalid attempts to measure these runs."""
    attempts = []
    for run in runs:
        path = raw / run.path
        for folder in sorted(path.parent.glob(f"{path.name}.failed-*")):
            reason = folder / REASON_FILE
            error = reason.read_text().strip() if reason.is_file() else ""
            try:
                findings = read_run(folder).verdict.broken
            except StableError:
                # run.json is missing or damaged if the attempt ended before its verdict, or if the disk was full.
                findings = ()
            refused = tuple(finding for finding in findings if finding.grade == INVALID)
            attempts.append(Attempt(run, refused, error))
    return attempts


@dataclass(frozen=True)
class UnfinishedRecord:
    """The folder in which a run collects its files until the record is complete.

    Attributes
    ----------
    folder
        The folder `<run>.partial`.
    final
        The folder of the finished record.
    lock
        File descriptor of `folder`. A lock on this descriptor tells other processes that a process is measuring this
        run. None if this process does not measure the run.
    """

    folder: Path
    final: Path
    lock: int | None = None

    @classmethod
    def begin(cls, raw: Path, run: Run) -> "UnfinishedRecord":
        """Create the folder `<run>.partial`, and lock it until the record is complete or has failed.

        A folder that a killed process has left is renamed to `<run>.failed-<n>`.

        Raises
        ------
        StableError
            The run already has a record, another process measures the run, or the folder cannot be created.
        """
        final = raw / run.path
        folder = final.with_name(f"{final.name}.partial")
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with _alone_in(final.parent):
                if is_recorded(raw, run):
                    raise StableError(
                        f"{final}: the run is already recorded, and a finished run is never replaced"
                    )
                if folder.exists():
                    left = cls(folder, final, _lock(folder))
                    left.fail(KILLED)
                folder.mkdir()
                return cls(folder, final, _lock(folder))
        except BlockingIOError:
            raise StableError(
                f"{folder}: another process is measuring this run; wait until it has ended"
            ) from None
        except OSError as error:
            raise StableError(f"{folder}: {error.strerror}") from error

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the record, and wait until the file is on the disk.

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
                f"{path}: cannot write: {error.strerror}; earlier records are not affected"
            ) from error

    def close(self, document: RunDocument) -> None:
        """Write the file `run.json` with a list of all other files in the folder.

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
        """Write `run.json`, and rename the folder to the folder of the complete record.

        Raises
        ------
        StableError
            The disk is full or not writable, or the run already has a record.
        """
        self.close(document)
        try:
            with _alone_in(self.final.parent):
                # Snakemake creates the final folder before the job starts. rename(2) replaces the empty final folder.
                self.folder.rename(self.final)
        except OSError as error:
            raise StableError(
                f"{self.final}: cannot create the record: {error.strerror}"
            ) from error
        self._unlock()

    def fail(self, reason: str) -> Path | None:
        """Rename the folder to `<run>.failed-<n>`, and write the reason into the folder if the disk has free space.

        Returns
        -------
        Path or None
            The renamed folder; None if the run left no file, so that the folder was deleted.
        """
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
            self._unlock()
            return None
        taken = {path.name for path in self.final.parent.glob(f"{self.final.name}.failed-*")}
        numbers = range(1, len(taken) + 2)
        name = next(name for n in numbers if (name := f"{self.final.name}.failed-{n}") not in taken)
        # If the disk is full, the reason cannot be written. The name of the folder still shows that the run failed.
        with contextlib.suppress(StableError):
            self.write(REASON_FILE, reason + "\n")
        failed = self.final.with_name(name)
        self.folder.rename(failed)
        self._unlock()
        return failed

    def _unlock(self) -> None:
        if self.lock is not None:
            os.close(self.lock)


def _lock(folder: Path) -> int:
    """Open a folder and lock it, and return the file descriptor.

    Raises
    ------
    BlockingIOError
        Another process holds the lock. The kernel releases the lock of a killed process.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder during the `with` block, so that no other process starts or completes a run in the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
