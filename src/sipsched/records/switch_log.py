"""The file `windows.json.zst` of a run that compares modes: the run's windows and the switches between modes."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import zstandard

from sipsched.errors import StableError
from sipsched.files import read_zstd
from sipsched.plan.crossover import Design
from sipsched.records.conversion import part_of_json

WINDOWS_FILE = "windows.json.zst"
VERSION = 1
LOG_VERSION = 1


@dataclass(frozen=True)
class Switch:
    """A change of the scheduler mode at the start of a window. Times are in ns on the SPS's clock CLOCK_MONOTONIC.

    Attributes
    ----------
    asked_ns, began_ns, done_ns
        Times at which the switch was planned, at which its first setting began, and at which its last setting was done.
    errors
        Number of settings that the kernel refused.
    unlike
        Number of settings whose value, read back after the switch, differs from the written value.
    error
        Text of the kernel's first refusal.
    """

    asked_ns: int
    began_ns: int
    done_ns: int
    errors: int
    unlike: int
    error: str = ""

    @property
    def good(self) -> bool:
        """Return True if the switch applied every setting and every setting has the written value."""
        return not (self.errors or self.unlike)


@dataclass(frozen=True)
class Samples:
    """Samples of the kernel's counters of the SPS during a run. Ticks are CPU times, summed over the SPS's CPUs."""

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
    """The output of the program `switcher` for a run (hardware/scheduler).

    Attributes
    ----------
    cpu_ns_of_instances
        CPU time of each proxy instance at the time of each sample, in the order of the ports. Empty if one proxy served
        in all modes, for simulated runs and in older records.
    """

    version: int
    t0_ns: int
    tasks: int
    ended: str
    windows: tuple[Switch, ...]
    samples: Samples
    cpu_ns_of_instances: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Competed:
    """Samples of the CPU time that other programs had used on the SPS, without tasks of class SCHED_IDLE.

    Attributes
    ----------
    t_ns
        Times of the samples, CLOCK_MONOTONIC.
    competed_ns
        CPU time that competitors had used on all CPUs of the SPS until the time of each sample.
    """

    t_ns: tuple[int, ...]
    competed_ns: tuple[int, ...]


@dataclass(frozen=True)
class WindowsDocument:
    """The content of `windows.json.zst`: the windows of a run that compares modes, and the switches between modes.

    Attributes
    ----------
    design
        The windows and their modes, in the sampled random order.
    cpus
        CPUs of the SPS. The ticks in `log` are sums over these CPUs.
    steal_share
        Limit of the share of stolen time. A block with a window above the limit has less weight.
    log
        The switches.
    competed
        CPU time of competitors; None if no program counted the time.
    """

    design: Design
    cpus: tuple[int, ...]
    steal_share: float
    log: SwitchLog
    competed: Competed | None = None
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """Return the content of `windows.json.zst` as compressed bytes."""
        text = json.dumps(asdict(self), allow_nan=False)
        return zstandard.compress(text.encode(), 9)


def parse_log(text: str, where: str) -> SwitchLog:
    """Parse the output of the program `switcher`.

    Raises
    ------
    StableError
        The text is not JSON, has another format version, or lacks a key.
    """
    return part_of_json(SwitchLog, text, where, version=LOG_VERSION)


def read_windows(record: Path) -> WindowsDocument:
    """Read the windows of a run, and the switches between its modes, from the record's `windows.json.zst`.

    Raises
    ------
    StableError
        The file is missing, damaged or of another version, or has more switches than windows. The CPU time of an
        instance has another number of samples than the log.
    """
    path = record / WINDOWS_FILE
    data = read_zstd(path, "record of windows", "repeat the run")
    document = part_of_json(WindowsDocument, data, str(path), version=VERSION)
    if len(document.log.windows) > len(document.design.windows):
        raise StableError(
            f"{path}: {len(document.log.windows)} switches for {len(document.design.windows)} windows; repeat the run"
        )
    samples = len(document.log.samples.t_ns)
    for number, cpu_ns in enumerate(document.log.cpu_ns_of_instances):
        if len(cpu_ns) != samples:
            raise StableError(
                f"{path}: expected {samples} samples of the CPU time of instance {number}, found {len(cpu_ns)}; "
                "repeat the run"
            )
    return document
