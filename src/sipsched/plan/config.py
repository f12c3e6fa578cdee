"""What is studied: the configuration, its validation and the runs it asks for."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT, SCHEMAS
from sipsched.plan.crossover import Crossover, duration_s, is_comparison
from sipsched.plan.documents import read_yaml, shorten, validate
from sipsched.plan.sharing import UNSHARED, Sharing

POINT_PATTERN = "{testbed}/{sut}/{mode}/cores~{cores}/threads~{threads}"
RUN_PATTERN = f"{POINT_PATTERN}/cps~{{cps}}/rep~{{rep}}"
CROSSING_PATTERN = f"{POINT_PATTERN}/{{search}}.json"

WIDEST_BRACKET = 1.25
"""Ratio of the loads on both sides of a crossing from which on it is only "between" them."""

DEPLOYMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "udp": ("shared", "sockets", "partitioned", "front"),
        "tcp": ("shared", "listeners", "dispatcher"),
    }
)
"""Of each transport."""

LISTED = ("cores", "threads", "cps")
"""What an entry of a study's `points` names, in this order."""


@dataclass(frozen=True, order=True)
class Capacity:
    """Loads of a study that bracket what each of its cells carries, and what a search for them aims at.

    Attributes
    ----------
    limit
        Packet drop rate at which capacity ends.
    relative_width
        Distance of the two loads around it, as a share of the upper one.
    """

    limit: float
    relative_width: float

    @property
    def name(self) -> str:
        """Name a search with this aim, as its record's file does."""
        return f"capacity~{self.limit}~{self.relative_width}"

    @classmethod
    def from_name(cls, name: str) -> "Capacity":
        """Read it back from the name of a file.

        Raises
        ------
        StableError
            It is not the name of such a search.
        """
        try:
            word, limit, width = name.split("~")
            found = cls(float(limit), float(width))
        except ValueError:
            word, found = "", cls(0, 0)
        if word != "capacity" or found.name != name:
            raise StableError(
                f"{name}.json: no search has this name; expected {CROSSING} or capacity~LIMIT~WIDTH"
            )
        return found

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Give the loads around a capacity, as `AroundCrossing.loads` does."""
        return tuple(sorted({lower_cps, upper_cps}))


CROSSING = "crossing"
"""Names the search that finds loads for what else is to be measured there."""


@dataclass(frozen=True, order=True)
class Point:
    """What is measured, and where: a SUT in a mode on so many cores with so many threads, on one testbed.

    A load and a repetition of it is a `Run`.

    Attributes
    ----------
    goal
        What is searched there, if that is the capacity; None: where the drop rate crosses the campaign's limit,
        as its `search` has it.
    """

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    goal: Capacity | None = None

    @property
    def crossing_path(self) -> Path:
        """Relative path of the record of where its packet drop rate crosses the limit."""
        return Path(CROSSING_PATTERN.format(**self.wildcards))

    @property
    def wildcards(self) -> dict[str, str]:
        """What its path is made of."""
        names = {name: str(value) for name, value in vars(self).items() if name != "goal"}
        return names | {"search": self.goal.name if self.goal else CROSSING}

    def run(self, cps: int, rep: int) -> "Run":
        """Give a repetition of it at a load."""
        return Run(self.testbed, self.sut, self.mode, self.cores, self.threads, cps, rep)

    def __str__(self) -> str:
        """Name it as a person would say it."""
        return f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} on {self.testbed}"

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Point":
        """Read it back from the text of a path.

        Raises
        ------
        StableError
            No search has such a name.
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
    """One repetition of a point at a load: the tuple (cores, threads, cps, mode, repetition)."""

    testbed: str
    sut: str
    mode: str
    cores: int
    threads: int
    cps: int
    rep: int

    @property
    def point(self) -> Point:
        """What is measured, without load and repetition."""
        return Point(self.testbed, self.sut, self.mode, self.cores, self.threads)

    @property
    def path(self) -> Path:
        """Relative path of everything that belongs to this run."""
        return Path(RUN_PATTERN.format(**vars(self)))

    def __str__(self) -> str:
        """Name the run as a person would say it."""
        return (
            f"{self.sut} {self.mode} cores={self.cores} threads={self.threads} "
            f"cps={self.cps} rep={self.rep} on {self.testbed}"
        )

    @classmethod
    def from_wildcards(cls, wildcards: Mapping[str, str]) -> "Run":
        """Read the tuple back from the text of a path."""
        point = Point.from_wildcards(wildcards)
        return point.run(int(wildcards["cps"]), int(wildcards["rep"]))


