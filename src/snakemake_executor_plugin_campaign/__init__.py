"""Snakemake's local executor, with what measuring needs more.

- Trying again is for what may pass. Snakemake starts a failed job again whatever it failed of; here the job's
  log says whether that can help (`sipsched.scripting.one_line_errors`).
- Only this process and its jobs know how many runs an invocation is about, and how long they take: it says
  with each run how far it has come, and makes a page of it every few minutes, between two runs.
- Jobs of a run, and where nothing is measured those of pages, are forked from a process that has their imports
  (`.forked`), on Linux.
- Ctrl-C reaches all processes of the terminal at once. A job that is still loading its modules would answer
  with a traceback, so SIGINT waits in it until it can end in order. What starts in that instant does not
  get it, nor does any job if Snakemake alone is interrupted: all get a SIGTERM, too.
"""

import os
import signal
import subprocess
import sys
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
from sipsched.errors import StableError
from sipsched.measure.aside import AGAIN_S, Aside
from sipsched.measure.progress import Progress
from sipsched.pages import progress as page
from sipsched.plan.config import Run
from sipsched.records.forecast import outlooks
from sipsched.testbed.lock import holder
from sipsched.words import plural
from snakemake_executor_plugin_campaign import forked
from snakemake_logger_plugin_campaign import MEASURING as ALL_THAT_MEASURES
from snakemake_logger_plugin_campaign import OURS

MEASURING = "measure_run"
"""The rule whose jobs are counted."""
PAGE = "progress.html"
"""Beside the other pages."""

common_settings = local.common_settings


