"""A catalogue of recorded runs. A user selects runs by their settings, and reads their data as xarray datasets."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import netCDF4
import numpy as np
import numpy.typing as npt
import xarray as xr

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT, RUN_FILE
from sipsched.plan.crossover import compared, is_comparison
from sipsched.plan.run import RUN_PATTERN, Run
from sipsched.records import reduced, run_summary, study_summary, summary_files
from sipsched.records.messages import (
    PROBE_OFF,
    messages_from_record,
    open_messages,
    with_arrivals,
    write_messages,
)
from sipsched.records.pooled import SUMS, open_runs, quantiles
from sipsched.records.record import TRACE_FILE
from sipsched.records.run_document import RunDocument, read_run
from sipsched.records.switch_log import read_windows
from sipsched.records.window_time import ModesInForce, in_force
from sipsched.records.windows import windows_from_record
from sipsched.versions import MESSAGES_VERSION

MESSAGES_FILE = "messages.nc"
KEYS = tuple(field.name for field in fields(Run))


def check_key(key: str) -> None:
    """Raise a StableError if a key is not the name of a run's setting. The message lists all keys."""
    if key not in KEYS:
        raise StableError(f"{key}: unknown key; the keys of runs are {', '.join(KEYS)}")


@dataclass(frozen=True)
class Catalogue:
    """A set of recorded runs of one testbed.

    Attributes
    ----------
    results
        Folder of the files that are computed from the records. A missing file is computed at its first use.
    runs
        The identities of the runs, sorted. A catalogue is never empty, because an empty selection is an error.
    modes
        The modes that the user selected in runs that compare modes; empty if no mode was selected.
    """

    records: Path
    results: Path
    runs: tuple[Run, ...]
    modes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.runs)

    def __iter__(self) -> Iterator[Self]:
        """Yield one catalogue per run. Each catalogue contains only one run."""
        return (replace(self, runs=(run,)) for run in self.runs)

    def sel(self, **chosen: Any) -> Self:
        """Return a catalogue of the runs with the given values of settings, such as `mode` and `cps`.

        Parameters
        ----------
        chosen
            `sut`, `mode`, `cores`, `threads`, `cps`, `rep`: a value, or a list of values. If the mode was measured only
            in runs that compare modes, the selection contains the windows of the mode in these runs.

        Raises
        ------
        StableError
            A key is unknown, or no run has the value. The message lists the existing values.
        """
        left, modes = self.runs, self.modes
        # Select by mode last, among the runs that have all other wanted values. If none of these runs has the wanted
        # mode as its only mode, select the windows of this mode in runs that compare modes.
        for key in sorted(chosen, key="mode".__eq__):
            check_key(key)
            value = chosen[key]
            wanted = list(value) if isinstance(value, (list, tuple, set)) else [value]
            kept = tuple(run for run in left if getattr(run, key) in wanted)
            if key == "mode":
                windows = set(wanted) - {run.mode for run in kept}
                kept = tuple(
                    run for run in left if run in kept or not windows.isdisjoint(self.modes_of(run))
                )
                modes = tuple(wanted) if not any(map(is_comparison, wanted)) else modes
            if not kept:
                known = {getattr(run, key) for run in left}
                known |= {mode for run in left if key == "mode" for mode in self.modes_of(run)}
                raise StableError(
                    f"no run with {key} {' or '.join(map(str, wanted))} among these {len(left)} runs; existing "
                    f"values: {'; '.join(map(str, sorted(known)))}"
                )
            left = kept
        return replace(self, runs=left, modes=modes)

    def modes_of(self, run: Run) -> tuple[str, ...]:
        """Return the names of a run's modes that are part of this selection, with the reference mode first."""
        return tuple(mode for mode in compared(run.mode) if not self.modes or mode in self.modes)

    @property
    def one(self) -> Run:
        """Return the only selected run. Raise an error if several runs are selected.

        Raises
        ------
        StableError
            The selection contains several runs.
        """
        if len(self.runs) != 1:
            raise self.several()
        return self.runs[0]

    def several(self) -> StableError:
        """Return (do not raise) the error for a function that needs one run although several runs are selected.

        The error lists the settings in which the runs differ.
        """
        values = "; ".join(f"{key} {', '.join(map(str, self.values(key)))}" for key in self.varied)
        return StableError(
            f"{len(self.runs)} runs are selected, but this function needs one run. Select one with sel: {values}"
        )

    @property
    def varied(self) -> list[str]:
        """Return the names of the settings (such as `mode` or `cps`) in which the selected runs differ."""
        return [key for key in KEYS if len(self.values(key)) > 1]

    def values(self, key: str) -> list[Any]:
        """Return the distinct values of a setting in the selected runs, in ascending order."""
        return sorted({getattr(run, key) for run in self.runs})

    def document(self, run: Run) -> RunDocument:
        """Read the file `run.json` of a run, which describes the run."""
        return read_run(self.records / run.path)

    def has_messages(self, run: Run) -> bool:
        """Return True if the times of each message of a run are available, and not only a summary of the times."""
        return (self.records / run.path / TRACE_FILE).is_file()

    def messages_file(self, run: Run) -> Path:
        """Return the path of the run's `messages.nc`. Create a missing or outdated file first.

        Raises
        ------
        StableError
            The per-message times of this run were never recorded, or were deleted.
        """
        if not self.has_messages(run):
            raise self.without_messages(run)
        return self._made(run)

    def without_messages(self, run: Run) -> StableError:
        """Return (do not raise) the error for a run without per-message times.

        The error names the reason, and the call that opens runs with per-message times.
        """
        off = self.document(run).probe.mode == "off"
        return StableError(
            f"{run}: the record has no per-message times: {PROBE_OFF if off else reduced.REASON}. summary() has the "
            f"numbers of this run. sipsched.open({run.testbed!r}, messages=True) opens runs with per-message times"
        )

    def _made(self, run: Run) -> Path:
        path = self.results / "runs" / run.path / MESSAGES_FILE
        if not _is_current(path, self.records / run.path):
            write_messages(messages_from_record(self.records / run.path), path)
        return path

    def messages(self) -> xr.Dataset:
        """Return all messages of the selected runs as a dataset of Dask arrays. Dask reads the files only when needed.

        For runs that compare modes, the arrival times are read immediately, because they determine the window of each
        message.

        Returns
        -------
        Dataset
            Dimension `message`: the columns of `messages.nc` (docs/data-format.md), `k_rcv`, and `total` = K_rcv +
            T_sip of the same message. Intervals are float64 ns, NaN where missing. Dimension `drop`: datagrams that the
            full socket queue refused. A setting that is equal in all runs is a scalar coordinate. A setting with
            several values in the selected runs is a coordinate along `message`, and with the prefix `drop_` along
            `drop`. For runs that compare modes, further coordinates follow from the windows (parts of a run in one
            mode): `mode` (the mode in force, empty between windows), `window` and `block` (-1 between windows), and
            `evaluated` (true after the washout of a valid window).

        Raises
        ------
        StableError
            The per-message times of a run are not available.
        """
        comparing = any(is_comparison(run.mode) for run in self.runs)
        along = list(dict.fromkeys([*self.varied, *(["mode"] if comparing else [])]))
        opened = [self._opened(run, along, comparing) for run in self.runs]
        parts = [
            xr.concat(
                [ds.drop_dims(set(ds.dims) - {dimension}) for ds in opened],
                dimension,
                combine_attrs="drop_conflicts",
            )
            for dimension in ("message", "drop")
        ]
        common = {key: self.values(key)[0] for key in KEYS if key not in along}
        return xr.merge(parts, combine_attrs="drop_conflicts").assign_coords(common)

    def _opened(self, run: Run, along: Sequence[str], comparing: bool) -> xr.Dataset:
        path = self.messages_file(run)
        ds = with_arrivals(xr.open_dataset(path, engine="netcdf4", chunks={}, decode_times=False))
        for name, (parts, text) in SUMS.items():
            if name not in ds:
                ds[name] = sum((ds[part] for part in parts[1:]), ds[parts[0]])
            ds[name].attrs = {"long_name": text, "units": "ns", "definition": text}
        for dimension, prefix in (("message", ""), ("drop", "drop_")):
            columns: dict[str, Any] = {key: getattr(run, key) for key in along}
            if comparing:
                columns |= vars(self.in_force(run, ds[f"{prefix}t_arr"].to_numpy()))
            # The column must be a NumPy array, because xarray cannot group by a Dask array.
            coordinates = {
                f"{prefix}{key}": (dimension, np.broadcast_to(values, ds.sizes[dimension]))
                for key, values in columns.items()
            }
            ds = ds.assign_coords(coordinates)
            if self.modes and is_comparison(run.mode):
                ds = ds.isel({dimension: np.isin(columns["mode"], self.modes)})
        return ds

    def in_force(self, run: Run, t_ns: npt.NDArray[np.int64]) -> ModesInForce:
        """Return a run's mode and window at each time in `t_ns`. A run of one mode counts as a single window."""
        if is_comparison(run.mode):
            return in_force(read_windows(self.records / run.path), t_ns)
        first = np.zeros(t_ns.shape, np.int32)
        return ModesInForce(first, first, np.full(t_ns.shape, run.mode), np.ones(t_ns.shape, bool))

    def by_mode(self, run: Run) -> Iterator[tuple[Run, xr.Dataset]]:
        """Yield the messages of each selected mode of a run separately.

        Yields
        ------
        run, messages
            The run, with the mode in its identity, and the evaluated messages of this mode (see `messages`).
        """
        ds = open_messages(self.messages_file(run))
        states = {name: self.in_force(run, ds[name].to_numpy()) for name in ("t_arr", "drop_t_arr")}
        for mode in self.modes_of(run):
            kept = {
                dimension: state.evaluated & (state.mode == mode)
                for dimension, state in zip(("message", "drop"), states.values(), strict=True)
            }
            yield replace(run, mode=mode), ds.isel(kept)

    @property
    def has_only_windows(self) -> bool:
        """True if the selection contains only the windows of some modes instead of whole runs."""
        return bool(self.modes) and any(is_comparison(run.mode) for run in self.runs)

    def _refuse_part(self, of: str) -> None:
        """Raise an error if only some windows of a run are selected, for functions that need whole runs.

        Raises
        ------
        StableError
            The message names the functions that return numbers per mode.
        """
        if self.has_only_windows:
            raise StableError(
                f"{of} needs whole runs, but only windows of mode {', '.join(self.modes)} are selected. Use windows() "
                f"or messages()"
            )

    def quantiles(
        self, quantity: str, shares: Sequence[float], by: Sequence[str] = ()
    ) -> xr.DataArray:
        """Return quantiles of message times, over the pooled messages of all runs with equal settings.

        Parameters
        ----------
        quantity, shares, by
            See `sipsched.records.pooled.quantiles`.

        Raises
        ------
        StableError
            The per-message times of a run are not available.
        """
        self._refuse_part("quantiles()")
        paths, sizes = [self.messages_file(run) for run in self.runs], []
        for path in paths:
            with netCDF4.Dataset(path) as file:
                sizes.append(file.dimensions["message"].size)
        return quantiles(open_runs(self.runs, paths, sizes, {}), quantity, shares, by)

    def summary(self) -> xr.Dataset:
        """Return the counts, means and quantiles of all selected runs in one dataset.

        Returns
        -------
        Dataset
            See `sipsched.records.study_summary.combine`. The dimensions are (sut, mode, cores, threads, cps, rep), for
            some variables also message_type. Times are in µs.
        """
        self._refuse_part("summary()")
        return study_summary.combine([self._summary_file(run) for run in self.runs], self.runs)

    def _summary_file(self, run: Run) -> Path:
        path = self.results / "runs" / run.path / reduced.SUMMARY_FILE
        if summary_files.made_of(path) != reduced.identity(self.records / run.path):
            summary_files.write(
                run_summary.summarise_run(self._made(run), self.records / run.path), path
            )
        return path

    def windows(self) -> xr.Dataset:
        """Return the statistics per window of the only selected run, which must compare modes.

        Returns
        -------
        Dataset
            See `sipsched.records.windows.windows_from_record`. Only windows of the selected modes are included. The
            coordinate `mode_name` along `window` is the name of the window's mode.
        """
        run = self.one
        ds = windows_from_record(self._made(run), self.records / run.path)
        names = np.array(json.loads(ds.attrs["modes"]))[ds["mode"].to_numpy()]
        ds = ds.assign_coords(mode_name=("window", names))
        return ds.isel(window=np.isin(names, self.modes_of(run)))


