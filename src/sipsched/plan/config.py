"""The configuration of a campaign: its keys, its checks and its runs."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.plan.crossover import (
    BEHIND_FRONT,
    Crossover,
    check_calls,
    check_instances,
    duration_s,
    is_comparison,
)
from sipsched.plan.documents import read_yaml, tidy
from sipsched.plan.keys import Name, ProbeChoice, Share, check_keys, read
from sipsched.plan.loads import (
    AroundCrossing,
    Capacity,
    DeclaredLoad,
    Load,
    Precision,
    Search,
    SearchedLoads,
    SharesOfCrossing,
)
from sipsched.plan.run import NO_REPEATS, Crossings, Point, Repeats, Run
from sipsched.plan.sharing import Sharing
from sipsched.plan.study import (
    OWN_PAGES,
    TESTBED_PAGES,
    DeclaredLoads,
    DeclaredStudy,
    Document,
    Study,
)
from sipsched.plan.sut import DEPLOYMENTS, Sut
from sipsched.validity.rules import RULES, Limits

LISTED = ("cores", "threads", "cps")
"""The meanings of the numbers in an entry of a study's `points`, in the order of the entry."""


@dataclass(frozen=True)
class DeclaredLimits:
    """The limits of a validity rule in the configuration, which replace the rule's default limits."""

    suspect: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="A run above this limit is suspect: results include the run, and pages count suspect runs."
        ),
    ] = None
    invalid: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="A run above this limit is invalid and is measured again."),
    ] = None


SutName = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]*\Z")]
StudyName = Annotated[
    str,
    Meta(pattern=rf"\A(?!({'|'.join(TESTBED_PAGES)})\Z)[a-z][a-z0-9_]*\Z"),
]
DocumentName = Annotated[str, Meta(pattern=rf"\A(?!({'|'.join(OWN_PAGES)})\Z)[a-z][a-z0-9_]*\Z")]


@dataclass(frozen=True)
class Declared:
    """The configuration of a campaign, as its file declares it."""

    testbeds: Annotated[
        tuple[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z")], ...],
        Meta(
            min_length=1,
            description="Names of files in hardware/testbeds, without .yaml. Every study is measured on every "
            "testbed, unless the study has its own key testbeds.",
        ),
    ]
    probe: Annotated[
        ProbeChoice,
        Meta(
            description="The probe mode, which is the way to timestamp messages. auto uses the most exact mode that "
            "the SPS's kernel allows: exact (fentry/fexit), tracepoint, or preload (no BPF). off is for control runs "
            "without timestamps. SUTs over TCP have one probe mode besides off."
        ),
    ]
    load: Annotated[DeclaredLoad, Meta(description="The load, which is the same for every run.")]
    crossover: Annotated[
        Crossover, Meta(description="Settings of runs that compare modes (`default,batch`).")
    ]
    pdr_limit: Annotated[
        Share, Meta(description="Packet drop rate at which capacity ends. The papers use 1 %.")
    ]
    search: Annotated[
        Search, Meta(description="Settings of the search for the load that crosses pdr_limit.")
    ]
    suts: Annotated[
        Mapping[SutName, Mapping[str, Any]],
        Meta(min_length=1, description="The systems under test, by name."),
    ]
    studies: Annotated[
        Mapping[StudyName, DeclaredStudy],
        Meta(min_length=1, description="The sets of runs to measure, by name."),
    ]
    sut_defaults: Annotated[
        Mapping[str, Mapping[str, Any]],
        Meta(description="Default values of the keys of SUTs, by proxy program."),
    ] = field(default_factory=dict)
    validity: Annotated[
        Mapping[str, DeclaredLimits],
        Meta(
            description="Limits that replace the default limits of verdict rules, by rule "
            "(src/sipsched/validity/rules.py)."
        ),
    ] = field(default_factory=dict)
    documents: Annotated[
        Mapping[DocumentName, Mapping[str, Any]],
        Meta(description="Pages about several studies, by name: reports/<name>.html."),
    ] = field(default_factory=dict)
    testbed: Annotated[
        Name | None,
        Meta(
            description="Instead of testbeds: the name of the only testbed, for example: snakemake --config "
            "testbed=NAME."
        ),
    ] = None
    twins: Annotated[
        tuple[Name, ...],
        Meta(
            description="Two or more of the testbeds, with the same hardware. The twins divide the blocks of each "
            "study. One twin measures all runs of a block. One twin performs the searches for all twins."
        ),
    ] = ()
    aside: Annotated[
        tuple[Name, ...],
        Meta(
            description="Twins that measure nothing in this invocation. The other twins measure their blocks, for "
            "example: snakemake --config 'aside=[a]'."
        ),
    ] = ()
    only: Annotated[
        tuple[Name, ...] | None,
        Meta(
            description="Names of the studies to measure. Without this key, all studies are measured."
        ),
    ] = None
    only_measured: Annotated[
        bool,
        Meta(
            description="Whether to use the recorded runs and measure nothing. The reports name the missing runs."
        ),
    ] = False
    records: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\Z",
            description="Folder of the records, relative to the project's folder. recorded/raw has the records of "
            "the repository.",
        ),
    ] = "raw"


