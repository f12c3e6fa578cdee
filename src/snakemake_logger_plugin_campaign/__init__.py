"""Snakemake's logger plugin, which makes the terminal show only progress and errors.

Snakemake's own messages help to debug a workflow, but hide the progress. For a disturbed run, for example, Snakemake
prints an exception, the files of the rule, and a warning about missing backups. The log files in .snakemake/log contain
all messages of Snakemake. The options `-p`, `--verbose` and `--debug-dag` show all messages on the terminal. The option
`-n` (dry run) shows the number of jobs per rule, and `-n -p` shows each job.
"""

import sys
import time
from collections.abc import Callable
from logging import WARNING, LogRecord
from pathlib import Path
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from sipsched import scripting
from snakemake_logger_plugin_campaign.sentences import (
    DRY_RUN_END,
    NOTHING_TO_DO,
    STOPPING,
    exception,
    is_interrupt,
    is_known,
    is_process_error,
)

OURS = {"campaign": True}
"""Attributes that mark the log records that this plugin shows on the terminal."""
MEASURES = "measures"
"""Resource that marks rules that measure, which print their own progress, and whose errors name the measurement."""
LAST_LINES = 12
"""Number of last lines of a job's log that the terminal shows after an unexpected error (a traceback)."""
EVERY_S = 10.0
"""Seconds between two lines about the number of finished jobs."""


def outlook(lines: Callable[[], list[str]]) -> dict[str, Any]:
    """Return extra attributes of a log record that make the logger print `lines` at the end of a dry run."""
    return {"outlook": lines}


class LogHandler(LogHandlerBase):
    """The log handler that replaces Snakemake's own handler for the terminal."""

    def __post_init__(self) -> None:
        """Prepare the terminal, and prepare Snakemake's own handler for the options that show all messages."""
        # Before it schedules jobs, Snakemake does not handle Ctrl-C, and would print a traceback.
        scripting.tell_interrupts()
        settings = self.common_settings
        self._quiet = frozenset(settings.quiet or ())
        self._terminal = sys.stdout if settings.stdout else sys.stderr
        debugs = settings.printshellcmds or settings.verbose or settings.debug_dag
        self._own: ColorizingTextHandler | None = None
        if settings.dryrun or debugs:
            quiet = self._quiet
            if settings.dryrun and not debugs and not quiet:
                quiet = frozenset({Quietness.RULES, Quietness.HOST})
            self._own = ColorizingTextHandler(
                settings.nocolor,
                self._terminal,
                DefaultFormatter(quiet, settings.show_failed_logs),
                DefaultFilter(
                    quiet,
                    settings.debug_dag,
                    settings.verbose,
                    settings.dryrun,
                    settings.printshellcmds,
                ),
            )
        self._interrupted = self._stopping = False
        self._outlook: Callable[[], list[str]] = list
        self._processes: dict[int | None, str] = {}
        self._measures = False
        self._steps_said = time.monotonic()

    @property
    def writes_to_stream(self) -> bool:
        """True, so that Snakemake does not add its own handler for the terminal."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """False, because Snakemake writes its log file itself."""
        return False

    @property
    def has_filter(self) -> bool:
        """True, because this handler selects the log records that appear on the terminal."""
        return True

    @property
    def has_formatter(self) -> bool:
        """True, because this handler formats the log records."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """False, because this handler does not draw a graph."""
        return False

    def emit(self, record: LogRecord) -> None:
        """Print a log record on the terminal if the record is about progress or an error."""
        try:
            if hasattr(record, "outlook"):
                self._outlook = vars(record)["outlook"]
            elif self._own:
                self._own.handle(record)
                if self.common_settings.dryrun and Quietness.ALL not in self._quiet:
                    self._tell_outlook(str(record.msg or ""))
            elif Quietness.ALL not in self._quiet and not self._interrupted:
                self._tell(record)
        except BrokenPipeError:
            # The program that reads the output, such as `head`, has ended. Print nothing more, and let the jobs
            # continue.
            self._own, self._interrupted = None, True
        except Exception:
            self.handleError(record)

    def _tell_outlook(self, text: str) -> None:
        """Print the progress of the campaign (all planned runs) at the end of a dry run."""
        if text.startswith((DRY_RUN_END, NOTHING_TO_DO)):
            for line in self._outlook():
                self._say(line)
            self._outlook = list

    def _tell(self, record: LogRecord) -> None:
        event, text = getattr(record, "event", None), str(record.msg or "")
        if is_interrupt(record):
            self._end(scripting.INTERRUPTED)
        elif text.startswith(STOPPING):
            if not self._stopping:
                self._say("stopping: Snakemake waits for the running jobs")
            self._stopping = True
        elif exception(record) == "LockException" and (others := scripting.announced()):
            self._say(f"error: these files are being made by {'; '.join(others)}; wait for its end")
        elif event == LogEvent.JOB_INFO:
            self._measures = MEASURES in vars(record)["resources"]
        elif event == LogEvent.JOB_ERROR:
            self._tell_error(record)
        elif event == LogEvent.PROGRESS:
            self._tell_steps(record)
        elif is_process_error(record):
            # Keep the text, because the same thread later writes a record about the failed job, and `_tell_error` needs
            # the text.
            self._processes[record.thread] = text
        elif hasattr(record, "campaign") or text.startswith(NOTHING_TO_DO):
            if Quietness.PROGRESS not in self._quiet:
                self._say(text)
        elif record.levelno >= WARNING and not is_known(record):
            self._say(text)

    def _tell_error(self, record: LogRecord) -> None:
        """Print the reason why a job failed, from the job's log or from the error of the job's process."""
        rule, logs = vars(record)["rule_name"], vars(record)["log"]
        process = self._processes.pop(record.thread, "")
        aux = vars(record)["aux"]
        reason = aux.get("log_text", "")
        reason = (reason or (scripting.read_log(Path(logs[0])) if logs else "")).strip()
        line = reason.partition("\n")[0]
        if line == scripting.INTERRUPTED:
            self._end(line)
        elif line.startswith(scripting.SAID) and aux.get(MEASURES):
            self._say(line)
        elif line.startswith(scripting.SAID):
            self._say(f"{line} (rule {rule}, {logs[0]})")
        else:
            outputs = ", ".join(vars(record)["output"])
            self._say(f"error: rule {rule} failed, which makes {outputs}")
            for log in logs:
                self._say(f"  the end of {log}:" if reason else f"  {log} is empty")
            for line in (reason or process).splitlines()[-LAST_LINES:]:
                self._say(f"    {line}")

    def _tell_steps(self, record: LogRecord) -> None:
        if Quietness.PROGRESS in self._quiet or self._measures:
            return
        now = time.monotonic()
        if now - self._steps_said >= EVERY_S:
            self._say(f"{vars(record)['done']} of {vars(record)['total']} steps done")
            self._steps_said = now

    def _end(self, line: str) -> None:
        """Print that the user interrupted Snakemake, and hide later errors, because the same signal ends all jobs."""
        self._say(line)
        self._interrupted = True

    def _say(self, text: str) -> None:
        print(text, file=self._terminal, flush=True)
