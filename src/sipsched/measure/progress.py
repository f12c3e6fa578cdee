"""How far an invocation has come: which run is measured now, and how long the rest of them should take."""

import itertools
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sipsched.errors import StableError
from sipsched.plan.config import Config, Run
from sipsched.records.record import is_recorded
from sipsched.records.run_document import read_run
from sipsched.scripting import ATTEMPTS
from sipsched.words import plural

OVERHEAD_S = 5.0
"""Seconds of a run outside its load, the workflow's own included, before any run was measured."""
BETWEEN_S = 1.0
"""Seconds between the end of a run and the start of the next."""
RUNS_FOR_PACE = 10

Kind = tuple[str, str]
"""Testbed and mode: what the length of a run hangs on."""


def kind(run: Run) -> Kind:
    """Say which runs last as long as this one."""
    return run.testbed, run.mode


class Progress:
    """The runs of one invocation: counted as they start, and timed."""

    def __init__(self) -> None:
        self._numbers: dict[Run, int] = {}
        self._known: set[Run] = set()
        self._started: dict[Run, float] = {}
        self._lasted: dict[Kind, deque[float]] = defaultdict(lambda: deque(maxlen=RUNS_FOR_PACE))

    def start(self, run: Run, attempt: int, left: Mapping[Run, float], now: float) -> str:
        """Take note of the start of a run, and say where it stands.

        Parameters
        ----------
        run, attempt
            What starts; the first attempt is 1.
        left
            Each run that this invocation has yet to measure, `run` included, and the seconds expected of it.
            They count until a run of its kind has ended in this invocation.
        now
            Seconds on any clock that does not jump.

        Returns
        -------
        str
            A line for the terminal.
        """
        self._known.update(left)
        number = self._numbers.setdefault(run, len(self._numbers) + 1)
        self._started[run] = now
        rest_s = sum(self._pace(other, expected) for other, expected in left.items())
        which = f"attempt {attempt} of {ATTEMPTS}: " if attempt > 1 else ""
        return (
            f"{which}measuring {run}: run {number} of {len(self._known)}, {in_minutes(rest_s)} left"
        )

    def end(self, run: Run, now: float) -> None:
        """Take note of the end of an attempt, however it ended."""
        started = self._started.pop(run, None)
        if started is not None:
            self._lasted[kind(run)].append(now - started + BETWEEN_S)

    def _pace(self, run: Run, expected_s: float) -> float:
        lasted = self._lasted.get(kind(run))
        return statistics.median(lasted) if lasted else expected_s


def in_minutes(seconds: float) -> str:
    """Say a time that is only roughly known."""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} seconds"
    return f"about {plural(round(seconds / 60), 'minute')}"


def expected_s(run: Run, planned: Iterable[Run], config: Config, raw: Path) -> float:
    """Say how long a run should take: as long as recorded ones of its kind, or else what its load asks for.

    Parameters
    ----------
    run
        A run that is to be measured.
    planned
        The runs of the campaign; of its kind, the first `RUNS_FOR_PACE` with a record are looked at.
    config, raw
        The campaign, and the folder of its records.
    """
    recorded = (other for other in planned if kind(other) == kind(run) and is_recorded(raw, other))
    times = []
    for other in itertools.islice(recorded, RUNS_FOR_PACE):
        # a damaged record is for those to tell of who need it
        with suppress(StableError):
            timeline = read_run(raw / other.path).timeline
            times.append(timeline.fetched - timeline.started + BETWEEN_S)
    if times:
        return statistics.median(times)
    load = config.load_of(run)
    return load.warmup_s + load.duration_s + OVERHEAD_S
