"""What of a campaign is recorded, what is to come, and when each testbed would be done with it."""

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sipsched.errors import StableError
from sipsched.plan.config import NO_REPEATS, Config, Crossings, Point, Repeats, Run
from sipsched.records.crossing import read_crossing, read_crossings
from sipsched.records.look import all_repeats
from sipsched.records.record import Attempt, failed_attempts, is_recorded
from sipsched.records.run_document import read_run

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


@dataclass(frozen=True)
class Lanes:
    """What may be measured at the same time.

    Attributes
    ----------
    alone
        Testbeds that this machine makes itself: beside a run of one of them nothing else is measured.
    at_once
        How many runs a testbed measures at a time, where that is more than one.
    """

    alone: frozenset[str] = frozenset()
    at_once: Mapping[str, int] | None = None

    def ends_s(self, work_s: Mapping[str, float]) -> dict[str, float]:
        """Say when each testbed is done.

        Parameters
        ----------
        work_s
            Testbed to seconds of measuring that it has left, in the order in which they begin.

        Returns
        -------
        dict
            Testbed to seconds from now.
        """
        ends: dict[str, float] = {}
        free = 0.0
        for name, seconds in work_s.items():
            begins = max(ends.values(), default=0.0) if name in self.alone else free
            ends[name] = begins + seconds / (self.at_once or {}).get(name, 1)
            if name in self.alone:
                free = ends[name]
        return ends


@dataclass(frozen=True)
class Outlook:
    """What a testbed has done of a campaign, and what it has left.

    Attributes
    ----------
    testbed
        Its name.
    measured
        How many runs are recorded.
    left
        Runs whose load is known, in their order.
    searches
        Points whose crossing is to be found first.
    behind_searches
        About how many runs at the loads around those crossings.
    refused
        What became of attempts that do not count, how often, most frequent first.
    work_s
        Seconds of measuring left, the runs behind searches included.
    done_in_s
        Seconds until the testbed has measured all of it; 0 if nothing is left.
    from_runs
        How many recorded runs tell how long one takes. 0: nothing of this testbed is recorded, and the configuration
        tells it: warm-up, load and some seconds around them.
    at_most_more
        How many runs may be added where a study asks for a precision, beside those left.
    by_search_limit
        Whether a search that is left counts as the most it may take.
    """

    testbed: str
    measured: int
    left: tuple[Run, ...]
    searches: tuple[Point, ...]
    behind_searches: int
    refused: tuple[tuple[str, int], ...]
    work_s: float
    done_in_s: float
    from_runs: int
    by_search_limit: bool = True
    at_most_more: int = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return not self.left and not self.searches


def recorded_s(runs: Iterable[Run], raw: Path) -> list[float]:
    """Look how long recorded runs took, up to `RUNS_FOR_PACE` of those given.

    Returns
    -------
    list
        Seconds from the start of one to the start of the next.
    """
    times = []
    recorded = (run for run in runs if is_recorded(raw, run))
    for run in itertools.islice(recorded, RUNS_FOR_PACE):
        # a damaged record is for those to tell of who need it
        with suppress(StableError):
            timeline = read_run(raw / run.path).timeline
            times.append(timeline.fetched - timeline.started + BETWEEN_S)
    return times


def planned_s(run: Run, config: Config) -> float:
    """Say how long a run should take by its load alone."""
    load = config.load_of(run)
    return load.warmup_s + load.duration_s + OVERHEAD_S


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
    times = recorded_s((other for other in planned if kind(other) == kind(run)), raw)
    return statistics.median(times) if times else planned_s(run, config)


