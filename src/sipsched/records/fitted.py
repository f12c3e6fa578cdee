"""The file with the simulator's parameters that were fitted to runs of a campaign. The predictions read this file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sipsched.files import read_json, write_json
from sipsched.records.conversion import as_part

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CompetingPrograms:
    """The programs of one scheduling class that used the proxy's only CPU in the runs of a fit.

    Attributes
    ----------
    policy
        Scheduling policy in the simulator: `other` for normal programs, `idle` for SCHED_IDLE, `fifo` for real-time
        programs.
    nice
        Nice value of the program with the most CPU time.
    burst_us, every_us
        Mean length of a burst, and mean time between the starts of two bursts, in µs.
    """

    policy: Literal["other", "idle", "fifo"]
    nice: int
    burst_us: int
    every_us: int

    @property
    def share(self) -> float:
        """The share of the CPU's time that the programs used, from 0 to 1."""
        return self.burst_us / self.every_us


@dataclass(frozen=True)
class Fitted:
    """The simulator's parameters, fitted to runs in the default mode.

    Attributes
    ----------
    sut
        Name of the SUT of these runs.
    model
        Name of the model in config/models that contains the assumed parameters.
    why
        Reason why no fit exists. If a reason is given, the other fields are empty.
    runs
        Paths of the runs that were used for the fit, relative to the folder of the records.
    messages
        Number of messages that were used for the fit.
    kernel
        Kernel whose scheduler is simulated, with its name from a testbed's file.
    base_slice_ns
        Base slice of EEVDF in ns; None if the records lack it.
    numbers
        Fitted parameters, by the simulator's names. The model contains all other parameters.
    draws
        One mapping per bootstrap sample of the runs (with replacement), with the parameters that were fitted to this
        sample.
    competitors
        Other programs on the proxy's CPU. Their numbers are measured instead of fitted, so they are equal in all draws.
    competitors_source
        Source of the numbers of the competitors. Without competitors: the reason why the model has none.
    """

    why: str = ""
    sut: str = ""
    model: str = ""
    runs: tuple[str, ...] = ()
    messages: int = 0
    kernel: str = ""
    base_slice_ns: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    draws: tuple[Mapping[str, Any], ...] = ()
    competitors: tuple[CompetingPrograms, ...] = ()
    competitors_source: str = ""


def is_same_fit(one: Fitted, other: Fitted) -> bool:
    """Return True if two fits of the same runs are equal, except for rounding errors.

    Two computers can compute slightly different sums, because numerical libraries add numbers in an order that depends
    on the CPU. So the parameters of two fits can differ by a share of about 1e-14. The comparison uses only 9 digits.
    """
    return _nine_digits(one) == _nine_digits(other)


def _nine_digits(fitted: Fitted) -> str:
    rounded = json.loads(
        json.dumps(asdict(fitted)), parse_float=lambda number: float(f"{float(number):.9g}")
    )
    return json.dumps(rounded)


def write_fitted(fitted: Fitted, path: Path) -> None:
    """Write the fitted parameters of the simulator to a file, in one atomic step."""
    write_json(path, {"schema_version": SCHEMA_VERSION, **asdict(fitted)})


def read_fitted(path: Path) -> Fitted:
    """Read the fitted parameters of the simulator from a file.

    Raises
    ------
    StableError
        The file is missing, damaged or of another format version.
    """
    return as_part(
        Fitted, read_json(path, SCHEMA_VERSION, "delete it and run snakemake"), str(path)
    )