@dataclass(frozen=True)
class Config:
    """A validated configuration of a campaign."""

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
    """Testbeds that share the runs of each study."""
    calls: Mapping[int, int] = field(default_factory=dict)
    """Calls per run, by number of cores. If the mapping is empty, each run lasts as long as `load` says."""

    def sut(self, name: str) -> Sut:
        """Return a system under test (SUT) by its name.

        Raises
        ------
        StableError
            The configuration does not define the SUT.
        """
        if name not in self.suts:
            raise StableError(
                f"config: unknown SUT '{name}'; defined under suts: {', '.join(sorted(self.suts))}"
            )
        return self.suts[name]

    def load_of(self, run: Run) -> Load:
        """Return the settings of a run's load, including its duration, which depends on the kind of run."""
        if is_comparison(run.mode):
            return replace(
                self.load,
                duration_s=duration_s(run.mode, self.crossover),
                retransmissions=self.crossover.retransmissions,
            )
        if not self.calls:
            return self.load
        listed = (cores for cores in self.calls if cores <= run.cores)
        calls = self.calls[max(listed, default=min(self.calls))]
        return replace(self.load, duration_s=calls / run.cps)

    def check_run(self, run: Run) -> None:
        """Raise an error for a run that no study of the configuration can contain.

        Raises
        ------
        StableError
            The configuration lacks the testbed or the SUT, or a number or the mode is outside the range of a study.
        """
        self._check(run, str(run.path))
        check_calls([run.mode], self.load, self.crossover, str(run.path))

    def check_search(self, point: Point) -> None:
        """Raise an error for a search that no study of the configuration can contain.

        Raises
        ------
        StableError
            See `check_run`. Or the point names several modes, and the search is not for a capacity.
        """
        if is_comparison(point.mode) and not point.goal:
            raise StableError(
                f"{point.crossing_path}: '{point.mode}' compares modes; search in one of these modes, or compare "
                "their capacities in a study with the key capacity"
            )
        if point.goal:
            read(Capacity, vars(point.goal), str(point.crossing_path))
        run = point.run(self.search.lowest_cps, 1)
        self._check(run, str(point.crossing_path), within_run=False)

    def _check(self, run: Run, what: str, *, within_run: bool = True) -> None:
        read(Run, vars(run), what)
        if run.testbed not in self.testbeds:
            raise StableError(
                f"{what}: testbed '{run.testbed}' is not among testbeds ({', '.join(self.testbeds)})"
            )
        if run.sut not in self.suts:
            raise StableError(
                f"{what}: '{run.sut}' is not defined under suts ({', '.join(sorted(self.suts))})"
            )
        _check_use(self.suts[run.sut], run.mode, self.suts, what, within_run)

    def searches(self) -> list[Point]:
        """List the points (SUT, mode, cores and threads) at which searches find the loads of studies.

        Each point is listed once.
        """
        points = itertools.chain.from_iterable(
            study.searches(name) for name in self.testbeds for study in self.studies.values()
        )
        return list(dict.fromkeys(points))

    def runs(
        self,
        crossings: Crossings = MappingProxyType({}),
        repeats: Mapping[tuple[str, str], Repeats] = MappingProxyType({}),
    ) -> list[Run]:
        """List all runs of all studies in the order of measuring, without duplicates.

        The runs of a testbed are consecutive. On a testbed, all studies progress together: after half of the campaign,
        half of the runs of each study are measured. So an interrupted campaign has results for every study, and the
        repetitions of a point are spread over the whole campaign, during which the machine may drift. Runs that differ
        only in mode or SUT are consecutive.

        Parameters
        ----------
        crossings
            See `Study.runs`.
        repeats
            Groups (cores, threads and load) with additional repetitions, per study and testbed.
        """
        runs: dict[Run, None] = {}
        for name in self.testbeds:
            studies = (
                study.runs(name, crossings, repeats.get((study.name, name), NO_REPEATS))
                for study in self.studies.values()
            )
            shares = itertools.chain.from_iterable(map(_spread, studies))
            runs |= dict.fromkeys(run for _, run in sorted(shares, key=itemgetter(0)))
        return list(runs)


