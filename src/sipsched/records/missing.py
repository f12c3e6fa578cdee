"""What a campaign asks for and has no record of, and which of its studies have an answer without it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.plan.config import Config, Point, Run
from sipsched.records.crossing import read_crossings
from sipsched.records.record import is_recorded
from sipsched.words import plural


@dataclass(frozen=True)
class Unanswered:
    """A study that has no answer on a testbed.

    Attributes
    ----------
    lacks
        The first of what it compares and has not a single run of: a run of it, or a point whose crossing
        was not found.
    """

    study: str
    testbed: str
    lacks: Run | Point

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.study} on {self.testbed} has no answer: nothing is recorded of {self.named}"

    @property
    def named(self) -> str:
        """Name what it lacks; any repetition would do."""
        if isinstance(self.lacks, Point):
            return f"the crossing of {self.lacks}"
        run = self.lacks
        return f"{run.sut} {run.mode} cores={run.cores} threads={run.threads} cps={run.cps}"


@dataclass(frozen=True)
class Missing:
    """What was asked for and has no record.

    Attributes
    ----------
    planned
        How many runs were asked for, of those whose load is known.
    runs
        Those without a record.
    searches
        Points whose crossing was not found: the runs around it are not among the planned.
    unanswered
        Studies that have no answer yet. A study has one on a testbed if each crossing that it asks for was found,
        and each combination of SUT, mode, cores, threads and load has at least one run that counts: what
        then lacks are repetitions, which widen its intervals.
    """

    planned: int
    runs: tuple[Run, ...]
    searches: tuple[Point, ...]
    unanswered: tuple[Unanswered, ...] = ()

    def line(self, broken: int) -> str:
        """Say it in a line, with how to get it; nothing if nothing is missing.

        Parameters
        ----------
        broken
            How many of the measurements failed of something that does not pass by itself.
        """
        parts = []
        if self.runs:
            verb = "is" if len(self.runs) == 1 else "are"
            parts.append(f"{len(self.runs)} of {plural(self.planned, 'run')} {verb} missing")
        if self.searches:
            verb = "was" if len(self.searches) == 1 else "were"
            crossings = plural(len(self.searches), "crossing")
            parts.append(f"{crossings} {verb} not found, and the loads around it not measured")
        if not parts:
            return ""
        what = " and ".join(parts)
        it = "it" if len(self.runs) + len(self.searches) == 1 else "them"
        if broken:
            return f"{what}: snakemake measures {it} once the errors above are put right"
        return f"{what}: snakemake measures {it}"


def find_missing(config: Config, raw: Path) -> Missing:
    """Compare what a campaign asks for with what is recorded.

    Parameters
    ----------
    config, raw
        The campaign, and the folder of its records.
    """
    crossings = read_crossings(raw, config.searches())
    planned = config.runs(crossings)
    recorded = {run for run in planned if is_recorded(raw, run)}
    unanswered = []
    for study in config.studies.values():
        for testbed in config.testbeds:
            lost = [point for point in study.searches(testbed) if point not in crossings]
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
    """Give the runs of which no repetition is recorded, once each."""
    runs = list(runs)
    there = {replace(run, rep=1) for run in runs if run in recorded}
    return [run for run in dict.fromkeys(replace(run, rep=1) for run in runs) if run not in there]