def find_runs(records: Path, testbed: str) -> Catalogue:
    """Return the finished runs of a testbed that are recorded in a folder.

    Parameters
    ----------
    records
        Folder such as `raw`. In the project, computed files are in the workflow's folders: `results` for `raw`, and
        `results/recorded/raw` for `recorded/raw`. For other folders, computed files are in `results` beside the folder.
    """
    root = PROJECT_ROOT if records.is_relative_to(PROJECT_ROOT) else records.parent
    inside = records.relative_to(root)
    results = root / "results" if inside == Path("raw") else root / "results" / inside
    pattern = RUN_PATTERN.format(testbed=testbed, **dict.fromkeys(KEYS[1:], "*"))
    runs = []
    for document in records.glob(f"{pattern}/{RUN_FILE}"):
        path = document.parent.relative_to(records)
        # Skip folders such as rep~1.failed-1, which contain invalid attempts.
        if path.name.partition("~")[2].isdigit():
            _, sut, mode, *numbers = path.parts
            cores, threads, cps, rep = (int(part.partition("~")[2]) for part in numbers)
            runs.append(Run(testbed, sut, mode, cores, threads, cps, rep))
    return Catalogue(records, results, tuple(sorted(runs)))


def _is_current(path: Path, record: Path) -> bool:
    """Return True if the file `messages.nc` exists, has the current format version, and was made from this record."""
    try:
        with netCDF4.Dataset(path) as file:
            made_of = (file.getncattr("format_version"), file.getncattr("record"))
            return bool(made_of == (MESSAGES_VERSION, reduced.identity(record)))
    except (OSError, AttributeError):
        return False