def _spread(runs: Sequence[Run]) -> list[tuple[float, Run]]:
    """Pair each run with its relative position in its study (0 to 1), so that studies can be interleaved."""
    groups = [
        list(group)
        for _, group in itertools.groupby(
            runs, key=lambda run: (run.cores, run.threads, run.cps, run.rep)
        )
    ]
    return [((i + 0.5) / len(groups), run) for i, group in enumerate(groups) for run in group]


def name_files(files: Sequence[str | Path]) -> str:
    """Return the possible sources of a setting as text for error messages, such as "config.yaml (or --config)"."""
    here = Path.cwd()
    names = (
        path.relative_to(here) if path.is_relative_to(here) else path for path in map(Path, files)
    )
    return f"{', '.join(dict.fromkeys(map(str, names)))} (or --config)"


def check_files(files: Iterable[str | Path]) -> None:
    """Raise an error for faults in configuration files that Snakemake would silently accept.

    Snakemake silently uses the last of two equal keys, and runs a file with the key `__use_yte__` as a program.

    Raises
    ------
    StableError
        A file is not strict YAML, or has an unknown key at its top level. The message names the file and the line.
    """
    for path in map(Path, files):
        check_keys(Declared, read_yaml(path) if path.exists() else {}, str(path))


def parse_config(
    document: Mapping[str, Any], what: str = "config/config.yaml (or --config)"
) -> Config:
    """Check a configuration, and return a `Config` with typed values.

    Parameters
    ----------
    document
        The content of `config/config.yaml`, with all overrides applied.
    what
        Names of the files, for error messages.

    Raises
    ------
    StableError
        A key is unknown, a value is out of range, or a name is not defined.
    """
    file = read(Declared, tidy(document, what), what)
    if file.testbed:
        file = replace(file, testbeds=(file.testbed,))
    if file.search.lowest_cps >= file.search.highest_cps:
        raise StableError(
            f"{what}: search: lowest_cps ({file.search.lowest_cps}) must be less than highest_cps "
            f"({file.search.highest_cps})"
        )
    _check_crossover(file.crossover, what)
    suts = _suts(file, what)
    sharing = _sharing(file, what)
    studies = {
        name: _study(
            name, body, suts, _testbeds(file, name, what), sharing, f"{what}: studies.{name}"
        )
        for name, body in file.studies.items()
    }
    return Config(
        testbeds=file.testbeds,
        probe=file.probe,
        load=file.load.in_seconds,
        calls=file.load.calls_by_cores,
        crossover=file.crossover,
        pdr_limit=file.pdr_limit,
        search=file.search,
        validity=_validity(file.validity, what),
        suts=suts,
        studies=_measured_studies(file, studies, what),
        twins=sharing.twins,
        documents=_documents(file, studies, what),
        only_measured=file.only_measured,
        records=Path(file.records),
    )


