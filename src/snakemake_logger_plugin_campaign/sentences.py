"""Recognition of Snakemake's log records by their text, for records without an event.

tests/unit/test_sentences.py fails when a new Snakemake has other texts.
"""

from logging import LogRecord

from snakemake.common import NOTHING_TO_BE_DONE_MSG

STOPPING = "Will exit after finishing currently running jobs"
"""The first SIGTERM: Snakemake waits for the running jobs."""
TERMINATING = "Terminating processes on user request"
"""Ctrl-C while jobs run: Snakemake stops them."""
DRY_RUN_END = "This was a dry-run"
NOTHING_TO_DO = NOTHING_TO_BE_DONE_MSG
FAILED_JOBS = (
    "Exiting because a job execution failed.",
    "At least one job did not complete successfully.",
)
"""Ends of an invocation with failed jobs. Each failed job has a line of its own."""
NO_BACKUP = "Cannot restore "
"""A warning for each failed measurement, whose output did not exist before."""
SLURM_MEMORY = "MinJobAge "
"""A warning of the Slurm plugin about how long Slurm remembers jobs. Jobs on the cluster end earlier than that."""


def is_known(record: LogRecord) -> bool:
    """Return whether a warning or error is useless on the terminal, or repeats a line of the terminal."""
    text = str(record.msg or "").removeprefix("WorkflowError:\n")
    return text.startswith((*FAILED_JOBS, NO_BACKUP, SLURM_MEMORY))


def is_interrupt(record: LogRecord) -> bool:
    """Return whether Snakemake reports that the user interrupted it."""
    return exception(record) == "KeyboardInterrupt" or str(record.msg).startswith(TERMINATING)


def is_process_error(record: LogRecord) -> bool:
    """Return whether Snakemake reports the exit code of a job's process."""
    return exception(record) == "RuleException" and "CalledProcessError" in str(record.msg)


def exception(record: LogRecord) -> str:
    """Return the name of the exception that a record reports; an empty text for other records."""
    return str(getattr(record, "exception", ""))
