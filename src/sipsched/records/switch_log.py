"""`windows.json.zst`: the windows of a crossover run as they were drawn, and the switches as they were made."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import zstandard

from sipsched.errors import StableError
from sipsched.files import parse_json, read_zstd
from sipsched.plan.crossover import Design
from sipsched.records.run_document import as_part

WINDOWS_FILE = "windows.json.zst"
VERSION = 1
LOG_VERSION = 1
Part = TypeVar("Part")


@dataclass(frozen=True)
class Switch:
    """A switch into a window; instants in ns, CLOCK_MONOTONIC of the SPS.

    Attributes
    ----------
    asked_ns, began_ns, done_ns
        When it was due, when its first setting was made and when its last.
    errors
        Settings that the kernel refused.
    unlike
        Settings that do not read back as written.
    error
        The first refusal, in words.
    """

    asked_ns: int
    began_ns: int
    done_ns: int
    errors: int
    unlike: int
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether every setting was made and reads back."""
        return not (self.errors or self.unlike)


@dataclass(frozen=True)
class Samples:
    """Counters of the SPS through the run, at each instant one; ticks of /proc/stat over the SPS's CPUs."""

    t_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    datagrams: tuple[int, ...]
    refused: tuple[int, ...]
    steal_ticks: tuple[int, ...]
    idle_ticks: tuple[int, ...]
    softirq_ticks: tuple[int, ...]
    time_squeeze: tuple[int, ...]


@dataclass(frozen=True)
class SwitchLog:
    """What `switcher` says of a run (hardware/scheduler)."""

    version: int
    t0_ns: int
    tasks: int
    ended: str
    windows: tuple[Switch, ...]
    samples: Samples


@dataclass(frozen=True)
class WindowsDocument:
    """The content of the file.

    Attributes
    ----------
    design
        The windows as drawn.
    cpus
        Of the SPS; ticks are summed over them.
    steal_share
        Above it a window is left out.
    log
        The switches.
    """

    design: Design
    cpus: tuple[int, ...]
    steal_share: float
    log: SwitchLog
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """Write it as the file has it."""
        text = json.dumps(asdict(self), allow_nan=False)
        return zstandard.compress(text.encode(), 9)


def parse_log(text: str, where: str) -> SwitchLog:
    """Read what `switcher` wrote.

    Raises
    ------
    StableError
        It is not JSON, of another version, or lacks something.
    """
    return _checked(SwitchLog, text, where, LOG_VERSION)


def read_windows(record: Path) -> WindowsDocument:
    """Read the file of a record.

    Raises
    ------
    StableError
        It is missing, damaged or of another version, or switches and windows do not fit.
    """
    path = record / WINDOWS_FILE
    data = read_zstd(path, "record of windows", "repeat the run")
    found = _checked(WindowsDocument, data.decode(errors="replace"), str(path), VERSION)
    if len(found.log.windows) > len(found.design.windows):
        raise StableError(
            f"{path}: {len(found.log.windows)} switches into {len(found.design.windows)} windows; "
            "repeat the run"
        )
    return found


def _checked(kind: type[Part], text: str, where: str, version: int) -> Part:
    try:
        content = parse_json(text)
    except ValueError as error:
        raise StableError(f"{where}: {error}; repeat the run") from None
    found = content.get("version") if isinstance(content, dict) else None
    if found != version:
        raise StableError(f"{where}: expected version {version}, found {found}; repeat the run")
    return as_part(kind, content, where)
