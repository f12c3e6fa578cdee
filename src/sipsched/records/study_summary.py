"""The summary of a study: the combined summaries of all runs of the study."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.plan.run import Run
from sipsched.records import histogram
from sipsched.records.computed import check_record
from sipsched.records.settled import Settled, marks, read_settled, settled_file, write_settled
from sipsched.records.summary_files import open_summary, read_run_summary, write
from sipsched.records.summary_variables import (
    COUNTED,
    HISTOGRAM,
    RUN_DIMS,
    RUN_LEVEL,
    STATISTICS,
    SUMMARY_TIMES,
    TYPES,
    describe,
)
from sipsched.versions import SUMMARY_VERSION

ABOUT = (
    *("kind", "fidelity", "kernel", "testbed_description", "probe_mode_reason"),
    *("hosts", "settings", "load", "columns_missing"),
)
"""Attributes of a run's summary that the study summary also has."""
OUTCOMES = (
    *("call_loss", "pdr", "drops", "k_sockq_alone", "k_sockq_alone_n"),
    *("busy_periods", "busy_periods_effective", "busy_longest_s", "busy_longest_share"),
    *(f"{name}_{stat}" for name in SUMMARY_TIMES for stat in STATISTICS),
)
"""Variables that are NaN for an invalid run, so that no average includes the run."""
MEASURED, MISSING, INVALID, NOT_PLANNED = "measured", "missing", "invalid", "not planned"
HISTOGRAM_RUNS = "histogram_runs"


@dataclass(frozen=True)
class Joined:
    """A study summary of some runs, with the attributes of each run's own summary.

    Attributes
    ----------
    summary
        The dataset that `combine` returns.
    attrs
        The attributes in `ABOUT` of each run's summary.
    """

    summary: xr.Dataset
    attrs: Mapping[Run, Mapping[str, str]]


def combine(paths: Sequence[Path], planned: Sequence[Run]) -> xr.Dataset:
    """Combine the summaries of a study's runs into one dataset.

    Parameters
    ----------
    paths, planned
        See `join`.

    Returns
    -------
    Dataset
        Dimensions (sut, mode, cores, threads, cps, rep), for some variables also message_type. The variables are the
        variables of `summarise_run`. `histogram` lacks the dimension rep, because it is the sum over the measured runs;
        `histogram_runs` counts these runs. `status` (str) is "measured"; "invalid" (pdr and all statistics are NaN, so
        that no average includes the run; diagnostics remain); "missing" (planned, but without a summary: NaN and empty
        text); or "not planned". The attributes contain testbed, kind, fidelity, kernels, the hosts of the first run,
        and per missing column the reason and the number of runs.

    Raises
    ------
    StableError
        See `join`.
    """
    return join(paths, planned).summary


def join(
    paths: Sequence[Path],
    planned: Sequence[Run],
    earlier: Joined | None = None,
    raw: Path | None = None,
) -> Joined:
    """Combine the summaries of runs into a study summary, and add the values of an earlier study summary.

    Parameters
    ----------
    paths
        Files `summary.nc.zst` of the runs to combine.
    planned
        The runs of the study, all on one testbed.
    earlier
        The combined summaries of other planned runs.
    raw
        Folder of the records from which the summaries must have been made. None: the records are not checked.

    Raises
    ------
    StableError
        No run is planned, or the runs have several testbeds. Or a summary is damaged, has another version, belongs to
        another testbed or record, is not planned, or occurs twice.
    """
    testbeds = sorted({run.testbed for run in planned})
    if not testbeds:
        raise StableError("combine: no run of the study is recorded; measure a run of it first")
    if len(testbeds) > 1:
        raise StableError(
            f"combine: expected runs on one testbed, found {testbeds}; combine each testbed separately"
        )
    cells = _Cells.of(planned)
    about: dict[Run, Mapping[str, str]] = {}
    if earlier is not None:
        about |= earlier.attrs
        cells.copy(earlier.summary)
    for path in paths:
        values, attrs = read_run_summary(path)
        if attrs["testbed"] != testbeds[0]:
            raise StableError(
                f"{path}: testbed: expected {testbeds[0]}, found {attrs['testbed']}; "
                "combine each testbed separately"
            )
        run = Run(testbeds[0], **{dim: values[dim] for dim in RUN_DIMS})
        cells.add(run, values, path)
        if raw is not None:
            check_record(values["record"], path, raw / run.path)
        about[run] = {name: str(attrs[name]) for name in ABOUT}
    attrs = _combined_attrs(testbeds[0], [about[run] for run in planned if run in about])
    return Joined(cells.dataset(attrs), about)


