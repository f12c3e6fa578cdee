"""Snakemake's executor for jobs on this machine, with additions for measurements.

- Snakemake repeats every failed job. This executor repeats a job only if the job's log shows that another attempt can
  help (`sipsched.scripting.one_line_errors`).
- The executor knows all runs of the campaign. When a run starts, the executor prints the progress. Every few minutes,
  between two runs, the executor makes the progress page again.
- On Linux, jobs of runs are forked from a process that has already imported their modules (`.forked`). If no job
  measures, jobs that make pages are also forked.
- The terminal sends SIGINT (Ctrl-C) to all processes at once. A job that imports modules would then print a traceback,
  so each job blocks SIGINT until it can end cleanly. A job that starts just after Ctrl-C misses the SIGINT, so the
  executor also sends SIGTERM to all jobs.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snakemake.exceptions import RuleException, format_error
from snakemake.executors import local
from snakemake.script import Snakemake

from sipsched import scripting
from sipsched.errors import StableError, TransientError
from sipsched.measure.aside import AGAIN_S, Aside
from sipsched.pages import progress as page
from sipsched.plan.run import Run
from sipsched.records.progress import Progress
from sipsched.testbed.lock import holder
from sipsched.words import plural
from snakemake_executor_plugin_campaign import forked
from snakemake_executor_plugin_campaign.internals import (
    config_of,
    left_to_measure,
    measures,
    measures_run,
    plan_of,
    report_failure,
)
from snakemake_logger_plugin_campaign import OURS

PAGE = "progress.html"
"""File name of the progress page in the folder of the pages."""
LAST_S = 30.0
"""Seconds for which Snakemake may still run after an interruption, when all jobs have ended."""

common_settings = local.common_settings


class Executor(local.Executor):  # type: ignore[misc]
    """The executor that runs Snakemake's jobs on this machine and reports the progress of measurements."""

    def __post_init__(self) -> None:
        """Prepare the executor before any run is measured."""
        super().__post_init__()
        # The threads of the pool block SIGINT, because each job inherits the blocked signals of its thread.
        self.pool = ThreadPoolExecutor(self.workers, initializer=scripting.hold_interrupts)
        self._plan = plan_of(self.workflow)
        self._progress = Progress(self._plan.lanes)
        self._given_up: set[Any] = set()
        self._aside: Aside = self._plan.aside
        self._measuring: dict[Run, datetime] = {}
        self._page_made: float | None = None
        self._forks = forked.Forks(self._plan.config.only_measured)
        # Snakemake's lock on the output files does not name the owner of the lock. Write a file that names this
        # process, so that a second Snakemake can print a useful error.
        self._announcement = scripting.announce(holder("snakemake"))

    def run_job(self, job: Any) -> None:
        """Start a job, after removing the log of an earlier attempt. For a measurement, print the progress."""
        for log in job.log:
            Path(log).unlink(missing_ok=True)
        if measures(job) and self._aside.is_given_up(_testbed(job)):
            # Report the failure only to the scheduler: the job has not started, so the terminal shows no error.
            report_failure(self.workflow, job)
            return
        if measures_run(job):
            left = {_run(other): float(other.resources.expected_s) for other in self._to_measure()}
            line = self._progress.start(_run(job), job.attempt, left, time.monotonic())
            self.logger.info(line, extra=OURS)
            self._measuring[_run(job)] = datetime.now(UTC)
        super().run_job(job)
        if measures(job) and self._page_made is None:
            self._make_page()

    def run_single_job(self, job: Any) -> Any:
        """Start the process of a job. Return a future that is done when the process ends."""
        # A forked process uses the Python packages of this process, so a job with its own conda environment cannot be
        # forked.
        deployed = self.workflow.deployment_settings.deployment_method
        if deployed or not self._forks.takes(job.rule.resources) or sys.platform != "linux":
            return super().run_single_job(job)
        rule, *arguments = self.job_args_and_prepare(job)[:8]
        # The script of a rule reads the new object as `snakemake`. The last argument is the repetition of a benchmark,
        # which no rule uses.
        snakemake = Snakemake(*arguments, config_of(self.workflow), job.name, None)
        benchmark = Path(str(job.benchmark)) if job.benchmark else None
        return self.pool.submit(self._run_forked, rule, snakemake, benchmark)

    def _run_forked(self, rule: Any, snakemake: Snakemake, benchmark: Path | None) -> None:
        script = rule.basedir.join(rule.script).get_path_or_uri(secret_free=True)
        try:
            self._forks.run(Path(script).resolve(), snakemake, benchmark)
        except TransientError as error:
            # The job may still be running, and may later overwrite the line that is written to its log here.
            for log in snakemake.log:
                Path(log).write_text(f"{scripting.DISTURBED}{error}\n")
            raise RuleException(str(error), lineno=rule.lineno, snakefile=rule.snakefile) from error
        except subprocess.CalledProcessError as error:
            raise RuleException(
                format_error(error, rule.lineno, snakefile=rule.snakefile)
            ) from error

    def handle_job_success(self, job: Any) -> None:
        """Record that a measurement has ended successfully."""
        super().handle_job_success(job)
        if measures(job) and self._aside.reached(_testbed(job)):
            self.logger.info(f"{_testbed(job)} is reachable again", extra=OURS)
        if measures_run(job):
            self._end(job)

    def handle_job_error(self, job: Any) -> None:
        """Make the failed attempt the last attempt of the job, unless the log shows that another attempt can help."""
        super().handle_job_error(job)
        if measures(job) and not self._aside.is_given_up(_testbed(job)):
            self._note_reach(job)
        if not any(scripting.may_pass(Path(log)) for log in job.log):
            job.attempt = job.restart_times + 1
        if measures_run(job):
            self._end(job)
            if job.attempt > job.restart_times:
                self._given_up.add(job)

    def _note_reach(self, job: Any) -> None:
        """Record whether a failed attempt was able to reach the hosts of its testbed."""
        testbed = _testbed(job)
        lost = next(filter(None, map(scripting.said_lost, map(Path, job.log))), "")
        if not lost:
            self._aside.reached(testbed)
        elif self._aside.lost(testbed, time.monotonic()):
            left = sum(_testbed(other) == testbed for other in self._to_measure())
            runs = f"its remaining {plural(left, 'run')}"
            if self._aside.is_given_up(testbed):
                twin = testbed in self._plan.config.twins
                hint = (
                    f"; snakemake --config 'aside=[{testbed}]' passes them to its twin"
                    if twin
                    else ""
                )
                line = (
                    f"{testbed} is still unreachable: {runs} must wait for the next snakemake{hint}"
                )
            else:
                again = f"every {AGAIN_S / 60:.0f} minutes, and when nothing else is left to do"
                line = (
                    f"{testbed} is set aside: {runs} must wait; snakemake tries to reach it {again}"
                )
            self.logger.info(line, extra=OURS)

    def print_job_error(self, job_info: Any, msg: str | None = None, **kwargs: Any) -> None:
        """Pass the log of a failed job to the logger plugin now, because another attempt may soon delete the log."""
        log = next(iter(job_info.job.log), None)
        text = scripting.read_log(Path(log)) if log else ""
        marks = {"log_text": text, "measures": measures(job_info.job)}
        super().print_job_error(job_info, msg, **marks, **kwargs)

    def shutdown(self) -> None:
        """End the executor. If any job has measured a run, update the progress page."""
        super().shutdown()
        self._end_page()

    def cancel(self) -> None:
        """Stop the running jobs cleanly, and wait until all jobs have ended."""
        self.pool.shutdown(wait=False)
        self._forks.end()
        for shell in _children("self"):
            # Send the signal to the job and not to the job's shell, because a killed shell would not wait for the job.
            # With a living shell, Snakemake waits until the job has cleaned up.
            for process in _children(shell) or [shell]:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGTERM)
        super().cancel()
        self._end_page()
        # Snakemake has only its summary left to print. But after an interruption at a bad moment, Snakemake's event
        # loop waits forever for a task (Workflow.tear_down). So end this process if it is still running after LAST_S.
        last = threading.Timer(LAST_S, os._exit, (1,))
        last.daemon = True
        last.start()

    def _end(self, job: Any) -> None:
        """Record the end of an attempt to measure a run."""
        self._progress.end(_run(job), time.monotonic())
        self._measuring.pop(_run(job), None)
        if self._page_made is not None and time.monotonic() - self._page_made > page.EVERY_S:
            self._make_page()

    def _end_page(self) -> None:
        """Make the progress page for the last time, if this Snakemake process has already made it once."""
        self._measuring.clear()
        if self._page_made is not None:
            self._make_page()

    def _make_page(self) -> None:
        """Make the progress page again. An error does not stop the measurement."""
        self._page_made = time.monotonic()
        with suppress(StableError, OSError):
            path, outlooks = self._plan.reports / PAGE, self._plan.outlooks()
            page.write_page(path, outlooks, self._measuring, datetime.now(UTC))

    def _to_measure(self) -> list[Any]:
        return [job for job in left_to_measure(self.dag) if job not in self._given_up]


def _run(job: Any) -> Run:
    return Run.from_wildcards(job.wildcards_dict)


def _testbed(job: Any) -> str:
    return str(job.wildcards_dict["testbed"])


def _children(process: str) -> list[str]:
    """Return the process ids of the children of a process; empty if the system has no /proc."""
    numbers = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            numbers += children.read_text().split()
    return numbers
