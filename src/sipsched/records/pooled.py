"""Functions that open all messages of a study as one dataset of Dask arrays, and compute quantiles of message times."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.array as da
import netCDF4
import numpy as np
import numpy.typing as npt
import xarray as xr
from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

from sipsched.errors import ComputedFileError, StableError
from sipsched.plan.run import Run
from sipsched.records import histogram
from sipsched.records.computed import check_format
from sipsched.records.messages import ARRIVALS, INTERVALS, MISSING, PARTS
from sipsched.records.study_summary import MEASURED
from sipsched.records.summary_variables import ALL, RUN_DIMS
from sipsched.versions import MESSAGES_VERSION

SUMS: Mapping[str, tuple[Sequence[str], str]] = {
    "k_rcv": (PARTS, "from the driver to the proxy: K_stack + K_sockq + K_copy"),
    "total": (("k_rcv", "t_sip"), "wait and service: K_rcv + T_sip of the same message"),
}
"""Columns that a file may lack, because each one is a sum of stored columns: the stored columns, and a description."""
SMALL = {"message_type": "u1", "worker": "u2", "cpu": "u2", "flags": "u2"}


def open_study(summary: xr.Dataset, runs_folder: Path, where: Mapping[str, Any]) -> xr.Dataset:
    """Return all messages of a study on one testbed as Dask arrays. Dask reads the files only when needed.

    Parameters
    ----------
    summary
        Summary of the study, which names the valid runs and their numbers of messages.
    runs_folder
        Folder that contains the runs' `messages.nc`, such as results/runs.
    where
        `sut`, `mode`, `cores`, `threads`, `cps`, `rep`: a value, or a list of values.

    Raises
    ------
    StableError
        No valid run has these values, or a run has no `messages.nc`.
    """
    for key in where:
        if key not in RUN_DIMS:
            raise StableError(f"{key}: unknown key; the keys of runs are {', '.join(RUN_DIMS)}")
    chosen = summary[["status", "count"]].sel(message_type=ALL, drop=True)
    table = chosen.stack(runs=RUN_DIMS).reset_index("runs")
    kept = (table["status"] == MEASURED).to_numpy() & (table["count"] > 0).to_numpy()
    for key, value in where.items():
        wanted = list(value) if isinstance(value, (list, tuple, set)) else [value]
        kept &= np.isin(table[key].to_numpy(), wanted)
    table = table.isel(runs=np.flatnonzero(kept))
    keys = [table[key].to_numpy().tolist() for key in RUN_DIMS]
    runs = [Run(summary.attrs["testbed"], *values) for values in zip(*keys, strict=True)]
    if not runs:
        raise StableError(
            f"no valid run with messages has the settings {dict(where)}; see status in the study's summary"
        )
    paths = [runs_folder / run.path / "messages.nc" for run in runs]
    lost = [path for path in paths if not path.exists()]
    if lost:
        raise StableError(
            f"{lost[0]}: no such file, and {len(lost)} of {len(paths)} are missing; make them with snakemake"
        )
    attrs = {key: summary.attrs[key] for key in ("kind", "fidelity")}
    return open_runs(runs, paths, table["count"].to_numpy().astype(int).tolist(), attrs)


def open_runs(
    runs: Sequence[Run], paths: Sequence[Path], sizes: Sequence[int], attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Return all messages of several runs as one dataset of Dask arrays. Dask reads the files only when needed.

    Parameters
    ----------
    runs, paths, sizes
        Per run: its settings, the path of its `messages.nc`, and its number of messages.

    Returns
    -------
    Dataset
        Dimension `message`, in Dask arrays with one chunk per run: `t_arr` (int64, ns, on the clock of the run's SPS);
        `k_stack`, `k_sockq`, `k_copy`, `t_sip`, `t_sip_off`, `k_snd`, `k_rcv` and `total` = K_rcv + T_sip (float64, ns,
        NaN where missing); `message_type`, `worker`, `cpu`, `flags` as in `messages.nc`; `run` (int32), the index of
        the message's run along dimension `runs`. Dimension `runs`: the settings, and `messages`, the number of messages
        per run.
    """
    rows = [(str(path), n, index) for index, (path, n) in enumerate(zip(paths, sizes, strict=True))]
    files = da.from_array(np.array(rows, object), (1, 3))

    def column(dtype: Any, read: Callable[..., Any], **chosen: Any) -> tuple[str, da.Array]:
        values = da.map_blocks(
            read, files, **chosen, drop_axis=1, chunks=(tuple(sizes),), dtype=dtype,
            meta=np.empty(0, dtype),
        )  # fmt: skip
        return "message", values

    described = INTERVALS | {name: text for name, (_, text) in SUMS.items()}
    variables: dict[str, Any] = {
        "t_arr": (*column(np.int64, _read, column="t_arr"), ARRIVALS["t_arr"])
    }
    for name, text in described.items():
        text_attrs = {"long_name": text.split(": ")[-1], "units": "ns", "definition": text}
        variables[name] = (*column(np.float64, _read, column=name), text_attrs)
    variables |= {name: column(kind, _read, column=name) for name, kind in SMALL.items()}
    on_runs = {key: [getattr(run, key) for run in runs] for key in RUN_DIMS} | {"messages": sizes}
    coordinates: dict[str, Any] = {
        key: ("runs", np.array(values)) for key, values in on_runs.items()
    }
    coordinates["run"] = column(np.int32, _place)
    return xr.Dataset(variables, coordinates, {"testbed": runs[0].testbed} | dict(attrs))


