"""Tests of opening the messages of all runs of a study as one dataset."""

import threading

import dask
import numpy as np
import pytest
import synthetic
from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

import sipsched
from sipsched import lab
from sipsched.errors import ComputedFileError, StableError
from sipsched.records import histogram
from sipsched.records.messages import k_rcv, nanoseconds, open_messages, write_messages

PLANNED = synthetic.GRID


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "PROJECT_ROOT", tmp_path)
    synthetic.write_study(
        tmp_path,
        PLANNED,
        lambda run: (
            None
            if run == PLANNED[-1]
            else {
                "calls": 100 * run.rep + run.cps // 10,
                "valid": run != PLANNED[1],
                "mode": 3 if run == PLANNED[2] else 2,
                "wait": run.cps / 500,
            }
        ),
    )
    return tmp_path


def read(project, run):
    return open_messages(project / "results" / "runs" / run.path / "messages.nc")


def test_files_are_not_read_while_xarray_reads_one(project):
    ds = sipsched.open_messages("load_sweep", "synthetic")
    reader = threading.Thread(target=ds["t_sip"].load, daemon=True)
    with NETCDF4_PYTHON_LOCK:
        reader.start()
        reader.join(0.5)
        assert reader.is_alive()
    reader.join(30)
    assert not reader.is_alive()


def test_the_dataset_holds_the_messages_of_valid_runs(project):
    ds = sipsched.open_messages("load_sweep", "synthetic")
    counted = [run for run in PLANNED[:-1] if run != PLANNED[1]]
    assert ds.sizes["runs"] == len(counted)
    assert all(dask.is_dask_collection(variable.data) for variable in ds.data_vars.values())
    assert ds["k_rcv"].chunks == (tuple(ds["messages"].to_numpy().tolist()),)
    loaded = ds.load()
    for place in range(len(counted)):
        run = synthetic.Run(
            **{key: ds[key].to_numpy()[place].item() for key in ("mode", "cps", "rep")}
        )
        assert run in counted
        of_run = loaded.isel(message=loaded["run"].to_numpy() == place)
        written = read(project, run)
        assert np.array_equal(of_run["t_arr"], written["t_arr"])
        waited, served = k_rcv(written), nanoseconds(written, "t_sip")
        np.testing.assert_array_equal(of_run["k_rcv"], waited)
        np.testing.assert_array_equal(of_run["total"], waited + served)
        np.testing.assert_array_equal(of_run["k_copy"], nanoseconds(written, "k_copy"))
        for name in ("message_type", "worker", "cpu", "flags"):
            assert np.array_equal(of_run[name], written[name]), name


@pytest.mark.parametrize("quantity", ["k_rcv", "t_sip", "total"])
def test_quantiles_by_cell_are_those_of_the_messages(project, quantity):
    ds = sipsched.open_messages("load_sweep", "synthetic", mode=["default", "batch"])
    shares = [0.5, 0.99, 0.999]
    by_cell = sipsched.quantiles(ds, quantity, shares, ["mode", "cps"])
    every = sipsched.quantiles(ds, quantity, shares, [])
    loaded = ds.load()
    for mode in ("default", "batch"):
        for cps in (500, 1000):
            alike = ((ds["mode"] == mode) & (ds["cps"] == cps)).to_numpy()
            times = loaded[quantity].to_numpy()[alike[loaded["run"].to_numpy()]]
            exact = np.quantile(times, shares, method="inverted_cdf") / 1000
            result = by_cell.sel(mode=mode, cps=cps)
            np.testing.assert_allclose(result, exact, rtol=histogram.RELATIVE_ERROR)
    exact = np.quantile(loaded[quantity], shares, method="inverted_cdf") / 1000
    np.testing.assert_allclose(every, exact, rtol=histogram.RELATIVE_ERROR)


def test_a_missing_study_run_or_file_is_reported(project):
    with pytest.raises(StableError, match="speed: unknown key; the keys of runs are sut, mode"):
        sipsched.open_messages("load_sweep", "synthetic", speed=1)
    with pytest.raises(StableError, match=r"no valid run .* the settings \{'cps': 7\}"):
        sipsched.open_messages("load_sweep", "synthetic", cps=7)
    with pytest.raises(StableError, match="no such file; make reports"):
        sipsched.open_messages("other", "synthetic")
    path = project / "results" / "runs" / PLANNED[0].path / "messages.nc"
    path.unlink()
    with pytest.raises(StableError, match=r"messages\.nc: no such file, and 1 of 6 are missing"):
        sipsched.open_messages("load_sweep", "synthetic")


def test_a_file_that_is_damaged_or_of_another_run_is_named(project):
    ds = sipsched.open_messages("load_sweep", "synthetic", mode="batch")
    path = project / "results" / "runs" / PLANNED[4].path / "messages.nc"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ComputedFileError, match=r"not a netCDF-4 file: .*delete it"):
        ds["k_rcv"].mean().compute()
    path.unlink()
    write_messages(read(project, PLANNED[2]), path)
    with pytest.raises(ComputedFileError, match="messages as the study's summary says, found 1200"):
        ds["k_rcv"].mean().compute()
