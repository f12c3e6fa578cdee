"""Records of searches for the load at which the drop rate exceeds its limit.

A search measures several loads. The search finds a lower load, whose drop rate is within the limit, and an upper load,
whose drop rate is above the limit.

The two loads in `crossing.json` determine the loads of later measurements. `capacity~LIMIT~WIDTH.json` is the record of
a search for a capacity, or of a *paired search* for the ratios of the capacities of compared modes. The trials of a
paired search form rounds with one trial per mode.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Protocol

from msgspec import Meta

from sipsched.errors import StableError
from sipsched.files import read_sealed
from sipsched.plan.crossover import compared, is_comparison
from sipsched.plan.loads import Capacity
from sipsched.plan.run import Point, TestbedLabels
from sipsched.records.conversion import as_part
from sipsched.words import grouped, plural

SCHEMA_VERSION = 2
REMEDY = "move the file away and run snakemake"
OVERLOADED_MOST = 0.5
"""Drop rate above which a trial of a paired search is not used, because the proxy was overloaded too much."""


_Count = Annotated[int, Meta(ge=0)]
_Cps = Annotated[int, Meta(ge=1)]
_Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a search: a short measurement at one load, with the measured drop rate.

    Attributes
    ----------
    pdr
        Packet drop rate. Over TCP, this rate equals `call_loss`.
    calls, calls_lost
        Number of calls, and number of calls that failed or were set up late; None if the generator did not report these
        numbers.
    started_at
        Start in UTC, ISO 8601; None if not recorded, as for simulated trials.
    cpu_us
        CPU time of the proxy per received message, in µs; None if not recorded.
    steal_share
        Share of the SPS's CPU time that the hypervisor took; None if not recorded.
    probe_mode
        Mode of the probe that ran during the trial; None if not recorded.
    mode, round, carried_cps
        For a trial of a paired search: the compared mode, the number of the round from 1, and the load in calls per
        second that the proxy handled. Otherwise None.
    """

    cps: _Cps
    duration_s: Annotated[float, Meta(gt=0)]
    pdr: _Share
    calls: _Count | None = None
    calls_lost: _Count | None = None
    started_at: str | None = None
    cpu_us: Annotated[float, Meta(ge=0)] | None = None
    steal_share: _Share | None = None
    probe_mode: str | None = None
    mode: str | None = None
    round: _Count | None = None
    carried_cps: Annotated[float, Meta(ge=0)] | None = None

    @property
    def call_loss(self) -> float | None:
        """Return the share of calls that failed or were set up late, or None if the numbers are not recorded."""
        return self.calls_lost / self.calls if self.calls and self.calls_lost is not None else None


@dataclass(frozen=True)
class SearchRecord:
    """The result of a search for the load at which the packet drop rate passes the drop limit.

    Attributes
    ----------
    label
        Label of the mode on the kernel of the search.
    lower_cps, upper_cps
        The highest load at or below the limit, and the lowest load above the limit. For a capacity, `lower_cps` is None
        if even the lowest load exceeded the limit. `upper_cps` is None if no load exceeded the limit. For a paired
        search, the lowest and the highest offered load.
    goal
        Accuracy of the search, for a capacity.
    ended_by
        For a capacity, the reason why the search ended: `width`, `time` or `range`. None for `crossing.json`.
    started_at, finished_at
        Start and end in UTC, ISO 8601; None if not recorded.
    testbed
        Description of the testbed at the time of the search; None if not recorded.
    """

    point: Point
    label: str
    lower_cps: _Cps | None
    upper_cps: _Cps | None
    trials: tuple[TrialRecord, ...]
    goal: Capacity | None = None
    ended_by: Literal["width", "time", "range"] | None = None
    started_at: str | None = None
    finished_at: str | None = None
    testbed: TestbedLabels | None = None

    @property
    def is_paired(self) -> bool:
        """Return True for a paired search, which measures the ratios of the capacities of several modes."""
        return is_comparison(self.point.mode)

    @property
    def rounds(self) -> list[list[TrialRecord]]:
        """Return the rounds of a paired search. Each round has one trial per compared mode, in the modes' order.

        Raises
        ------
        StableError
            There is no round, or a round lacks the trial of a mode, or a trial lacks the load that the proxy handled.
        """
        names = compared(self.point.mode)
        by_round: dict[int | None, dict[str | None, TrialRecord]] = {}
        for trial in self.trials:
            by_round.setdefault(trial.round, {})[trial.mode] = trial
        if not by_round:
            raise StableError(f"{self.point.crossing_path}: the record has no trial; {REMEDY}")
        for number, trials in by_round.items():
            if set(trials) != set(names) or any(t.carried_cps is None for t in trials.values()):
                raise StableError(
                    f"{self.point.crossing_path}: round {number} lacks the trial of a mode, or the load that a trial "
                    f"handled; {REMEDY}"
                )
        return [[trials[name] for name in names] for trials in by_round.values()]

    @property
    def begun_rounds(self) -> int:
        """Return the number of rounds of a paired search, with the rounds that lack a trial and are not recorded."""
        return max((trial.round or 0 for trial in self.trials), default=0)

    @property
    def probe_modes(self) -> tuple[str, ...]:
        """Return the probe's modes in the trials, such as `exact` or `off`, each mode once; empty if not recorded."""
        return tuple(dict.fromkeys(trial.probe_mode for trial in self.trials if trial.probe_mode))

    @property
    def took_s(self) -> float | None:
        """Return the duration of the search in seconds, or None if the record lacks a start or end time."""
        if self.started_at is None or self.finished_at is None:
            return None
        started, finished = map(datetime.fromisoformat, (self.started_at, self.finished_at))
        return (finished - started).total_seconds()

    @property
    def loads(self) -> tuple[int, int]:
        """Return the lower and upper load of the search in cps. If one load is None, return the other load twice."""
        ends = [cps for cps in (self.lower_cps, self.upper_cps) if cps is not None]
        return ends[0], ends[-1]

    @property
    def found(self) -> str:
        """Return as text at which load the drop rate exceeds its limit, such as "between 900 and 950 cps".

        For a paired search, return the number of rounds.
        """
        if self.is_paired:
            limit = self.goal.limit if self.goal else 0.0
            counting = sum(overloads_all(trials, limit) for trials in self.rounds)
            return f"{counting} of {plural(self.begun_rounds, 'round')} overloaded all systems"
        lower, upper = map(grouped, self.loads)
        if self.lower_cps is None:
            return f"below {upper} cps, as even the lowest load of the search exceeded the limit"
        if self.upper_cps is None:
            return f"above {lower} cps, as even the highest load of the search did not exceed the limit"
        late = ", when the time limit of the search ended" if self.ended_by == "time" else ""
        return f"between {lower} and {upper} cps{late}"