@dataclass(frozen=True)
class TestbedLabels:
    """What a record says of the testbed that it comes from; it labels every figure."""

    name: str
    kind: str
    description: str
    fidelity: str
    accelerator: str | None = None


Crossings = Mapping[Point, tuple[int, int]]
"""Point to the highest load found under the limit and the lowest above it."""


@dataclass(frozen=True)
class Sut:
    """What is measured: a proxy program, how it routes and how its memory is managed."""

    name: str
    proxy: str
    routing: str
    memory_manager: str
    shared_memory_mib: int
    package_memory_mib: int
    receive_buffer_bytes: int
    probe: str | None = None
    """Overrides the campaign's probe; `off` makes control runs that show what the probe costs."""
    transport: str = "udp"
    connections: int | Literal["per-call"] | None = None
    """Over TCP: persistent connections of the UAC, that calls take in turn, or one a call. Over UDP None."""

    deployment: str = "shared"
    """Of UDP: all workers on one `shared` socket; a worker a socket, the `sockets` on one port; `partitioned`: and a
    worker an instance, with transactions of its own; or such instances behind a `front`, a proxy without transactions.
    Of TCP: one `shared` process hands connections to the workers; a worker an instance, all `listeners` on one port; or
    such instances behind a `dispatcher`, sipdispatch."""

    @property
    def sharded(self) -> bool:
        """Whether several UDP sockets share the port, and BPF chooses among them."""
        return self.deployment in ("sockets", "partitioned")

    @property
    def fronted(self) -> bool:
        """Whether a process of its own stands before the instances, each of which has a port of its own."""
        return self.deployment in ("front", "dispatcher")

    @property
    def told_apart(self) -> bool:
        """Whether the UAS sees an address of its own of each instance."""
        return self.deployment in ("front", "listeners", "dispatcher")

    def instances(self, threads: int) -> int:
        """Count the instances of the proxy that so many workers make."""
        return 1 if self.deployment in ("shared", "sockets") else threads

    @property
    def over_tcp(self) -> bool:
        """Whether messages come in streams: none is dropped, they wait."""
        return self.transport == "tcp"


@dataclass(frozen=True)
class Load:
    """How calls are offered, the same for every run of a campaign."""

    generator: str
    law: str
    duration_s: float
    warmup_s: float
    ring_time_ms: int
    hold_time_ms: int
    hold_law: str
    retransmissions: bool
    drain_s: float
    setup_limit_ms: int = 500
    """From INVITE to its 200, less the ring time: a call that takes longer is late."""


@dataclass(frozen=True)
class Limits:
    """Of a rule of the verdict: above `suspect` a run is to be looked at, above `invalid` it does not count."""

    suspect: float
    invalid: float


@dataclass(frozen=True)
class Search:
    """How the load is searched at which the packet drop rate crosses its limit."""

    lowest_cps: int
    highest_cps: int
    relative_width: float
    trial_s: float
    trials_s: float
    limit_s: float


