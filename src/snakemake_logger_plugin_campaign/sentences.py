"""Functions that recognise log records of Snakemake by their text, for records without an event type.

tests/unit/test_sentences.py fails if a new version of Snakemake has other texts.
"""

from logging import LogRecord

from snakemake.common import NOTHING_TO_BE_DONE_MSG

STOPPING = "Will exit after finishing currently running jobs"
"""Snakemake's text after the first SIGTERM. Snakemake then waits for the running jobs."""
TERMINATING = "Terminating processes on user request"
"""Snakemake's text after Ctrl-C while jobs are running. Snakemake then stops the jobs."""
DRY_RUN_END = "This was a dry-run"
NOTHING_TO_DO = NOTHING_TO_BE_DONE_MSG
FAILED_JOBS = (
    "Exiting because a job execution failed.",
    "At least one job did not complete successfully.",
)
"""Snakemake's last texts if jobs have failed, which the plugin hides, because each failed job has its own line."""
NO_BACKUP = "Cannot restore "
"""Text of a warning for each failed measurement: Snakemake finds no backup, because no earlier output exists."""
SLURM_MEMORY = "MinJobAge "
"""Text of a warning that Slurm forgets jobs after some time. All jobs of this workflow end before this time."""


def is_known(record: LogRecord) -> bool:
    """Return whether to hide a warning or an error, because the text is useless or repeats a line on the terminal."""
    text = str(record.msg or "").removeprefix("WorkflowError:\n")
    return text.startswith((*FAILED_JOBS, NO_BACKUP, SLURM_MEMORY))


def is_interrupt(record: LogRecord) -> bool:
    """Return whether a log record means that the user interrupted Snakemake."""
    return exception(record) == "KeyboardInterrupt" or str(record.msg).startswith(TERMINATING)


def is_process_error(record: LogRecord) -> bool:
    """Return whether a log record is about the exit code of a job's process."""
    return exception(record) == "RuleException" and "CalledProcessError" in str(record.msg)


def exception(record: LogRecord) -> str:
    """Return the name of the exception in a log record; empty for a log record without an exception."""
    return str(getattr(record, "exception", ""))
