"""How far an invocation has come: which run is measured now, and how long the rest of them should take."""

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping

from sipsched.plan.config import Run
from sipsched.records.forecast import BETWEEN_S, RUNS_FOR_PACE, Kind, Lanes, kind
from sipsched.scripting import ATTEMPTS
from sipsched.words import plural


class Progress:
    """The runs of one invocation: counted as they start, and timed.

    Parameters
    ----------
    lanes
        What may be measured at the same time.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
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
        work_s: dict[str, float] = defaultdict(float)
        for other, expected in left.items():
            work_s[other.testbed] += self._pace(other, expected)
        rest_s = max(self._lanes.ends_s(work_s).values())
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
