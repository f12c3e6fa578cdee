"""Types for a study, which is a set of runs, and for a document, which is a page about several studies."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from sipsched.plan.keys import Cores, Cps, ModeName, Name, Repetitions, Threads
from sipsched.plan.loads import Capacity, Precision, SearchedLoads
from sipsched.plan.run import NO_REPEATS, Crossings, Group, Point, Repeats, Run
from sipsched.plan.sharing import UNSHARED, Sharing

TESTBED_PAGES = ("testbed", "messages")
"""Notebooks that make a page per testbed, `reports/NAME-TESTBED.html`. A study cannot have one of these names."""
OWN_PAGES = ("index", "progress")
"""Pages about the whole campaign. A document cannot have one of these names."""


@dataclass(frozen=True)
class Study:
    """A set of runs, and the notebook that shows their results.

    Attributes
    ----------
    notebook
        The notebook of the study's page; None for a study without a page.
    points
        The combinations of cores, threads and cps to measure, or of cores and threads if a search finds the loads. If
        empty, all combinations are measured.
    repetitions
        Number of repetitions of each point; the smallest number if the study has a precision; 0 without runs.
    precision
        The precision that the repetitions have to reach. None: the number of repetitions is fixed.
    sharing
        Testbeds that share the runs of the study.
    testbeds
        The testbeds that measure the study. If empty, all testbeds of the campaign measure the study.
    cps
        Loads, or the search that finds the loads. A load that a search finds for one mode is measured in all modes, so
        that the study compares modes at equal loads.
    """

    name: str
    notebook: str | None
    suts: tuple[str, ...]
    modes: tuple[str, ...]
    cores: tuple[int, ...]
    threads: tuple[int, ...]
    cps: tuple[int, ...] | SearchedLoads
    repetitions: int
    points: frozenset[tuple[int, ...]] = frozenset()
    precision: Precision | None = None
    sharing: Sharing = UNSHARED
    testbeds: tuple[str, ...] = ()

    @property
    def has_runs(self) -> bool:
        """False for a study that only compares capacities, and therefore has searches but no runs."""
        return self.repetitions > 0

    def is_on(self, testbed: str) -> bool:
        """Return True if a testbed measures the study."""
        return not self.testbeds or testbed in self.testbeds

    def looks(self, until: int | None = None) -> list[tuple[int, int]]:
        """List the numbers of repetitions after which the study decides which runs need more repetitions.

        Parameters
        ----------
        until
            Return only decisions before this number of repetitions. None: all decisions.

        Returns
        -------
        list of tuple
            Pairs of two numbers: the repetitions at a decision, and the repetitions that a group gets if its confidence
            interval is still too wide at this decision.
        """
        looks = self.precision.looks if self.precision else ()
        return [
            (now, then) for now, then in itertools.pairwise(looks) if until is None or now < until
        ]

    def searches(self, testbed: str) -> list[Point]:
        """List the points (SUT, mode, cores and threads) at which searches find the loads of the study on a testbed."""
        if not self.is_on(testbed):
            return []
        return [
            point
            for sut, (cores, threads) in itertools.product(self.suts, self._systems)
            for point in self._searched(testbed, sut, cores, threads)
        ]

    def runs(
        self,
        testbed: str,
        crossings: Crossings = MappingProxyType({}),
        repeats: Repeats = NO_REPEATS,
    ) -> list[Run]:
        """List the runs of the study on a testbed, in the order of measuring.

        All points are measured once before any point is repeated. Beyond `repetitions`, the group with the widest
        interval comes first. Runs that differ only in mode or SUT are consecutive. The order of these runs is reversed
        in every second block, so that a drift of the machine affects all modes equally.

        Parameters
        ----------
        crossings
            The two loads around the crossing, per point in `searches`. A point without an entry has no runs yet.
        repeats
            Groups with additional repetitions.
        """
        if not self.is_on(testbed):
            return []
        suts: dict[Group, list[str]] = {}
        for cores, threads in self._systems:
            loads = self._loads(testbed, cores, threads, crossings)
            for cps in sorted({load for of_sut in loads.values() for load in of_sut}):
                group = (cores, threads, cps)
                if not self.points or isinstance(self.cps, SearchedLoads) or group in self.points:
                    suts[group] = [sut for sut in self.suts if cps in loads[sut]]
        more = [group for group in repeats if group in suts]
        positions = {group: position for position, group in enumerate(suts)}
        runs = []
        for rep in range(1, max([self.repetitions, *repeats.values()]) + 1):
            for group in suts if rep <= self.repetitions else more:
                if rep <= max(self.repetitions, repeats.get(group, 0)):
                    arms = list(itertools.product(suts[group], self.modes))
                    block = [
                        Run(testbed, sut, mode, *group, rep)
                        for sut, mode in (arms if rep % 2 else reversed(arms))
                    ]
                    if self._measures(testbed, block, rep + positions[group]):
                        runs += block
        return runs

    @property
    def _systems(self) -> list[tuple[int, int]]:
        """Return the combinations of cores and threads that the study measures."""
        listed = {point[:2] for point in self.points}
        systems = itertools.product(self.cores, self.threads)
        return [system for system in systems if not listed or system in listed]

    def _measures(self, testbed: str, block: Sequence[Run], turn: int) -> bool:
        """Return True if this testbed, and not a twin (a testbed with equal hardware), measures a block of runs."""
        if not self.sharing.concerns(testbed):
            return True
        paths = (run.path.relative_to(testbed) for run in block)
        return self.sharing.measures(paths, turn) == testbed

    def _loads(
        self, testbed: str, cores: int, threads: int, crossings: Crossings
    ) -> dict[str, tuple[int, ...]]:
        """Return the loads of each SUT on a testbed with given numbers of cores and threads."""
        if isinstance(self.cps, tuple):
            return dict.fromkeys(self.suts, self.cps)
        loads: dict[str, tuple[int, ...]] = dict.fromkeys(self.suts, ())
        for sut in self.suts:
            for point in self._searched(testbed, sut, cores, threads):
                if point in crossings:
                    loads[sut] += self.cps.loads(*crossings[point])
        return loads

    def _searched(self, testbed: str, sut: str, cores: int, threads: int) -> list[Point]:
        """Return the points (SUT, mode, cores and threads) for which a search finds the loads of a study."""
        if isinstance(self.cps, tuple):
            return []
        if isinstance(self.cps, Capacity):
            points = [Point(testbed, sut, mode, cores, threads, self.cps) for mode in self.modes]
        else:
            points = [Point(testbed, sut, self.cps.mode, cores, threads)]
        if not self.sharing.concerns(testbed):
            return points
        # One testbed searches for all twins (testbeds with the same hardware), so that all twins use equal loads.
        owners = (
            self.sharing.searches(point.crossing_path.relative_to(testbed)) for point in points
        )
        return [replace(point, testbed=name) for point, name in zip(points, owners, strict=True)]


@dataclass(frozen=True)
class Document:
    """A page made from files of this repository, and from the summaries of several studies."""

    name: str
    notebook: Annotated[
        Name,
        Meta(
            description="The notebook that becomes reports/<name>.html. Its parameter `summaries` is the list of "
            "paths of the studies' summaries."
        ),
    ]
    files: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            description="The files that the notebook reads. If one of the files changes, the workflow makes the "
            "page again.",
        ),
    ] = ()
    studies: Annotated[
        tuple[Name, ...],
        Meta(description="The studies whose summaries the notebook reads, for every testbed."),
    ] = ()
    predictions: Annotated[
        Literal["settings", "capacity", "papers"] | None,
        Meta(
            description="Simulations that the notebook reads. settings: all runs of the campaign. capacity: 1 to 64 "
            "cores. Both use the model that is fitted to the default mode on each testbed. papers: the papers' "
            "testbed."
        ),
    ] = None


@dataclass(frozen=True)
class DeclaredLoads:
    """The declaration of a study's loads, relative to the load at which the drop rate passes its limit."""

    around_crossing_of: Annotated[
        ModeName, Meta(description="The mode in which the crossing of pdr_limit is searched.")
    ]
    step_cps: Annotated[Cps | None, Meta(description="Distance between loads, such as 200.")] = None
    steps: Annotated[
        Annotated[tuple[Annotated[int, Meta(ge=-100, le=100)], ...], Meta(min_length=1)] | None,
        Meta(
            description="The multiples of step_cps that are loads. 0 is the highest multiple that the search found "
            "below the limit, 1 is the next multiple. The two loads around the limit and the multiples between them "
            "are always measured. If two neighbouring multiples are more than 25 % apart, step_cps is halved there."
        ),
    ] = None
    shares: Annotated[
        Annotated[tuple[Annotated[float, Meta(gt=0, le=2)], ...], Meta(min_length=1)] | None,
        Meta(
            description="Instead of step_cps and steps: loads as shares of the highest load that the search found "
            "below the limit, rounded to tens."
        ),
    ] = None


