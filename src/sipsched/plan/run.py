"""The identity of measurements: points, runs, and the paths of their records."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sipsched.plan.keys import Cores, Cps, Mode, Repetitions, Threads
from sipsched.plan.loads import CROSSING, Capacity

POINT_PATTERN = "{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}"

RUN_PATTERN = f"{POINT_PATTERN}/cps~{{cps}}/rep~{{rep}}"

CROSSING_PATTERN = f"{POINT_PATTERN}/{{search}}.json"
RUN_LOG, CROSSING_LOG = (f"logs/measure/{path}.log" for path in (RUN_PATTERN, CROSSING_PATTERN))
"""Folder of the logs of measuring jobs. A log contains the reason for a failure."""


@dataclass(frozen=True, order=True)
class Point:
    """A setting of a testbed: a SUT, a mode, and the numbers of cores and threads.

    A `Run` adds a load and a repetition number to a point.

    Attributes
    ----------
    goal
        Accuracy of the search for a capacity at this point. None: the search of the campaign, which chooses the loads
        of other measurements.
    """

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    goal: Capacity | None = None

    @property
    def crossing_path(self) -> Path:
        """Relative path of the record of the search at this point."""
        return Path(CROSSING_PATTERN.format(**self.wildcards))

    @property
    def log(self) -> Path:
        """Path of the log of the search at this point."""
        return Path(CROSSING_LOG.format(**self.wildcards))

    @property
    def wildcards(self) -> dict[str, str]:
        """The parts of the path of the search's record."""
        names = {name: str(value) for name, value in vars(self).items() if name != "goal"}
        return names | {"search": self.goal.name if self.goal else CROSSING}

    def run(self, cps: int, rep: int) -> "Run":
        """Return a repetition of this point at a load."""
        return Run(self.testbed, self.sut, self.mode, self.cores, self.threads, cps, rep)

    def __str__(self) -> str:
        """Return a text for messages."""
        return f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} on {self.testbed}"

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Point":
        """Read a point from the wildcards of a path.

        Raises
        ------
        StableError
            No search has the name in the path.
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
    """One repetition of a point at one load."""

    testbed: str
    sut: str
    mode: Mode
    cores: Cores
    threads: Threads
    cps: Cps
    rep: Repetitions

    @property
    def point(self) -> Point:
        """The point, which is the run without load and repetition."""
        return Point(self.testbed, self.sut, self.mode, self.cores, self.threads)

    @property
    def path(self) -> Path:
        """Relative path of the folder of this run."""
        return Path(RUN_PATTERN.format(**vars(self)))

    @property
    def log(self) -> Path:
        """Path of the log of the job that measures this run."""
        return Path(RUN_LOG.format(**vars(self)))

    def __str__(self) -> str:
        """Return a text for messages."""
        return (
            f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} "
            f"cps={self.cps} rep={self.rep} on {self.testbed}"
        )

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Run":
        """Read a run from the wildcards of a path."""
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
"""The two loads by point: the highest load found under the limit, and the lowest load found above the limit."""

Group = tuple[int, int, int]
"""Cores, threads and cps of runs that a study compares. The runs of a group differ in mode, SUT and repetition."""

Repeats = Mapping[Group, int]
"""Number of repetitions per group, with the groups with the widest intervals first."""

NO_REPEATS: Repeats = MappingProxyType({})