def outlooks(config: Config, raw: Path, lanes: Lanes, results: Path | None = None) -> list[Outlook]:
    """Compare what a campaign asks for with what is recorded, testbed by testbed in the order of its configuration.

    Parameters
    ----------
    config, raw
        The campaign, and the folder of its records.
    lanes
        What may be measured at the same time.
    results
        Where looks at runs are, which say what is repeated more often; None: nothing is.

    Notes
    -----
    A search for a crossing counts as its `limit_s`, the most that it may take; one for a capacity as what those
    recorded of the testbed took (the median of up to ten). The runs behind a search are counted as if the crossing
    were at the geometric middle of the loads to be searched: their number hangs on it where loads are steps.
    """
    crossings = read_crossings(raw, config.searches())
    supposed = _supposed(config) | crossings
    repeats = all_repeats(results, config) if results else {}
    known, all_runs = set(config.runs(crossings, repeats)), config.runs(supposed, repeats)
    by_kind: dict[Kind, list[Run]] = defaultdict(list)
    for run in all_runs:
        by_kind[kind(run)].append(run)
    paces = {each: recorded_s(runs, raw) for each, runs in by_kind.items()}
    parts = {}
    for name in config.testbeds:
        runs = [run for run in all_runs if run.testbed == name]
        recorded = {run for run in runs if is_recorded(raw, run)}
        to_come = [run for run in runs if run not in recorded]
        searches = [
            point for point in config.searches() if point.testbed == name and point not in crossings
        ]
        seconds = sum(
            _recorded_search_s(point, crossings, raw) or config.search.limit_s for point in searches
        ) + sum(
            statistics.median(times) if (times := paces[kind(run)]) else planned_s(run, config)
            for run in to_come
        )
        parts[name] = (len(recorded), to_come, searches, seconds)
    ends = lanes.ends_s({name: seconds for name, (_, _, _, seconds) in parts.items()})
    found = []
    for name, (measured, to_come, searches, seconds) in parts.items():
        left = tuple(run for run in to_come if run in known)
        found.append(
            Outlook(
                testbed=name,
                measured=measured,
                left=left,
                searches=tuple(searches),
                behind_searches=len(to_come) - len(left),
                refused=_refused(raw, [run for run in all_runs if run.testbed == name]),
                work_s=seconds,
                done_in_s=ends[name] if seconds else 0.0,
                from_runs=sum(len(times) for (bed, _), times in paces.items() if bed == name),
                at_most_more=_at_most_more(config, name, supposed, repeats),
                by_search_limit=any(
                    _recorded_search_s(point, crossings, raw) is None for point in searches
                ),
            )
        )
    return found


def _at_most_more(
    config: Config,
    testbed: str,
    crossings: Crossings,
    repeats: Mapping[tuple[str, str], Repeats],
) -> int:
    """Count the runs that looks may still ask for: before the first of all groups, then of those that were wide."""
    more = 0
    for study in config.studies.values():
        if study.precision is None:
            continue
        found = repeats.get((study.name, testbed), NO_REPEATS)
        runs = study.runs(testbed, crossings, found)
        often = max([study.repetitions, *found.values()])
        last = [run for run in runs if run.rep == often]
        more += len(last) * (study.precision.at_most - often)
    return more


def _supposed(config: Config) -> dict[Point, tuple[int, int]]:
    """Suppose crossings at the middle of what is searched; of capacities each at loads of its own."""
    middle = round(math.sqrt(config.search.lowest_cps * config.search.highest_cps))
    return {
        point: (middle + 2 * place, middle + 2 * place + 1) if point.goal else (middle, middle)
        for place, point in enumerate(config.searches())
    }


def _recorded_search_s(point: Point, found: Iterable[Point], raw: Path) -> float | None:
    """Say how long recorded searches for a capacity took; None where there is none, or a crossing is searched."""
    alike = [
        other
        for other in found
        if point.goal and (other.testbed, other.goal) == (point.testbed, point.goal)
    ]
    times = [read_crossing(raw / other.crossing_path).took_s for other in alike[:RUNS_FOR_PACE]]
    known = [each for each in times if each is not None]
    return statistics.median(known) + BETWEEN_S if known else None


def _refused(raw: Path, runs: Sequence[Run]) -> tuple[tuple[str, int], ...]:
    """Count what became of attempts that do not count, by its cause."""
    # all repetitions of a point have one folder: most have no attempt that failed
    places = {run: (raw / run.path).parent for run in runs}
    tried = {place for place in set(places.values()) if any(place.glob("*.failed-*"))}
    attempts: list[Attempt] = failed_attempts(raw, (run for run in runs if places[run] in tried))
    causes = Counter(cause for attempt in attempts for cause in attempt.causes)
    return tuple(causes.most_common())
