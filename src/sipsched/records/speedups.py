"""What deployments of the proxy carry by cores in the simulator: `speedups.csv`, predicted and not measured."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import whole

HEADER = "# Predicted by simulation, not measured: docs/data-format.md, speedups.csv\n"


@dataclass(frozen=True)
class Speedup:
    """Capacity of a deployment on so many cores, and how many times that of one core it is.

    Attributes
    ----------
    deployment, transport
        As of a SUT.
    cores, threads
        Workers: the number that carries most of those tried; what stands before them comes on top.
    capacity_cps, low, high
        Where the packet drop rate crosses its limit, over TCP where so many calls fail or are late; and where 95 % of
        fits to samples of the recorded runs lie. Without samples the ends are NaN.
    speedup, speedup_low, speedup_high
        Capacity over that of the same deployment on one core, likewise; each sample's against its own.
    receive_cpus
        CPUs that take receive softirqs; as many as cores where agents have many addresses.
    model
        What was simulated, and what of it is assumed and not fitted.
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
    """What a deployment was found to carry on so many cores.

    Attributes
    ----------
    cps
        With the fit's numbers.
    drawn
        With those of each of its samples.
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
    """Write `speedups.csv`; the file appears whole."""
    with whole(path) as partial, partial.open("w", newline="") as file:
        file.write(HEADER)
        table = csv.DictWriter(file, [each.name for each in fields(Speedup)], lineterminator="\n")
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
        The file is missing, or not of this form.
    """
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        return tuple(
            Speedup(**{each.name: each.type(row[each.name]) for each in fields(Speedup)})  # type: ignore[operator]
            for row in rows
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise StableError(f"{path}: no speedups.csv: {error}; make it with snakemake") from None
