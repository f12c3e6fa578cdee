"""The list of the files of a record, with sizes and SHA-256, and the check for damaged files."""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sipsched.files import sha256_of
from sipsched.paths import RUN_FILE
from sipsched.records.run_document import FileReport


@dataclass(frozen=True)
class Damage:
    """A damaged file of a record, with two texts: its state according to `run.json`, and its actual state."""

    name: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the damage as text. The text contains the name of the file without the folder."""
        return f"{self.name}: expected {self.expected} as run.json says, found {self.found}"


def reports(folder: Path) -> dict[str, FileReport]:
    """Return the size and the SHA-256 of every file of a record except `run.json`.

    Raises
    ------
    OSError
        A file cannot be read.
    """
    return {
        path.name: FileReport(path.stat().st_size, sha256_of(path))
        for path in sorted(folder.iterdir())
        if path.name != RUN_FILE
    }


def damages(
    folder: Path, named: Mapping[str, FileReport], needed: tuple[str, ...]
) -> tuple[Damage, ...]:
    """Return the damage of each file in a record that is missing or has changed since the run.

    Parameters
    ----------
    folder
        Folder of the record.
    named
        Files that `run.json` lists.
    needed
        Names of files that must exist, even if `run.json` does not list them.
    """
    possible = (_damage(folder / name, name, report) for name, report in named.items())
    wrong = tuple(damage for damage in possible if damage is not None)
    missing = tuple(
        Damage(name, "a file", "none")
        for name in needed
        if name not in named and not (folder / name).is_file()
    )
    return wrong + missing


def _damage(path: Path, name: str, report: FileReport) -> Damage | None:
    size = f"{report.bytes} bytes"
    # Refuse a name with a slash, because it would lead to a file in another folder. Refuse a NUL, which no name may
    # contain.
    if path.name != name or "\0" in name:
        return Damage(repr(name), "the name of a file in this folder", "another path")
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return Damage(name, f"a file of {size}", "a path that is not a plain file")
        if status.st_size != report.bytes:
            return Damage(name, size, str(status.st_size))
        digest = sha256_of(path)
    except FileNotFoundError:
        return Damage(name, size, "no such file")
    except OSError as error:
        return Damage(name, size, f"a file that cannot be read: {error.strerror}")
    if digest != report.sha256:
        return Damage(name, f"SHA-256 {report.sha256}", digest)
    return None