PointNumbers = Annotated[
    tuple[Annotated[int, Meta(ge=1)], ...],
    Meta(min_length=2, max_length=3, description="Cores, threads and cps of a point."),
]


@dataclass(frozen=True)
class DeclaredStudy:
    """A study in the configuration, which measures all combinations of the values in its lists."""

    suts: Annotated[tuple[Name, ...], Meta(min_length=1, description="Names from suts.")]
    modes: Annotated[
        tuple[ModeName, ...],
        Meta(
            min_length=1,
            description="Modes of config/modes.yaml, with overrides (enhanced+migration_cost_ns=500000). A run "
            "compares modes that are joined by commas; the first mode is the reference. A compared mode can override "
            "the numbers of workers and cores, the receive buffer, the SUT and the start (default,default+threads=2).",
        ),
    ]
    cores: Annotated[
        tuple[Cores, ...], Meta(min_length=1, description="Numbers of CPUs of the SPS.")
    ]
    threads: Annotated[
        tuple[Threads, ...],
        Meta(min_length=1, description="Numbers of worker processes (the papers' server threads)."),
    ]
    notebook: Annotated[
        Name | None,
        Meta(description="The notebook of the study's page. Without this key, no page is made."),
    ] = None
    testbeds: Annotated[
        tuple[Name, ...],
        Meta(
            description="The testbeds of the campaign that measure the study. Without this key, all testbeds measure "
            "the study. The campaign's key testbed overrides this key."
        ),
    ] = ()
    cps: Annotated[
        Annotated[tuple[Cps, ...], Meta(min_length=1)] | DeclaredLoads | None,
        Meta(
            description="Offered loads in calls per second: a list, or {around_crossing_of: MODE, step_cps: 200, "
            "steps: [0, 1]}, or {around_crossing_of: MODE, shares: [0.5, 0.8]}."
        ),
    ] = None
    capacity: Annotated[
        Capacity | None,
        Meta(
            description="Instead of cps: {limit: 0.01, relative_width: 0.02}. The capacity of each SUT, mode, cores "
            "and threads is searched, and the study's runs use the two loads around the capacity. For modes that are "
            "joined by commas, the ratios of their capacities are measured by alternating trials, until half of the "
            "width of each ratio's interval is at most relative_width. Such a study has no runs and no repetitions."
        ),
    ] = None
    points: Annotated[
        tuple[PointNumbers, ...],
        Meta(
            description="The combinations [cores, threads, cps] to measure, or [cores, threads] if a search finds the "
            "loads. Without this key, the study measures all combinations of its lists."
        ),
    ] = ()
    repetitions: Annotated[
        Repetitions | None,
        Meta(description="Runs of each point. A confidence interval needs at least two runs."),
    ] = None
    precision: Annotated[
        Precision | None,
        Meta(
            description="Instead of repetitions: {of: k_rcv_mean, relative: 0.05, at_least: 5, at_most: 30}. Blocks "
            "of runs are added until the interval is narrow enough."
        ),
    ] = None
