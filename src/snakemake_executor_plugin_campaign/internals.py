"""All code that depends on internals of Snakemake, which a new version of Snakemake may change.

tests/workflow/test_internals.py fails if a new version of Snakemake behaves differently.
"""

from pathlib import Path
from typing import Any

from snakemake.checkpoints import Checkpoint
from snakemake.exceptions import WorkflowError
from snakemake.io import is_flagged
from snakemake.ioflags import before_update

from sipsched import scripting
from sipsched.pages import missing as missing_words
from sipsched.plan.run import Point, Run
from sipsched.planner.campaign import Plan
from sipsched.records.missing import Missing
from sipsched.records.reduced import SUMMARY_FILE

AS_IT_IS = "before_update"
"""Name of the flag that Snakemake's function `before_update` sets on an input file."""


class CurrentWorkflow:
    """Snakemake's current workflow, with the methods that the planner calls (`sipsched.planner.needs.Workflow`)."""

    def __init__(self, workflow: Any, checkpoints: Any) -> None:
        self._workflow, self._checkpoints = workflow, checkpoints

    @property
    def forces_jobs(self) -> bool:
        """Return True if the user forces jobs whose files are up to date (`--forceall`, `--forcerun`)."""
        settings = self._workflow.dag_settings
        return bool(settings.forceall or settings.forcerun)

    def wait_for(self, path: str) -> None:
        """Make Snakemake postpone the current job until the checkpoint that makes a file has run."""
        checkpoint = next(
            value
            for value in vars(self._checkpoints).values()
            if isinstance(value, Checkpoint) and value.rule.is_producer(path)
        )
        checkpoint.get(**checkpoint.rule.get_wildcards(path))

    def as_it_is(self, path: str) -> str:
        """Return the path of an input file with a Snakemake flag. Because of the flag, no job makes this file again."""
        flagged: str = before_update(path)
        return flagged

    def make_again(self, path: str) -> None:
        """Make Snakemake renew a file, even if the modification time of the file looks up to date."""
        self._workflow.dag.forcefiles.add(path)


def plan_of(workflow: Any) -> Plan:
    """Return the plan (runs, searches and pages) of a workflow. The rule file workflow/rules/common.smk defines PLAN.

    Raises
    ------
    WorkflowError
        Another workflow uses this workflow as a module, and Snakemake hides the variables of a module.
    """
    plan: Plan | None = workflow.globals.get("PLAN")
    if plan is None:
        raise WorkflowError(
            "the plugins `campaign` work only with the workflow of sipsched itself; if your workflow uses the workflow "
            "of sipsched as a module, remove these plugins from the options"
        )
    return plan


def measures(job: Any) -> bool:
    """Return whether a job measures on a testbed: its rule has the resource `measures`."""
    return not job.is_group() and "measures" in job.rule.resources


def measures_run(job: Any) -> bool:
    """Return whether a job measures a run: its rule also has the resource `expected_s`."""
    return measures(job) and "expected_s" in job.rule.resources


def searches(job: Any) -> bool:
    """Return whether a job searches for the capacity: it measures, and its rule is a Snakemake checkpoint."""
    return measures(job) and bool(job.is_checkpoint)


def left_to_measure(dag: Any) -> list[Any]:
    """Return the unfinished jobs that measure a run."""
    return [job for job in dag.needrun_jobs() if measures_run(job)]


def start_jobs_without_limit(workflow: Any) -> None:
    """Let Snakemake start any number of jobs per second. Call this function before Snakemake creates its job scheduler.

    With a limit (`--max-jobs-per-timespan`, by default 100 per second), each search for new jobs starts a timer for
    another search. Each finished job starts a timer, too, so the number of timers grows. After 40 jobs, Snakemake
    searches 40 times per second, and takes a third of a CPU from the proxy. Without a limit, Snakemake searches only
    when a job ends.
    """
    workflow.scheduling_settings.max_jobs_per_timespan = None


def config_of(workflow: Any) -> dict[str, Any]:
    """Return the merged configuration of a workflow, which a script reads as `snakemake.config`."""
    config: dict[str, Any] = workflow.globals["config"]
    return config


def report_failure(workflow: Any, job: Any) -> None:
    """Tell Snakemake's job scheduler that a job has failed, without an error on the terminal."""
    workflow.scheduler.error_callback(job)


def runs_jobs(scheduler: Any) -> bool:
    """Return whether Snakemake's job scheduler waits for the end of a job."""
    return bool(scheduler.running)


def look_for_jobs(scheduler: Any) -> None:
    """Make Snakemake look for jobs that it can start now."""
    scheduler._open_jobs.release()


def missing_lines(workflow: Any, index: str) -> list[str]:
    """Return one or two lines about the requested runs that have not been measured; none if no run is missing.

    Parameters
    ----------
    workflow
        Snakemake's workflow.
    index
        Path of the overview page. If the user requested the overview, the second line explains how to make the pages
        without the missing runs.
    """
    dag = workflow.dag
    jobs = [job for job in dag.jobs if measures_run(job) or searches(job)]
    left = [job for job in jobs if dag.needrun(job) and not dag.finished(job)]
    # A run that a study summary already contains has no job. To find such runs, look for jobs that have the summary as
    # an input with the flag AS_IT_IS, which means that Snakemake must not make the summary again.
    settled = {
        path
        for job in dag.jobs
        for path in job.input
        if path.endswith(SUMMARY_FILE) and is_flagged(path, AS_IT_IS)
    }
    runs = [job for job in left if measures_run(job)]
    missing = Missing(
        planned=sum(map(measures_run, jobs)) + len(settled),
        runs=tuple(Run.from_wildcards(job.wildcards_dict) for job in runs),
        searches=tuple(Point.from_wildcards(job.wildcards_dict) for job in left if searches(job)),
    )
    broken = sum(not scripting.may_pass(Path(job.log[0])) for job in left)
    line = missing_words.line(missing, broken)
    if not line:
        return []
    pages = "snakemake --config only_measured=True makes the pages of the existing runs"
    return [line, pages] if any(index in job.output for job in dag.jobs) else [line]
