"""The files `results/capacity/TESTBED.json`, with the capacity per SUT and mode.

All HTML pages that state a measured capacity read these files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sipsched.errors import MAKE_AGAIN
from sipsched.files import read_json, write_json
from sipsched.records.conversion import as_part
from sipsched.versions import CAPACITY_VERSION


@dataclass(frozen=True)
class Searched:
    """The two loads that one search found below and above the drop limit, as evidence for a capacity.

    Attributes
    ----------
    lower_cps, upper_cps
        The highest load below and the lowest load above the capacity. None if the search found no such load.
    started_at, finished_at
        UTC, ISO 8601; None if the record lacks the time.
    cpu_ratio
        CPU time per message in the trials, divided by the CPU time per message in the runs at equal loads. None if one
        of the two times was not measured.
    """

    lower_cps: int | None
    upper_cps: int | None
    started_at: str | None = None
    finished_at: str | None = None
    cpu_ratio: float | None = None


@dataclass(frozen=True)
class SystemCapacity:
    """The capacity of a system: the load at which the drop rate passes the limit, estimated from all trials and runs.

    A system is a SUT in a mode, with a number of cores and threads, on a testbed.

    Attributes
    ----------
    limit
        Packet drop rate that defines the capacity. Over TCP, the share of lost calls.
    level
        Probability that the interval contains the capacity.
    estimate_cps, low_cps, high_cps
        Estimate and its interval. None if all trials and runs were above the limit, or if none was above the limit.
    lowest_cps, highest_cps
        The lowest and the highest offered load. If no load exceeded the limit, the capacity is at least the highest
        load. If all loads exceeded the limit, the capacity is below the lowest load.
    dropped
        Whether a trial or a run was above the limit.
    trials, runs
        Numbers of trials and runs from which the capacity was estimated.
    drift, scatter
        Standard deviations of the logarithm of the capacity: the drift that neighbouring trials share, and the scatter
        of single trials. None without an estimate.
    searches
        The searches to which the trials belong.
    fidelity
        Fidelity of the testbed according to the records of the runs and searches. For a guest in virtual time, this
        text names the settings of the guest's clock.
    """

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    limit: float
    level: float
    estimate_cps: float | None
    low_cps: float | None
    high_cps: float | None
    lowest_cps: float
    highest_cps: float
    dropped: bool
    trials: int
    runs: int
    drift: float | None = None
    scatter: float | None = None
    searches: tuple[Searched, ...] = ()
    fidelity: str = ""

    @property
    def likely_cps(self) -> float:
        """Return the estimated capacity in cps, or else the measured load that is closest to the capacity."""
        if self.estimate_cps is not None:
            return self.estimate_cps
        return self.lowest_cps if self.dropped else self.highest_cps


@dataclass(frozen=True)
class _Document:
    systems: tuple[SystemCapacity, ...]
    schema_version: int = CAPACITY_VERSION


def write_capacities(capacities: Iterable[SystemCapacity], path: Path) -> None:
    """Write a `capacity.json`, in one atomic step."""
    write_json(path, asdict(_Document(tuple(capacities))))


def read_capacities(path: Path) -> tuple[SystemCapacity, ...]:
    """Read the estimated capacities of all systems from a `capacity.json`.

    Raises
    ------
    StableError
        The file is missing, damaged or of another format version.
    """
    return as_part(_Document, read_json(path, CAPACITY_VERSION, MAKE_AGAIN), str(path)).systems


def capacity_of(
    capacities: Sequence[SystemCapacity],
    limit: float,
    testbed: str,
    *system: str | int,
) -> SystemCapacity | None:
    """Return the capacity of a SUT, mode, cores and threads for a drop limit, or None if no estimate exists."""
    for capacity in capacities:
        if (capacity.testbed, capacity.limit) == (testbed, limit) and (
            (capacity.sut, capacity.mode, capacity.cores, capacity.threads) == system
        ):
            return capacity
    return None
