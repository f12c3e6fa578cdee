"""Tests of writing files atomically: a file appears complete, or does not appear at all."""

import numpy as np
import pytest
import xarray as xr

from sipsched.errors import StableError
from sipsched.files import whole


def test_a_written_file_replaces_the_old_file(tmp_path):
    path = tmp_path / "new" / "file"
    for text in ("first", "second"):
        with whole(path) as partial:
            partial.write_text(text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole(path) as partial:
        partial.write_text("new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write_text(partial):
    partial.write_text("x" * 100_000)


def write_netcdf(partial):
    xr.Dataset({"x": ("n", np.arange(100_000))}).to_netcdf(partial, engine="netcdf4")


@pytest.mark.parametrize("write", [write_text, write_netcdf])
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(small_disk, write):
    path = small_disk / "file"
    with (
        pytest.raises(StableError, match=f"{path}: cannot write: .*; earlier measurements"),
        whole(path) as partial,
    ):
        write(partial)
    assert list(small_disk.iterdir()) == []
