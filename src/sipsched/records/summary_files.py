"""Functions that read and write summaries: `summary.nc.zst` of a run, and `summary.nc` of a study."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import numpy as np
import xarray as xr
import zstandard

from sipsched.errors import MAKE_AGAIN, ComputedFileError, StableError
from sipsched.files import read_zstd, whole
from sipsched.records.computed import check_format, open_netcdf
from sipsched.records.summary_variables import (
    BY_TYPE,
    COUNTED,
    CPU_PARTS,
    HISTOGRAM,
    OF_A_RUN,
    OF_RUN,
    RUN_DIMS,
    TYPES,
    describe,
)
from sipsched.versions import SUMMARY_VERSION

LEVEL = 12
WITHOUT_ACCOUNT = 11
"""Format version of the older summaries in recorded/, which lack the account of CPU time."""


class SummaryPath(NamedTuple):
    """The parts of the path RESULTS/STUDY/TESTBED/summary.nc of a study summary."""

    results: Path
    study: str
    testbed: str


def split_summary_path(path: Path) -> SummaryPath:
    """Split the path of a study summary into the folder of the computed files, the study and the testbed."""
    testbed, study, results, *_ = path.parents
    return SummaryPath(results, study.name, testbed.name)


def write(ds: xr.Dataset, path: Path) -> None:
    """Write a summary in one atomic step. The summary of a run is also packed into few variables, and compressed."""
    with whole(path) as partial:
        if ds.attrs["format"] == OF_A_RUN:
            # Use netCDF-3, because in netCDF-4 even a variable with one number takes 0.7 kB, and 0.17 ms to read.
            content = bytes(_packed(ds).to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
            partial.write_bytes(zstandard.compress(content, LEVEL))
        else:
            shrunk = {HISTOGRAM: {"compression": "zlib", "complevel": 1}}
            ds.to_netcdf(partial, engine="netcdf4", encoding=shrunk)


def _packed(ds: xr.Dataset) -> xr.Dataset:
    """Return a summary with all numbers (except histograms) in two variables, and with all texts in attributes."""
    names: dict[str, list[str]] = {BY_TYPE: [], OF_RUN: []}
    texts = {}
    for name, variable in ds.drop_vars(("message_type", "quantity", HISTOGRAM)).variables.items():
        if variable.dtype.kind == "U":
            texts[str(name)] = str(variable.values)
        else:
            names[BY_TYPE if variable.dims else OF_RUN].append(str(name))
    return xr.Dataset(
        {
            BY_TYPE: (
                ("statistic", "message_type"),
                np.array([ds.variables[n].values for n in names[BY_TYPE]], float),
            ),
            OF_RUN: ("number", np.array([ds.variables[n].values for n in names[OF_RUN]], float)),
            HISTOGRAM: ds.variables[HISTOGRAM].astype(np.int32),
        },
        attrs=ds.attrs | {"names": json.dumps(names), "texts": json.dumps(texts)},
    )


def _unpacked(
    arrays: Mapping[str, Any], attrs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Undo `_packed`. Return a mapping from the packed names to numbers and texts, and the remaining attributes."""
    rest = dict(attrs)
    names, texts = json.loads(rest.pop("names")), json.loads(rest.pop("texts"))
    values = dict(texts)
    for group in (BY_TYPE, OF_RUN):
        values |= dict(zip(names[group], arrays[group], strict=True))
    for name in RUN_DIMS:
        if name not in texts:
            values[name] = int(values[name])
    values[HISTOGRAM] = arrays[HISTOGRAM]
    return values, rest


def read_run_summary(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the summary of a run with netCDF4 instead of xarray, which would take 10 ms per file."""
    try:
        content = read_zstd(path, "summary", MAKE_AGAIN)
        with netCDF4.Dataset(path, memory=content) as file:
            file.set_auto_mask(False)
            attrs = {name: file.getncattr(name) for name in file.ncattrs()}
            values = {name: variable[...] for name, variable in file.variables.items()}
        if attrs.get("format_version") == WITHOUT_ACCOUNT:
            attrs["format_version"] = SUMMARY_VERSION
        check_format(attrs, path, OF_A_RUN, SUMMARY_VERSION)
    except OSError as error:
        raise ComputedFileError(f"{path}: not a netCDF file: {error}; {MAKE_AGAIN}", path) from None
    except StableError as error:
        raise ComputedFileError(str(error), path) from None
    unpacked, rest = _unpacked(values, attrs)
    return dict.fromkeys((*CPU_PARTS, "competitor_wait_s"), np.nan) | unpacked, rest


def open_summary(path: Path) -> xr.Dataset:
    """Read the summary of a study from a file `summary.nc`.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format version.
    """
    remedy = (
        "make reports creates the summaries of the recorded campaign. snakemake measures missing runs; its option "
        "--configfile names a study of config/studies"
    )
    return open_netcdf(path, "sipsched summary", SUMMARY_VERSION, remedy)


def open_run(path: Path) -> xr.Dataset:
    """Read the summary of a run from a file `summary.nc.zst`.

    Raises
    ------
    StableError
        The file is missing, damaged, or has another format version.
    """
    values, attrs = read_run_summary(path)
    run = {name: values.pop(name) for name in RUN_DIMS}
    counts = values.pop(HISTOGRAM).astype(np.int64)
    variables: dict[str, Any] = {
        name: ("message_type", value) if np.ndim(value) else ((), value)
        for name, value in values.items()
    }
    variables[HISTOGRAM] = (("quantity", "bin"), counts)
    axes = {"message_type": list(TYPES), "quantity": list(COUNTED)}
    opened = xr.Dataset(variables, axes | run, attrs)
    return describe(opened.assign(count=opened["count"].astype(np.int64)))


def made_of(path: Path) -> str:
    """Return the SHA-256 of the record from which a run's summary was made; empty for an unreadable summary."""
    try:
        return str(read_run_summary(path)[0]["record"])
    except StableError:
        return ""
