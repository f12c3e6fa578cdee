"""How quiet the SPS is when nothing runs on it: gaps in the time of each of its CPUs."""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sipsched.counters import parse_stat
from sipsched.errors import StableError
from sipsched.files import read_json, whole
from sipsched.hoststate import read_files
from sipsched.modes import DEFAULT, find_mode, load_modes
from sipsched.testbed import Host, Testbed, native_folder, open_hosts
from sipsched.tuning import tuned

SCHEMA_VERSION = 1
DURATION_S = 2.0
LIMIT_S = 30
STAT = "/proc/stat"


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


def measure_noise(testbed: Testbed, path: Path, duration_s: float = DURATION_S) -> None:
    """Look at each CPU of the SPS for a while, with the host set as a run has it, and record the gaps.

    Parameters
    ----------
    testbed
        Three hosts that SSH reaches; only the SPS is looked at.
    path
        The `noise.json`; its folder is made. It appears whole or not at all.
    duration_s
        Seconds for each CPU.

    Raises
    ------
    StableError
        `jitter` is not built on the SPS, or a setting is refused.
    TransientError
        A host is unreachable, or the testbed is in use.
    """
    started = time.time()
    with open_hosts(testbed, f"the noise of {testbed.name}") as hosts:
        sps = hosts.sps
        sps.stop_strays()
        program = str(native_folder(sps.base, "scheduler") / "jitter")
        sps.require_built("scheduler", ["jitter"])
        mode = find_mode(DEFAULT, load_modes())
        with tuned(sps, testbed, mode, cores=len(sps.spec.cpus), threads=1) as state:
            cpus = [_look_at(sps, program, cpu, duration_s) for cpu in sps.spec.cpus]
        kernel = sps.run(["uname", "-r"]).stdout.strip()
    document = {
        "schema_version": SCHEMA_VERSION,
        "testbed": hosts.testbed.labels,
        "kernel": kernel,
        "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds"),
        "quiet": state.quiet,
        "cpus": cpus,
    }
    with whole(path) as partial:
        partial.write_text(json.dumps(document) + "\n")


def _look_at(sps: Host, program: str, cpu: int, duration_s: float) -> dict[str, Any]:
    before = _stolen(sps, cpu)
    done = sps.run_limited("jitter", [program, f"{duration_s:g}"], cpus=[cpu], limit_s=LIMIT_S)
    found: dict[str, Any] = json.loads(done.stdout)
    if found["cpu"] != cpu or found["cpu_changes"]:
        raise StableError(f"host {sps.spec}: jitter was not held to CPU {cpu}")
    return found | {"steal_s": round(_stolen(sps, cpu) - before, 6)}


def _stolen(sps: Host, cpu: int) -> float:
    return float(parse_stat(read_files(sps, (STAT,))[STAT])[f"cpu{cpu}"]["steal"])


def read_noise(path: Path) -> Noise:
    """Read a `noise.json`.

    Raises
    ------
    StableError
        It is missing, not JSON, or of another version.
    """
    document = read_json(path, SCHEMA_VERSION, "move away what is there and run snakemake")
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
