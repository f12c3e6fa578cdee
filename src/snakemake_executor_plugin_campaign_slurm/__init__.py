"""Snakemake's executor for Slurm, with measurements left on this machine.

- What measures runs here, by our own executor: the controller holds the connections to a testbed's hosts.
- A job of the cluster is one Snakemake that runs its jobs itself. The plugin's own way, a step of Slurm with a
  Snakemake of its own for each of them, is for programs of many processes, and costs some seconds of CPU a job.
- What the cluster ended, with its node or by a kill, is tried again. What failed of itself, as its log says, is not.
- Two things that the plugin leaves undone (2.8.0): a cluster without accounting answers no sacct, and the plugin would
  ask it for ever; and it guesses an account where it is told to use none.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as slurm

from sipsched import scripting
from snakemake_executor_plugin_campaign import Executor as Here
from snakemake_logger_plugin_campaign import MEASURING, OURS

ExecutorSettings = slurm.ExecutorSettings
common_settings = slurm.common_settings


class Executor(slurm.Executor):  # type: ignore[misc]
    """Measurements on this machine, all other jobs on Slurm."""

    def __post_init__(self, test_mode: bool = False) -> None:
        """Begin with no job anywhere."""
        super().__post_init__(test_mode)
        self._here = Here(self.workflow, self.logger)
        asked = subprocess.run(["sacct", "--noheader"], check=False, capture_output=True)
        self._has_accounting = asked.returncode == 0

    def get_status_command(self) -> str:
        """Name the command that knows how jobs ended."""
        return str(super().get_status_command()) if self._has_accounting else "squeue"

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Give sbatch's argument for a job's account."""
        if self.workflow.executor_settings.no_account:
            return iter([""])
        return iter(super().get_account_arg(job))

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Start each job where it belongs."""
        self._here.run_jobs([job for job in jobs if _measures(job)])
        super().run_jobs([job for job in jobs if not _measures(job)])

    def additional_general_args(self) -> str:
        """Let the Snakemake of a job on the cluster run what it is given by itself."""
        return "--executor local"

    def handle_job_success(self, job: Any) -> None:
        """Tell whoever ran a job of its end."""
        if _measures(job):
            self._here.handle_job_success(job)

    def handle_job_error(self, job: Any) -> None:
        """Use a job's attempts up if trying again changes nothing; Snakemake asks right after this."""
        if _measures(job):
            self._here.handle_job_error(job)
        elif any(map(_said, _parts(job))):
            job.attempt = job.restart_times + 1

    def print_job_error(self, job_info: Any, msg: str | None = None, **kwargs: Any) -> None:
        """Leave it to the log of a job to say why it failed; of one that was ended from outside, say that it was."""
        job = job_info.job
        failed = [part for part in _parts(job) if _said(part)]
        for part in failed:
            part.log_error(msg, **kwargs)
        if failed:
            return
        rules = ", ".join(sorted({part.rule.name for part in _parts(job)}))
        what = f"Slurm job {job_info.external_jobid}" if job_info.external_jobid else "a Slurm job"
        wildcards = next(iter(_parts(job))).wildcards_dict.values()
        again = (
            f"attempt {job.attempt + 1} of {job.restart_times + 1} follows"
            if job.attempt <= job.restart_times
            else f"that was attempt {job.attempt} of {job.restart_times + 1}"
        )
        self.logger.info(
            f"{scripting.DISTURBED}{what} ({rules} of {'/'.join(wildcards)}): {msg}; {again}",
            extra=OURS,
        )

    def shutdown(self) -> None:
        """End both ways of running jobs, when none is left."""
        self._here.shutdown()
        super().shutdown()

    def cancel(self) -> None:
        """End the jobs that run, here and there."""
        self._here.cancel()
        super().cancel()


def _measures(job: Any) -> bool:
    return not job.is_group() and job.rule.name in MEASURING


def _parts(job: Any) -> list[Any]:
    return list(job.jobs) if job.is_group() else [job]


def _said(job: Any) -> bool:
    """Tell whether a job left word of why it failed."""
    return any(scripting.read_log(Path(log)) for log in job.log)
