"""Looks (interim analyses). A look decides which runs of a study need more repetitions for a precise result.

The file `results/STUDY/TESTBED/look~N.json` contains the decision after N repetitions. If the file is lost, the
workflow makes the decision again from the runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sipsched.errors import MAKE_AGAIN
from sipsched.files import read_json, write_json
from sipsched.plan.config import Config
from sipsched.plan.run import NO_REPEATS, Crossings, Group, Repeats
from sipsched.plan.study import Study
from sipsched.records.conversion import as_part
from sipsched.records.record import is_recorded

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class _Look:
    """The content of the file of a decision."""

    still_wide: tuple[Group, ...]


def look_path(results: Path, study: str, testbed: str, repetitions: int) -> Path:
    """Return the path of the decision after `repetitions` repetitions, which lists the groups that need more."""
    return results / study / testbed / f"look~{repetitions}.json"


def write_look(path: Path, still_wide: Sequence[Group]) -> None:
    """Write a file that states which groups of runs need more repetitions.

    Parameters
    ----------
    still_wide
        Groups that need more repetitions. The group with the widest interval comes first.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "still_wide": [list(group) for group in still_wide],
    }
    write_json(path, document)


def read_repeats(results: Path, study: Study, testbed: str, until: int | None = None) -> Repeats:
    """Return the number of repetitions that each group of runs needs, according to all existing decisions.

    Parameters
    ----------
    results
        Folder of the files that are computed from the records.
    until
        Use only decisions before this number of repetitions. None: all decisions.

    Returns
    -------
    dict
        Groups in descending order of repetitions. Among groups with equal repetitions, the group with the widest
        interval comes first.

    Raises
    ------
    StableError
        The file of a decision is damaged.
    """
    repeats: dict[Group, int] = {}
    for now, then in study.looks(until):
        path = look_path(results, study.name, testbed, now)
        if not path.is_file():
            break
        # At each look, the workflow decides which groups of runs still have too wide an interval. Only groups with a
        # too wide interval at the previous look count. Check the previous look again, because its file may have been
        # replaced.
        look = as_part(_Look, read_json(path, SCHEMA_VERSION, MAKE_AGAIN), str(path), MAKE_AGAIN)
        wide = [group for group in look.still_wide if not repeats or repeats.get(group) == now]
        if not wide:
            break
        repeats = dict.fromkeys(wide, then) | {
            group: times for group, times in repeats.items() if group not in wide
        }
    return repeats


def all_repeats(results: Path, config: Config) -> dict[tuple[str, str], Repeats]:
    """Read the decisions about more repetitions for all studies on all testbeds."""
    return {
        (study.name, testbed): read_repeats(results, study, testbed)
        for study in config.studies.values()
        for testbed in config.testbeds
        if study.precision
    }


def recorded_repeats(raw: Path, study: Study, testbed: str, crossings: Crossings) -> Repeats:
    """Return the number of repetitions of each group of runs that has more repetitions than the study's minimum."""
    if study.precision is None:
        return NO_REPEATS
    groups = {(run.cores, run.threads, run.cps) for run in study.runs(testbed, crossings)}
    every = study.runs(testbed, crossings, dict.fromkeys(groups, study.precision.at_most))
    repeats: dict[Group, int] = {}
    for run in every:
        if run.rep > study.repetitions and is_recorded(raw, run):
            repeats[run.cores, run.threads, run.cps] = run.rep
    return repeats
