"""Files that are computed from records: their format, version and record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from sipsched.errors import ComputedFileError, StableError
from sipsched.records.reduced import identity


def open_netcdf(
    path: Path, name: str, version: int, remedy: str = "make it with snakemake"
) -> xr.Dataset:
    """Read a netCDF-4 file of one format and version.

    Parameters
    ----------
    name, version
        Required attributes `format` and `format_version`.
    remedy
        Advice for a missing file, for the error's text.

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
    """Refuse a file of another format or version.

    Raises
    ------
    StableError
        The message names the expected and the actual version.
    """
    found = (attrs.get("format"), attrs.get("format_version"))
    if found != (name, version):
        raise StableError(
            f"{path}: expected '{name}' version {version}, found '{found[0]}' version {found[1]}; "
            "delete it and run snakemake"
        )


def check_record(made_of: str, path: Path, record_dir: Path) -> None:
    """Refuse a computed file that was not made from the present record.

    Parameters
    ----------
    made_of
        The SHA-256 of the record from which the file was made.

    Raises
    ------
    ComputedFileError
        The record was replaced or reduced after the file was made.
    """
    if made_of != identity(record_dir):
        raise ComputedFileError(
            f"{path}: made of another record than {record_dir} holds now; delete it and run snakemake",
            path,
        )
