"""Missing records of a campaign, and the studies that cannot be evaluated without them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sipsched.plan.config import Config
from sipsched.plan.run import Point, Run
from sipsched.records.crossing import read_crossings
from sipsched.records.record import is_recorded
from sipsched.words import plural


@dataclass(frozen=True)
class Unanswered:
    """A study that cannot be evaluated on a testbed.

    Attributes
    ----------
    lacks
        The first missing part of the comparison: a run of a setting that has no valid run, or a point whose crossing is
        unknown.
    """

    study: str
    testbed: str
    lacks: Run | Point

    def __str__(self) -> str:
        """Describe the study and the missing part in a line."""
        return f"{self.study} on {self.testbed} has no answer: nothing is recorded of {self.named}"

    @property
    def named(self) -> str:
        """Return the name of the missing part, for which any repetition suffices."""
        if isinstance(self.lacks, Point):
            return f"the crossing of {self.lacks}"
        run = self.lacks
        return f"{run.sut} {run.mode} cores={run.cores} threads={run.threads} cps={run.cps}"


@dataclass(frozen=True)
class Missing:
    """The planned measurements that have no record.

    Attributes
    ----------
    planned
        Number of planned runs whose load is known.
    runs
        Runs without a record.
    searches
        Points whose crossing is unknown. `planned` excludes the runs around such a crossing.
    unanswered
        Studies that cannot be evaluated yet. For an evaluation on a testbed, each crossing of the study must be known.
        Each combination of SUT, mode, cores, threads and load must have at least one valid run. If some repetitions are
        missing, the intervals are wider.
    """

    planned: int
    runs: tuple[Run, ...]
    searches: tuple[Point, ...]
    unanswered: tuple[Unanswered, ...] = ()

    def line(self, broken: int) -> str:
        """Describe the missing measurements and the way to make them, in a line; empty if nothing is missing.

        Parameters
        ----------
        broken
            Number of measurements that failed for a permanent reason, so that a repetition is useless.
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
    """Compare the plan of a campaign with its records."""
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
    """Return one run per setting without any recorded repetition."""
    runs = list(runs)
    there = {replace(run, rep=1) for run in runs if run in recorded}
    return [run for run in dict.fromkeys(replace(run, rep=1) for run in runs) if run not in there]
