"""The progress of a campaign: the number of the current run, and the expected time until the end."""

import statistics
from collections import defaultdict, deque
from collections.abc import Mapping

from sipsched.plan.run import Run
from sipsched.records.forecast import BETWEEN_S, RUNS_FOR_PACE, Lanes, RunKind, kind
from sipsched.scripting import ATTEMPTS
from sipsched.words import plural


class Progress:
    """The progress of a campaign since the start of the workflow, estimated from the durations of measured runs.

    Parameters
    ----------
    lanes
        The rules that determine which testbeds can measure at the same time.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._numbers: dict[Run, int] = {}
        self._known: set[Run] = set()
        self._started: dict[Run, tuple[float, float]] = {}
        self._paces: dict[RunKind, deque[float]] = defaultdict(lambda: deque(maxlen=RUNS_FOR_PACE))

    def start(self, run: Run, attempt: int, left: Mapping[Run, float], now: float) -> str:
        """Store the start time of a run, and return a line of text about the progress for the terminal.

        Parameters
        ----------
        run, attempt
            The run that starts, and the number of its attempt, counted from 1.
        left
            Expected seconds of each run without a measurement, including `run`. The function corrects these seconds by
            the pace of measured runs of the same kind.
        now
            Seconds of a monotonic clock.
        """
        self._known.update(left)
        number = self._numbers.setdefault(run, len(self._numbers) + 1)
        self._started[run] = now, left[run]
        work_s: dict[str, float] = defaultdict(float)
        for other, expected in left.items():
            paces = self._paces.get(kind(other))
            work_s[other.testbed] += expected * (statistics.median(paces) if paces else 1)
        rest_s = max(self._lanes.ends_s(work_s).values())
        which = f"attempt {attempt} of {ATTEMPTS}: " if attempt > 1 else ""
        return (
            f"{which}measuring {run}: run {number} of {len(self._known)}, {in_minutes(rest_s)} left"
        )

    def end(self, run: Run, now: float) -> None:
        """Store the end time of an attempt to measure a run, to estimate the remaining time."""
        started = self._started.pop(run, None)
        if started is not None:
            began, expected_s = started
            # Use at least 1 s, because the expected duration of a short simulated run can be rounded to 0 s.
            self._paces[kind(run)].append((now - began + BETWEEN_S) / max(expected_s, 1.0))


def in_minutes(seconds: float) -> str:
    """Return a duration as approximate text, such as "about 5 minutes"."""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} seconds"
    return f"about {plural(round(seconds / 60), 'minute')}"
