"""Types that identify a measurement, and that determine the paths of the measurement's record and log."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sipsched.plan.keys import Cores, Cps, ModeName, Repetitions, Threads
from sipsched.plan.loads import CROSSING, Capacity

POINT_PATTERN = "{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}"

RUN_PATTERN = f"{POINT_PATTERN}/cps~{{cps}}/rep~{{rep}}"

CROSSING_PATTERN = f"{POINT_PATTERN}/{{search}}.json"
RUN_LOG, CROSSING_LOG = (f"logs/measure/{path}.log" for path in (RUN_PATTERN, CROSSING_PATTERN))
"""Paths of the logs of the jobs that measure. A log contains the reason for a failure."""


@dataclass(frozen=True, order=True)
class Point:
    """A combination of testbed, SUT, mode, number of cores and number of threads.

    A `Run` adds a load and a repetition number to a point.

    Attributes
    ----------
    goal
        Accuracy of the search for the capacity at this point. None for the search that determines the loads of other
        measurements.
    """

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    goal: Capacity | None = None

    @property
    def crossing_path(self) -> Path:
        """Return the path of the record of the search at this point, relative to the folder of all records."""
        return Path(CROSSING_PATTERN.format(**self.wildcards))

    @property
    def log(self) -> Path:
        """Return the path of the log of the job that searches at this point."""
        return Path(CROSSING_LOG.format(**self.wildcards))

    @property
    def wildcards(self) -> dict[str, str]:
        """Return the variable parts of the path of the search's record, by their names in Snakemake."""
        names = {name: str(value) for name, value in vars(self).items() if name != "goal"}
        return names | {"search": self.goal.name if self.goal else CROSSING}

    def run(self, cps: int, rep: int) -> "Run":
        """Return the run with the parameters of this object, at a given load and with a given repetition number."""
        return Run(self.testbed, self.sut, self.mode, self.cores, self.threads, cps, rep)

    def __str__(self) -> str:
        """Return the name of the point for messages to the user."""
        return f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} on {self.testbed}"

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Point":
        """Create a point from the variable parts of a path, which Snakemake has extracted.

        Raises
        ------
        StableError
            The name of the file in the path is not the name of a search.
        """
        search = wildcards.get("search", CROSSING)
        return cls(
            testbed=wildcards["testbed"],
            sut=wildcards["sut"],
            mode=wildcards["mode"],
            cores=int(wildcards["cores"]),
            threads=int(wildcards["threads"]),
            goal=None if search == CROSSING else Capacity.from_name(search),
        )


@dataclass(frozen=True, order=True)
class Run:
    """A run: one repetition of the measurement of one system under test in one mode at one load."""

    testbed: str
    sut: str
    mode: ModeName
    cores: Cores
    threads: Threads
    cps: Cps
    rep: Repetitions

    @property
    def point(self) -> Point:
        """Return the point of the run, which is the run without its load and its repetition number."""
        return Point(self.testbed, self.sut, self.mode, self.cores, self.threads)

    @property
    def path(self) -> Path:
        """Return the path of the folder of this run, relative to the folder of all records."""
        return Path(RUN_PATTERN.format(**vars(self)))

    @property
    def log(self) -> Path:
        """Return the path of the log of the job that measures this run."""
        return Path(RUN_LOG.format(**vars(self)))

    def __str__(self) -> str:
        """Return the name of the run for messages to the user."""
        return (
            f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} "
            f"cps={self.cps} rep={self.rep} on {self.testbed}"
        )

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Run":
        """Create a run from the variable parts of a path, which Snakemake has extracted."""
        point = Point.from_wildcards(wildcards)
        return point.run(int(wildcards["cps"]), int(wildcards["rep"]))


@dataclass(frozen=True)
class TestbedLabels:
    """The description of a testbed in a record. Every figure shows this description."""

    name: str
    kind: str
    description: str
    fidelity: str
    accelerator: str | None = None


Crossings = Mapping[Point, tuple[int, int]]
"""Per point, the two loads (cps) that a search found: the highest below and the lowest above the drop limit."""

Group = tuple[int, int, int]
"""Cores, threads and cps. A study compares the runs of a group, which differ in mode, SUT and repetition."""

Repeats = Mapping[Group, int]
"""Number of repetitions per group. The groups with the widest confidence intervals come first."""

NO_REPEATS: Repeats = MappingProxyType({})