@dataclass(frozen=True)
class AroundCrossing:
    """Loads of a study that are found on the testbed: those around the crossing of the drop rate's limit.

    Attributes
    ----------
    mode
        The mode in which the crossing is searched.
    step_cps
        Distance between loads; the papers have 200.
    steps
        Which loads: 0 is the highest multiple of `step_cps` known to stay under the limit, 1 the next. The
        highest known to stay under it, the lowest known to be above it and those between are always among
        the loads, so that a crossing has one on either side, not farther apart than `WIDEST_BRACKET`:
        where that is less than `step_cps`, they are multiples of a half or a quarter of it.
    """

    mode: str
    step_cps: int
    steps: tuple[int, ...]

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Give the loads around a crossing.

        Parameters
        ----------
        lower_cps, upper_cps
            The highest load that the search found under the limit, and the lowest above it.
        """
        # not from the middle of what the search left: near the knee drops vary from run to run, a search
        # stops at a load that went well once, and the mean of runs passes the limit nearer to it, or under it
        loads = {self.step_cps * (lower_cps // self.step_cps + step) for step in self.steps}
        near = self.step_cps
        while near > max(1, (WIDEST_BRACKET - 1) * (near * (lower_cps // near))):
            near //= 2
        below, above = near * (lower_cps // near), near * -(-upper_cps // near)
        loads |= set(range(below, above + 1, near))
        return tuple(sorted(load for load in loads if load > 0))


@dataclass(frozen=True)
class SharesOfCrossing:
    """Loads of a study as shares of what the testbed was found to carry.

    Attributes
    ----------
    mode
        The mode in which the crossing is searched.
    shares
        Of the highest load that the search found under the limit.
    """

    mode: str
    shares: tuple[float, ...]

    def loads(self, lower_cps: int, upper_cps: int) -> tuple[int, ...]:
        """Give the loads, as `AroundCrossing.loads` does; in whole tens."""
        return tuple(sorted({max(1, round(lower_cps * share / 10)) * 10 for share in self.shares}))


Found = AroundCrossing | SharesOfCrossing | Capacity
"""Loads that hang on what is found on the testbed."""


Group = tuple[int, int, int]
"""Cores, threads and cps: what is measured there in all modes and SUTs of a study is compared."""
Repeats = Mapping[Group, int]
"""How often a group is to be repeated, those first whose intervals are widest."""
NO_REPEATS: Repeats = MappingProxyType({})


@dataclass(frozen=True)
class Precision:
    """How far the runs of a study are repeated: until an interval is narrow enough.

    Attributes
    ----------
    of
        A statistic of a run's messages, `<quantity>_<statistic>` of its summary.
    relative
        Half the width of its interval over its estimate, which is to be reached.
    at_least, at_most
        Repetitions.
    """

    of: str
    relative: float
    at_least: int
    at_most: int

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of repetitions after which is looked whether that is enough: half as many again each time."""
        found = [self.at_least]
        while found[-1] < self.at_most:
            found.append(min(self.at_most, found[-1] + -(-found[-1] // 2)))
        return tuple(found)


@dataclass(frozen=True)
class Study:
    """A set of points and the notebook that reads them.

    Attributes
    ----------
    notebook
        What makes the study's own page; None if it has none.
    points
        (cores, threads, cps) to measure of all combinations; empty: all of them.
    repetitions
        Of each point; with a precision as many as there are at least.
    precision
        What repetitions are to reach; None: their number is fixed.
    sharing
        Testbeds that share out its runs.
    cps
        Loads, or how they are found. Around the capacity of a SUT in one mode it is measured in all: modes are
        compared at equal loads.
    """

    name: str
    notebook: str | None
    suts: tuple[str, ...]
    modes: tuple[str, ...]
    cores: tuple[int, ...]
    threads: tuple[int, ...]
    cps: tuple[int, ...] | Found
    repetitions: int
    points: frozenset[tuple[int, ...]] = frozenset()
    precision: Precision | None = None
    sharing: Sharing = UNSHARED

    def looks(self, until: int | None = None) -> list[tuple[int, int]]:
        """List after how many repetitions runs are looked at, and how many there are after that if need be.

        Parameters
        ----------
        until
            Only those before this number of repetitions; None: all.
        """
        looks = self.precision.looks if self.precision else ()
        return [
            (now, then) for now, then in itertools.pairwise(looks) if until is None or now < until
        ]

    def searches(self, testbed: str) -> list[Point]:
        """List the points whose crossing is to be found first."""
        return [
            point
            for sut, cores, threads in itertools.product(self.suts, self.cores, self.threads)
            for point in self._searched(testbed, sut, cores, threads)
        ]

    def runs(
        self,
        testbed: str,
        crossings: Crossings = MappingProxyType({}),
        repeats: Repeats = NO_REPEATS,
    ) -> list[Run]:
        """List the runs in the order to measure them.

        In blocks: every point once before any is repeated, and in blocks beyond
        `repetitions` the widest interval first. Runs that differ in mode or SUT only follow
        each other, in turned order in every second block, so that what drifts hits each the same.

        Parameters
        ----------
        testbed
            Name of the testbed.
        crossings
            What the points of `searches` were found to cross between; those that are not in it have
            no runs yet.
        repeats
            Groups that are repeated more often.
        """
        suts: dict[Group, list[str]] = {}
        for cores, threads in itertools.product(self.cores, self.threads):
            loads = self._loads(testbed, cores, threads, crossings)
            for cps in sorted({load for of_sut in loads.values() for load in of_sut}):
                group = (cores, threads, cps)
                if not self.points or group in self.points:
                    suts[group] = [sut for sut in self.suts if cps in loads[sut]]
        more = [group for group in repeats if group in suts]
        places = {group: place for place, group in enumerate(suts)}
        runs = []
        for rep in range(1, max([self.repetitions, *repeats.values()]) + 1):
            for group in suts if rep <= self.repetitions else more:
                if rep <= max(self.repetitions, repeats.get(group, 0)):
                    arms = list(itertools.product(suts[group], self.modes))
                    block = [
                        Run(testbed, sut, mode, *group, rep)
                        for sut, mode in (arms if rep % 2 else reversed(arms))
                    ]
                    if self._measures(testbed, block, rep + places[group]):
                        runs += block
        return runs

    def _measures(self, testbed: str, block: Sequence[Run], turn: int) -> bool:
        """Tell whether a block is measured on a testbed, and not on a twin of it."""
        if not self.sharing.concerns(testbed):
            return True
        paths = (run.path.relative_to(testbed) for run in block)
        return self.sharing.measures(paths, turn) == testbed

    def _loads(
        self, testbed: str, cores: int, threads: int, crossings: Crossings
    ) -> dict[str, tuple[int, ...]]:
        """Give the loads of each SUT."""
        if isinstance(self.cps, tuple):
            return dict.fromkeys(self.suts, self.cps)
        found: dict[str, tuple[int, ...]] = dict.fromkeys(self.suts, ())
        for sut in self.suts:
            for point in self._searched(testbed, sut, cores, threads):
                if point in crossings:
                    found[sut] += self.cps.loads(*crossings[point])
        return found

    def _searched(self, testbed: str, sut: str, cores: int, threads: int) -> list[Point]:
        """Give what is searched for the loads of a SUT: what it carries in each mode, or in one of them."""
        if isinstance(self.cps, tuple):
            return []
        place = (cores, threads)
        if isinstance(self.cps, Capacity):
            points = [Point(testbed, sut, mode, *place, self.cps) for mode in self.modes]
        else:
            points = [Point(testbed, sut, self.cps.mode, *place)]
        if not self.sharing.concerns(testbed):
            return points
        # the same loads on all twins
        owners = (
            self.sharing.searches(point.crossing_path.relative_to(testbed)) for point in points
        )
        return [replace(point, testbed=name) for point, name in zip(points, owners, strict=True)]


@dataclass(frozen=True)
class Document:
    """A page that rests on files of this repository, and on what studies measured if it names any.

    `predictions` is what the simulator has to say for it: `settings`, `capacity` or `papers`; None: nothing.
    """

    name: str
    notebook: str
    files: tuple[str, ...]
    studies: tuple[str, ...] = ()
    predictions: str | None = None


@dataclass(frozen=True)
class Config:
    """A validated configuration."""

    testbeds: tuple[str, ...]
    probe: str
    load: Load
    crossover: Crossover
    pdr_limit: float
    search: Search
    validity: Mapping[str, Limits]
    suts: Mapping[str, Sut]
    studies: Mapping[str, Study]
    documents: Mapping[str, Document]
    only_measured: bool
    records: Path
    twins: tuple[str, ...] = ()
    """Testbeds that share out the runs of each study."""

    def sut(self, name: str) -> Sut:
        """Look a SUT up.

        Raises
        ------
        StableError
            The configuration does not define it.
        """
        if name not in self.suts:
            raise StableError(
                f"config: unknown SUT '{name}'; defined under suts: {', '.join(sorted(self.suts))}"
            )
        return self.suts[name]

    def load_of(self, run: Run) -> Load:
        """Say how calls are offered in a run: a comparison has a load of its own length."""
        if not is_comparison(run.mode):
            return self.load
        return replace(
            self.load,
            duration_s=duration_s(run.mode, self.crossover),
            retransmissions=self.crossover.retransmissions,
        )

    def check_run(self, run: Run) -> None:
        """Refuse a run that no study could ask for.

        Raises
        ------
        StableError
            Its testbed or SUT is not part of this configuration, or one of its numbers or its mode is
            not what a study may have.
        """
        self._check(run, str(run.path))

    def check_search(self, point: Point) -> None:
        """Refuse a point at which no study could have a crossing searched.

        Raises
        ------
        StableError
            As `check_run`; or its mode compares modes.
        """
        if is_comparison(point.mode):
            raise StableError(
                f"{point.crossing_path}: '{point.mode}' compares modes; a crossing is searched in one"
            )
        if point.goal:
            validate(vars(point.goal), "config", str(point.crossing_path), part="capacity")
        self._check(point.run(self.search.lowest_cps, 1), str(point.crossing_path))

    def _check(self, run: Run, what: str) -> None:
        validate(vars(run), "config", what, part="run")
        if run.testbed not in self.testbeds:
            raise StableError(
                f"{what}: testbed '{run.testbed}' is not among testbeds ({', '.join(self.testbeds)})"
            )
        if run.sut not in self.suts:
            raise StableError(
                f"{what}: '{run.sut}' is not defined under suts ({', '.join(sorted(self.suts))})"
            )
        _check_use(self.suts[run.sut], run.mode, self.load, what)

    def searches(self) -> list[Point]:
        """List every point whose crossing is to be found first, once."""
        points = itertools.chain.from_iterable(
            study.searches(name) for name in self.testbeds for study in self.studies.values()
        )
        return list(dict.fromkeys(points))

    def runs(
        self,
        crossings: Crossings = MappingProxyType({}),
        repeats: Mapping[tuple[str, str], Repeats] = MappingProxyType({}),
    ) -> list[Run]:
        """List every run that the studies ask for, once, in the order to measure them.

        Testbed by testbed, and there each study's first block before any study's second: what has no interval yet, or
        the widest, comes first, so that a campaign that is interrupted knows something of everything.

        Parameters
        ----------
        crossings
            As `Study.runs` takes them.
        repeats
            Study and testbed to what is repeated more often there.
        """
        found: dict[Run, None] = {}
        for name in self.testbeds:
            of_bed = (
                study.runs(name, crossings, repeats.get((study.name, name), NO_REPEATS))
                for study in self.studies.values()
            )
            runs = itertools.chain.from_iterable(of_bed)
            found |= dict.fromkeys(sorted(runs, key=lambda run: run.rep))
        return list(found)


def name_files(files: Sequence[str | Path]) -> str:
    """Name files of the configuration, and the command line, for messages."""
    here = Path.cwd()
    names = (
        path.relative_to(here) if path.is_relative_to(here) else path for path in map(Path, files)
    )
    return f"{', '.join(dict.fromkeys(map(str, names)))} (or --config)"


def check_files(files: Iterable[str | Path]) -> None:
    """Read files of the configuration that are there, and refuse what Snakemake would take.

    Of a key that is there twice Snakemake keeps the last, and `__use_yte__` runs the file as a program.

    Raises
    ------
    StableError
        A file is not strict YAML, or has an unknown key at its top; one line with file and place.
    """
    known = read_yaml(SCHEMAS / "config.schema.yaml")["properties"]
    for path in map(Path, files):
        document = read_yaml(path) if path.exists() else {}
        if not isinstance(document, dict):
            raise StableError(f"{path}: expected keys and values, found {shorten(document)}")
        for key in document:
            if key not in known:
                raise StableError(f"{path}: unknown key '{key}'; there are: {', '.join(known)}")


def parse_config(
    document: Mapping[str, Any], what: str = "config/config.yaml (or --config)"
) -> Config:
    """Turn a loaded configuration into values.

    Parameters
    ----------
    document
        The mapping that `config/config.yaml` holds, with any overrides applied.
    what
        Where it comes from, for the error's text.

    Raises
    ------
    StableError
        An unknown key, a value out of range, a SUT or mode that is not defined, a law that the
        generator does not know.
    """
    document = validate(document, "config", what)
    load, search = Load(**document["load"]), Search(**document["search"])
    if load.generator == "sipp" and load.law != "constant":
        raise StableError(
            f"{what}: load.law: SIPp starts calls at a constant rate and nothing else: expected "
            f"constant, found {load.law}"
        )
    if search.lowest_cps >= search.highest_cps:
        raise StableError(
            f"{what}: search: lowest_cps ({search.lowest_cps}) must be less than highest_cps "
            f"({search.highest_cps})"
        )
    suts = {name: Sut(name=name, **body) for name, body in document["suts"].items()}
    for sut in suts.values():
        _check_transport(sut, what)
    sharing = _sharing(document, what)
    studies = {}
    for name, body in document["studies"].items():
        axes = {key: tuple(body[key]) for key in ("suts", "modes", "cores", "threads")}
        cps = _loads(body, f"{what}: studies.{name}")
        precision = _precision(body, f"{what}: studies.{name}")
        points = frozenset(map(tuple, body.get("points", ())))
        listed = {**axes, "cps": cps if isinstance(cps, tuple) else ()}
        for point in sorted(points):
            if any(n not in listed[key] for n, key in zip(point, LISTED, strict=True)):
                raise StableError(
                    f"{what}: studies.{name}.points: {list(point)} is not among its {', '.join(LISTED)}"
                )
        studies[name] = Study(
            name=name,
            notebook=body.get("notebook"),
            repetitions=precision.at_least if precision else body["repetitions"],
            precision=precision,
            sharing=sharing,
            cps=cps,
            points=points,
            **axes,
        )
        for sut_name, mode in itertools.product(axes["suts"], axes["modes"]):
            if sut_name not in suts:
                raise StableError(
                    f"{what}: studies.{name}.suts: '{sut_name}' is not defined under suts "
                    f"({', '.join(sorted(suts))})"
                )
            _check_use(suts[sut_name], mode, load, f"{what}: studies.{name}")
    only = document.get("only", list(studies))
    for name in only:
        if name not in studies:
            raise StableError(
                f"{what}: only: '{name}' is not defined under studies ({', '.join(studies)})"
            )
        _check_comparisons(studies[name], load, f"{what}: studies.{name}")
    documents = {}
    for name, body in document.get("documents", {}).items():
        read = tuple(body.get("studies", ()))
        documents[name] = Document(
            name, body["notebook"], tuple(body["files"]), read, body.get("predictions")
        )
        for study in read:
            if study not in studies:
                raise StableError(
                    f"{what}: documents.{name}.studies: '{study}' is not defined under studies "
                    f"({', '.join(sorted(studies))})"
                )
    for name in only if sharing.twins else ():
        if studies[name].precision:
            raise StableError(
                f"{what}: twins: studies.{name}.precision looks at the runs of one testbed; set repetitions there"
            )
    return Config(
        testbeds=tuple(document["testbeds"]),
        probe=document["probe"],
        load=load,
        crossover=_crossover(document["crossover"], what),
        pdr_limit=document["pdr_limit"],
        search=search,
        validity={rule: Limits(**limits) for rule, limits in document["validity"].items()},
        suts=suts,
        studies={name: studies[name] for name in studies if name in only},
        twins=sharing.twins,
        documents=documents,
        only_measured=document.get("only_measured", False),
        records=Path(document.get("records", "raw")),
    )


def _sharing(document: Mapping[str, Any], what: str) -> Sharing:
    """Read who shares what with whom."""
    twins, aside = tuple(document.get("twins", ())), frozenset(document.get("aside", ()))
    for name in twins:
        if name not in document["testbeds"]:
            raise StableError(
                f"{what}: twins: '{name}' is not among testbeds ({', '.join(document['testbeds'])})"
            )
    for name in sorted(aside - {*twins}):
        raise StableError(
            f"{what}: aside: '{name}' has no twin to give its runs to; twins: {', '.join(twins) or 'none'}"
        )
    if twins and aside >= {*twins}:
        raise StableError(
            f"{what}: aside: none of the twins is left to measure; leave one of them out"
        )
    return Sharing(twins, aside, Path(document.get("records", "raw")))


def _check_transport(sut: Sut, what: str) -> None:
    where = f"{what}: suts.{sut.name}"
    if sut.deployment not in DEPLOYMENTS[sut.transport]:
        raise StableError(
            f"{where}.deployment: over {sut.transport.upper()} there are "
            f"{', '.join(DEPLOYMENTS[sut.transport])}; found {sut.deployment}"
        )
    if sut.fronted and sut.probe != "off":
        raise StableError(
            f"{where}.probe: every message would be two to it, one at the {sut.deployment} and one at an instance: "
            f"expected off, found {sut.probe or 'none, which takes that of the campaign'}"
        )
    if not sut.over_tcp:
        if sut.connections is not None:
            raise StableError(f"{where}.connections: only TCP has them; set transport to tcp")
        return
    if sut.connections is None:
        raise StableError(
            f"{where}.connections: missing; TCP takes a number of persistent ones, or per-call"
        )
    if sut.probe not in (None, "auto", "off"):
        raise StableError(
            f"{where}.probe: over TCP the probe has one mode: expected auto or off, found {sut.probe}"
        )


def _check_use(sut: Sut, mode: str, load: Load, where: str) -> None:
    if load.generator == "sipp" and (sut.over_tcp or sut.fronted):
        raise StableError(
            f"{where}: {sut.name}: SIPp is run over UDP, and does not tell instances apart; set load.generator to "
            "sipload"
        )
    if is_comparison(mode) and sut.fronted:
        raise StableError(
            f"{where}: '{mode}' compares modes by the messages in its windows, which no probe tells behind a front: "
            f"measure each mode of {sut.name} by itself"
        )


def _check_comparisons(study: Study, load: Load, where: str) -> None:
    if study.precision:
        for mode in filter(is_comparison, study.modes):
            raise StableError(
                f"{where}.precision: '{mode}' compares modes within each run, whose length is what narrows that: "
                "set repetitions, and crossover.mode_s"
            )
    if isinstance(study.cps, Capacity):
        for mode in filter(is_comparison, study.modes):
            raise StableError(
                f"{where}.modes: '{mode}' compares modes; a capacity is searched in each mode by itself: "
                "list them one by one, and compare them in a study with loads (cps)"
            )
    elif isinstance(study.cps, Found) and is_comparison(study.cps.mode):
        raise StableError(
            f"{where}.cps.around_crossing_of: '{study.cps.mode}' compares modes; a crossing is searched "
            "in one"
        )
    if load.generator == "sipp" and any(map(is_comparison, study.modes)):
        raise StableError(
            f"{where}.modes: SIPp plays no calls twice, as comparisons need it; set load.generator to "
            "sipload"
        )


def _crossover(declared: Mapping[str, Any], what: str) -> Crossover:
    body = dict(declared)
    for key in ("window_s", "washout_s"):
        if body[key] == "auto":
            body[key] = None
    window_s, washout_s = body["window_s"], body["washout_s"]
    if window_s is not None and washout_s is not None and window_s <= 2 * washout_s:
        raise StableError(
            f"{what}: crossover: window_s ({window_s:g}) must be more than twice washout_s "
            f"({washout_s:g})"
        )
    return Crossover(**body)


def _precision(study: Mapping[str, Any], where: str) -> Precision | None:
    asked = [key for key in ("repetitions", "precision") if key in study]
    if len(asked) != 1:
        raise StableError(
            f"{where}: expected one of repetitions and precision, found {' and '.join(asked) or 'neither'}; "
            "repetitions is a number of runs, precision an interval to be reached"
        )
    if "repetitions" in study:
        return None
    precision = Precision(**study["precision"])
    if precision.at_least > precision.at_most:
        raise StableError(
            f"{where}.precision: at_least ({precision.at_least}) must not be more than at_most "
            f"({precision.at_most})"
        )
    return precision


def _loads(study: Mapping[str, Any], where: str) -> tuple[int, ...] | Found:
    asked = [key for key in ("cps", "capacity") if key in study]
    if len(asked) != 1:
        raise StableError(
            f"{where}: expected one of cps and capacity, found {' and '.join(asked) or 'neither'}; cps lists "
            "loads, capacity searches what each cell carries (a file over config.yaml adds keys to its studies: "
            "give yours a name of its own)"
        )
    if "capacity" in study:
        return Capacity(**study["capacity"])
    declared = study["cps"]
    if isinstance(declared, list):
        return tuple(declared)
    mode = declared["around_crossing_of"]
    if "shares" in declared:
        return SharesOfCrossing(mode, tuple(declared["shares"]))
    return AroundCrossing(mode, declared["step_cps"], tuple(declared["steps"]))


def load_config(path: Path = PROJECT_ROOT / "config" / "config.yaml") -> Config:
    """Read and check a configuration file."""
    return parse_config(read_yaml(path))
