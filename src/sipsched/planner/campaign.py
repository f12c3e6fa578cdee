"""The plan of an invocation: its runs, their order, and the path of each file."""

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
from sipsched.records import crossing, forecast, look, reduced, twins
from sipsched.testbed import inventory
from sipsched.testbed.inventory import Testbed

RAW = Path("raw")
"""Folder of the records that a campaign measures, unless the configuration names another folder."""


@dataclass(frozen=True)
class Plan:
    """The runs, searches and pages of an invocation of the workflow.

    Attributes
    ----------
    declared_modes
        The scheduler modes of `config/modes.yaml`.
    cpus
        CPUs that jobs of this machine may use.
    aside
        Testbeds whose hosts must not be contacted during this invocation.
    """

    config: Config
    testbeds: Mapping[str, Testbed]
    declared_modes: Mapping[str, Any]
    cpus: int
    aside: Aside = field(default_factory=Aside)

    @classmethod
    def load(cls, document: Mapping[str, Any], files: Sequence[str | Path], cpus: int) -> "Plan":
        """Check a configuration against the testbeds, the modes and the records.

        Parameters
        ----------
        document
            The configuration with all overrides applied.
        files
            The files of the configuration, for error messages.
        cpus
            CPUs that jobs of this machine may use.

        Raises
        ------
        StableError
            A run of the configuration cannot be measured, or a record is damaged.
        """
        config = settings.parse_config(document, settings.name_files(files))
        beds = {name: inventory.load_testbed(name, paths.TESTBEDS) for name in config.testbeds}
        plan = cls(config, beds, modes.load_modes(), cpus)
        for bed in beds.values():
            planned: list[Point | Run] = [*plan.searches, *plan.runs]
            bed.check_cores(point for point in planned if point.testbed == bed.name)
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
        """Folder of the records."""
        return self.config.records

    @property
    def results(self) -> Path:
        """Folder of all files that are computed from these records."""
        # Files that are computed from other records need another folder, because Snakemake cannot distinguish them from
        # these files.
        return Path("results") if self.raw == RAW else Path("results", self.raw)

    @property
    def reports(self) -> Path:
        """Folder of the pages."""
        return Path("reports", self.raw.parent if self.raw.name == "raw" else self.raw)

    @property
    def whole(self) -> Path:
        """Folder of records with all messages. `raw` itself may have reduced records without messages."""
        return self.raw if self.raw == RAW else self.raw.parent / "fit"

    @cached_property
    def summaries(self) -> dict[str, list[str]]:
        """Files of the study summaries, by testbed."""
        return {
            name: [f"{self.results}/{study}/{name}/summary.nc" for study in self.config.studies]
            for name in self.testbeds
        }

    @cached_property
    def all_summaries(self) -> list[str]:
        """Files of all study summaries."""
        return list(itertools.chain.from_iterable(self.summaries.values()))

    @cached_property
    def capacities(self) -> list[str]:
        """Files with the capacity of each system, one file per testbed."""
        return [f"{self.results}/capacity/{name}.json" for name in self.testbeds]

    @cached_property
    def limits(self) -> list[float]:
        """All drop rates at which capacities end: the limit of the campaign, and the limits of studies."""
        loads = (study.cps for study in self.config.studies.values())
        return sorted(
            {self.config.pdr_limit} | {cps.limit for cps in loads if isinstance(cps, Capacity)}
        )

    @cached_property
    def noise(self) -> dict[str, list[str]]:
        """Files with the noise of the idle CPUs, by testbed.

        A simulated testbed has no CPUs and no such file. With `only_measured`, only existing files are listed.
        """
        files: dict[str, list[str]] = {}
        for name in self.testbeds:
            path = self.raw / name / "noise.json"
            wanted = path.exists() or not self.config.only_measured
            files[name] = [str(path)] if wanted and name not in self.simulated else []
        return files

    @cached_property
    def pages(self) -> list[str]:
        """Files of all pages except the overview, in the order of its links."""
        studies = [study.name for study in self.config.studies.values() if study.notebook]
        names = [f"{study}-{testbed}" for study in studies for testbed in self.testbeds]
        names += [f"{page}-{testbed}" for page in TESTBED_PAGES for testbed in self.testbeds]
        return [f"{self.reports}/{name}.html" for name in (*names, *self.config.documents)]

    @property
    def index(self) -> str:
        """File of the overview."""
        return f"{self.reports}/index.html"

    @property
    def papers_predicted(self) -> str:
        """File of the simulated tables of the papers. With `only_measured`, the recorded file."""
        recorded = paths.RECORDED_PAPERS
        if self.config.only_measured and recorded.exists():
            return str(recorded)
        return f"{self.results}/predicted/papers.csv"

    def recorded_prediction(self, testbed: str, name: str) -> list[str]:
        """Return the file of a recorded prediction; an empty list if none is recorded."""
        path = self.raw.parent / "predicted" / testbed / name
        return [str(path)] if self.raw != RAW and path.exists() else []

    # Runs and their order

    @cached_property
    def searches(self) -> list[Point]:
        """All points at which loads are searched."""
        return self.config.searches()

    @cached_property
    def runs(self) -> list[Run]:
        """All runs that are known at the start of the invocation, in the order of measuring."""
        return self.runs_by_now()

    @cached_property
    def reduced(self) -> list[Run]:
        """Runs with reduced records."""
        return [run for run in self.runs if reduced.is_reduced(self.raw / run.path)]

    @cached_property
    def simulated(self) -> frozenset[str]:
        """Names of the simulated testbeds. Simulated runs do not disturb each other."""
        return frozenset(name for name, bed in self.testbeds.items() if bed.simulated)

    @cached_property
    def lanes(self) -> forecast.Lanes:
        """The testbeds that can measure at the same time."""
        return forecast.Lanes(
            frozenset(name for name, bed in self.testbeds.items() if bed.is_on_this_machine),
            dict.fromkeys(self.simulated, self.cpus),
        )

    def runs_by_now(self) -> list[Run]:
        """List all runs in the order of measuring, from the searches and looks that exist now."""
        crossings = crossing.read_crossings(self.raw, self.searches)
        return self.config.runs(crossings, look.all_repeats(self.results, self.config))

    @cached_property
    def looks(self) -> list[Path]:
        """Files of all possible looks at the runs of studies with a precision."""
        return [
            look.look_path(self.results, study.name, testbed, repetitions)
            for study in self.config.studies.values()
            for testbed in self.testbeds
            for repetitions, _ in study.looks()
        ]

    @cached_property
    def order(self) -> "Order":
        """The positions of the runs in the order of measuring."""
        return Order(self)

    def planned(self, study: Study, testbed: str) -> list[Run]:
        """List the runs of a study on a testbed, from the searches and looks that exist now."""
        return planned_runs(self.config, self.results, study, testbed)

    def outlooks(self) -> list[forecast.Outlook]:
        """Compare the runs of the campaign with the recorded runs."""
        return forecast.outlooks(self.config, self.raw, self.lanes, self.results)

    def check_run(self, run: Run) -> None:
        """Reject a run that cannot be measured, although a user requested it by the path of its record.

        Raises
        ------
        StableError
            See `Config.check_run`; or the testbed has too few cores, or a mode is not declared.
        """
        self.config.check_run(run)
        self._check(run)

    def check_search(self, point: Point) -> None:
        """Reject a search that is impossible; raise the errors of `check_run`."""
        self.config.check_search(point)
        self._check(point)

    def _check(self, asked: Run | Point) -> None:
        self.testbeds[asked.testbed].check_cores([asked])
        crossover.check([asked.mode], self.declared_modes)


