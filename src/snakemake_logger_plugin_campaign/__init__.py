"""What a person at the terminal reads of Snakemake: how far it is, what went wrong, and nothing else.

Snakemake writes for one who debugs a workflow: of a run that was disturbed and is tried again it has an
exception of its own, the rule's files, and a warning that nothing was there to restore. All of that is in its
log, below .snakemake/log. With `-p`, `--verbose` or `--debug-dag` the terminal has it, too; `-n` says how many
jobs of each rule there are, and `-n -p` each of them.
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

OURS = {"campaign": True}
"""Marks a record as one for the terminal."""
DRY_RUN_ENDS = "This was a dry-run"
MEASURING = ("measure_run", "find_crossing", "measure_noise")
"""Rules whose errors say what was measured, and that tell how far they are themselves."""
LAST_LINES = 12
"""So much is shown of the log of a job that a mistake in the program ended."""
EVERY_S = 10.0
"""Seconds from one line on steps to the next."""

SAID = (
    "Cannot restore ",
    "MinJobAge ",
    "Exiting because a job execution failed.",
    "WorkflowError:\nAt least one job did not complete successfully.",
)
"""How Snakemake's words begin for what was said of a job already."""
WANTED = ("Nothing to be done",)
"""How those of its messages begin that a person wants."""
OF_A_JOB = "RuleException:\nCalledProcessError "
"""How its words on the process of a job begin; what became of the job follows, from the same thread."""
LOCKED = "LockException:"
INTERRUPTED = ("Terminating processes on user request", "Cancelling snakemake on user request")
STOPPING = "Will exit after finishing currently running jobs"


def outlook(lines: Callable[[], list[str]]) -> dict[str, Any]:
    """Mark a record that brings the lines with which a dry run ends; nobody else asks for them."""
    return {"outlook": lines}


class LogHandler(LogHandlerBase):
    """Writes to the terminal in the place of Snakemake's own handler."""

    def __post_init__(self) -> None:
        """Begin with nothing said."""
        # until jobs are scheduled, Snakemake takes no Ctrl-C
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
        self._over = self._stopping = False
        self._outlook: Callable[[], list[str]] = list
        self._processes: dict[int | None, str] = {}
        self._started = ""
        self._steps_said = time.monotonic()

    @property
    def writes_to_stream(self) -> bool:
        """Snakemake's own handler is not wanted beside it."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Snakemake keeps its log itself."""
        return False

    @property
    def has_filter(self) -> bool:
        """What to leave out is decided here."""
        return True

    @property
    def has_formatter(self) -> bool:
        """So are the words."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """Nothing is drawn."""
        return False

    def emit(self, record: LogRecord) -> None:
        """Say what a record comes to, if it is for a person."""
        try:
            if hasattr(record, "outlook"):
                self._outlook = vars(record)["outlook"]
            elif self._own:
                self._own.handle(record)
                if self.common_settings.dryrun and Quietness.ALL not in self._quiet:
                    self._tell_outlook(str(record.msg or ""))
            elif Quietness.ALL not in self._quiet and not self._over:
                self._tell(record)
        except BrokenPipeError:
            # nobody reads any more; what is done goes on
            self._own, self._over = None, True
        except Exception:
            self.handleError(record)

    def _tell_outlook(self, text: str) -> None:
        """Say after a dry run how far the campaign is."""
        if text.startswith((DRY_RUN_ENDS, *WANTED)):
            for line in self._outlook():
                self._say(line)
            self._outlook = list

    def _tell(self, record: LogRecord) -> None:
        event, text = getattr(record, "event", None), str(record.msg or "")
        if text.startswith(INTERRUPTED):
            self._end(scripting.INTERRUPTED)
        elif text.startswith(STOPPING):
            if not self._stopping:
                self._say("stopping: the jobs that run now are waited for")
            self._stopping = True
        elif text.startswith(LOCKED) and (others := scripting.announced()):
            self._say(f"error: these files are being made by {'; '.join(others)}; wait for its end")
        elif event == LogEvent.JOB_INFO:
            self._started = vars(record)["rule_name"]
        elif event == LogEvent.JOB_ERROR:
            self._tell_error(record)
        elif event == LogEvent.PROGRESS:
            self._tell_steps(record)
        elif text.startswith(OF_A_JOB):
            self._processes[record.thread] = text
        elif hasattr(record, "campaign") or text.startswith(WANTED):
            if Quietness.PROGRESS not in self._quiet:
                self._say(text)
        elif record.levelno >= WARNING and not text.startswith(SAID):
            self._say(text)

    def _tell_error(self, record: LogRecord) -> None:
        """Say why a job failed: in the words of its log, or of who started it where it has none."""
        rule, logs = vars(record)["rule_name"], vars(record)["log"]
        process = self._processes.pop(record.thread, "")
        said = vars(record)["aux"].get("said", "")
        said = (said or (scripting.read_log(Path(logs[0])) if logs else "")).strip()
        line = said.partition("\n")[0]
        if line == scripting.INTERRUPTED:
            self._end(line)
        elif line.startswith(scripting.SAID) and rule in MEASURING:
            self._say(line)
        elif line.startswith(scripting.SAID):
            self._say(f"{line} (rule {rule}, {logs[0]})")
        else:
            outputs = ", ".join(vars(record)["output"])
            self._say(f"error: rule {rule} failed, which makes {outputs}")
            for log in logs:
                self._say(f"  the end of {log}:" if said else f"  {log} is empty")
            for line in (said or process).splitlines()[-LAST_LINES:]:
                self._say(f"    {line}")

    def _tell_steps(self, record: LogRecord) -> None:
        if Quietness.PROGRESS in self._quiet or self._started in MEASURING:
            return
        now = time.monotonic()
        if now - self._steps_said >= EVERY_S:
            self._say(f"{vars(record)['done']} of {vars(record)['total']} steps done")
            self._steps_said = now

    def _end(self, line: str) -> None:
        """Say that it was interrupted; what is said after that are ends of jobs, by the same signal."""
        self._say(line)
        self._over = True

    def _say(self, text: str) -> None:
        print(text, file=self._terminal, flush=True)
