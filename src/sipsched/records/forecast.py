"""The progress of a campaign: recorded runs, remaining runs, and the expected end per testbed."""

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.errors import StableError
from sipsched.plan.config import Config
from sipsched.plan.crossover import is_comparison
from sipsched.plan.loads import Load
from sipsched.plan.run import NO_REPEATS, Crossings, Point, Repeats, Run
from sipsched.records.crossing import read_crossing, read_crossings
from sipsched.records.look import all_repeats
from sipsched.records.record import Attempt, failed_attempts, is_recorded
from sipsched.records.run_document import read_run

OVERHEAD_S = 5.0
"""Assumed seconds of a run besides warm-up and load, until the actual time of a recorded run is known."""
BETWEEN_S = 1.0
"""Seconds between the end of a run and the start of the next run."""
RUNS_FOR_PACE = 10

RunKind = tuple[str, str]
"""Testbed and mode of a run. Runs of one kind are expected to have the same pace (actual / estimated duration)."""


def kind(run: Run) -> RunKind:
    """Return the testbed and the mode of a run."""
    return run.testbed, run.mode


@dataclass(frozen=True)
class Lanes:
    """The rules that determine which testbeds can measure at the same time.

    Attributes
    ----------
    alone
        Testbeds that this machine creates. While such a testbed measures, no other testbed measures.
    at_once
        Number of simultaneous runs per testbed, for testbeds that measure more than one run at a time.
    """

    alone: frozenset[str] = frozenset()
    at_once: Mapping[str, int] | None = None

    def ends_s(self, work_s: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds from now until each testbed has finished all remaining runs.

        Parameters
        ----------
        work_s
            Remaining seconds of measurement per testbed, in the order in which the testbeds begin.

        Returns
        -------
        dict
            Seconds from now, per testbed.
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
    """The progress of a campaign on one testbed: remaining runs and searches, and the expected end.

    Attributes
    ----------
    left
        Remaining runs with known loads, in the order of measuring.
    searches
        Points whose search has to be made before the loads of further runs are known.
    behind_searches
        Approximate number of runs whose loads depend on these searches.
    refused
        Causes of invalid attempts to measure a run, with the number of attempts per cause. The most frequent cause
        comes first.
    work_s
        Remaining seconds of measurement, including the runs whose loads depend on searches.
    done_in_s
        Seconds until the testbed has finished its runs; 0 if no run remains.
    from_runs
        Number of recorded runs from which the duration of a run was estimated. If no run is recorded, the estimate
        comes from the configuration: warm-up, load and `OVERHEAD_S`.
    at_most_more
        Largest number of runs that studies with a requested precision may still add.
    by_search_limit
        Whether the estimate assumes that at least one search takes its whole time limit.
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
        """Return whether no run and no search remains."""
        return not self.left and not self.searches


def recorded_paces(runs: Iterable[Run], raw: Path) -> list[float]:
    """Return the pace of at most `RUNS_FOR_PACE` recorded runs: actual duration divided by estimated duration.

    The actual duration is the time from the start of a run until its files were fetched, plus `BETWEEN_S` until the
    next run. `planned_s` computes the estimated duration.
    """
    paces = []
    recorded = (run for run in runs if is_recorded(raw, run))
    for run in itertools.islice(recorded, RUNS_FOR_PACE):
        # Skip a damaged record without an error, because every function that needs the record's content reports the
        # damage.
        with suppress(StableError):
            document = read_run(raw / run.path)
            took_s = document.timeline.fetched - document.timeline.started + BETWEEN_S
            paces.append(took_s / planned_s(document.load))
    return paces


def planned_s(load: Load) -> float:
    """Estimate the duration of a run in seconds from warm-up, load and `OVERHEAD_S`."""
    return load.warmup_s + load.duration_s + OVERHEAD_S


def pace(run: Run, planned: Iterable[Run], raw: Path) -> float:
    """Return the median pace of recorded runs with the testbed and the mode of `run`. Without such runs, return 1.

    The pace is the actual duration of a run, divided by the estimated duration.

    Parameters
    ----------
    planned
        The runs of the campaign. The first `RUNS_FOR_PACE` recorded runs with the same testbed and mode are used.
    """
    paces = recorded_paces((other for other in planned if kind(other) == kind(run)), raw)
    return statistics.median(paces) if paces else 1.0


def outlooks(config: Config, raw: Path, lanes: Lanes, results: Path | None = None) -> list[Outlook]:
    """Return the progress of a campaign per testbed, in the order of the configuration.

    Parameters
    ----------
    results
        Folder of the decisions about more repetitions. None: no run needs more repetitions.

    Notes
    -----
    The expected duration of a search is its time limit `limit_s`. For a capacity, the expected duration is the median
    of up to ten recorded searches of the testbed. To count the runs whose loads depend on a search, the function
    assumes that the search finds the geometric mean of the searched loads. If the loads are steps, the number of these
    runs is approximate.
    """
    crossings = read_crossings(raw, config.searches())
    supposed = _supposed(config) | crossings
    repeats = all_repeats(results, config) if results else {}
    known, all_runs = set(config.runs(crossings, repeats)), config.runs(supposed, repeats)
    by_kind: dict[RunKind, list[Run]] = defaultdict(list)
    for run in all_runs:
        by_kind[kind(run)].append(run)
    paces = {run_kind: recorded_paces(runs, raw) for run_kind, runs in by_kind.items()}
    pace_of = {
        run_kind: statistics.median(values) if values else 1 for run_kind, values in paces.items()
    }

    def expected(run: Run) -> float:
        return planned_s(config.load_of(run)) * pace_of[kind(run)]

    listed = []
    for name in config.testbeds:
        runs = [run for run in all_runs if run.testbed == name]
        to_come = [run for run in runs if not is_recorded(raw, run)]
        left = tuple(run for run in to_come if run in known)
        points = [point for point in config.searches() if point.testbed == name]
        searches = {
            point: _recorded_search_s(point, crossings, raw)
            for point in points
            if point not in crossings
        }
        searching_s = sum(known_s or config.search.limit_s for known_s in searches.values())
        outlook = Outlook(
            testbed=name,
            measured=len(runs) - len(to_come),
            left=left,
            searches=tuple(searches),
            behind_searches=len(to_come) - len(left),
            refused=_refused(raw, runs),
            work_s=searching_s + sum(map(expected, to_come)),
            done_in_s=0.0,
            from_runs=sum(len(known) for (bed, _), known in paces.items() if bed == name),
            at_most_more=_at_most_more(config, name, supposed, repeats),
            by_search_limit=None in searches.values(),
        )
        listed.append(outlook)
    ends = lanes.ends_s({outlook.testbed: outlook.work_s for outlook in listed})
    return [
        replace(outlook, done_in_s=ends[outlook.testbed] if outlook.work_s else 0.0)
        for outlook in listed
    ]


def _at_most_more(
    config: Config,
    testbed: str,
    crossings: Crossings,
    repeats: Mapping[tuple[str, str], Repeats],
) -> int:
    """Return the largest number of runs that the workflow may still add to narrow confidence intervals."""
    more = 0
    for study in config.studies.values():
        if study.precision is None:
            continue
        repeated = repeats.get((study.name, testbed), NO_REPEATS)
        runs = study.runs(testbed, crossings, repeated)
        often = max([study.repetitions, *repeated.values()])
        last = [run for run in runs if run.rep == often]
        more += len(last) * (study.precision.at_most - often)
    return more


def _supposed(config: Config) -> dict[Point, tuple[int, int]]:
    """Return an assumed result for every planned search, so that the runs at the resulting loads can be counted."""
    middle = round(math.sqrt(config.search.lowest_cps * config.search.highest_cps))
    return {
        point: (middle + 2 * position, middle + 2 * position + 1)
        if point.goal
        else (middle, middle)
        for position, point in enumerate(config.searches())
    }


def _recorded_search_s(point: Point, points: Iterable[Point], raw: Path) -> float | None:
    """Return the median seconds of recorded searches on the same testbed with the same goal as `point`, or None."""
    alike = [
        other
        for other in points
        if point.goal and (other.testbed, other.goal) == (point.testbed, point.goal)
        if is_comparison(other.mode) == is_comparison(point.mode)
    ]
    times = [read_crossing(raw / other.crossing_path).took_s for other in alike[:RUNS_FOR_PACE]]
    known = [time for time in times if time is not None]
    return statistics.median(known) + BETWEEN_S if known else None


def _refused(raw: Path, runs: Sequence[Run]) -> tuple[tuple[str, int], ...]:
    """Return the causes of invalid attempts with the number of attempts, the most frequent cause first."""
    # All repetitions of a point share a folder. To save time, examine only points whose folder has failed attempts.
    places = {run: (raw / run.path).parent for run in runs}
    tried = {path for path in set(places.values()) if any(path.glob("*.failed-*"))}
    attempts: list[Attempt] = failed_attempts(raw, (run for run in runs if places[run] in tried))
    causes = Counter(cause for attempt in attempts for cause in attempt.causes)
    return tuple(causes.most_common())
