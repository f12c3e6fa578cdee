"""Whether the records of a whole raw/ are still as they were written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import read_json, read_zstd
from sipsched.paths import RUN_FILE
from sipsched.records.record import DAMAGED, EARLIER_COUNTERS_FILE, REASON_FILE, TRACE_FILE, damages
from sipsched.records.reduced import REDUCED_FILE, read_reduced
from sipsched.records.run_document import RunDocument, read_run
from sipsched.records.trace import read_trace
from sipsched.words import plural

FINISHED = re.compile(r"rep~[0-9]+")
FRESH = "repeat the run"
FAILED = re.compile(r"rep~[0-9]+\.failed-[0-9]+")


@dataclass(frozen=True)
class Checked:
    """A record that was looked at.

    Attributes
    ----------
    folder
        Where it is.
    counts
        False of an attempt that was kept as `<run>.failed-<n>`.
    named
        Whether its `run.json` names its files, as far as it can be read.
    damage
        What is wrong with it, one text a file; none where it is as it was.
    unnamed
        Files in it that `run.json` does not name.
    """

    folder: Path
    counts: bool
    named: bool
    damage: tuple[str, ...]
    unnamed: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """What came of checking a whole raw/."""

    records: tuple[Checked, ...]

    @property
    def intact(self) -> bool:
        """Whether no record is damaged; attempts that do not count are not asked."""
        return not any(each.damage for each in self.records if each.counts)

    @property
    def lines(self) -> Iterator[str]:
        """A line a record that is not as it was or holds more, then the sum."""
        for each in self.records:
            attempt = "" if each.counts else " (an attempt that does not count)"
            if each.damage:
                yield f"damaged: {each.folder}{attempt}: {'; '.join(each.damage)}"
            if each.unnamed:
                names = ", ".join(each.unnamed)
                yield f"not named in run.json: {each.folder}{attempt}: {names}"
        if not self.intact:
            yield f"what to do about a damaged record: {DAMAGED}"
        counting = [each for each in self.records if each.counts]
        attempts = [each for each in self.records if not each.counts]
        yield (
            f"{plural(len(counting), 'record')}, "
            f"{sum(not each.named for each in counting)} without a manifest, "
            f"{sum(bool(each.damage) for each in counting)} damaged"
        )
        if attempts:
            yield (
                f"{plural(len(attempts), 'attempt')} that do not count, "
                f"{sum(bool(each.damage) for each in attempts)} damaged: no report reads them, "
                "and they do not make this check fail"
            )


def verify(raw: Path) -> Verification:
    """Check every record of all testbeds, and the attempts that came to a `run.json`.

    Runs in progress (`<run>.partial`) and attempts without a `run.json` are left out. A folder of a
    run that holds files and no `run.json` is a damaged record.

    Raises
    ------
    StableError
        There is no such folder.
    """
    if not raw.is_dir():
        raise StableError(f"{raw}: no such folder; name the folder of the records with --raw")
    found = []
    for folder in sorted(path for path in raw.rglob("rep~*") if path.is_dir()):
        if FINISHED.fullmatch(folder.name) and any(folder.iterdir()):
            found.append(_check(folder, counts=True))
        elif FAILED.fullmatch(folder.name) and (folder / RUN_FILE).exists():
            found.append(_check(folder, counts=False))
    return Verification(tuple(found))


def _check(folder: Path, counts: bool) -> Checked:
    try:
        document = read_run(folder)
    except (StableError, OSError) as error:
        return Checked(folder, counts, True, (str(error),), ())
    try:
        damage = tuple(map(str, damages(folder, document)))
        reduced = read_reduced(folder)
    except StableError as error:
        return Checked(folder, counts, True, (str(error),), ())
    if document.files is None:
        return Checked(folder, counts, False, damage or _unreadable(folder, document), ())
    added = {REDUCED_FILE, *reduced.files} if reduced else set()
    known = {RUN_FILE, REASON_FILE, *document.files, *added}
    unnamed = tuple(sorted({path.name for path in folder.iterdir()} - known))
    return Checked(folder, counts, True, damage, unnamed)


def _unreadable(folder: Path, document: RunDocument) -> tuple[str, ...]:
    """Read the files of a record that has no sizes to compare with."""
    found = []
    for path in sorted(folder.iterdir()):
        try:
            if path.name == TRACE_FILE:
                read_trace(path, document.probe.records + document.probe.drops)
            elif path.suffix == ".zst":
                read_zstd(path, "file", FRESH)
            elif path.name == EARLIER_COUNTERS_FILE:
                read_json(path, None, FRESH)
        except (StableError, OSError) as error:
            found.append(str(error))
    return tuple(found)
