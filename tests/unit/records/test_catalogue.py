"""Tests of finding, selecting and opening the runs in a folder of records."""

import netCDF4
import numpy as np
import pytest
import synthetic

from sipsched.errors import StableError
from sipsched.paths import PROJECT_ROOT
from sipsched.records.catalogue import find_runs
from sipsched.records.messages import k_rcv, open_messages
from sipsched.records.reduced import reduce
from sipsched.records.windows import write_windows

PLANNED = [
    *synthetic.repeated((500, 1000), 2),
    synthetic.Run(mode="enhanced+migration_cost_ns=500000", cps=1000),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    for run in PLANNED:
        synthetic.write_record(folder / "raw", run, drops=3 * run.rep, resent=2)
    failed = synthetic.write_record(folder / "raw", synthetic.Run(cps=1000, rep=9))
    failed.rename(failed.with_name("rep~9.failed-1"))
    synthetic.write_record(folder / "raw", synthetic.Run(testbed="elsewhere"))
    return folder


@pytest.fixture
def runs(folder):
    return find_runs(folder / "raw", "synthetic")


def test_finished_runs_of_the_testbed_are_found(runs, folder):
    assert list(runs.runs) == sorted(PLANNED)
    assert runs.results == folder / "results"
    assert find_runs(PROJECT_ROOT / "raw", "x").results == PROJECT_ROOT / "results"
    inside = find_runs(PROJECT_ROOT / "recorded" / "fit", "local")
    assert inside.results == PROJECT_ROOT / "results" / "recorded" / "fit"


def test_runs_are_selected_by_their_tuple(runs):
    assert runs.sel(mode="default", cps=1000).runs == tuple(synthetic.repeated((1000,), 2))
    assert len(runs.sel(cps=[500, 1000], rep=1)) == 3
    assert [one.one.rep for one in runs.sel(mode="default", cps=500)] == [1, 2]


def test_an_impossible_selection_lists_the_existing_values(runs):
    with pytest.raises(
        StableError, match="no run with cps 700 among these 5 runs; existing values: 500; 1000"
    ):
        runs.sel(mode="default", cps=700)
    with pytest.raises(
        StableError, match="load: unknown key; the keys of runs are testbed, sut, mode"
    ):
        runs.sel(load=500)
    with pytest.raises(
        StableError,
        match=r"2 runs are selected, but this function needs one run\. Select one with sel: rep 1, 2",
    ):
        _ = runs.sel(cps=500).one


def test_messages_equal_those_of_the_file_and_are_read_lazily(runs):
    chosen = runs.sel(mode="default")
    ds = chosen.messages()
    assert all(ds[name].chunks for name in ("t_arr", "k_rcv", "total", "t_sip"))
    assert (str(ds["mode"].values), int(ds["threads"])) == ("default", 8)
    assert set(ds["cps"].dims) == {"message"}
    stored = [open_messages(runs.messages_file(run)) for run in chosen.runs]
    waits = np.concatenate([k_rcv(each) for each in stored])
    np.testing.assert_array_equal(ds["k_rcv"].to_numpy(), waits)
    assert ds["k_rcv"].attrs["units"] == "ns"
    total = (ds["k_rcv"] + ds["t_sip"]).to_numpy()
    np.testing.assert_array_equal(ds["total"].to_numpy(), total)
    means = ds["k_rcv"].groupby(["cps", "rep"]).mean()
    one = k_rcv(open_messages(runs.messages_file(chosen.sel(cps=1000, rep=2).one)))
    assert float(means.sel(cps=1000, rep=2)) == pytest.approx(np.nanmean(one))
    assert ds["drop_t_arr"].groupby("drop_rep").count().to_numpy().tolist() == [6, 12]


def test_a_column_is_missing_only_for_the_run_whose_probe_lacks_it(tmp_path):
    for rep, mode in ((1, 2), (2, 3)):
        synthetic.write_record(tmp_path / "raw", synthetic.Run(rep=rep), mode=mode)
    ds = find_runs(tmp_path / "raw", "synthetic").messages()
    known = ds["k_sockq"].notnull().groupby("rep").any()
    assert known.to_numpy().tolist() == [True, False]
    assert bool(ds["k_rcv"].notnull().all())


@pytest.mark.parametrize(("attribute", "value"), [("format_version", 0), ("record", "other")])
def test_a_file_of_another_version_or_record_is_made_again(runs, attribute, value):
    run = runs.runs[0]
    path = runs.messages_file(run)
    with netCDF4.Dataset(path, "a") as file:
        setattr(file, attribute, value)
    assert open_messages(runs.messages_file(run)).sizes["message"] > 0


def test_the_summary_equals_the_means_of_the_messages(runs):
    summary = runs.sel(mode="default").summary()
    assert summary["pdr"].sizes == {
        "sut": 1,
        "mode": 1,
        "cores": 1,
        "threads": 1,
        "cps": 2,
        "rep": 2,
    }
    ds = runs.sel(mode="default", cps=500, rep=1).messages()
    mean = summary["k_rcv_mean"].sel(cps=500, rep=1, message_type="all").squeeze()
    assert float(mean) == pytest.approx(float(ds["k_rcv"].mean()) / 1000)


def test_a_reduced_record_has_numbers_and_windows_but_no_messages(tmp_path):
    run = synthetic.Run(mode="default,fifo")
    record = synthetic.write_comparison(tmp_path / "raw", run, {"default": 1.0, "fifo": 0.5})
    whole = find_runs(tmp_path / "raw", "synthetic")
    windows, summary = whole.windows(), whole.summary()
    results = whole.results / "runs" / run.path
    write_windows(windows, results / "windows.nc")
    reduce(record, results, tmp_path / "reduced" / run.path)
    reduced = find_runs(tmp_path / "reduced", "synthetic")
    assert not reduced.has_messages(run)
    with pytest.raises(
        StableError, match=r"no per-message times: the trace was left out .* summary\(\)"
    ):
        reduced.messages()
    assert reduced.windows()["k_rcv_mean"].equals(windows["k_rcv_mean"])
    assert reduced.summary()["k_rcv_mean"].equals(summary["k_rcv_mean"])


def test_a_control_run_has_counters_and_no_messages(tmp_path):
    synthetic.write_record(tmp_path / "raw", synthetic.Run(), mode=0)
    result = find_runs(tmp_path / "raw", "synthetic")
    with pytest.raises(StableError, match="no per-message times: the probe was off"):
        result.messages()
    assert float(result.summary()["pdr"].squeeze()) == 0