def _measured_studies(file: Declared, studies: Mapping[str, Study], what: str) -> dict[str, Study]:
    """Return the studies that the key `only` selects. Raise an error if `only` names an undefined study."""
    only = list(studies) if file.only is None else file.only
    for name in only:
        if name not in studies:
            raise StableError(
                f"{what}: only: '{name}' is not defined under studies ({', '.join(studies)})"
            )
        _check_comparisons(studies[name], file, f"{what}: studies.{name}")
        if file.twins and studies[name].precision:
            raise StableError(
                f"{what}: twins: studies.{name}.precision needs all runs on one testbed; set repetitions instead"
            )
    return {name: study for name, study in studies.items() if name in only}


def _documents(file: Declared, studies: Mapping[str, Study], what: str) -> dict[str, Document]:
    """Read the declarations of pages about several studies. Raise an error if a page names an undefined study."""
    documents = {
        name: read(Document, body, f"{what}: documents.{name}", name=name)
        for name, body in file.documents.items()
    }
    for page in documents.values():
        for study in page.studies:
            if study not in studies:
                raise StableError(
                    f"{what}: documents.{page.name}.studies: '{study}' is not defined under studies "
                    f"({', '.join(sorted(studies))})"
                )
    return documents


def _suts(file: Declared, what: str) -> dict[str, Sut]:
    """Read the SUTs (systems under test).

    A key that a SUT does not set has the default value for the SUT's proxy program.
    """
    for proxy, body in file.sut_defaults.items():
        check_keys(Sut, body, f"{what}: sut_defaults.{proxy}", ("name", "proxy"))
    suts = {}
    for name, body in file.suts.items():
        whole = {**file.sut_defaults.get(str(body.get("proxy")), {}), **body}
        suts[name] = read(Sut, whole, f"{what}: suts.{name}", name=name)
        _check_sut(suts[name], what)
    return suts


def _testbeds(file: Declared, study: str, what: str) -> tuple[str, ...]:
    """Check and return the testbeds of a study. An empty result means all testbeds of the campaign."""
    names = () if file.testbed else file.studies[study].testbeds
    for name in names:
        if name not in file.testbeds:
            raise StableError(
                f"{what}: studies.{study}.testbeds: '{name}' is not among testbeds ({', '.join(file.testbeds)})"
            )
    return names


def _study(
    name: str,
    body: DeclaredStudy,
    suts: Mapping[str, Sut],
    testbeds: tuple[str, ...],
    sharing: Sharing,
    where: str,
) -> Study:
    """Check the declaration of a study, and convert the declaration into a `Study`."""
    cps, precision = _loads(body, where), _precision(body, where)
    for point in body.points:
        axes = (body.cores, body.threads, *([cps] if isinstance(cps, tuple) else []))
        if len(point) != len(axes) or any(
            number not in axis for number, axis in zip(point, axes, strict=True)
        ):
            raise StableError(
                f"{where}.points: {list(point)} is not a combination of the study's {', '.join(LISTED[: len(axes)])}"
            )
    for sut, mode in itertools.product(body.suts, body.modes):
        if sut not in suts:
            raise StableError(
                f"{where}.suts: '{' '.join(sut.split())}' is not defined under suts ({', '.join(sorted(suts))})"
            )
        _check_use(suts[sut], mode, suts, where, not isinstance(cps, Capacity))
    return Study(
        name=name,
        notebook=body.notebook,
        suts=body.suts,
        modes=body.modes,
        cores=body.cores,
        threads=body.threads,
        cps=cps,
        repetitions=precision.at_least if precision else body.repetitions or 0,
        points=frozenset(body.points),
        precision=precision,
        sharing=sharing,
        testbeds=testbeds,
    )


