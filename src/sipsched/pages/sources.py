"""The study summaries and runs from which the figures of a page are computed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from sipsched.analysis.run_table import iterate_runs
from sipsched.pages.parts import Source
from sipsched.paths import project_path
from sipsched.plan.run import Run
from sipsched.records.study_summary import MEASURED
from sipsched.records.summary_files import open_summary

SUMMARY = "summary.nc"


def find_sources(parameters: Mapping[str, Any]) -> tuple[Source, ...]:
    """Return the study summaries among the parameters of a notebook, with their valid runs.

    A page may also read other files, such as the windows of runs that compare modes. These files also belong to runs of
    the listed studies.
    """
    paths = [
        path
        for value in parameters.values()
        for path in (value if isinstance(value, list) else [value])
        if isinstance(path, Path) and path.name == SUMMARY
    ]
    return tuple(_source(path) for path in dict.fromkeys(paths))


def valid_runs(summary: xr.Dataset) -> Iterator[Run]:
    """Yield the valid runs of a study, in the order of the study's summary."""
    for key, status in iterate_runs(summary):
        if status == MEASURED:
            yield Run(summary.attrs["testbed"], **key)


def _source(path: Path) -> Source:
    runs = list(valid_runs(open_summary(path)))
    # Loads with the same repetitions share a line, to keep the list of a campaign with thousands of runs short.
    repetitions: dict[tuple[str, int], list[int]] = {}
    for run in runs:
        folder = run.path.parents[1].as_posix()
        repetitions.setdefault((folder, run.cps), []).append(run.rep)
    loads: dict[tuple[str, str], list[int]] = {}
    for (folder, cps), reps in repetitions.items():
        loads.setdefault((folder, _braces(reps)), []).append(cps)
    lines = tuple(
        f"{folder}/cps~{_braces(cps)}/rep~{reps}" for (folder, reps), cps in loads.items()
    )
    return Source(project_path(path), len(runs), lines)


def _braces(numbers: list[int]) -> str:
    """Return numbers as a shell pattern: `1`, `{1,3}`, or `{1..4}` for consecutive numbers."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return str(first)
    if len(numbers) > 2 and numbers == list(range(first, last + 1)):
        return f"{{{first}..{last}}}"
    return f"{{{','.join(map(str, numbers))}}}"
