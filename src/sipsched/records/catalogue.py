"""The runs under a folder of records: chosen by their tuple, and what came of them as xarray."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import netCDF4
import numpy as np
import xarray as xr

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT, RUN_FILE
from sipsched.plan.config import RUN_PATTERN, Run
from sipsched.records import reduced, summary
from sipsched.records.messages import (
    PROBE_OFF,
    messages_from_record,
    with_arrivals,
    write_messages,
)
from sipsched.records.pooled import SUMS, open_runs, quantiles
from sipsched.records.record import TRACE_FILE
from sipsched.records.run_document import RunDocument, read_run
from sipsched.records.windows import windows_from_record
from sipsched.versions import MESSAGES_VERSION

MESSAGES_FILE = "messages.nc"
KEYS = tuple(field.name for field in fields(Run))


@dataclass(frozen=True)
class Catalogue:
    """Recorded runs of one testbed.

    Attributes
    ----------
    records
        The folder that `raw/` is in the workflow.
    results
        Where what is computed from the records is kept; a file that is missing there is made.
    runs
        The tuples, in their order; at least one where it was opened or selected.
    """

    records: Path
    results: Path
    runs: tuple[Run, ...]

    def __len__(self) -> int:
        """Count the runs."""
        return len(self.runs)

    def __iter__(self) -> Iterator[Self]:
        """Give each run by itself, as a selection of one."""
        return (replace(self, runs=(run,)) for run in self.runs)

    def sel(self, **chosen: Any) -> Self:
        """Choose runs.

        Parameters
        ----------
        chosen
            `sut`, `mode`, `cores`, `threads`, `cps`, `rep`: a value, or a list of them.

        Raises
        ------
        StableError
            A key that runs do not have, or no run is like that; the message says what there is.
        """
        for key in chosen:
            if key not in KEYS:
                raise StableError(f"{key}: runs have no such key; there are {', '.join(KEYS)}")
        left = self.runs
        for key, value in chosen.items():
            wanted = set(value) if isinstance(value, (list, tuple, set)) else {value}
            found = tuple(run for run in left if getattr(run, key) in wanted)
            if not found:
                there = dict.fromkeys(str(getattr(run, key)) for run in left)
                raise StableError(
                    f"no run with {key} {' or '.join(map(str, wanted))} among these {len(left)}; "
                    f"there is {', '.join(there)}"
                )
            left = found
        return replace(self, runs=left)

    @property
    def one(self) -> Run:
        """The only run.

        Raises
        ------
        StableError
            There are several: choose one.
        """
        if len(self.runs) != 1:
            told = "; ".join(
                f"{key} {', '.join(map(str, self.values(key)))}" for key in self.varied
            )
            raise StableError(f"{len(self.runs)} runs where one is needed: choose with sel: {told}")
        return self.runs[0]

    @property
    def varied(self) -> list[str]:
        """List the keys that the runs differ in."""
        return [key for key in KEYS if len(self.values(key)) > 1]

    def values(self, key: str) -> list[Any]:
        """List what the runs have of a key, ascending."""
        return sorted({getattr(run, key) for run in self.runs})

    def document(self, run: Run) -> RunDocument:
        """Read the `run.json` of a run."""
        return read_run(self.records / run.path)

    def has_messages(self, run: Run) -> bool:
        """Tell whether the single messages of a run are kept."""
        return (self.records / run.path / TRACE_FILE).is_file()

    def messages_file(self, run: Run) -> Path:
        """Give the run's `messages.nc`; make it, as the workflow does, where it is missing or old.

        Raises
        ------
        StableError
            The single messages of this run were never recorded, or are not kept.
        """
        if not self.has_messages(run):
            raise self.without_messages(run)
        return self._made(run)

    def without_messages(self, run: Run) -> StableError:
        """Make the error that says why a run has no single messages, and what has."""
        off = self.document(run).probe.mode == "off"
        return StableError(
            f"{run}: no single messages: {PROBE_OFF if off else reduced.REASON}; its numbers are in "
            f"summary(); sipsched.open({run.testbed!r}, messages=True) opens runs that have them"
        )

    def _made(self, run: Run) -> Path:
        path = self.results / "runs" / run.path / MESSAGES_FILE
        if not _is_current(path):
            write_messages(messages_from_record(self.records / run.path), path)
        return path

    def messages(self) -> xr.Dataset:
        """Open the single messages of all these runs; nothing is read until it is asked for.

        Returns
        -------
        Dataset
            Dimension `message`: the columns of `messages.nc` (docs/data-format.md), intervals as
            float64 ns with NaN where they are missing, in Dask arrays; and of each message `k_rcv`
            and `total`, which is K_rcv + T_sip. Dimension `drop`: datagrams that the full socket
            queue refused. What all runs have in common of the tuple is a scalar coordinate; what
            differs is one along `message`, and with the prefix `drop_` along `drop`.

        Raises
        ------
        StableError
            The single messages of a run are not kept.
        """
        opened = [self._opened(run, self.varied) for run in self.runs]
        parts = [
            xr.concat(
                [ds.drop_dims(set(ds.dims) - {dimension}) for ds in opened],
                dimension,
                combine_attrs="drop_conflicts",
            )
            for dimension in ("message", "drop")
        ]
        common = {key: self.values(key)[0] for key in KEYS if key not in self.varied}
        return xr.merge(parts, combine_attrs="drop_conflicts").assign_coords(common)

    def _opened(self, run: Run, varied: Sequence[str]) -> xr.Dataset:
        path = self.messages_file(run)
        ds = with_arrivals(xr.open_dataset(path, engine="netcdf4", chunks={}, decode_times=False))
        for name, (parts, text) in SUMS.items():
            if name not in ds:
                ds[name] = sum((ds[part] for part in parts[1:]), ds[parts[0]])
            ds[name].attrs = {"long_name": text, "units": "ns", "definition": text}
        for key in varied:
            dtype = np.array(self.values(key)).dtype
            for dimension, prefix in (("message", ""), ("drop", "drop_")):
                # no Dask array: xarray groups by none
                same = np.full(ds.sizes[dimension], getattr(run, key), dtype)
                ds = ds.assign_coords({f"{prefix}{key}": (dimension, same)})
        return ds

    def quantiles(
        self, quantity: str, shares: Sequence[float], by: Sequence[str] = ()
    ) -> xr.DataArray:
        """Compute quantiles of all messages of runs that are alike, reading each message once.

        Parameters
        ----------
        quantity, shares, by
            See `sipsched.records.pooled.quantiles`, which this is of these runs.

        Raises
        ------
        StableError
            The single messages of a run are not kept.
        """
        paths, sizes = [self.messages_file(run) for run in self.runs], []
        for path in paths:
            with netCDF4.Dataset(path) as file:
                sizes.append(file.dimensions["message"].size)
        return quantiles(open_runs(self.runs, paths, sizes, {}), quantity, shares, by)

    def summary(self) -> xr.Dataset:
        """Put the numbers of these runs side by side.

        Returns
        -------
        Dataset
            What `sipsched.records.summary.combine` gives: dimensions (sut, mode, cores, threads, cps,
            rep), and message_type where it applies; times in µs.
        """
        return summary.combine([self._summary_file(run) for run in self.runs], self.runs)

    def _summary_file(self, run: Run) -> Path:
        path = self.results / "runs" / run.path / reduced.SUMMARY_FILE
        if not summary.is_current(path):
            summary.write(summary.summarise_run(self._made(run), self.records / run.path), path)
        return path

    def windows(self) -> xr.Dataset:
        """Open the windows of the only run, which compares modes within itself.

        Returns
        -------
        Dataset
            See `sipsched.records.windows.windows_from_record`.
        """
        run = self.one
        return windows_from_record(self._made(run), self.records / run.path)


def find_runs(records: Path, testbed: str) -> Catalogue:
    """Find the finished runs of a testbed under a folder of records.

    Parameters
    ----------
    records
        Such as `raw`. Of what is in the project, results are where the workflow has them:
        `results` for `raw`, `results/recorded/raw` for `recorded/raw`. Of other folders they are in
        `results` beside them.
    testbed
        Its name.
    """
    root = PROJECT_ROOT if records.is_relative_to(PROJECT_ROOT) else records.parent
    inside = records.relative_to(root)
    results = root / "results" if inside == Path("raw") else root / "results" / inside
    pattern = RUN_PATTERN.format(testbed=testbed, **dict.fromkeys(KEYS[1:], "*"))
    found = []
    for document in records.glob(f"{pattern}/{RUN_FILE}"):
        place = document.parent.relative_to(records)
        # an attempt that does not count is rep~1.failed-1
        if place.name.partition("~")[2].isdigit():
            _, sut, mode, *numbers = place.parts
            cores, threads, cps, rep = (int(part.partition("~")[2]) for part in numbers)
            found.append(Run(testbed, sut, mode, cores, threads, cps, rep))
    return Catalogue(records, results, tuple(sorted(found)))


def _is_current(path: Path) -> bool:
    """Tell whether a `messages.nc` is there, in the version of this program."""
    try:
        with netCDF4.Dataset(path) as file:
            return bool(file.getncattr("format_version") == MESSAGES_VERSION)
    except (OSError, AttributeError):
        return False