def _sharing(file: Declared, what: str) -> Sharing:
    """Check and return the twins, which are testbeds with the same hardware that share the runs of each study."""
    twins, aside = file.twins, frozenset(file.aside)
    if len(twins) == 1:
        raise StableError(f"{what}: twins: expected at least two testbeds, found {twins[0]}")
    for name in twins:
        if name not in file.testbeds:
            raise StableError(
                f"{what}: twins: '{name}' is not among testbeds ({', '.join(file.testbeds)})"
            )
    for name in sorted(aside - {*twins}):
        raise StableError(
            f"{what}: aside: '{name}' has no twin that could measure its runs; twins: {', '.join(twins) or 'none'}"
        )
    if twins and aside >= {*twins}:
        raise StableError(
            f"{what}: aside: no twin is left to measure; remove one of them from aside"
        )
    records = Path(file.records)
    return Sharing(twins, aside, lambda path: (records / path).is_file())


def _validity(declared: Mapping[str, DeclaredLimits], what: str) -> dict[str, Limits]:
    """Return the limits of every validity rule: the limits in the configuration, or else the default limits."""
    for name in declared:
        if name not in RULES:
            raise StableError(
                f"{what}: validity: no rule is named '{name}'; rules: {', '.join(RULES)}"
            )
    limits = {}
    for name, rule in RULES.items():
        given = declared.get(name, DeclaredLimits())
        limits[name] = Limits(
            rule.suspect if given.suspect is None else given.suspect,
            rule.invalid if given.invalid is None else given.invalid,
        )
        if limits[name].suspect > limits[name].invalid:
            raise StableError(
                f"{what}: validity.{name}: suspect ({limits[name].suspect:g}) must be at most invalid "
                f"({limits[name].invalid:g})"
            )
    return limits


def _check_sut(sut: Sut, what: str) -> None:
    where = f"{what}: suts.{sut.name}"
    if sut.program and sut.release:
        raise StableError(f"{where}: program and release exclude each other; remove one of them")
    if (sut.transport, sut.deployment) not in DEPLOYMENTS:
        known = [name for transport, name in DEPLOYMENTS if transport == sut.transport]
        raise StableError(
            f"{where}.deployment: expected one of {', '.join(known)} over {sut.transport.upper()}, "
            f"found {sut.deployment}"
        )
    if sut.fronted and sut.probe != "off":
        raise StableError(
            f"{where}.probe: expected off, found {sut.probe or 'none, which means the probe of the campaign'}; the "
            f"probe would count every message twice, at the {sut.deployment} and at an instance"
        )
    if sut.front_host != "sps" and not sut.fronted:
        raise StableError(
            f"{where}.front_host: expected sps, found {sut.front_host}; deployment {sut.deployment} has no front end"
        )
    if sut.shard_by != "call-id" and not (sut.sharded or sut.deployment == "front"):
        raise StableError(
            f"{where}.shard_by: expected call-id, found {sut.shard_by}; with deployment {sut.deployment}, "
            "neither a BPF program nor a proxy chooses by the user"
        )
    if not sut.over_tcp:
        if sut.connections is not None:
            raise StableError(
                f"{where}.connections: only TCP has connections; set transport to tcp"
            )
        return
    if sut.connections is None:
        raise StableError(
            f"{where}.connections is missing: a number of persistent connections, or per-call"
        )
    if sut.probe not in (None, "auto", "off"):
        raise StableError(f"{where}.probe: expected auto or off over TCP, found {sut.probe}")


def _check_use(sut: Sut, mode: str, suts: Mapping[str, Sut], where: str, within_run: bool) -> None:
    check_instances(mode, sut, suts, where, within_run=within_run)
    if within_run and is_comparison(mode) and sut.fronted:
        raise StableError(
            f"{where}: '{mode}' compares modes by the timestamps of messages, and {BEHIND_FRONT}; measure each mode of "
            f"{sut.name} in its own runs"
        )


