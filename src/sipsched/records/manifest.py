"""What belongs to a record: its files with sizes and SHA-256, and what is no longer so."""

import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sipsched.paths import RUN_FILE
from sipsched.records.run_document import FileReport


@dataclass(frozen=True)
class Damage:
    """A file of a record that is not as `run.json` says; expected and found in words."""

    name: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Say it without the folder."""
        return f"{self.name}: expected {self.expected} as run.json says, found {self.found}"


def reports(folder: Path) -> dict[str, FileReport]:
    """Measure every file of a record but `run.json`, which is to name them.

    Raises
    ------
    OSError
        A file cannot be read.
    """
    return {
        path.name: FileReport(path.stat().st_size, _sha256(path))
        for path in sorted(folder.iterdir())
        if path.name != RUN_FILE
    }


def damages(
    folder: Path, named: Mapping[str, FileReport], needed: tuple[str, ...]
) -> tuple[Damage, ...]:
    """Find what is missing or other than it was.

    Parameters
    ----------
    folder
        The record.
    named
        Its files as `run.json` has them.
    needed
        Names of files that have to be there, whether named or not.
    """
    found = (_damage(folder / name, name, report) for name, report in named.items())
    wrong = tuple(each for each in found if each is not None)
    missing = tuple(
        Damage(name, "a file", "none")
        for name in needed
        if name not in named and not (folder / name).is_file()
    )
    return wrong + missing


def _damage(path: Path, name: str, report: FileReport) -> Damage | None:
    size = f"{report.bytes} bytes"
    # a name with a slash would have another folder's files read
    if path.name != name:
        return Damage(name, "the name of a file of this folder", "another path")
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return Damage(name, f"a file of {size}", "something that is not a plain file")
        if status.st_size != report.bytes:
            return Damage(name, size, str(status.st_size))
        digest = _sha256(path)
    except FileNotFoundError:
        return Damage(name, size, "no such file")
    except OSError as error:
        return Damage(name, size, f"that it cannot be read: {error.strerror}")
    if digest != report.sha256:
        return Damage(name, f"SHA-256 {report.sha256}", digest)
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
