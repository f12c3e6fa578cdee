"""Functions that return the input files of each rule of the workflow from the rule's wildcards."""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from sipsched import paths
from sipsched.plan.crossover import compared, is_comparison
from sipsched.plan.loads import Capacity
from sipsched.plan.modes import DEFAULT, split_name
from sipsched.plan.run import NO_REPEATS, Point, Run
from sipsched.plan.study import Document, Study
from sipsched.planner.campaign import Plan
from sipsched.records import crossing, look, record, reduced, settled

Item = TypeVar("Item")
MESSAGES, SUMMARY, WINDOWS = "messages.nc", reduced.SUMMARY_FILE, "windows.nc"


class Wildcards(Protocol):
    """The wildcards of a job, as Snakemake passes them to an input function."""

    study: str
    testbed: str
    document: str
    page: str
    rep: str


class Workflow(Protocol):
    """The functions of Snakemake that the methods of `Needs` call."""

    @property
    def forces_jobs(self) -> bool:
        """Return True if the user forces Snakemake to repeat jobs whose output files are up to date."""

    def wait_for(self, path: str) -> None:
        """Make Snakemake run the checkpoint that creates a file, before Snakemake plans the current job further."""

    def as_it_is(self, path: str) -> str:
        """Mark an input file as up to date, so that Snakemake schedules no job that makes the file."""

    def make_again(self, path: str) -> None:
        """Make Snakemake compute a file again, although the file's modification time looks up to date."""


