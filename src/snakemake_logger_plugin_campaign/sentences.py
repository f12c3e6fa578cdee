"""Functions that recognise Snakemake's log records by their text, if a record has no type of event.

tests/unit/test_sentences.py fails if a new version of Snakemake has other texts.
"""

from logging import LogRecord

from snakemake.common import NOTHING_TO_BE_DONE_MSG

STOPPING = "Will exit after finishing currently running jobs"
"""Text after the first SIGTERM: Snakemake waits for the running jobs."""
TERMINATING = "Terminating processes on user request"
"""Text after Ctrl-C while jobs are running: Snakemake stops the jobs."""
DRY_RUN_END = "This was a dry-run"
NOTHING_TO_DO = NOTHING_TO_BE_DONE_MSG
FAILED_JOBS = (
    "Exiting because a job execution failed.",
    "At least one job did not complete successfully.",
)
"""Texts that Snakemake prints last if jobs have failed. They are hidden, because each failed job has its own line."""
NO_BACKUP = "Cannot restore "
"""Text of a warning for each failed measurement, because its output did not exist before."""
SLURM_MEMORY = "MinJobAge "
"""Text of a warning that Slurm forgets jobs after some time. Jobs on the cluster end before this time."""


def is_known(record: LogRecord) -> bool:
    """Return whether a warning or an error is useless on the terminal, or repeats a line of the terminal."""
    text = str(record.msg or "").removeprefix("WorkflowError:\n")
    return text.startswith((*FAILED_JOBS, NO_BACKUP, SLURM_MEMORY))


def is_interrupt(record: LogRecord) -> bool:
    """Return whether a record says that the user interrupted Snakemake."""
    return exception(record) == "KeyboardInterrupt" or str(record.msg).startswith(TERMINATING)


def is_process_error(record: LogRecord) -> bool:
    """Return whether a record is about the exit code of a job's process."""
    return exception(record) == "RuleException" and "CalledProcessError" in str(record.msg)


def exception(record: LogRecord) -> str:
    """Return the name of the exception that a record is about; empty for other records."""
    return str(getattr(record, "exception", ""))
