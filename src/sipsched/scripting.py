"""Functions for the scripts that Snakemake runs: one-line errors, repeated attempts, and a clean stop on signals."""

import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TextIO

from sipsched.errors import ComputedFileError, LostError, SipschedError, TransientError

ATTEMPTS = 3
"""Largest number of attempts at a measurement that fails by a transient error."""

DISTURBED, LOST, REFUSED = "disturbed: ", "lost: ", "error: "
"""First words in the log of a failed Snakemake job, by kind of failure.

The words mean that another attempt can help, that a host was unreachable, or that another attempt cannot help.
"""
CONTROLLERS = Path(".snakemake") / "controllers"
"""Folder in which each process that works on the project's files announces itself by a file."""
STDERR = 2
INTERRUPTED = "interrupted: nothing measured before is lost; the same command continues from here"
SAID = (DISTURBED, LOST, REFUSED, INTERRUPTED)
"""First words in the log of a Snakemake job that a signal or an error of sipsched ended."""


@contextmanager
def one_line_errors(
    log: str | None = None, attempt: int | None = None, computed: Sequence[str] = ()
) -> Iterator[None]:
    """Report an error of sipsched, or a Ctrl-C, in the `with` block as one line, and exit with code 1.

    Parameters
    ----------
    log
        Log of this job. The error line becomes the first line of the log, which the executor shows. For a defect of the
        program, the log contains the traceback. None: the line is written to stderr.
    attempt
        Number of this attempt, for jobs that are repeated after a `TransientError`. None for all other jobs.
    computed
        Input files that earlier jobs have computed. A damaged file is removed, so that Snakemake computes it again.
    """
    if log is not None:
        # Remove the log of an earlier attempt, because its lines would mix with the lines of this attempt.
        Path(log).unlink(missing_ok=True)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield
    except LostError as error:
        line = f"{LOST}{error if attempt is None else _ordinal(error, attempt)}"
    except TransientError as error:
        line = f"{REFUSED}{error}" if attempt is None else f"{DISTURBED}{_ordinal(error, attempt)}"
    except SipschedError as error:
        line = f"{REFUSED}{error}"
        if isinstance(error, ComputedFileError) and str(error.path) in computed:
            error.path.unlink(missing_ok=True)
            line += "; the file is removed"
    except KeyboardInterrupt:
        line = INTERRUPTED
    except Exception:
        if log is None:
            raise
        with Path(log).open("a", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
        sys.exit(1)
    else:
        return
    if log is None:
        sys.exit(line)
    # The message can contain names of other programs, which need not be valid UTF-8.
    Path(log).write_text(f"{line}\n{read_log(Path(log))}", errors="backslashreplace")
    sys.exit(1)


@contextmanager
def stderr_into(log: str) -> Iterator[None]:
    """Redirect stderr of this process and its children to the log of a job while the `with` block runs."""
    sys.stderr.flush()
    with Path(log).open("ab") as file:
        terminal = os.dup(STDERR)
        os.dup2(file.fileno(), STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, STDERR)
            os.close(terminal)


def _ordinal(error: TransientError, attempt: int) -> str:
    if attempt < ATTEMPTS:
        return f"{error}; attempt {attempt + 1} of {ATTEMPTS} follows after all other jobs"
    return f"{error}; that was attempt {attempt} of {ATTEMPTS}, so results exclude the run"


def may_pass(log: Path) -> bool:
    """Return True if the log of a failed job reports a disturbance or an unreachable host, so a retry can help."""
    return read_log(log).startswith((DISTURBED, LOST))


def said_lost(log: Path) -> str:
    """Return the error message about an unreachable host from a job's log; an empty text for other errors."""
    line = read_log(log).partition("\n")[0]
    return line.removeprefix(LOST) if line.startswith(LOST) else ""


def read_log(log: Path) -> str:
    """Return the text of a job's log; an empty text without a log."""
    try:
        return log.read_text(errors="backslashreplace")
    except OSError:
        return ""


def hold_interrupts() -> None:
    """Block SIGINT (Ctrl-C) in this thread and its children, until `one_line_errors` unblocks the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def attempted(action: Callable[[], object]) -> None:
    """Call a function, and repeat the call after a transient error, with at most three calls.

    Raises
    ------
    StableError
        Any attempt raised this error, so another attempt cannot help.
    TransientError
        The last attempt raised this error.
    """
    for attempt in range(2, ATTEMPTS + 2):
        try:
            action()
            return
        except TransientError as error:
            if attempt > ATTEMPTS:
                raise
            say(f"attempt {attempt} of {ATTEMPTS}: {error}")


def end_in_order(*signals: signal.Signals) -> None:
    """Raise KeyboardInterrupt when the first of these signals arrives, and ignore all signals that arrive later.

    Parameters
    ----------
    signals
        Signals such as SIGINT. Default: SIGINT and SIGTERM.
    """
    chosen = signals or (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for chosen_signal in chosen:
            # An empty handler ignores further signals. SIG_IGN is unsuitable, because child processes inherit it.
            signal.signal(chosen_signal, lambda number, frame: None)
        raise KeyboardInterrupt

    for chosen_signal in chosen:
        signal.signal(chosen_signal, interrupt)


def tell_interrupts() -> None:
    """Unblock SIGINT, and make Ctrl-C print one line instead of a traceback."""

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            say(INTERRUPTED)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = tell
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def clear_dead_locks(folder: Path = Path(".snakemake")) -> TextIO:
    """Remove the lock files of a Snakemake process that was killed or whose machine crashed.

    Returns
    -------
    file
        An open file with a lock. While a process holds the lock, no other process removes lock files.
    """
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # Another Snakemake is running, so keep its lock files.
    else:
        for lock in (folder / "locks").glob("*.lock"):
            lock.unlink()
    fcntl.flock(alive, fcntl.LOCK_SH)
    return alive


def announce(who: str) -> TextIO:
    """Announce in a locked file that this process works on the project's files, until the returned file is closed.

    Parameters
    ----------
    who
        One line about this process. Other processes show this line in their error messages.
    """
    CONTROLLERS.mkdir(parents=True, exist_ok=True)
    announcement = (CONTROLLERS / f"{os.uname().nodename}-{os.getpid()}").open("w")
    fcntl.flock(announcement, fcntl.LOCK_EX)
    announcement.write(who)
    announcement.flush()
    return announcement


def announced(folder: Path = CONTROLLERS) -> list[str]:
    """Return the line of each announced process that still runs, and delete the files of ended processes."""
    announcements = []
    for path in sorted(folder.glob("*")):
        with suppress(FileNotFoundError), path.open() as announcement:
            try:
                fcntl.flock(announcement, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                announcements.append(announcement.read())
            else:
                path.unlink()
    return announcements


def say(text: str) -> None:
    """Print a line to stderr, where Snakemake also prints its messages."""
    print(text, file=sys.stderr, flush=True)
