"""What the workflow's scripts share: errors in one line, an end in order, and lines among those of Snakemake."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sipsched.errors import SipschedError

RUN_PLACE = "SIPSCHED_RUN_PLACE"
"""Environment variable in which the scheduler gives a measurement its place, `<place>/<all>`, such as 3/21."""


@contextmanager
def one_line_errors(log: str | None = None) -> Iterator[None]:
    """Turn an error that we raise on purpose into one line, on stderr and in the log, and exit code 1."""
    try:
        yield
    except SipschedError as error:
        line = f"error: {error}"
        if log is not None:
            Path(log).write_text(line + "\n", errors="backslashreplace")
        sys.exit(line)


def end_in_order() -> None:
    """Turn SIGTERM into an exception, so that a run in progress stops its processes and keeps its files."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def say(text: str) -> None:
    """Print a line among those of Snakemake."""
    print(text, file=sys.stderr, flush=True)
