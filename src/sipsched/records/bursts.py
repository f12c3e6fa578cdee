"""The file `bursts.json.zst`, which lists when other programs and softirqs used the CPUs of the proxy's host (SPS)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.files import read_zstd
from sipsched.records.conversion import part_of_json

BURSTS_FILE = "bursts.json.zst"
VERSION = 1
SHORTEST_US = 20
"""Length in µs of the shortest burst in `bursts.json.zst` (`ACCOUNT_BURST_NS` of hardware/probe/account.h)."""
REMEDY = "restore it from a copy, or repeat the run"
SOFTIRQ = "softirq"

Owner = Literal["own", "kernel", "realtime", "fair", "idle_class", "softirq"]
Integers = npt.NDArray[np.int64]


class Program(NamedTuple):
    """A program, kernel thread or softirq that used a CPU.

    `owner` is the program's category, such as `kernel`. The categories are names of fields of `CpuParts`.
    """

    name: str
    owner: str


@dataclass(frozen=True)
class _Document:
    """The content of `bursts.json.zst` as sipaccount.c writes it: CPU, times, owner, name and id per burst."""

    version: int
    bursts: list[tuple[int, int, int, Owner, str, int]]
    lost: int


@dataclass(frozen=True)
class Bursts:
    """The bursts of one run: times in which one program outside the proxy, or one softirq, used a CPU without a break.

    Bursts on one CPU do not overlap. While a softirq interrupts a program, only the softirq runs.

    Attributes
    ----------
    cpu, start_ns, end_ns
        CPU, start and end of each burst (CLOCK_MONOTONIC in ns), in the order of CPU and start; shape (burst,).
    program
        Index of each burst's program in `programs`, shape (burst,).
    programs
        All programs of the run.
    lost
        The number of bursts that are missing because the ring buffer was full.
    """

    cpu: Integers
    start_ns: Integers
    end_ns: Integers
    program: Integers
    programs: tuple[Program, ...]
    lost: int

    @cached_property
    def _of_cpu(self) -> Mapping[int, slice]:
        cpus = np.unique(self.cpu)
        first, last = (np.searchsorted(self.cpu, cpus, side=side) for side in ("left", "right"))
        ends = zip(cpus.tolist(), first.tolist(), last.tolist(), strict=True)
        return {cpu: slice(begin, end) for cpu, begin, end in ends}

    def during(self, cpu: int, start_ns: int, end_ns: int) -> slice:
        """Return the index range of the bursts on one CPU that overlap the time from `start_ns` to `end_ns`."""
        of_cpu = self._of_cpu.get(cpu, slice(0, 0))
        first = np.searchsorted(self.end_ns[of_cpu], start_ns, side="right")
        last = np.searchsorted(self.start_ns[of_cpu], end_ns, side="left")
        return slice(of_cpu.start + int(first), of_cpu.start + max(int(first), int(last)))

    def ran_ns(self, cpu: int, start_ns: int, end_ns: int) -> dict[Program, int]:
        """Return the time in ns that each program ran on one CPU in a period, in descending order of the times."""
        some = self.during(cpu, start_ns, end_ns)
        begin, end = (
            np.maximum(self.start_ns[some], start_ns),
            np.minimum(self.end_ns[some], end_ns),
        )
        sums: dict[Program, int] = {}
        for number, ns in zip(self.program[some].tolist(), (end - begin).tolist(), strict=True):
            sums[self.programs[number]] = sums.get(self.programs[number], 0) + ns
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def read_bursts(record: Path) -> Bursts | None:
    """Read the `bursts.json.zst` of a record. Return None for a record without this file.

    Raises
    ------
    StableError
        The file is damaged, truncated or of another version, or a burst ends before it starts.
    """
    path = record / BURSTS_FILE
    if not path.exists():
        return None
    data = read_zstd(path, "file of bursts", REMEDY)
    document = part_of_json(_Document, data, str(path), REMEDY, VERSION)
    numbers = np.array([burst[:3] for burst in document.bursts], np.int64).reshape(-1, 3)
    if (numbers[:, 2] < numbers[:, 1]).any():
        raise StableError(f"{path}: a burst ends before it starts; {REMEDY}")
    programs = {Program(burst[4], burst[3]): None for burst in document.bursts}
    index = {program: number for number, program in enumerate(programs)}
    program = np.array([index[Program(burst[4], burst[3])] for burst in document.bursts], np.int64)
    softirq = np.array([burst[3] == SOFTIRQ for burst in document.bursts], bool)
    pieces = [np.empty((0, 4), np.int64)]
    for cpu in np.unique(numbers[:, 0]).tolist():
        here = numbers[:, 0] == cpu
        pieces.append(_without_overlap(cpu, numbers[here], program[here], softirq[here]))
    cpus, starts, ends, which = np.concatenate(pieces).T
    return Bursts(cpus, starts, ends, which, tuple(programs), document.lost)


def _without_overlap(
    cpu: int, numbers: Integers, program: Integers, softirq: npt.NDArray[np.bool_]
) -> Integers:
    """Return the bursts of one CPU as pieces without overlap. While a softirq runs, the piece names only the softirq.

    Returns
    -------
    array
        CPU, start, end and program of each piece, in the order of time, shape (piece, 4).
    """
    edges = np.unique(numbers[:, 1:])
    starts, ends = edges[:-1], edges[1:]
    running = np.full(starts.shape, -1)
    for layer in (~softirq, softirq):
        order = np.flatnonzero(layer)
        order = order[np.argsort(numbers[order, 1], kind="stable")]
        if not order.size:
            continue
        latest = order[np.maximum(np.searchsorted(numbers[order, 1], starts, side="right") - 1, 0)]
        runs = (numbers[latest, 1] <= starts) & (numbers[latest, 2] >= ends)
        running[runs] = program[latest][runs]
    known = running >= 0
    columns = (np.full(starts.shape, cpu), starts, ends, running)
    return np.column_stack(columns)[known]
