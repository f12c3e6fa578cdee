"""What was seen when a study's runs were looked at: which groups are to be repeated more often.

One file a look, `results/STUDY/TESTBED/look~N.json`, after N repetitions; made anew from the runs when it is lost.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from sipsched.errors import StableError
from sipsched.files import read_json, whole
from sipsched.plan.config import NO_REPEATS, Config, Crossings, Group, Repeats, Study
from sipsched.records.record import is_recorded

SCHEMA_VERSION = 1
REMEDY = "delete it and run snakemake"


def look_path(results: Path, study: str, testbed: str, repetitions: int) -> Path:
    """Say where the look after so many repetitions is."""
    return results / study / testbed / f"look~{repetitions}.json"


def write_look(path: Path, still_wide: Sequence[Group]) -> None:
    """Write a look.

    Parameters
    ----------
    path
        The file; it appears whole.
    still_wide
        Groups that are to be repeated, the widest first.
    """
    document = {"schema_version": SCHEMA_VERSION, "still_wide": [list(each) for each in still_wide]}
    with whole(path) as partial:
        partial.write_text(json.dumps(document, indent=1) + "\n")


def read_repeats(results: Path, study: Study, testbed: str, until: int | None = None) -> Repeats:
    """Say by the looks that there are how often each group is to be repeated.

    Parameters
    ----------
    results
        Folder of what is computed from records.
    study, testbed
        Whose.
    until
        Only looks before the one after so many repetitions; None: all.

    Returns
    -------
    dict
        Groups that are repeated most often first, of these the widest.

    Raises
    ------
    StableError
        A look is damaged.
    """
    found: dict[Group, int] = {}
    for now, then in study.looks(until):
        path = look_path(results, study.name, testbed, now)
        if not path.is_file():
            break
        # a look is of those that the one before it found wide, and may be older than that
        wide = [each for each in _still_wide(path) if not found or found.get(each) == now]
        if not wide:
            break
        found = dict.fromkeys(wide, then) | {
            group: times for group, times in found.items() if group not in wide
        }
    return found


def _still_wide(path: Path) -> list[Group]:
    document = read_json(path, SCHEMA_VERSION, REMEDY)
    try:
        found = [
            (int(cores), int(threads), int(cps)) for cores, threads, cps in document["still_wide"]
        ]
    except (KeyError, TypeError, ValueError):
        raise StableError(f"{path}: not the look at a study's runs; {REMEDY}") from None
    return found


def all_repeats(results: Path, config: Config) -> dict[tuple[str, str], Repeats]:
    """Read the looks of all studies on all testbeds."""
    return {
        (study.name, testbed): read_repeats(results, study, testbed)
        for study in config.studies.values()
        for testbed in config.testbeds
        if study.precision
    }


def recorded_repeats(raw: Path, study: Study, testbed: str, crossings: Crossings) -> Repeats:
    """Say how often each group was repeated, by the runs that are recorded."""
    if study.precision is None:
        return NO_REPEATS
    groups = {(run.cores, run.threads, run.cps) for run in study.runs(testbed, crossings)}
    every = study.runs(testbed, crossings, dict.fromkeys(groups, study.precision.at_most))
    found: dict[Group, int] = {}
    for run in every:
        if run.rep > study.repetitions and is_recorded(raw, run):
            found[run.cores, run.threads, run.cps] = run.rep
    return found