def read_crossing(path: Path) -> SearchRecord:
    """Read the record of a search for the load at the drop limit.

    Raises
    ------
    StableError
        The file is missing, is not JSON, has another version, was changed after it was written, lacks a key, or has a
        value of another type. Or the trials of a paired search form no rounds.
    """
    sealed = read_sealed(path, SCHEMA_VERSION, REMEDY)
    search = as_part(SearchRecord, sealed, str(path), REMEDY)
    lower, upper = search.lower_cps, search.upper_cps
    if search.is_paired:
        search.rounds  # noqa: B018 - raises an error for damaged rounds
    if lower is None or upper is None:
        if search.goal is None or lower == upper:
            raise StableError(
                f"{path}: lower_cps ({lower}) and upper_cps ({upper}) must be loads; {REMEDY}"
            )
    elif lower >= upper and not search.is_paired:
        raise StableError(f"{path}: lower_cps ({lower}) must be less than upper_cps ({upper})")
    return replace(
        search,
        point=replace(search.point, goal=search.goal),
        started_at=_instant(search.started_at),
        finished_at=_instant(search.finished_at),
    )


class RoundTrial(Protocol):
    """A trial of a paired search, during the search or in a record."""

    @property
    def pdr(self) -> float:
        """Packet drop rate from 0 to 1."""

    @property
    def carried_cps(self) -> float | None:
        """Load in calls per second that the proxy handled."""


def overloads_all(trials: Sequence[RoundTrial], limit: float) -> bool:
    """Return True if every trial of a round overloaded its system slightly, so that it shows the system's capacity."""
    return all(limit < trial.pdr < OVERLOADED_MOST for trial in trials)


def read_searches(paths: Iterable[Path]) -> list[SearchRecord]:
    """Read the records of searches. The result excludes paired searches, which search no loads."""
    return [search for search in map(read_crossing, paths) if not search.is_paired]


def _instant(text: str | None) -> str | None:
    """Return the text unchanged if the text is a time in ISO 8601; otherwise return None."""
    try:
        return text if text and datetime.fromisoformat(text) else None
    except ValueError:
        return None


def read_crossings(raw: Path, points: Iterable[Point]) -> dict[Point, tuple[int, int]]:
    """Return the lower and the upper load of each recorded search, by the point (proxy settings) of the search.

    Raises
    ------
    StableError
        A file is not the record of a search, or is the record of another point.
    """
    crossings = {}
    for point in points:
        path = raw / point.crossing_path
        if not path.is_file():
            continue
        crossing = read_crossing(path)
        if crossing.point != point:
            raise StableError(f"{path}: this record belongs to {crossing.point}; {REMEDY}")
        crossings[point] = crossing.loads
    return crossings