def _place(files: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return an array with the index of the run for each message. Each chunk has the messages of one run."""
    _, size, place = files[0]
    return np.full(size, place, np.int32)


def _read(files: npt.NDArray[Any], column: str) -> npt.NDArray[Any]:
    """Read one column of messages from the `messages.nc` of one run.

    The HDF5 library is not thread-safe, so all threads that read files take xarray's lock.
    """
    path, expected = Path(files[0, 0]), files[0, 1]
    try:
        with NETCDF4_PYTHON_LOCK, netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            attrs = {name: file.getncattr(name) for name in ("format", "format_version")}
            check_format(attrs, path, "sipsched messages", MESSAGES_VERSION)
            if column == "t_arr":
                values = file["gap"][:].astype(np.int64).cumsum() + file["gap"].first
            elif column in SMALL:
                values = file[column][:].astype(SMALL[column])
            else:
                values = _nanoseconds(file, column)
    except (OSError, RuntimeError, IndexError, AttributeError) as error:
        problem = f"{path}: not a netCDF-4 file: {error}; delete it and run snakemake"
        raise ComputedFileError(problem, path) from None
    if len(values) != expected:
        raise ComputedFileError(
            f"{path}: expected {expected} messages as the study's summary says, found {len(values)}; "
            "delete it and run snakemake",
            path,
        )
    return np.asarray(values)


def _nanoseconds(file: netCDF4.Dataset, column: str) -> npt.NDArray[np.float64]:
    """Read a column of times in ns, or compute the column as a sum of stored columns; NaN for a missing value."""
    stored = [file[name][:] for name in _stored(file, column)]
    total = np.zeros(len(stored[0]))
    for values in stored:
        total += values
    for values in stored:
        missing = values == MISSING
        if missing.any():
            total[missing] = np.nan
    return total


def _stored(file: netCDF4.Dataset, column: str) -> list[str]:
    """Return the names of the columns in the file that add up to `column`, such as the parts of K_rcv."""
    if column in file.variables or column not in SUMS:
        return [column]
    return [name for part in SUMS[column][0] for name in _stored(file, part)]


def quantiles(
    ds: xr.Dataset, quantity: str, shares: Sequence[float], by: Sequence[str]
) -> xr.DataArray:
    """Return quantiles of message times, over the pooled messages of all runs with equal settings.

    Parameters
    ----------
    ds
        A dataset that `open_study` or `open_runs` returned.
    quantity
        A variable in ns, such as `k_rcv`, `t_sip` or `total`.
    shares
        Shares of the messages, in (0, 1]: 0.999 for the 99.9th percentile.
    by
        Names of settings. Runs with equal values of these settings are pooled. Without a name, all runs are pooled.

    Returns
    -------
    DataArray
        Dimensions `by` and `share`, float64, µs, within `histogram.RELATIVE_ERROR`; NaN for values without a run. The
        current Dask client counts the messages of each run in a separate task.
    """
    values = ds[quantity].data
    counts = da.map_blocks(
        _counted, values, new_axis=1, chunks=((1,) * ds.sizes["runs"], (histogram.BINS,)),
        dtype=np.int64, meta=np.empty((0, 0), np.int64),
    )  # fmt: skip
    axes = {key: np.unique(ds[key].to_numpy()) for key in by}
    shape = tuple(len(axis) for axis in axes.values())
    places = [np.searchsorted(axes[key], ds[key].to_numpy()) for key in by]
    cells = np.ravel_multi_index(places, shape) if by else np.zeros(ds.sizes["runs"], np.intp)
    of_run = xr.DataArray(counts, {"cell": ("runs", cells)}, ("runs", "bin"))
    summed = of_run.groupby("cell").sum().compute()
    table = np.full((int(np.prod(shape)), len(shares)), np.nan)
    for column, share in enumerate(shares):
        of_cell = histogram.quantile_ns(summed.to_numpy(), share) / 1000
        table[summed["cell"].to_numpy(), column] = of_cell
    return xr.DataArray(
        table.reshape(*shape, len(shares)),
        axes | {"share": list(shares)},
        (*by, "share"),
        name=quantity,
        attrs={
            "long_name": f"quantiles of {quantity} over the messages of all runs with equal settings",
            "units": "us",
        },
    )


def _counted(times_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return histogram.count(times_ns)[None]
