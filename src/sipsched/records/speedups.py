"""The file `speedups.csv` with the simulated capacity of each deployment, by number of cores."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.records.conversion import as_part

HEADER = "# Predicted by simulation, not measured: docs/data-format.md, speedups.csv\n"


@dataclass(frozen=True)
class Speedup:
    """The simulated capacity of a deployment with a number of cores, and the ratio to the capacity with one core.

    Attributes
    ----------
    deployment, transport
        Deployment and transport of the SUT.
    cores, threads
        Number of cores, and number of workers without the front end. Of all simulated numbers of workers, this number
        has the largest capacity.
    capacity_cps, low, high
        Load at which the packet drop rate passes its limit (over TCP: the share of calls that fail or are late), and
        its interval. The interval contains the capacities of 95 % of the fits to samples of the recorded runs. Without
        samples, the ends of the interval are NaN.
    speedup, speedup_low, speedup_high
        Capacity divided by the capacity of the same deployment with one core, and the interval of this ratio. For each
        sample, the ratio uses the sample's own capacity with one core.
    receive_cpus
        Number of CPUs that run receive softirqs. This number equals `cores` if the agents have many addresses.
    model
        Name of the simulated model, and its assumed parameters.
    """

    deployment: str
    transport: str
    cores: int
    threads: int
    capacity_cps: float
    low: float
    high: float
    speedup: float
    speedup_low: float
    speedup_high: float
    receive_cpus: int
    model: str


@dataclass(frozen=True)
class Deployed:
    """The simulated capacity of a deployment: for the fitted parameters and for each bootstrap sample of the fit.

    Attributes
    ----------
    cps
        Capacity, with the fitted parameters.
    drawn
        Capacity with the parameters of each bootstrap sample of the fit.
    """

    deployment: str
    transport: str
    cores: int
    threads: int
    receive_cpus: int
    model: str
    cps: float
    drawn: tuple[float, ...]


def write_speedups(rows: Iterable[Speedup], path: Path) -> None:
    """Write `speedups.csv`, in one atomic step."""
    table = pd.DataFrame(list(rows), columns=[field.name for field in fields(Speedup)])
    with whole(path) as partial, partial.open("w", newline="") as file:
        file.write(HEADER)
        table.to_csv(file, index=False, float_format="%.6g", na_rep="nan", lineterminator="\n")


def read_speedups(path: Path) -> tuple[Speedup, ...]:
    """Read the simulated capacities and speed-ups from a `speedups.csv`.

    Raises
    ------
    StableError
        The file is missing, or has another form.
    """
    where, remedy = f"{path}: no speedups.csv", "make it with snakemake"
    try:
        rows = pd.read_csv(path, comment="#").to_dict("records")
    except (OSError, ValueError) as error:
        raise StableError(f"{where}: {error}; {remedy}") from None
    return as_part(tuple[Speedup, ...], rows, where, remedy)
