"""Snakemake's executor for Slurm clusters, which runs measurements on this machine and not on the cluster.

- sipsched's own executor runs the measurements on this machine, because this machine can reach a testbed's hosts.
- A cluster job contains one Snakemake, which runs the jobs of its group itself. Snakemake's Slurm plugin would start a
  Slurm step with another Snakemake for each of these jobs. Each step would take some seconds of CPU time.
- A job that the cluster stopped is repeated. A job with an error in its log is not repeated.
- This executor works around two defects of Snakemake's Slurm plugin (2.8.0). On a cluster without accounting, the
  plugin calls sacct forever. The plugin also guesses an account if the user wants no account.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as slurm

from sipsched import scripting
from snakemake_executor_plugin_campaign import Executor as Here
from snakemake_executor_plugin_campaign.internals import measures
from snakemake_logger_plugin_campaign import OURS

ExecutorSettings = slurm.ExecutorSettings
common_settings = slurm.common_settings


class Executor(slurm.Executor):  # type: ignore[misc]
    """The executor that runs measurements on this machine and all other jobs on Slurm."""

    def __post_init__(self, test_mode: bool = False) -> None:
        """Prepare the executors for Slurm and for this machine, and find out whether Slurm has accounting."""
        super().__post_init__(test_mode)
        self._here = Here(self.workflow, self.logger)
        asked = subprocess.run(["sacct", "--noheader"], check=False, capture_output=True)
        self._has_accounting = asked.returncode == 0

    def get_status_command(self) -> str:
        """Return the command that reports the states of jobs: `squeue` if Slurm has no accounting."""
        return str(super().get_status_command()) if self._has_accounting else "squeue"

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Return the argument of sbatch for a job's account, if the job has an account."""
        if self.workflow.executor_settings.no_account:
            return iter([""])
        return iter(super().get_account_arg(job))

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Start measurements on this machine, and start all other jobs on Slurm."""
        self._here.run_jobs([job for job in jobs if measures(job)])
        super().run_jobs([job for job in jobs if not measures(job)])

    def additional_general_args(self) -> str:
        """Return the arguments that make Snakemake run its jobs inside the cluster job, without submitting them."""
        return "--executor local"

    def handle_job_success(self, job: Any) -> None:
        """Report the success of a measurement to the executor on this machine."""
        if measures(job):
            self._here.handle_job_success(job)

    def handle_job_error(self, job: Any) -> None:
        """Make the failed attempt the last attempt of the job, unless another attempt can help."""
        if measures(job):
            self._here.handle_job_error(job)
        elif any(map(_has_log, _parts(job))):
            job.attempt = job.restart_times + 1

    def print_job_error(self, job_info: Any, msg: str | None = None, **kwargs: Any) -> None:
        """Report a failed job with its log. If the job wrote no log, report that the cluster stopped the job."""
        job = job_info.job
        failed = [part for part in _parts(job) if _has_log(part)]
        for part in failed:
            part.log_error(msg, **kwargs)
        if failed:
            return
        rules = ", ".join(sorted({part.rule.name for part in _parts(job)}))
        name = f"Slurm job {job_info.external_jobid}" if job_info.external_jobid else "a Slurm job"
        wildcards = next(iter(_parts(job))).wildcards_dict.values()
        again = (
            f"attempt {job.attempt + 1} of {job.restart_times + 1} follows"
            if job.attempt <= job.restart_times
            else f"that was attempt {job.attempt} of {job.restart_times + 1}"
        )
        self.logger.info(
            f"{scripting.DISTURBED}{name} ({rules} of {'/'.join(wildcards)}): {msg}; {again}",
            extra=OURS,
        )

    def shutdown(self) -> None:
        """After the last job, end the executor for Slurm and the executor for this machine."""
        self._here.shutdown()
        super().shutdown()

    def cancel(self) -> None:
        """Stop the running jobs on this machine and on Slurm."""
        self._here.cancel()
        super().cancel()


def _parts(job: Any) -> list[Any]:
    return list(job.jobs) if job.is_group() else [job]


def _has_log(job: Any) -> bool:
    """Return whether a failed job has written a log."""
    return any(scripting.read_log(Path(log)) for log in job.log)
