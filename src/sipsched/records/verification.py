"""The check that all records under raw/ are unchanged."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sipsched.errors import StableError
from sipsched.paths import RUN_FILE
from sipsched.records.crossing import read_crossing
from sipsched.records.noise_record import read_noise
from sipsched.records.record import DAMAGED, REASON_FILE, damages
from sipsched.records.reduced import REDUCED_FILE, read_reduced
from sipsched.records.run_document import read_run
from sipsched.words import plural

FINISHED = re.compile(r"rep~[0-9]+")
FAILED = re.compile(r"rep~[0-9]+\.failed-[0-9]+")
SINGLE: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("crossing.json", read_crossing),
    ("capacity~*.json", read_crossing),
    ("noise.json", read_noise),
)
"""Types of records with a single file (searches and noise), each with the function that reads the file."""


@dataclass(frozen=True)
class Checked:
    """A record (of a run, search or noise measurement) and the result of the check for damage.

    Attributes
    ----------
    place
        Path of the record: the folder of a run, or the file of a search or of a noise measurement.
    counts
        Whether the record is a result of the campaign. False for an invalid attempt, `<run>.failed-<n>`.
    damage
        Descriptions of the damage, one per file; empty for an unchanged record.
    unnamed
        Files in the record that `run.json` does not list.
    """

    place: Path
    counts: bool
    damage: tuple[str, ...]
    unnamed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """The result of the check of all records.

    Attributes
    ----------
    runs
        Records of runs and of invalid attempts.
    singles
        Records of searches and of noise measurements.
    """

    runs: tuple[Checked, ...]
    singles: tuple[Checked, ...]

    @property
    def intact(self) -> bool:
        """Return True if all records are undamaged. Damage of invalid attempts is ignored."""
        return not any(check.damage for check in (*self.runs, *self.singles) if check.counts)

    @property
    def lines(self) -> Iterator[str]:
        """Return the lines to print: one line per record that is damaged or has unlisted files, then the totals."""
        for check in (*self.runs, *self.singles):
            attempt = "" if check.counts else " (an invalid attempt)"
            if check.damage:
                yield f"damaged: {check.place}{attempt}: {'; '.join(check.damage)}"
            if check.unnamed:
                names = ", ".join(check.unnamed)
                yield f"not listed in run.json: {check.place}{attempt}: {names}"
        if not self.intact:
            yield f"to repair a damaged record: {DAMAGED}"
        yield _sum([run for run in self.runs if run.counts])
        if self.singles:
            yield _sum(self.singles) + " (searches and noise)"
        attempts = [run for run in self.runs if not run.counts]
        if attempts:
            yield (
                f"{plural(len(attempts), 'invalid attempt')}, "
                f"{sum(bool(attempt.damage) for attempt in attempts)} of them damaged. Reports never read invalid "
                f"attempts, so this check ignores their damage"
            )


def _sum(checked: Sequence[Checked]) -> str:
    return (
        f"{plural(len(checked), 'record')}, {sum(bool(check.damage) for check in checked)} damaged"
    )


def verify(raw: Path) -> Verification:
    """Check all records of all testbeds, and the invalid attempts that have a `run.json`.

    Runs in progress (`<run>.partial`) and attempts without a `run.json` are skipped. A run's folder that contains files
    but no `run.json` is a damaged record.

    Raises
    ------
    StableError
        The folder does not exist, or contains no record.
    """
    if not raw.is_dir():
        raise StableError(f"{raw}: no such folder; name the folder of the records with --raw")
    runs = []
    for folder in sorted(path for path in raw.rglob("rep~*") if path.is_dir()):
        if FINISHED.fullmatch(folder.name) and any(folder.iterdir()):
            runs.append(_check(folder, counts=True))
        elif FAILED.fullmatch(folder.name) and (folder / RUN_FILE).exists():
            runs.append(_check(folder, counts=False))
    singles = [
        Checked(path, True, _problem(read, path))
        for name, read in SINGLE
        for path in sorted(raw.rglob(name))
    ]
    if not any(check.counts for check in chain(runs, singles)):
        raise StableError(
            f"{raw}: nothing was checked, because this folder contains no record; name the folder of the records with "
            f"--raw"
        )
    return Verification(tuple(runs), tuple(singles))


def _problem(read: Callable[[Path], object], path: Path) -> tuple[str, ...]:
    """Read a file with the function `read`. Return the error's text in a tuple, or an empty tuple without error."""
    try:
        read(path)
    except (StableError, OSError) as error:
        return (str(error),)
    return ()


def _check(folder: Path, counts: bool) -> Checked:
    try:
        document = read_run(folder)
        damage = tuple(map(str, damages(folder, document)))
        reduced = read_reduced(folder)
    except (StableError, OSError) as error:
        return Checked(folder, counts, (str(error),))
    added = {REDUCED_FILE, *reduced.files} if reduced else set()
    known = {RUN_FILE, REASON_FILE, *document.files, *added}
    unnamed = tuple(sorted({path.name for path in folder.iterdir()} - known))
    return Checked(folder, counts, damage, unnamed)