@dataclass(frozen=True)
class _Cells:
    """The arrays of a study summary over all settings, to which the summaries of runs are added one by one."""

    axes: Mapping[str, list[Any]]
    values: Mapping[str, npt.NDArray[Any]]
    pooled: Mapping[str, npt.NDArray[np.int64]]
    status: npt.NDArray[Any]

    @classmethod
    def of(cls, planned: Sequence[Run]) -> "_Cells":
        """Return empty arrays with room for the planned runs."""
        axes: dict[str, list[Any]] = {}
        for dim in RUN_DIMS:
            names = dict.fromkeys(getattr(run, dim) for run in planned)
            # Keep the order of SUTs and modes in the configuration, which has the reference first.
            axes[dim] = list(names) if dim in ("sut", "mode") else sorted(names)
        shape = tuple(map(len, axes.values()))
        statistics = [f"{name}_{stat}" for name in SUMMARY_TIMES for stat in STATISTICS]
        values: dict[str, npt.NDArray[Any]] = {
            name: np.full((*shape, len(TYPES)), np.nan) for name in ("count", "drops", *statistics)
        }
        for name, (units, _) in RUN_LEVEL.items():
            values[name] = np.full(shape, np.nan) if units else np.full(shape, "", object)
        pooled = {
            HISTOGRAM: np.zeros((*shape[:-1], len(COUNTED), histogram.BINS), np.int64),
            HISTOGRAM_RUNS: np.zeros(shape[:-1], np.int64),
        }
        cells = cls(axes, values, pooled, np.full(shape, NOT_PLANNED, object))
        for run in planned:
            cells.status[cells.position(run)] = MISSING
        return cells

    def position(self, run: Run) -> tuple[int, ...] | None:
        """Return a run's index in each dimension of the arrays, or None if the arrays lack a setting of the run."""
        try:
            return tuple(self.axes[dim].index(getattr(run, dim)) for dim in RUN_DIMS)
        except ValueError:
            return None

    def copy(self, earlier: xr.Dataset) -> None:
        """Copy the values of the runs in an earlier study summary into the arrays."""
        indices = [
            [self.axes[dim].index(value) for value in earlier[dim].values.tolist()]
            for dim in RUN_DIMS
        ]
        for name, array in self.values.items():
            array[np.ix_(*indices)] = earlier[name].values
        for name, array in self.pooled.items():
            array[np.ix_(*indices[:-1])] = earlier[name].values
        into, status = np.ix_(*indices), earlier["status"].values
        joined = np.isin(status, (MEASURED, INVALID))
        self.status[into] = np.where(joined, status, self.status[into])

    def add(self, run: Run, values: Mapping[str, Any], path: Path) -> None:
        """Add the summary of a run to the arrays.

        Raises
        ------
        StableError
            The run is not planned, or was added before.
        """
        position = self.position(run)
        status = NOT_PLANNED if position is None else self.status[position]
        if position is None or status != MISSING:
            problem = "not planned" if status == NOT_PLANNED else "twice"
            raise StableError(f"{path}: expected each planned run once, found {run}, {problem}")
        valid = values["valid"] == 1
        self.status[position] = MEASURED if valid else INVALID
        for name, array in self.values.items():
            if valid or name not in OUTCOMES:
                array[position] = values[name]
        if valid and values[HISTOGRAM].any():
            self.pooled[HISTOGRAM][position[:-1]] += values[HISTOGRAM]
            self.pooled[HISTOGRAM_RUNS][position[:-1]] += 1

    def dataset(self, attrs: Mapping[str, Any]) -> xr.Dataset:
        """Return the arrays as a dataset, with the units and definitions of the variables."""
        dims = tuple(RUN_DIMS)
        variables: dict[str, Any] = {
            name: ((*dims, "message_type") if array.ndim > len(dims) else dims, array)
            for name, array in self.values.items()
        }
        variables["status"] = (
            dims,
            self.status,
            {
                "long_name": "status of the run",
                "definition": f"{MEASURED}, {INVALID}, {MISSING} or {NOT_PLANNED}",
            },
        )
        variables[HISTOGRAM] = ((*dims[:-1], "quantity", "bin"), self.pooled[HISTOGRAM])
        variables[HISTOGRAM_RUNS] = (
            dims[:-1],
            self.pooled[HISTOGRAM_RUNS],
            {
                "long_name": "runs in the histogram",
                "units": "1",
                "definition": "measured, with messages, and with a histogram in its summary",
            },
        )
        coords = {**self.axes, "message_type": list(TYPES), "quantity": list(COUNTED)}
        return describe(xr.Dataset(variables, coords, dict(attrs)))


