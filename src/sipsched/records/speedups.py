"""`speedups.csv`: the capacity of each deployment of the proxy by number of cores, predicted by the simulator."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import whole

HEADER = "# Predicted by simulation, not measured: docs/data-format.md, speedups.csv\n"


@dataclass(frozen=True)
class Speedup:
    """Capacity of a deployment on a number of cores, and its ratio to the capacity on one core.

    Attributes
    ----------
    deployment, transport
        Deployment and transport of the SUT.
    cores, threads
        Number of cores, and number of workers without the front end. Of all tried numbers of workers, this number has
        the largest capacity.
    capacity_cps, low, high
        Load at which the packet drop rate passes its limit (over TCP: the share of calls that fail or are late), and
        its interval. The interval contains the capacities of 95 % of the fits to samples of the recorded runs. Without
        samples, its ends are NaN.
    speedup, speedup_low, speedup_high
        Capacity divided by the capacity of the same deployment on one core, with its interval. Each sample is divided
        by its own capacity on one core.
    receive_cpus
        Number of CPUs that run receive softirqs; equal to `cores` if the agents have many addresses.
    model
        The simulated model, and its assumed parameters.
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
    """Simulated capacity of a deployment on a number of cores.

    Attributes
    ----------
    cps
        Capacity with the fitted parameters.
    drawn
        Capacity with the parameters of each sample of the fit.
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
    """Write `speedups.csv` atomically."""
    with whole(path) as partial, partial.open("w", newline="") as file:
        file.write(HEADER)
        table = csv.DictWriter(file, [field.name for field in fields(Speedup)], lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow(
                {
                    name: f"{value:.6g}" if isinstance(value, float) else value
                    for name, value in asdict(row).items()
                }
            )


def read_speedups(path: Path) -> tuple[Speedup, ...]:
    """Read a `speedups.csv`.

    Raises
    ------
    StableError
        The file is missing, or has another form.
    """
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        return tuple(
            Speedup(**{field.name: field.type(row[field.name]) for field in fields(Speedup)})  # type: ignore[operator]
            for row in rows
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise StableError(f"{path}: no speedups.csv: {error}; make it with snakemake") from None
