"""The missing measurements of a campaign, and the studies that cannot be evaluated without these measurements."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.plan.config import Config
from sipsched.plan.run import Point, Run
from sipsched.records.crossing import read_crossings
from sipsched.records.look import all_repeats
from sipsched.records.record import is_recorded


@dataclass(frozen=True)
class Unanswered:
    """A study that cannot be evaluated on a testbed, because measurements are missing.

    Attributes
    ----------
    lacks
        The first missing measurement: a run of a setting without any valid run, or a search of a point.
    """

    study: str
    testbed: str
    lacks: Run | Point


@dataclass(frozen=True)
class Missing:
    """The planned runs and searches of a campaign that have no record, and the studies that cannot be evaluated yet.

    Attributes
    ----------
    planned
        Number of planned runs with known loads.
    runs
        Planned runs without a record.
    searches
        Points without a recorded search. `planned` excludes the runs whose loads depend on such a search.
    unanswered
        Studies that cannot be evaluated yet. To evaluate a study on a testbed, all searches of the study must be
        recorded. Each combination of SUT, mode, cores, threads and load needs at least one valid run. If some
        repetitions are missing, the confidence intervals are only wider.
    """

    planned: int
    runs: tuple[Run, ...]
    searches: tuple[Point, ...]
    unanswered: tuple[Unanswered, ...] = ()


def find_missing(config: Config, raw: Path, results: Path) -> Missing:
    """Return the planned runs and searches of a campaign that have no record.

    Parameters
    ----------
    results
        Folder of the decisions about more repetitions (`look`).
    """
    crossings = read_crossings(raw, config.searches())
    planned = config.runs(crossings, all_repeats(results, config))
    recorded = {run for run in planned if is_recorded(raw, run)}
    unanswered = []
    for study in config.studies.values():
        for testbed in config.testbeds:
            lost = [point for point in study.searches(testbed) if point not in crossings]
            # Ignore repetitions that a study adds for narrower intervals, because no evaluation depends on them.
            lacks = _without(study.runs(testbed, crossings), recorded)
            if lost or lacks:
                unanswered.append(Unanswered(study.name, testbed, lost[0] if lost else lacks[0]))
    return Missing(
        planned=len(planned),
        runs=tuple(run for run in planned if run not in recorded),
        searches=tuple(point for point in config.searches() if point not in crossings),
        unanswered=tuple(unanswered),
    )


def _without(runs: Iterable[Run], recorded: set[Run]) -> list[Run]:
    """Return the first repetition of each setting without any recorded repetition."""
    runs = list(runs)
    there = {replace(run, rep=1) for run in runs if run in recorded}
    return [run for run in dict.fromkeys(replace(run, rep=1) for run in runs) if run not in there]