def join_again(
    path: Path, paths: Sequence[Path], planned: Sequence[Run], raw: Path, results: Path
) -> tuple[xr.Dataset, Settled]:
    """Make a study summary from the summaries of runs. Read only the runs that the existing study summary lacks.

    Parameters
    ----------
    path
        The study summary, `STUDY/TESTBED/summary.nc`. The file need not exist.
    paths, planned
        See `join`.
    raw, results
        Folders of the records, and of the files that are computed from the records.

    Returns
    -------
    summary, settled
        The dataset that `combine` returns, and the runs that it contains.

    Raises
    ------
    StableError
        See `join`.
    """
    runs = {str(run.path): run for run in planned}
    files = {str(file.parent.relative_to(results / "runs")): file for file in paths}
    now = {run: marks(raw, results, run) for run in files}
    before, earlier = read_settled(path), None
    if before.marks and before.marks.keys() <= runs.keys() & files.keys() & before.unchanged(
        raw, results
    ):
        attrs = {runs[run]: about for run, about in before.attrs.items()}
        earlier = Joined(open_summary(path), attrs)
    added = [file for run, file in files.items() if earlier is None or run not in before.marks]
    joined = join(added, planned, earlier, raw)
    return joined.summary, Settled(now, {str(run.path): joined.attrs[run] for run in joined.attrs})


def write_again(ds: xr.Dataset, settled: Settled, path: Path) -> None:
    """Write a study summary and its list of runs. Delete the old list first, so that a crash leaves no wrong list."""
    settled_file(path).unlink(missing_ok=True)
    write(ds, path)
    write_settled(path, settled)


def _combined_attrs(testbed: str, of_runs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    def distinct(key: str) -> list[str]:
        return list(dict.fromkeys(attrs[key] for attrs in of_runs))

    first: Mapping[str, str] = of_runs[0] if of_runs else {}
    return {
        "title": "summaries of the runs of one study on one testbed",
        "format": "sipsched summary",
        "format_version": SUMMARY_VERSION,
        "testbed": testbed,
        "kind": "; ".join(distinct("kind")) or "unknown",
        "fidelity": "; ".join(distinct("fidelity")) or "unknown: no run was measured",
        "kernels": ", ".join(distinct("kernel")) or "unknown",
        "testbed_description": "; ".join(distinct("testbed_description")),
        "probe_mode_reasons": json.dumps([text for text in distinct("probe_mode_reason") if text]),
        "hosts": first.get("hosts", "{}"),
        "settings": first.get("settings", "{}"),
        "load": first.get("load", "{}"),
        "columns_missing": json.dumps(
            _tally(json.loads(attrs["columns_missing"]) for attrs in of_runs)
        ),
    }


def _tally(missing: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the number of runs that lack a column of messages, per column and reason."""
    tally: dict[tuple[str, str], int] = {}
    for columns in missing:
        for column, reason in columns.items():
            tally[column, reason] = tally.get((column, reason), 0) + 1
    return [
        {"column": column, "reason": reason, "runs": runs}
        for (column, reason), runs in tally.items()
    ]
