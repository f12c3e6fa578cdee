"""Functions that check the format, the version and the source of files that are computed from records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from sipsched.errors import ComputedFileError, StableError
from sipsched.records.reduced import identity


def open_netcdf(
    path: Path, name: str, version: int, remedy: str = "make it with snakemake"
) -> xr.Dataset:
    """Open a netCDF-4 file, and raise an error if the file's format name or version is unexpected.

    Parameters
    ----------
    name, version
        Required attributes `format` and `format_version`.
    remedy
        Advice for the case of a missing file, for the error message.

    Raises
    ------
    StableError
        The file is missing, is not netCDF, or has another format or version.
    """
    try:
        ds = xr.load_dataset(path, engine="netcdf4", decode_times=False)
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; {remedy}") from None
    except (OSError, ValueError) as error:
        raise StableError(f"{path}: not a netCDF-4 file: {error}; delete it") from None
    check_format(ds.attrs, path, name, version)
    return ds


def check_format(attrs: Mapping[str, Any], path: Path, name: str, version: int) -> None:
    """Raise an error if a file's attributes have another format name or version than expected.

    Raises
    ------
    StableError
        The message names the expected and the actual version.
    """
    actual = (attrs.get("format"), attrs.get("format_version"))
    if actual != (name, version):
        raise StableError(
            f"{path}: expected '{name}' version {version}, found '{actual[0]}' version {actual[1]}; "
            "delete it and run snakemake"
        )


def check_record(made_of: str, path: Path, record_dir: Path) -> None:
    """Raise an error if a computed file (such as a summary) was not made from the run's current record.

    Parameters
    ----------
    made_of
        The SHA-256 of the record from which the file was made.

    Raises
    ------
    ComputedFileError
        The record was replaced or reduced after the computed file was made.
    """
    if made_of != identity(record_dir):
        raise ComputedFileError(
            f"{path}: this file was made from another record than the current {record_dir}; delete the file and run "
            f"snakemake",
            path,
        )
