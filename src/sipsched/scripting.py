"""What the workflow's scripts share: errors in one line, another attempt, an end in order."""

import fcntl
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from sipsched.errors import SipschedError, TransientError

ATTEMPTS = 3

RUN_PLACE = "SIPSCHED_RUN_PLACE"
"""Environment variable in which the scheduler gives a measurement its place, `<place>/<all>`, such as 3/21."""


@contextmanager
def one_line_errors(log: str | None = None) -> Iterator[None]:
    """Turn an error that we raise on purpose into one line, on stderr and in the log, and exit code 1.

    An interrupt, from the keyboard or by SIGTERM, likewise.
    """
    try:
        yield
    except SipschedError as error:
        line = f"error: {error}"
    except KeyboardInterrupt:
        line = "interrupted: nothing measured before is lost; the same command goes on from here"
    else:
        return
    if log is not None:
        # a name from outside may hold what is no text
        Path(log).write_text(line + "\n", errors="backslashreplace")
    sys.exit(line)


def attempted(action: Callable[[], object]) -> None:
    """Do something, and again after what may pass: a disturbed run, a lost link.

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


def say(text: str) -> None:
    """Print a line among those of Snakemake."""
    print(text, file=sys.stderr, flush=True)
