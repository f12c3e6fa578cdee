"""The plan of one invocation of the workflow: the runs, the order of the runs, and the paths of all files."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sipsched import paths
from sipsched.measure.aside import Aside
from sipsched.plan import config as settings
from sipsched.plan import crossover, modes
from sipsched.plan.config import Config
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point, Run
from sipsched.plan.study import TESTBED_PAGES, Study
from sipsched.plan.sut import Sut
from sipsched.records import crossing, forecast, look, reduced, twins
from sipsched.testbed import inventory
from sipsched.testbed.inventory import Testbed

RAW = Path("raw")
"""Folder for the records of new measurements, if the configuration names no other folder."""


@dataclass(frozen=True)
class Plan:
    """The runs, searches and pages that one invocation of the workflow makes.

    Attributes
    ----------
    declared_modes
        The scheduler modes of `config/modes.yaml`.
    cpus
        CPUs that the workflow's jobs on this machine may use.
    aside
        Testbeds whose hosts no job may contact during this invocation of the workflow.
    """

    config: Config
    testbeds: Mapping[str, Testbed]
    declared_modes: Mapping[str, Any]
    cpus: int
    aside: Aside = field(default_factory=Aside)

    @classmethod
    def load(cls, document: Mapping[str, Any], files: Sequence[str | Path], cpus: int) -> "Plan":
        """Check a configuration against the files of testbeds and modes, and return the plan of the workflow.

        Parameters
        ----------
        document
            The configuration, with all overrides applied.
        files
            The files of the configuration, for error messages.
        cpus
            CPUs that the workflow's jobs on this machine may use.

        Raises
        ------
        StableError
            A run of the configuration cannot be measured, or a record is damaged.
        """
        config = settings.parse_config(document, settings.name_files(files))
        folder = paths.provided(paths.TESTBEDS)
        beds = {name: inventory.load_testbed(name, folder) for name in config.testbeds}
        plan = cls(config, beds, modes.load_modes(), cpus)
        for bed in beds.values():
            planned: list[Point | Run] = [*plan.searches, *plan.runs]
            here = [point for point in planned if point.testbed == bed.name]
            bed.check_cores(here)
            for sut in dict.fromkeys(point.sut for point in here):
                _check_sut(bed, config.sut(sut))
        twins.check_twins(plan.raw, config.twins)
        crossover.check(
            {mode for study in config.studies.values() for mode in study.modes}
            | {point.mode for point in plan.searches},
            plan.declared_modes,
        )
        return plan

    # Paths of files

    @property
    def raw(self) -> Path:
        """Return the folder of the records."""
        return self.config.records

    @property
    def results(self) -> Path:
        """Return the folder of all files that the workflow computes from the records in `raw`."""
        # Each folder of records has its own folder of computed files.
        # With a common folder, Snakemake would use files that were computed from other records.
        return Path("results") if self.raw == RAW else Path("results", self.raw)

    @property
    def reports(self) -> Path:
        """Return the folder of the HTML pages."""
        return Path("reports", self.raw.parent if self.raw.name == "raw" else self.raw)

    @property
    def overview(self) -> str:
        """Return the address of the overview, relative to the other pages.

        If the records lie in the folder of another recorded campaign (recorded/virtual/raw and recorded/raw), the
        overview of the other campaign lists the pages of both.
        """
        around = self.raw.parent.parent
        nested = around != Path() and paths.provided(around / self.raw.name).is_dir()
        return "../index.html" if nested else "index.html"

    @property
    def whole(self) -> Path:
        """Return the folder of records with the times of each message. Records in `raw` can lack these times."""
        return self.raw if self.raw == RAW else self.raw.parent / "fit"

    @cached_property
    def summaries(self) -> dict[str, list[str]]:
        """Return the paths of the study summaries, by testbed."""
        return {
            name: [
                f"{self.results}/{study.name}/{name}/summary.nc"
                for study in self.config.studies.values()
                if study.is_on(name) and study.has_runs
            ]
            for name in self.testbeds
        }

    @cached_property
    def all_summaries(self) -> list[str]:
        """Return the paths of the study summaries of all testbeds."""
        return list(itertools.chain.from_iterable(self.summaries.values()))

    @cached_property
    def capacities(self) -> list[str]:
        """Return the paths of the files with the capacities of all SUTs, one file per testbed."""
        return [f"{self.results}/capacity/{name}.json" for name in self.testbeds]

    @cached_property
    def limits(self) -> list[float]:
        """Return all limits of the packet drop rate in ascending order: the campaign's limit and limits of studies."""
        loads = (study.cps for study in self.config.studies.values())
        return sorted(
            {self.config.pdr_limit} | {cps.limit for cps in loads if isinstance(cps, Capacity)}
        )

    @cached_property
    def noise(self) -> dict[str, list[str]]:
        """Return the paths of the files `noise.json`, by testbed.

        A file `noise.json` lists how often and how long a test program was interrupted on idle CPUs of the testbed. A
        simulated testbed has no CPUs and no such file. With `only_measured`, only existing files are listed.
        """
        files: dict[str, list[str]] = {}
        for name in self.testbeds:
            path = self.raw / name / "noise.json"
            wanted = path.exists() or not self.config.only_measured
            files[name] = [str(path)] if wanted and name not in self.simulated else []
        return files

    @cached_property
    def _page_names(self) -> list[str]:
        """Return the names of all pages except the overview, in the order in which the overview links to them."""
        studies = [study for study in self.config.studies.values() if study.notebook]
        names = [
            f"{study.name}-{name}"
            for study in studies
            for name in self.testbeds
            if study.is_on(name)
        ]
        # These pages, and the overview, show runs. A campaign that only compares capacities has no runs.
        names += [
            f"{page}-{testbed}"
            for page in TESTBED_PAGES
            for testbed in self.testbeds
            if self.summaries[testbed]
        ]
        return [*names, *self.config.documents]

    @property
    def pages(self) -> list[str]:
        """Return the paths of all pages except the overview."""
        return [f"{self.reports}/{name}.html" for name in self._page_names]

    @property
    def outlines(self) -> list[str]:
        """Return the paths of the JSON files with the title and the figures of each page, except the overview."""
        return [f"{self.results}/pages/{name}.json" for name in self._page_names]

    @property
    def index(self) -> str:
        """Return the path of the overview page, which links to all other pages."""
        return f"{self.reports}/index.html"

    @property
    def papers_predicted(self) -> str:
        """Return the path of the file with the simulator's predictions of the papers' tables."""
        recorded = paths.RECORDED_PAPERS
        if self.config.only_measured and recorded.exists():
            return str(recorded)
        return f"{self.results}/predicted/papers.csv"

    def recorded_prediction(self, testbed: str, name: str) -> list[str]:
        """Return a list with the path of the file `name`, which has earlier predictions of the simulator for a testbed.

        The list is empty if the campaign has no such file. Snakemake needs a list for an input that can be missing.
        """
        path = self.raw.parent / "predicted" / testbed / name
        return [str(path)] if self.raw != RAW and path.exists() else []

    # Runs and their order

    @cached_property
    def searches(self) -> list[Point]:
        """Return all points (settings of the proxy) for which the workflow searches the loads of studies."""
        return self.config.searches()

    @cached_property
    def runs(self) -> list[Run]:
        """Return all runs that are known when the workflow starts, in the order of measuring."""
        return self.runs_by_now()

    @cached_property
    def reduced(self) -> list[Run]:
        """Return the runs with reduced records, which lack the data of each message."""
        return [run for run in self.runs if reduced.is_reduced(self.raw / run.path)]

    @cached_property
    def simulated(self) -> frozenset[str]:
        """Return the names of the simulated testbeds. Simulated runs do not disturb each other."""
        return frozenset(name for name, bed in self.testbeds.items() if bed.simulated)

    @cached_property
    def lanes(self) -> forecast.Lanes:
        """Return the object that knows which testbeds can measure at the same time."""
        return forecast.Lanes(
            frozenset(name for name, bed in self.testbeds.items() if bed.is_on_this_machine),
            dict.fromkeys(self.simulated, self.cpus),
        )

    def runs_by_now(self) -> list[Run]:
        """List all runs in the order of measuring, with loads and repetitions from the results that exist now."""
        crossings = crossing.read_crossings(self.raw, self.searches)
        return self.config.runs(crossings, look.all_repeats(self.results, self.config))

    @cached_property
    def looks(self) -> list[Path]:
        """Return the paths of the files with decisions about which runs need more repetitions for precise results."""
        return [
            look.look_path(self.results, study.name, testbed, repetitions)
            for study in self.config.studies.values()
            for testbed in self.testbeds
            for repetitions, _ in study.looks()
            if study.is_on(testbed)
        ]

    @cached_property
    def order(self) -> "Order":
        """Return the object with the order of the measurements and with the expected duration of each run."""
        return Order(self)

    def planned(self, study: Study, testbed: str) -> list[Run]:
        """List the runs of a study on a testbed, with loads and repetitions from the results that exist now."""
        return planned_runs(self.config, self.results, study, testbed)

    def outlooks(self) -> list[forecast.Outlook]:
        """Return the progress of each testbed, from the planned and the recorded runs."""
        return forecast.outlooks(self.config, self.raw, self.lanes, self.results)

    def check_run(self, run: Run) -> None:
        """Raise an error for a run that cannot be measured. A user can request any run by its path.

        Raises
        ------
        StableError
            See `Config.check_run`. Or the testbed has too few cores or no host for a front end, or a mode is not
            declared.
        """
        self.config.check_run(run)
        self._check(run)

    def check_search(self, point: Point) -> None:
        """Raise an error if a search for a capacity is impossible, for example on a testbed with too few cores."""
        self.config.check_search(point)
        self._check(point)

    def _check(self, asked: Run | Point) -> None:
        bed = self.testbeds[asked.testbed]
        bed.check_cores([asked])
        _check_sut(bed, self.config.sut(asked.sut))
        crossover.check([asked.mode], self.declared_modes)