def planned_runs(
    config: Config, results: Path, study: Study, testbed: str, until: int | None = None
) -> list[Run]:
    """List the runs of a study on a testbed, from the searches and looks that exist now.

    Parameters
    ----------
    results
        Folder of the files that are computed from the campaign's records.
    until
        Use only looks before this number of repetitions. None: all looks.
    """
    raw = config.records
    crossings = crossing.read_crossings(raw, study.searches(testbed))
    if config.only_measured:
        repeats = look.recorded_repeats(raw, study, testbed, crossings)
    else:
        repeats = look.read_repeats(results, study, testbed, until)
    return study.runs(testbed, crossings, repeats)


class Order:
    """The order of measuring, and the expected time of each run. The order is updated when a search or a look ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._positions: dict[Run, int] = {}
        self._seen: set[Path] | None = None
        self._expected_s: dict[forecast.Kind, int] = {}

    def position(self, run: Run) -> int:
        """Return the position of a run in the order, counted from 1; 0 for a run outside all studies."""
        # Snakemake asks for the position of every ready run before each start. Only an unknown run causes a look at
        # files.
        if run not in self._positions:
            self._update()
        return self._positions.get(run, 0)

    def expected_s(self, run: Run) -> int:
        """Return the expected time of a run in seconds."""
        kind = forecast.kind(run)
        if kind not in self._expected_s:
            self._update()
            plan = self._plan
            seconds = forecast.expected_s(run, self._positions, plan.config, plan.raw)
            self._expected_s[kind] = round(seconds)
        return self._expected_s[kind]

    def _update(self) -> None:
        """Update the positions if a search or a look has ended since the last update."""
        plan = self._plan
        searched = (plan.raw / point.crossing_path for point in plan.searches)
        seen = {path for path in (*searched, *plan.looks) if path.is_file()}
        if seen != self._seen:
            self._seen = seen
            self._positions |= {run: n for n, run in enumerate(plan.runs_by_now(), start=1)}
