"""What the workflow's scripts share: errors in one line, another attempt, an end in order."""

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
"""How often a measurement is tried in all."""

DISTURBED, LOST, REFUSED = "disturbed: ", "lost: ", "error: "
"""What the log of a job begins with where another attempt may help, where its testbed has to be reached for that, and
where we know that none does."""
CONTROLLERS = Path(".snakemake") / "controllers"
"""Where each process that is at work on the files of a project leaves its word."""
STDERR = 2
INTERRUPTED = "interrupted: nothing measured before is lost; the same command goes on from here"
SAID = (DISTURBED, LOST, REFUSED, INTERRUPTED)
"""What the log of a job begins with that ended by an error we raise on purpose, or by a signal: one line."""


@contextmanager
def one_line_errors(
    log: str | None = None, attempt: int | None = None, computed: Sequence[str] = ()
) -> Iterator[None]:
    """Turn an error that we raise on purpose, or an interrupt, into one line and exit code 1.

    Parameters
    ----------
    log
        Of the job that this is: the line goes to its top, and who started the job shows it. An error that is
        not raised on purpose leaves its traceback there. None: the line goes to stderr.
    attempt
        Which this is, of `ATTEMPTS`, where a job is started again after a `TransientError`. None: it is not.
    computed
        Files that jobs before this one made: one of them that is damaged is removed, so that it is made again.
    """
    if log is not None:
        # of an earlier attempt
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
            line += "; it is removed"
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
    # a name from outside may hold what is no text
    Path(log).write_text(f"{line}\n{read_log(Path(log))}", errors="backslashreplace")
    sys.exit(1)


@contextmanager
def stderr_into(log: str) -> Iterator[None]:
    """Keep what this process and those that it starts write to stderr in a job's log.

    A kernel of Jupyter complains there of what nobody at a terminal can do anything about.
    """
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
        return f"{error}; attempt {attempt + 1} of {ATTEMPTS} comes after what else is to be done"
    return f"{error}; that was attempt {attempt} of {ATTEMPTS}, so it is left out"


def may_pass(log: Path) -> bool:
    """Tell from the log of a job that failed whether another attempt may help."""
    return read_log(log).startswith((DISTURBED, LOST))


def said_lost(log: Path) -> str:
    """Give what the log of a job says of a host that it did not reach; nothing if it is of something else."""
    line = read_log(log).partition("\n")[0]
    return line.removeprefix(LOST) if line.startswith(LOST) else ""


def read_log(log: Path) -> str:
    """Give the text of a job's log; nothing where there is none."""
    try:
        return log.read_text(errors="backslashreplace")
    except OSError:
        return ""


def hold_interrupts() -> None:
    """Let Ctrl-C wait in what this thread starts, until `one_line_errors` is there to take it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def attempted(action: Callable[[], object]) -> None:
    """Do something, and at once again after what may pass: for what others wait for.

    Raises
    ------
    StableError
        At once: trying again changes nothing.
    TransientError
        That of the last of `ATTEMPTS` attempts.
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
    """Let the first of some signals end the program in order; those after it are not to disturb that.

    Parameters
    ----------
    signals
        Such as SIGINT; none: SIGINT and SIGTERM.
    """
    chosen = signals or (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in chosen:
            # not SIG_IGN, which programs started from here would inherit
            signal.signal(each, lambda number, frame: None)
        raise KeyboardInterrupt

    for each in chosen:
        signal.signal(each, interrupt)


def tell_interrupts() -> None:
    """Say in a line, not in a traceback, that the program was interrupted, wherever that met it."""

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            say(INTERRUPTED)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = tell


def clear_dead_locks(folder: Path = Path(".snakemake")) -> TextIO:
    """Remove the locks of a Snakemake that is gone: killed, or on a machine that went down.

    Parameters
    ----------
    folder
        Where Snakemake keeps its own files, in the project's folder.

    Returns
    -------
    file
        Holds a lock of ours as long as it is open: while one process has it, locks are not removed.
    """
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # somebody is alive: Snakemake's own lock says whether that is in our way
    else:
        for lock in (folder / "locks").glob("*.lock"):
            lock.unlink()
    fcntl.flock(alive, fcntl.LOCK_SH)
    return alive


def announce(who: str, folder: Path = CONTROLLERS) -> TextIO:
    """Leave word of who is at work on the files of this project, for as long as this process lives.

    Parameters
    ----------
    who
        One line, as whoever is refused reads it.
    folder
        Where; made if it is not there.

    Returns
    -------
    file
        Holds the word as long as it is open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    word = (folder / f"{os.uname().nodename}-{os.getpid()}").open("w")
    fcntl.flock(word, fcntl.LOCK_EX)
    word.write(who)
    word.flush()
    return word


def announced(folder: Path = CONTROLLERS) -> list[str]:
    """Say who is at work on the files of this project; the words of those who are gone are removed."""
    found = []
    for path in sorted(folder.glob("*")):
        with suppress(FileNotFoundError), path.open() as word:
            try:
                fcntl.flock(word, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(word.read())
            else:
                path.unlink()
    return found


def say(text: str) -> None:
    """Print a line among those of Snakemake."""
    print(text, file=sys.stderr, flush=True)