class Executor(local.Executor):  # type: ignore[misc]
    """Jobs on this machine."""

    def __post_init__(self) -> None:
        """Begin with no run measured."""
        super().__post_init__()
        # a process inherits the mask of the thread that starts it
        self.pool = ThreadPoolExecutor(self.workers, initializer=scripting.hold_interrupts)
        # what the Snakefile has made of the configuration (workflow/rules/common.smk)
        self._campaign = self.workflow.globals
        self._progress = Progress(self._campaign["LANES"])
        self._given_up: set[Any] = set()
        self._aside: Aside = self._campaign["ASIDE"]
        self._measuring: dict[Run, datetime] = {}
        self._page_made: float | None = None
        self._forks = forked.Forks(self.workflow.globals["CAMPAIGN"].only_measured)
        # Snakemake has locked the files of its jobs by now, and does not say for whom
        self._word = scripting.announce(holder("snakemake"))

    def run_job(self, job: Any) -> None:
        """Start a job, without a log of an earlier attempt; of a measurement, say how far it is."""
        for log in job.log:
            Path(log).unlink(missing_ok=True)
        if job.name in ALL_THAT_MEASURES and self._aside.is_given_up(_testbed(job)):
            # it was not tried, so there is no more to be said of it
            self.workflow.scheduler.error_callback(job)
            return
        if job.name == MEASURING:
            left = {_run(other): float(other.resources.expected_s) for other in self._to_measure()}
            line = self._progress.start(_run(job), job.attempt, left, time.monotonic())
            self.logger.info(line, extra=OURS)
            self._measuring[_run(job)] = datetime.now(UTC)
        super().run_job(job)
        if job.name in ALL_THAT_MEASURES and self._page_made is None:
            self._make_page()

    def run_single_job(self, job: Any) -> Any:
        """Start the process of a job; its future comes back."""
        if job.name not in self._forks.rules or sys.platform != "linux":
            return super().run_single_job(job)
        rule, *given = self.job_args_and_prepare(job)[:8]
        # as a rule's script has it; there are no repetitions for benchmarks
        seen = Snakemake(*given, self.workflow.globals["config"], job.name, None)
        return self.pool.submit(self._run_forked, rule, seen)

    def _run_forked(self, rule: Any, seen: Snakemake) -> None:
        script = rule.basedir.join(rule.script).get_path_or_uri(secret_free=True)
        try:
            self._forks.run(Path(script).resolve(), seen)
        except subprocess.CalledProcessError as error:
            raise RuleException(
                format_error(error, rule.lineno, snakefile=rule.snakefile)
            ) from error

    def handle_job_success(self, job: Any) -> None:
        """Take note of the end of a measurement."""
        super().handle_job_success(job)
        if job.name in ALL_THAT_MEASURES and self._aside.reached(_testbed(job)):
            self.logger.info(f"{_testbed(job)} is there again", extra=OURS)
        if job.name == MEASURING:
            self._end(job)

    def handle_job_error(self, job: Any) -> None:
        """Use a job's attempts up if trying again changes nothing; Snakemake asks right after this."""
        super().handle_job_error(job)
        if job.name in ALL_THAT_MEASURES and not self._aside.is_given_up(_testbed(job)):
            self._note_reach(job)
        if not any(scripting.may_pass(Path(log)) for log in job.log):
            job.attempt = job.restart_times + 1
        if job.name == MEASURING:
            self._end(job)
            if job.attempt > job.restart_times:
                self._given_up.add(job)

    def _note_reach(self, job: Any) -> None:
        """Take note whether an attempt that failed reached the hosts of its testbed."""
        testbed = _testbed(job)
        lost = next(filter(None, map(scripting.said_lost, map(Path, job.log))), "")
        if not lost:
            self._aside.reached(testbed)
        elif self._aside.lost(testbed, time.monotonic()):
            left = sum(_testbed(other) == testbed for other in self._to_measure())
            what = f"what is left there ({plural(left, 'run')})"
            if self._aside.is_given_up(testbed):
                twin = testbed in self._campaign["CAMPAIGN"].twins
                given = (
                    f"; snakemake --config 'aside=[{testbed}]' gives it to its twin" if twin else ""
                )
                line = f"{testbed} is still not reached: {what} waits for the next snakemake{given}"
            else:
                again = f"every {AGAIN_S / 60:.0f} minutes, and when nothing else is left to do"
                line = f"{testbed} is set aside: {what} waits, and it is tried again {again}"
            self.logger.info(line, extra=OURS)

    def print_job_error(self, job_info: Any, msg: str | None = None, **kwargs: Any) -> None:
        """Hand on what the log of a job says: it is gone once the job is started again, which may be at once."""
        log = next(iter(job_info.job.log), None)
        said = scripting.read_log(Path(log)) if log else ""
        super().print_job_error(job_info, msg, said=said, **kwargs)

    def shutdown(self) -> None:
        """End, with a page of what was measured if anything was."""
        super().shutdown()
        self._end_page()

    def cancel(self) -> None:
        """End the jobs that run, each in order, and wait for them."""
        self.pool.shutdown(wait=False)
        self._forks.end()
        for shell in _children("self"):
            # a shell that is gone would no longer be waited for, with its job still ending
            for process in _children(shell) or [shell]:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGTERM)
        super().cancel()
        self._end_page()

    def _end(self, job: Any) -> None:
        """Take note of the end of an attempt."""
        self._progress.end(_run(job), time.monotonic())
        self._measuring.pop(_run(job), None)
        if self._page_made is not None and time.monotonic() - self._page_made > page.EVERY_S:
            self._make_page()

    def _end_page(self) -> None:
        """Make the page for the last time, if anything was measured."""
        self._measuring.clear()
        if self._page_made is not None:
            self._make_page()

    def _make_page(self) -> None:
        """Make the page of how far it is; without one measuring goes on."""
        self._page_made = time.monotonic()
        campaign = self._campaign
        with suppress(StableError, OSError):
            results = Path(campaign["RESULTS"])
            found = outlooks(campaign["CAMPAIGN"], campaign["RAW"], campaign["LANES"], results)
            page.write_page(
                campaign["REPORTS_IN"] / PAGE, found, self._measuring, datetime.now(UTC)
            )

    def _to_measure(self) -> list[Any]:
        jobs = self.dag.needrun_jobs()
        return [job for job in jobs if job.name == MEASURING and job not in self._given_up]


def _run(job: Any) -> Run:
    return Run.from_wildcards(job.wildcards_dict)


def _testbed(job: Any) -> str:
    return str(job.wildcards_dict["testbed"])


def _children(process: str) -> list[str]:
    """Name the processes that a process has started, and that live; nothing where there is no /proc."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += children.read_text().split()
    return found