def _check_comparisons(study: Study, file: Declared, where: str) -> None:
    if isinstance(study.cps, Capacity):
        return
    check_calls(study.modes, file.load, file.crossover, where)
    if study.precision:
        for mode in filter(is_comparison, study.modes):
            raise StableError(
                f"{where}.precision: '{mode}' compares modes within each run, and a longer run narrows the interval; "
                "set repetitions, and crossover.mode_s"
            )
    if isinstance(study.cps, SearchedLoads) and is_comparison(study.cps.mode):
        raise StableError(
            f"{where}.cps.around_crossing_of: '{study.cps.mode}' compares modes; name one of these modes"
        )


def _check_crossover(crossover: Crossover, what: str) -> None:
    window_s, washout_s = crossover.window_s, crossover.washout_s
    if window_s != "auto" and washout_s != "auto" and window_s <= 2 * washout_s:
        raise StableError(
            f"{what}: crossover: window_s ({window_s:g}) must be more than twice washout_s "
            f"({washout_s:g})"
        )


def _precision(study: DeclaredStudy, where: str) -> Precision | None:
    if study.capacity and any(map(is_comparison, study.modes)):
        _check_ratios(study, where)
        return None
    _one_of(
        study,
        ("repetitions", "precision"),
        "repetitions is a number of runs, precision is the width of an interval",
        where,
    )
    precision = study.precision
    if precision and precision.at_least > precision.at_most:
        raise StableError(
            f"{where}.precision: at_least ({precision.at_least}) must not be more than at_most "
            f"({precision.at_most})"
        )
    return precision


def _check_ratios(study: DeclaredStudy, where: str) -> None:
    """Raise an error if a study compares capacities, and also searches single capacities or measures runs."""
    single = [mode for mode in study.modes if not is_comparison(mode)]
    if single:
        raise StableError(
            f"{where}.modes: '{single[0]}' is a single mode, and the study compares capacities; search the capacity of "
            "a single mode in another study"
        )
    for key in ("repetitions", "precision", "notebook"):
        if getattr(study, key) is not None:
            raise StableError(
                f"{where}.{key}: a comparison of capacities has trials and no runs; remove {key} (a document with "
                "notebooks/scaling.ipynb shows the ratios)"
            )


def _loads(study: DeclaredStudy, where: str) -> tuple[int, ...] | SearchedLoads:
    _one_of(
        study,
        ("cps", "capacity"),
        "cps lists loads, capacity searches the capacity of each setting (a further file adds keys to the studies of "
        "config.yaml, so give your study a new name)",
        where,
    )
    if study.capacity:
        return study.capacity
    if not isinstance(study.cps, DeclaredLoads):
        return study.cps or ()
    around = study.cps
    # Snakemake merges several configuration files. A study can therefore have `steps` from config.yaml
    # and also `shares` from a second file. For a study with both keys, the program uses `shares`.
    if around.shares is not None:
        return SharesOfCrossing(around.around_crossing_of, around.shares)
    if around.step_cps is not None and around.steps is not None:
        return AroundCrossing(around.around_crossing_of, around.step_cps, around.steps)
    raise StableError(f"{where}.cps: expected either shares, or step_cps and steps")


def _one_of(study: DeclaredStudy, keys: tuple[str, str], why: str, where: str) -> None:
    asked = [key for key in keys if getattr(study, key) is not None]
    if len(asked) != 1:
        raise StableError(
            f"{where}: expected one of {' and '.join(keys)}, found {' and '.join(asked) or 'neither'}; {why}"
        )


def load_config(path: Path = PROJECT_ROOT / "config" / "config.yaml") -> Config:
    """Read and check a configuration file."""
    return parse_config(read_yaml(path))