def _check_sut(bed: inventory.Testbed, sut: Sut) -> None:
    """Raise an error if a testbed lacks a host or a program that a SUT needs."""
    bed.entry(sut)
    bed.check_log(sut)


def planned_runs(
    config: Config, results: Path, study: Study, testbed: str, until: int | None = None
) -> list[Run]:
    """List the runs of a study on a testbed, with loads and repetitions from the results that exist now.

    Parameters
    ----------
    results
        Folder of the files that are computed from the campaign's records.
    until
        Use only decisions that were made after fewer repetitions than this number. None: all decisions.
    """
    raw = config.records
    crossings = crossing.read_crossings(raw, study.searches(testbed))
    if config.only_measured:
        repeats = look.recorded_repeats(raw, study, testbed, crossings)
    else:
        repeats = look.read_repeats(results, study, testbed, until)
    return study.runs(testbed, crossings, repeats)


class Order:
    """The order in which runs are measured, and the expected duration of each run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._positions: dict[Run, int] = {}
        self._seen: set[Path] | None = None
        self._paces: dict[forecast.RunKind, float] = {}

    def position(self, run: Run) -> int:
        """Return the position of a run in the order of measuring, from 1; 0 for a run that no study contains."""
        # Snakemake asks for the position of every waiting run before it starts a run.
        # To be fast, the method `position` reads files only if the run is unknown.
        if run not in self._positions:
            self._update()
        return self._positions.get(run, 0)

    def expected_s(self, run: Run) -> int:
        """Return the expected duration of a run in seconds."""
        kind = forecast.kind(run)
        if kind not in self._paces:
            self._update()
            self._paces[kind] = forecast.pace(run, self._positions, self._plan.raw)
        return round(forecast.planned_s(self._plan.config.load_of(run)) * self._paces[kind])

    def _update(self) -> None:
        """Update the runs' positions if a new search record or a new decision about repetitions exists."""
        plan = self._plan
        searched = (plan.raw / point.crossing_path for point in plan.searches)
        seen = {path for path in (*searched, *plan.looks) if path.is_file()}
        if seen != self._seen:
            self._seen = seen
            self._positions |= {run: n for n, run in enumerate(plan.runs_by_now(), start=1)}
