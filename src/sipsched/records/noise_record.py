"""`noise.json`: interruptions of a program on the idle CPUs of the SPS."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from sipsched.errors import StableError
from sipsched.files import read_sealed
from sipsched.records.conversion import as_part

SCHEMA_VERSION = 2
REMEDY = "move away what is there and run snakemake"


@dataclass(frozen=True)
class CpuNoise:
    """Interruptions of a program on one idle CPU.

    Attributes
    ----------
    resolution_ns
        Mean time between two readings of the clock. Shorter gaps cannot be observed.
    threshold_ns
        Shortest length of a listed gap.
    at_s, gaps_us
        Shape (gap,): start since the beginning, and length. Ascending in time.
    gaps_unlisted
        Number of further gaps that are not listed.
    steal_s
        Time that the hypervisor took during the observation, as the kernel counts it.
    """

    cpu: int
    duration_s: float
    resolution_ns: float
    threshold_ns: float
    at_s: npt.NDArray[np.float64]
    gaps_us: npt.NDArray[np.float64]
    gaps_unlisted: int
    steal_s: float

    @property
    def lost_share(self) -> float:
        """Share of the observation that lies in gaps."""
        return float(self.gaps_us.sum()) / 1e6 / self.duration_s


@dataclass(frozen=True)
class Noise:
    """Observations of the SPS's CPUs, made one after the other, while no other program of sipsched runs."""

    testbed: str
    kernel: str
    started_at: str
    cpus: tuple[CpuNoise, ...]


_Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class _Cpu:
    cpu: _Count
    duration_ns: Annotated[int, Meta(ge=1)]
    reads: _Count
    threshold_ns: _Count
    gaps_at_ns: tuple[_Count, ...]
    gaps_ns: tuple[_Count, ...]
    gaps_unlisted: _Count
    steal_s: float


@dataclass(frozen=True)
class _Testbed:
    name: str


@dataclass(frozen=True)
class _Document:
    testbed: _Testbed
    kernel: str
    started_at: str
    cpus: tuple[_Cpu, ...]


def read_noise(path: Path) -> Noise:
    """Read a `noise.json`.

    Raises
    ------
    StableError
        The file is missing, is not JSON, has another version, was changed after it was written, lacks a key, or has a
        value of another type.
    """
    sealed = read_sealed(path, SCHEMA_VERSION, REMEDY)
    document = as_part(_Document, sealed, str(path), REMEDY)
    for entry in document.cpus:
        at, gaps = len(entry.gaps_at_ns), len(entry.gaps_ns)
        if at != gaps:
            raise StableError(
                f"{path}: CPU {entry.cpu}: {gaps} gaps_ns and {at} gaps_at_ns; {REMEDY}"
            )
    return Noise(
        document.testbed.name,
        document.kernel,
        document.started_at,
        tuple(
            CpuNoise(
                cpu=entry.cpu,
                duration_s=entry.duration_ns / 1e9,
                resolution_ns=entry.duration_ns / max(entry.reads, 1),
                threshold_ns=entry.threshold_ns,
                at_s=np.array(entry.gaps_at_ns, float) / 1e9,
                gaps_us=np.array(entry.gaps_ns, float) / 1e3,
                gaps_unlisted=entry.gaps_unlisted,
                steal_s=entry.steal_s,
            )
            for entry in document.cpus
        ),
    )
