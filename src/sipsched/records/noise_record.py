"""The file `noise.json`, which lists how often and how long a test program is interrupted on idle CPUs of the SPS."""

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
REMEDY = "move the file away and run snakemake"


_Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class CpuNoise:
    """The interruptions of a program that continuously reads the clock on one idle CPU.

    Attributes
    ----------
    reads
        Number of readings of the clock.
    threshold_ns
        Shortest time between two readings that is listed as a gap.
    gaps_at_ns, gaps_ns
        Start of each gap since the beginning of the observation, and length of each gap, in order of time.
    gaps_unlisted
        Number of gaps that are not listed.
    steal_s
        Stolen time during the observation, as the kernel counts it.
    """

    cpu: _Count
    duration_ns: Annotated[int, Meta(ge=1)]
    reads: _Count
    threshold_ns: _Count
    gaps_at_ns: tuple[_Count, ...]
    gaps_ns: tuple[_Count, ...]
    gaps_unlisted: _Count
    steal_s: float

    @property
    def duration_s(self) -> float:
        """Return the duration of the observation in seconds."""
        return self.duration_ns / 1e9

    @property
    def resolution_ns(self) -> float:
        """Return the mean time between two readings of the clock, in ns. Shorter gaps cannot be observed."""
        return self.duration_ns / max(self.reads, 1)

    @property
    def gaps_us(self) -> npt.NDArray[np.float64]:
        """Return the lengths of the gaps (interruptions of the program) in µs, shape (gap,)."""
        return np.array(self.gaps_ns, float) / 1e3

    @property
    def lost_share(self) -> float:
        """Return the share of the observed time during which the program was interrupted."""
        return sum(self.gaps_ns) / self.duration_ns


@dataclass(frozen=True)
class Noise:
    """The observations of all CPUs of the SPS, made one after another while no other program of sipsched ran."""

    kernel: str
    started_at: str
    cpus: tuple[CpuNoise, ...]


def read_noise(path: Path) -> Noise:
    """Read the interruptions of idle CPUs from a `noise.json`.

    Raises
    ------
    StableError
        The file is missing, is not JSON, has another version, was changed after it was written, lacks a key, or has a
        value of another type.
    """
    noise = as_part(Noise, read_sealed(path, SCHEMA_VERSION, REMEDY), str(path), REMEDY)
    for entry in noise.cpus:
        at, gaps = len(entry.gaps_at_ns), len(entry.gaps_ns)
        if at != gaps:
            raise StableError(
                f"{path}: CPU {entry.cpu}: {gaps} gaps_ns and {at} gaps_at_ns; {REMEDY}"
            )
    return noise
