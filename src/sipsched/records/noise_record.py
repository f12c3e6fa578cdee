"""`noise.json`: what was seen of how quiet the SPS is when nothing runs on it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sipsched.errors import StableError
from sipsched.files import read_json
from sipsched.plan.documents import validate

SCHEMA_VERSION = 1
REMEDY = "move away what is there and run snakemake"


@dataclass(frozen=True)
class CpuNoise:
    """What interrupted a program on one idle CPU.

    Attributes
    ----------
    cpu
        Its number.
    duration_s
        Time looked at.
    resolution_ns
        Mean time between two looks: shorter gaps are not seen.
    threshold_ns
        Gaps longer than this are listed.
    at_s, gaps_us
        Shape (gap,): start since the beginning, and length. Ascending in time.
    gaps_unlisted
        How many more there were.
    steal_s
        Of that time, stolen by the hypervisor, as the kernel counts it.
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
        """Share of the time that the gaps took."""
        return float(self.gaps_us.sum()) / 1e6 / self.duration_s


@dataclass(frozen=True)
class Noise:
    """The CPUs of the SPS of a testbed, one after the other, while nothing else of ours ran."""

    testbed: str
    kernel: str
    started_at: str
    cpus: tuple[CpuNoise, ...]


def read_noise(path: Path) -> Noise:
    """Read a `noise.json`.

    Raises
    ------
    StableError
        It is missing, not JSON, of another version, or not like workflow/schemas/noise.schema.yaml.
    """
    document = validate(read_json(path, SCHEMA_VERSION, REMEDY), "noise", str(path))
    for entry in document["cpus"]:
        at, gaps = len(entry["gaps_at_ns"]), len(entry["gaps_ns"])
        if at != gaps:
            raise StableError(
                f"{path}: CPU {entry['cpu']}: {gaps} gaps_ns and {at} gaps_at_ns; {REMEDY}"
            )
    return Noise(
        document["testbed"]["name"],
        document["kernel"],
        document["started_at"],
        tuple(
            CpuNoise(
                cpu=entry["cpu"],
                duration_s=entry["duration_ns"] / 1e9,
                resolution_ns=entry["duration_ns"] / max(entry["reads"], 1),
                threshold_ns=entry["threshold_ns"],
                at_s=np.array(entry["gaps_at_ns"], float) / 1e9,
                gaps_us=np.array(entry["gaps_ns"], float) / 1e3,
                gaps_unlisted=entry["gaps_unlisted"],
                steal_s=entry["steal_s"],
            )
            for entry in document["cpus"]
        ),
    )
