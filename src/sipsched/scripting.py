"""What the workflow's scripts share: errors in one line, and the progress of a campaign."""

import json
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from sipsched.config import Config, Run
from sipsched.errors import SipschedError
from sipsched.record import RUN_FILE, is_recorded, read_crossings

OVERHEAD_S = 4.0
"""Seconds of a run outside its load, before any run was measured."""
RUNS_FOR_PACE = 10


@contextmanager
def one_line_errors(log: str | None = None) -> Iterator[None]:
    """Turn an error that we raise on purpose into one line, on stderr and in the log, and exit code 1."""
    try:
        yield
    except SipschedError as error:
        line = f"error: {error}"
        if log is not None:
            Path(log).write_text(line + "\n")
        sys.exit(line)


def end_in_order() -> None:
    """Turn SIGTERM into an exception, so that a run in progress stops its processes and keeps its files."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def say(text: str) -> None:
    """Print a line among those of Snakemake."""
    print(text, file=sys.stderr, flush=True)


def say_progress(run: Run, config: Config, raw: Path) -> None:
    """Print what is measured now, how many runs are left, and when the last should end."""
    planned = config.runs(read_crossings(raw, config.searches()))
    left = [other for other in planned if not is_recorded(raw, other)]
    done = [other for other in planned if other not in set(left)]
    end = datetime.now() + timedelta(seconds=len(left) * _seconds_per_run(done, config, raw))
    say(
        f"measuring {run}: run {len(done) + 1} of {len(planned)}, "
        f"{len(left) - 1} left after it, done about {end:%H:%M:%S}"
    )


def _seconds_per_run(done: list[Run], config: Config, raw: Path) -> float:
    times: list[float] = []
    for run in done[-RUNS_FOR_PACE:]:
        timeline = json.loads((raw / run.path / RUN_FILE).read_text())["timeline"]
        times.append(timeline["fetched"] - timeline["started"])
    if times:
        return statistics.median(times) + 1.0
    return config.load.warmup_s + config.load.duration_s + OVERHEAD_S