class Needs:
    """The functions that return the input files of each rule of the workflow.

    Parameters
    ----------
    plan
        The plan of this start of the workflow.
    workflow
        The functions of Snakemake that this module uses.
    is_main_process
        Whether this process is Snakemake's main process, which schedules jobs. False in the process of a job.
    """

    def __init__(self, plan: Plan, workflow: Workflow, is_main_process: bool) -> None:
        self._plan, self._workflow, self._is_main_process = plan, workflow, is_main_process
        self._stale: dict[str, bool] = {}

    # Searches

    def study_crossings(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the records of the searches that determine a study's loads on a testbed."""
        return self._crossing_files(self._searched(self._study(wildcards), wildcards.testbed))

    def all_crossings(self, wildcards: object) -> list[str]:
        """Return the records' paths of all capacity searches from which studies take their loads."""
        return self._crossing_files(self._to_search(self._plan.searches))

    # Runs of a study

    def study_summaries(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the summaries of all runs of a study on a testbed."""
        runs = self._runs(self._study(wildcards), wildcards.testbed)
        if self._is_main_process:
            for run in runs:
                self._measure_lost(run)
        return [self._computed(run, SUMMARY) for run in runs]

    def record_for(self, name: str) -> Callable[[Mapping[str, str]], str]:
        """Return an input function for Snakemake, which returns the path of the record of a run.

        `name` is the name of the run's file that the rule computes from the record, such as `messages.nc`.
        """

        def of_run(wildcards: Mapping[str, str]) -> str:
            folder = str(Run.from_wildcards(wildcards).path)
            self._make_stale_again(folder, name)
            return f"{self._plan.raw}/{folder}/run.json"

        return of_run

    def reduced_records(self, wildcards: object) -> list[str]:
        """Return the paths of all reduced records, which one job unpacks together."""
        folders = [str(run.path) for run in self._plan.reduced]
        for folder in folders:
            self._make_stale_again(folder, SUMMARY)
        return [f"{self._plan.raw}/{folder}/run.json" for folder in folders]

    def study_windows(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the `windows.nc` files of all runs of a study that compare modes."""
        return self._windows(self._study(wildcards), wildcards.testbed)

    def looked_at(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the run summaries that a decision about more repetitions reads."""
        runs = self._runs(self._study(wildcards), wildcards.testbed, until=int(wildcards.rep))
        return [self._computed(run, SUMMARY) for run in runs]

    def study_precision(self, wildcards: Wildcards) -> str:
        """Return a study's requested precision (width of intervals) as text, in which Snakemake notices a change."""
        return str(self._study(wildcards).precision)

    def study_limit(self, wildcards: Wildcards) -> float:
        """Return the limit of the packet drop rate that defines the capacity in a study."""
        loads = self._study(wildcards).cps
        return loads.limit if isinstance(loads, Capacity) else self._plan.config.pdr_limit

    def study_suts(self, wildcards: Wildcards) -> dict[str, dict[str, object]]:
        """Return the settings of all SUTs of a study, by their names. Empty if no run of the study compares SUTs."""
        study = self._study(wildcards)
        others = [split_name(name)[1].sut for mode in study.modes for name in compared(mode)]
        names = [name for name in others if name]
        return {
            name: asdict(self._plan.config.suts[name])
            for name in (dict.fromkeys((*study.suts, *names)) if names else ())
        }

    def study_notebook(self, wildcards: Wildcards) -> str | None:
        """Return the path of a study's notebook, or None if the study has no notebook."""
        notebook = self._study(wildcards).notebook
        return notebook and str(paths.provided(notebook))

    # Pages about several studies

    def document_notebook(self, wildcards: Wildcards) -> str:
        """Return the path of the notebook of a page about several studies."""
        return str(paths.provided(self._document(wildcards).notebook))

    def document_files(self, wildcards: Wildcards) -> tuple[str, ...]:
        """Return the paths of the files in the repository that a page about several studies reads."""
        return tuple(str(paths.provided(file)) for file in self._document(wildcards).files)

    def document_summaries(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the study summaries that a page about several studies reads."""
        return [
            f"{self._plan.results}/{study.name}/{testbed}/summary.nc"
            for study, testbed in self._of_document(wildcards)
            if study.has_runs
        ]

    def document_windows(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the `windows.nc` files that a page about several studies reads."""
        return _joined(self._windows(*pair) for pair in self._of_document(wildcards))

    def document_crossings(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the records of the searches that determine the loads of the studies on a page."""
        points = _joined(self._searched(*pair) for pair in self._of_document(wildcards))
        return self._crossing_files(points)

    def document_predictions(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the simulator's predictions that a page about several studies shows."""
        kind = self._document(wildcards).predictions
        if kind is None:
            return []
        if kind == "papers":
            return [self._plan.papers_predicted]
        name = {"settings": "settings.nc", "capacity": "capacity.json"}[kind]
        return [
            f"{self._plan.results}/predicted/{testbed}/{name}" for testbed in self._plan.testbeds
        ]

    # Files of a testbed

    def testbed_crossings(self, wildcards: Wildcards) -> list[str]:
        """Return the records' paths of all capacity searches on a testbed from which studies take their loads."""
        points = self._to_search(self._plan.searches)
        return self._crossing_files(p for p in points if p.testbed == wildcards.testbed)

    def loaded_summaries(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the summaries of a testbed's studies, except studies whose runs compare modes.

        The capacity belongs to a single mode, so a run that compares modes does not measure the capacity.
        """
        return [
            f"{self._plan.results}/{study.name}/{wildcards.testbed}/summary.nc"
            for study in self._plan.config.studies.values()
            if study.is_on(wildcards.testbed) and not all(map(is_comparison, study.modes))
        ]

    def document_capacities(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the files with capacities that a page about several studies shows."""
        return self._plan.capacities if self._of_document(wildcards) else []

    def testbed_page(self, wildcards: Wildcards) -> dict[str, list[str]]:
        """Return the input files of a page about one testbed, by the names of the notebook's parameters."""
        if wildcards.page == "messages":
            messages = self._whole_messages(wildcards)
            return {"messages": messages, "capacities": self._plan.capacities}
        name = wildcards.testbed
        return {"summaries": self._plan.summaries[name], "noise_record": self._plan.noise[name]}

    def testbed_noise(self, wildcards: Wildcards) -> list[str]:
        """Return a list with the path of a testbed's `noise.json`; empty if the workflow has no such file.

        The file lists how often and how long a test program was interrupted on idle CPUs of the testbed.
        """
        return self._plan.noise[wildcards.testbed]

    def single_core_records(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the records of runs in the default mode on one core, for the fit of the simulator."""
        runs = self._runs_of_default(wildcards.testbed)
        return [self._file(run, self._plan.raw, "run.json") for run in runs if run.cores == 1]

    def single_core_summaries(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the summaries of all runs in the default mode on one core."""
        runs = self._runs_of_default(wildcards.testbed)
        return [self._computed(run, SUMMARY) for run in runs if run.cores == 1]

    def _whole_messages(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the `messages.nc` files of runs in the default mode, except runs with reduced records."""
        reduced_runs = set(self._plan.reduced)
        runs = self._runs_of_default(wildcards.testbed)
        return [self._computed(run, MESSAGES) for run in runs if run not in reduced_runs]

    def recorded_prediction(self, name: str) -> Callable[[Wildcards], list[str]]:
        """Return an input function for Snakemake, which returns the path of a recorded prediction for a testbed.

        `name` is the file name, such as `capacity.json`. The input function returns a list, which is empty if no such
        prediction is recorded.
        """

        def of_testbed(wildcards: Wildcards) -> list[str]:
            return self._plan.recorded_prediction(wildcards.testbed, name)

        return of_testbed

    # Shared functions

    def _study(self, wildcards: Wildcards) -> Study:
        return self._plan.config.studies[wildcards.study]

    def _document(self, wildcards: Wildcards) -> Document:
        return self._plan.config.documents[wildcards.document]

    def _of_document(self, wildcards: Wildcards) -> list[tuple[Study, str]]:
        """Return the pairs of study and testbed on a page about several studies.

        A page can name studies that this campaign does not measure. The pairs exclude these studies.
        """
        studies = self._plan.config.studies
        names = [name for name in self._document(wildcards).studies if name in studies]
        pairs = itertools.product((studies[name] for name in names), self._plan.testbeds)
        return [(study, testbed) for study, testbed in pairs if study.is_on(testbed)]

    def _to_search(self, points: Iterable[Point]) -> list[Point]:
        """Return the points with a planned search. With the option `only_measured`, the search must have a record."""
        raw, only_measured = self._plan.raw, self._plan.config.only_measured
        return [p for p in points if not only_measured or (raw / p.crossing_path).is_file()]

    def _searched(self, study: Study, testbed: str) -> list[Point]:
        return self._to_search(study.searches(testbed))

    def _crossing_files(self, points: Iterable[Point]) -> list[str]:
        return [str(self._plan.raw / point.crossing_path) for point in points]

    def _runs(self, study: Study, testbed: str, until: int | None = None) -> list[Run]:
        """Return the runs of a study, after Snakemake has run the searches and interim analyses that decide about runs.

        Returns
        -------
        list
            All runs of the study; with `only_measured`, only the runs that have records.
        """
        plan = self._plan
        if plan.config.only_measured:
            planned = plan.planned(study, testbed)
            return [run for run in planned if record.is_recorded(plan.raw, run)]
        points = self._searched(study, testbed)
        for path in self._crossing_files(points):
            self._workflow.wait_for(path)
        repeats = NO_REPEATS
        for now, then in study.looks(until):
            self._workflow.wait_for(str(look.look_path(plan.results, study.name, testbed, now)))
            repeats = look.read_repeats(plan.results, study, testbed, then)
            if then not in repeats.values():
                break
        return study.runs(testbed, crossing.read_crossings(plan.raw, points), repeats)

    def _windows(self, study: Study, testbed: str) -> list[str]:
        runs = self._runs(study, testbed)
        return [self._computed(run, WINDOWS) for run in runs if is_comparison(run.mode)]

    def _runs_of_default(self, testbed: str) -> list[Run]:
        studies = self._plan.config.studies.values()
        runs = _joined(self._runs(study, testbed) for study in studies)
        return sorted({run for run in runs if run.mode == DEFAULT})

    def _computed(self, run: Run, name: str) -> str:
        return self._file(run, self._plan.results / "runs", name)

    def _file(self, run: Run, root: Path, name: str) -> str:
        """Return the path of a run's file.

        If the run is settled (see `_settled`) and the file exists, make Snakemake use the file without a check whether
        the file is up to date.
        """
        folder = str(run.path)
        path = f"{root}/{folder}/{name}"
        # Handle paths as text, because creating up to 144,000 Path objects would double the time of this check.
        if folder in self._settled and os.path.exists(path):  # noqa: PTH110
            return self._workflow.as_it_is(path)
        return path

    @cached_property
    def _settled(self) -> frozenset[str]:
        """Return the paths of the settled runs: a study summary contains them, and their files have not changed since.

        Runs with reduced records are excluded. If the user forces jobs, no run is settled.
        """
        plan = self._plan
        if self._workflow.forces_jobs:
            return frozenset()
        unchanged = settled.settled_runs(plan.raw, plan.results, map(Path, plan.all_summaries))
        # One job unpacks all reduced records, and needs all of them as inputs. A run with a reduced record therefore
        # never counts as settled, even if its record is unchanged.
        return unchanged - {str(run.path) for run in plan.reduced}

    def _make_stale_again(self, folder: str, name: str) -> None:
        """Make Snakemake compute a file of a run again if the record of the run was replaced.

        Snakemake compares only modification times, and the new record may be older than the replaced record.
        """
        if not self._is_main_process:
            return
        results = self._plan.results / "runs" / folder
        if folder not in self._stale:
            self._stale[folder] = settled.is_stale(self._plan.raw / folder, results)
        if self._stale[folder]:
            self._workflow.make_again(f"{results}/{name}")

    def _measure_lost(self, run: Run) -> None:
        """Make Snakemake measure a run again if somebody deleted the record of the run.

        Snakemake ignores the deletion, because the files that were computed from the record still exist.
        """
        path = f"{self._plan.raw}/{run.path}/run.json"
        summary = f"{self._plan.results}/runs/{run.path}/{SUMMARY}"
        if os.path.exists(summary) and not os.path.exists(path):  # noqa: PTH110
            self._workflow.make_again(path)


def _joined(lists: Iterable[list[Item]]) -> list[Item]:
    return [item for several in lists for item in several]
